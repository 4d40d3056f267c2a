"""Waits for the cluster: what refuses or does not answer is asked again until the time is over."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from typing import Final

from cluster import waiting
from cluster.client import ApiError
from cluster.progress import Progress
from cluster.waiting import T

# An API server or a kubelet that did not answer, or said no, this time.
REFUSALS: Final = (ApiError, OSError, http.client.HTTPException)
POLL_SECONDS = 0.3


def wait(check: Callable[[], T | None], what: str, seconds: float, progress: Progress | None = None) -> T:
    """What `check` returns, once that is true. Raises NotInTimeError after these seconds, with the last refusal."""
    return waiting.wait(check, what, seconds, refusals=REFUSALS, progress=progress, poll_seconds=POLL_SECONDS)
