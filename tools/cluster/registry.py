"""Where clusters of this user lie, and the removal of what dead owners left.

Each cluster has a directory below one folder in the temporary directory. Its owner holds a lock on `owner.lock` in it:
the kernel releases that lock however the owner ends, so a lock that can be taken marks a dead cluster. The janitor
normally removes such a directory at once; `sweep` is for what a janitor could not do (it was killed too, or the machine
crashed).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TextIO

from cluster.errors import DevclusterError

LOCK = "owner.lock"
COMPONENTS = frozenset({"etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"})
# A directory gets its final name only once its lock is held, so that nobody sweeps it before.
UNBORN_PREFIX = ".new-"
UNBORN_SECONDS = 3600.0


def clusters_folder() -> Path:
    """The folder of this user's clusters, made readable by this user only."""
    folder = Path(tempfile.gettempdir()) / f"raddle-devcluster-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat(follow_symlinks=False)
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise DevclusterError(f"{folder}: must belong to this user and be closed to others (mode 0700)")
    return folder


def create(name: str) -> tuple[Path, TextIO]:
    """Makes a cluster's directory; returns it and its held lock, which the owner keeps open."""
    folder = clusters_folder()
    unborn = Path(tempfile.mkdtemp(prefix=UNBORN_PREFIX, dir=folder))
    lock = (unborn / LOCK).open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    directory = folder / f"{name}-{unborn.name.removeprefix(UNBORN_PREFIX)}"
    unborn.rename(directory)
    return directory, lock


def sweep() -> list[Path]:
    """Ends the processes of clusters without an owner, removes their directories, and returns these."""
    removed = []
    for directory in _directories():
        if _is_dead(directory):
            _kill_processes_in(directory)
            shutil.rmtree(directory, ignore_errors=True)
            removed.append(directory)
    for unborn in clusters_folder().glob(f"{UNBORN_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - unborn.stat().st_mtime > UNBORN_SECONDS:
                shutil.rmtree(unborn, ignore_errors=True)
    return removed


def _directories() -> list[Path]:
    return sorted(path for path in clusters_folder().iterdir() if not path.name.startswith(".") and path.is_dir())


def _is_dead(directory: Path) -> bool:
    try:
        with (directory / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Being removed just now, by its owner or its janitor.
        return not (directory / LOCK).exists()
    return True


def _kill_processes_in(directory: Path) -> None:
    """Kills the components that run in this directory; a shell that somebody opened there is left alone."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program = (process / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
            if (process / "cwd").readlink() == directory and Path(program).name in COMPONENTS:
                os.kill(int(process.name), signal.SIGKILL)
