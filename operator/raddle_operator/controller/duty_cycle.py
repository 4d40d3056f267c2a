"""Work that costs more as a cluster grows takes a bounded share of the time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final


class DutyCycle:
    """Measures how long the work takes, and says when it may be done again."""

    def __init__(self, share: float, *, now_s: Callable[[], float] = time.monotonic) -> None:
        """``share``: of the time, above 0, that the work may take at most."""
        self._pause_of_cost: Final = 1 / share - 1
        self._now_s: Final = now_s
        self._next_s = -float("inf")

    def wait_s(self) -> float:
        """The seconds until it may be done again, 0 for now."""
        return max(0.0, self._next_s - self._now_s())

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Measures one time of it."""
        began_s = self._now_s()
        yield
        ended_s = self._now_s()
        self._next_s = ended_s + self._pause_of_cost * (ended_s - began_s)
