"""A guest that hangs, or that shows something else than expected, is booted again.

QEMU's emulated CPUs can hang, and threads that are looked at can be late, where the machine is busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from cluster.progress import Progress
from lab.errors import LabError

ATTEMPTS = 3
# What is not as expected twice is not so by chance.
LOOKS = 2
Step = TypeVar("Step")


def attempts(
    name: str,
    once: Callable[[Path], Iterator[Step]],
    wrong: Callable[[Step], str],
    folder: Path,
    progress: Progress,
) -> Iterator[Step]:
    """What `once` yields, called with a new folder below `folder`; its last step is the answer.

    Begun again where it raises LabError, or where `wrong` has something to say of the last step, which is said. Raises
    the last LabError where no attempt came to its end; an answer that is still wrong stays the answer.
    """
    looks = 0
    for attempt in range(ATTEMPTS):
        work = folder / f"{name}-{attempt}"
        work.mkdir()
        reason = ""
        try:
            for step in once(work):
                reason = wrong(step)
                yield step
        except LabError as error:
            if attempt == ATTEMPTS - 1:
                raise
            progress.say(f"{name}: {str(error).splitlines()[0]}; booting it again")
            continue
        looks += 1
        if not reason or looks == LOOKS or attempt == ATTEMPTS - 1:
            return
        progress.say(f"{name}: not as expected, so once more: {reason}")
