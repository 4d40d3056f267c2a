"""The workload's container of a tuning's pod, without a cluster: its supervisor, as another user than the tuner."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from cluster import local_container
from raddle import delivery
from raddle_operator.jobs import supervisor

UID = 10123
SHELLS: Mapping[str, Sequence[str]] = {"dash": ("sh",), "bash": ("sh",), "busybox": ("sh", "sleep", "cp")}


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """An empty folder as an emptyDir of a pod is: any user may write into it, and every container has it."""
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
    with tempfile.TemporaryDirectory(prefix="raddle-pod-") as programs:
        Path(programs).chmod(0o755)
        for name in SHELLS[shell]:
            Path(programs, name).symlink_to(found)
        path = os.pathsep.join((programs, str(Path(sys.executable).parent), os.environ["PATH"]))
        mounts = {tempfile.gettempdir(): Path(tempfile.gettempdir())}
        if shim is not None:
            mounts |= {delivery.MOUNT_PATH: shim, delivery.PRELOAD_FILE: shim / delivery.PRELOAD_KEY}
        command = ["env", f"--chdir={cwd or '/'}", "sh", *supervisor.command(str(shared))[1:]]
        environment = {**os.environ, **(variables or {}), "PATH": path}
        with local_container.container(command, environment, user=UID, mounts=mounts) as parent:
            while not (children := psutil.Process(parent.pid).children()):
                if parent.poll() is not None:
                    raise RuntimeError(f"no process 1: {parent.returncode}")
            yield children[0]
