"""Waits for the cluster: what refuses or does not answer is asked again until the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable

from cluster.progress import Progress
from e2e.errors import REFUSALS, E2EError

POLL_SECONDS = 0.3


def wait(check: Callable[[], bool], what: str, seconds: float, progress: Progress) -> None:
    """Poll until `check` holds. Raises E2EError after these seconds, with what the last poll raised, of REFUSALS."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if check():
                return
            refused = ""
        except REFUSALS as error:
            refused = f": {error}"
        if time.monotonic() > deadline:
            raise E2EError(f"{what}: not so in {seconds:.0f} s{refused}")
        progress.tick(what)
        time.sleep(POLL_SECONDS)
