"""Waits for the cluster: what refuses or does not answer is asked again until the time is over."""

from __future__ import annotations

from collections.abc import Callable

from cluster import waiting
from cluster.progress import Progress
from e2e.errors import REFUSALS

POLL_SECONDS = 0.3


def wait(check: Callable[[], bool], what: str, seconds: float, progress: Progress) -> None:
    """Poll until `check` holds. Raises NotInTimeError after these seconds, with the last refusal."""
    waiting.wait(check, what, seconds, refusals=REFUSALS, progress=progress, poll_seconds=POLL_SECONDS)
