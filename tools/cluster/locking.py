"""A lock between processes that the kernel releases however its holder ends; who waits is told for whom."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from cluster.progress import Progress

POLL_SECONDS = 0.2


@contextlib.contextmanager
def exclusive(path: Path, what: str, progress: Progress) -> Iterator[None]:
    """Holds the lock file `path`, and says so where it has to wait for it. `what` is being built under it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        if not _try(file):
            file.seek(0)
            progress.say(f"{what} is being built by process {file.read() or '?'}; waiting for it")
            while not _try(file):
                progress.tick(f"waiting for the build of {what}")
                time.sleep(POLL_SECONDS)
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield


def _try(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
