"""The workload's container of a tuning's pod, without a cluster: its supervisor as process 1 of processes of its own.

It has another user than the tuner, and its cgroup where the container's is, as far as this machine lets one be made.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from raddle_operator.local import quota
from raddle_operator.trials import pod

UID = 10123
# This environment's Python may lie where nobody else may look; so the user may read all, and write what is its own.
USER = (
    f"--reuid={UID}",
    f"--regid={UID}",
    "--clear-groups",
    "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)
SHELLS: Mapping[str, Sequence[str]] = {
    "dash": ("sh",),
    "bash": ("sh",),
    "busybox": ("sh", "sleep", "cp"),
}
OWN_PROCESSES = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--mount")
# Its own /opt, so that this machine's stays as it is.
_OPT = "mount -t tmpfs -o mode=755 none /opt && mkdir /opt/raddle && mount --bind {shim} /opt/raddle && "
# Where the group's directories come to lie: of v1, where cpu and cpuacct may be apart, or of v2.
_MOUNTS = {1: ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"), 2: ("/sys/fs/cgroup",)}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """An empty folder as an emptyDir of a pod is: any user may write into it."""
    with tempfile.TemporaryDirectory(prefix="raddle-pod-") as above:
        Path(above).chmod(0o755)
        made = Path(above) / "shared"
        made.mkdir()
        made.chmod(0o777)
        yield made


@contextlib.contextmanager
def container(
    shared: Path,
    *,
    shell: str = "dash",
    cpus: float | None = None,
    own_processes: bool = True,
    variables: Mapping[str, str] | None = None,
    shim: Path | None = None,
    cwd: Path | None = None,
) -> Iterator[psutil.Process]:
    """The container while it runs: its process 1. `shim` is mounted where a container has the shim's files."""
    if os.geteuid() != 0:
        pytest.skip("only root can give processes a namespace and another user")
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    with contextlib.ExitStack() as stack:
        programs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raddle-pod-")))
        programs.chmod(0o755)
        for name in SHELLS[shell]:
            (programs / name).symlink_to(found)
        argv = [str(shutil.which("setpriv")), *USER, "sh", *pod.command(shared)[1:]]
        if own_processes:
            binds = "" if shim is None else _OPT.format(shim=shim)
            enter: list[str] = []
            if quota.available() is None:
                group = stack.enter_context(quota.limited(cpus))
                enter = group.command([])
                where = zip(group.paths, _MOUNTS[group.version], strict=False)
                binds += "".join(f"mount --bind {path} {mount} && " for path, mount in where)
            argv = [*enter, *OWN_PROCESSES, "/bin/sh", "-c", f'{binds}exec "$@"', "sh", *argv]
        path = os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"]))
        started = subprocess.Popen(argv, env={**os.environ, **(variables or {}), "PATH": path}, cwd=cwd)
        stack.callback(started.wait)
        stack.callback(started.kill)
        while own_processes and not psutil.Process(started.pid).children():
            if started.poll() is not None:
                raise RuntimeError(f"no process 1: {started.returncode}")
        yield psutil.Process(started.pid).children()[0] if own_processes else psutil.Process(started.pid)
