"""A queue of keys, not of events: a key that is waiting is not added twice, and one key is never handled twice at once.

What is handled is the state at that time (level-triggered), so any number of changes costs one run. A key that fails
comes back after a growing pause; a key can be kept from running more often than once in a while. Groups of keys take
turns, so one that has thousands waiting holds up no other.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from typing import Final, Generic, NoReturn, TypeVar

from raddle_operator.kube import KubeError
from raddle_operator.kube.informer import backoffs

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

RETRY_FIRST_S: Final = 0.5
RETRY_MOST_S: Final = 60.0


class KeyedQueue(Generic[K]):
    """Keys to handle. ``add`` from the event loop's thread; ``run`` handles them until cancelled."""

    def __init__(
        self, *, interval_s: Callable[[K], float] = lambda _: 0.0, group: Callable[[K], str] = lambda _: ""
    ) -> None:
        """``interval_s(key)``: the least time between two starts of a key's handling; ``group(key)``: whose it is."""
        self._interval_s = interval_s
        self._group = group
        self._due: dict[K, float] = {}  # when each waiting key may run; the heap may hold older entries of it
        self._heap: list[tuple[float, int, K]] = []
        self._order = itertools.count()
        self._turns: dict[str, deque[K]] = {}  # the keys of each group that are due; the first group is next
        self._running: set[K] = set()
        self._again: dict[K, float] = {}  # keys asked for while they run, and how long to wait after that
        self._started_s: dict[K, float] = {}
        self._failures: dict[K, Iterator[float]] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        """How many keys wait or run."""
        return len(self._due.keys() | self._running)

    def add(self, key: K, *, delay_s: float = 0.0) -> None:
        """Handles ``key`` when its interval and ``delay_s`` allow; earlier requests of it stay as they are."""
        if key in self._running:
            self._again[key] = min(delay_s, self._again.get(key, delay_s))
            return
        earliest_s = time.monotonic() + delay_s
        started_s = self._started_s.get(key)
        if started_s is not None:
            earliest_s = max(earliest_s, started_s + self._interval_s(key))
        due_s = self._due.get(key)
        if due_s is None or earliest_s < due_s:
            self._due[key] = earliest_s
            heapq.heappush(self._heap, (earliest_s, next(self._order), key))
            self._changed.set()

    def forget(self, key: K) -> None:
        """Drops what is remembered about a key that will not come back (its object is gone)."""
        self._failures.pop(key, None)
        self._started_s.pop(key, None)

    async def run(self, handle: Callable[[K], Awaitable[None]], *, workers: int = 1) -> NoReturn:
        """Handles keys until cancelled. A handler that raises is logged, and its key comes back later."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work(handle))
        raise AssertionError("workers never end")

    async def _work(self, handle: Callable[[K], Awaitable[None]]) -> NoReturn:
        while True:
            key = await self._next()
            self._running.add(key)
            self._started_s[key] = time.monotonic()
            try:
                await handle(key)
            except Exception as error:
                retry_s = next(self._failures.setdefault(key, backoffs(RETRY_FIRST_S, RETRY_MOST_S)))
                # What the API server said is enough to know; anything else is a bug.
                log.warning(
                    "%s: %s; retrying in %.1f s", key, error, retry_s, exc_info=not isinstance(error, KubeError)
                )
                self._again[key] = retry_s
            else:
                self._failures.pop(key, None)
            finally:
                self._running.discard(key)
            again_s = self._again.pop(key, None)
            if again_s is not None:
                self.add(key, delay_s=again_s)

    async def _next(self) -> K:
        while True:
            while self._heap and self._heap[0][0] <= time.monotonic():
                due_s, _, key = heapq.heappop(self._heap)
                if self._due.get(key) == due_s:  # else a later entry of a key that was moved forward
                    self._turns.setdefault(self._group(key), deque()).append(key)
            if self._turns:
                group = next(iter(self._turns))
                keys = self._turns.pop(group)
                key = keys.popleft()
                if keys:
                    self._turns[group] = keys  # behind the others
                del self._due[key]
                return key
            wait_s = self._heap[0][0] - time.monotonic() if self._heap else None
            self._changed.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                continue
