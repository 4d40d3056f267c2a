"""What tests of the door share: the tree of a pod by the door, and programs that run where it is mounted as in one."""

from __future__ import annotations

import atexit
import functools
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from raddle import delivery
from raddle_operator.local import door


@functools.cache
def tree() -> Path:
    """The files of the door for this machine; skips the test where they can't be had."""
    machine = platform.machine()
    if machine not in delivery.architectures():
        pytest.skip(f"no native shim for {machine} is built here")
    folder = Path(tempfile.mkdtemp(prefix="raddle-door-"))
    folder.chmod(0o755)
    delivery.write(str(folder), machine)
    return folder


def prefix(folder: Path | None = None) -> tuple[str, ...]:
    """What to put in front of a command so that it runs behind the door; skips where this machine can't."""
    if not shutil.which("unshare"):
        pytest.skip("no unshare here")
    problem = _problem()
    if problem:
        pytest.skip(f"no mount namespace of its own: {problem}")
    return _entered(folder or tree())


@functools.cache
def _entered(folder: Path) -> tuple[str, ...]:
    """The door's mounts are made once for a tree: a process holds their namespace to the end, and commands enter it.

    What a command writes into /etc and /opt is there for the next one.
    """
    if os.geteuid() != 0 or not shutil.which("nsenter"):
        return door.inside(folder)
    command = (*door.inside(folder), "sh", "-c", "echo; exec cat")
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout
    assert holder.stdout.readline(), "the door's mounts failed"
    # It reads to the end of its input.
    atexit.register(holder.communicate)
    # A directory is left when a mount namespace is entered.
    enter = f'exec nsenter --mount=/proc/{holder.pid}/ns/mnt --wdns="$(pwd -P)" -- "$@"'
    return ("sh", "-c", enter, "sh")


_problem = functools.cache(door.problem)


def closed() -> tuple[str, ...]:
    """What to put in front of a command to compare with: namespaces and a shell as behind the door, nothing mounted."""
    before = door.inside(tree())
    return (*before[: before.index("sh")], "sh", "-c", 'exec "$@"', "sh")
