"""Folders that are made once, and the programs that fill them."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from unavailable import UnavailableError

CACHE = Path.home() / ".cache" / "raddle"
TIMEOUT_S = 600


@contextlib.contextmanager
def made(folder: Path) -> Iterator[Path | None]:
    """The folder to fill, under a lock; None when it is there already. It counts as there once the body has ended."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "ready").exists():
            yield None
            return
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        yield folder
        (folder / "ready").touch()


def fetch(*command: str | Path, cwd: Path | None = None) -> str:
    """Output of a package manager. Raises UnavailableError where it can't get what it was asked for."""
    tool(str(command[0]))
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(str(error)) from None
    if done.returncode:
        raise UnavailableError(f"{' '.join(map(str, command[:3]))} failed: {(done.stderr or done.stdout)[-300:]}")
    return done.stdout


def tool(command: str) -> str:
    """The command's path. Raises UnavailableError; tools/scripts/packages installs what root may."""
    result = shutil.which(command)
    if result is None:
        raise UnavailableError(f"no {command} here")
    return result
