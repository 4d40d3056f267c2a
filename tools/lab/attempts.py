"""A guest that does not come to its end is booted again: QEMU's emulated CPUs can hang where the machine is busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from devcluster.progress import Progress
from lab.errors import LabError

ATTEMPTS = 3
Step = TypeVar("Step")


def attempts(name: str, once: Callable[[Path], Iterator[Step]], folder: Path, progress: Progress) -> Iterator[Step]:
    """What `once` yields, called with a new folder below `folder`; again from its start where it raises LabError.

    Each such error is said. Raises the last one where no attempt came to its end.
    """
    for attempt in range(ATTEMPTS):
        work = folder / f"{name}-{attempt}"
        work.mkdir()
        try:
            yield from once(work)
        except LabError as error:
            if attempt == ATTEMPTS - 1:
                raise
            progress.say(f"{name}: {str(error).splitlines()[0]}; booting it again")
        else:
            return
