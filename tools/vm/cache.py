"""What is made once and kept outside the checkout: a folder, a lock beside it, and `ready` in it when it is whole."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from cluster.locking import exclusive
from cluster.progress import Progress


def folder() -> Path:
    """`raddle/vm` below $XDG_CACHE_HOME, or below ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "raddle" / "vm"


def made(name: str, what: str, make: Callable[[Path], None], progress: Progress) -> Path:
    """The cached folder of this name, filled by `make` at the first call; `what` it is, for messages.

    A folder that was left half made is made again. Raises what `make` raises.
    """
    home = folder() / name
    if (home / "ready").exists():
        # What was used last is kept longest.
        (home / "ready").touch()
        return home
    with exclusive(folder() / f"{name}.lock", what, progress):
        if not (home / "ready").exists():
            progress.say(f"making {what}")
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            make(home)
            (home / "ready").touch()
    return home


def forget(pattern: str, *, older_than_s: float) -> None:
    """Remove the whole folders whose name fits `pattern` and that nobody has asked for in that time."""
    for ready in folder().glob(f"{pattern}/ready"):
        if time.time() - ready.stat().st_mtime > older_than_s:
            shutil.rmtree(ready.parent, ignore_errors=True)
