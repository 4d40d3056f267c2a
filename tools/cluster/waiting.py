"""Waits for what no event tells: a condition is asked for until it holds or the time is over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from cluster.errors import DevclusterError
from cluster.progress import Progress

T = TypeVar("T")
WAIT_SECONDS = 30.0
POLL_SECONDS = 0.05


class NotInTimeError(DevclusterError):
    """Something did not become so in time; the message says what, and what the last look at it raised."""


def wait(
    check: Callable[[], T | None],
    what: str = "the condition",
    seconds: float = WAIT_SECONDS,
    *,
    refusals: tuple[type[Exception], ...] = (),
    progress: Progress | None = None,
    poll_seconds: float = POLL_SECONDS,
) -> T:
    """What `check` returns, as soon as that is true; what it raises of `refusals` means not yet.

    Raises NotInTimeError after `seconds`. `progress` shows `what` meanwhile.
    """
    deadline = time.monotonic() + seconds
    while True:
        refused = ""
        try:
            if result := check():
                return result
        except refusals as error:
            refused = f": {error}"
        if time.monotonic() > deadline:
            raise NotInTimeError(f"{what}: not so in {seconds:g} s{refused}")
        if progress is not None:
            progress.tick(what)
        time.sleep(poll_seconds)


def settled(check: Callable[[], T], wanted: T, seconds: float = WAIT_SECONDS) -> T:
    """What `check` returns, once that is as wanted; after `seconds`, what it is then."""
    deadline = time.monotonic() + seconds
    while (result := check()) != wanted and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return result
