"""Waiting for something that a watch is about to show: by key, without polling.

A binding may be reviewed some milliseconds before the watch has shown the pod, and a pod before its new namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from raddle_operator.kube.informer import Key

T = TypeVar("T")


class Waiters(Generic[T]):
    """Wakes those who wait for a key. ``notify`` is an informer's change callback."""

    def __init__(self) -> None:
        self._waiting: dict[Key, list[tuple[Callable[[T], bool], asyncio.Future[T]]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def notify(self, key: Key, _old: T | None, new: T | None) -> None:
        """Tells those who wait for ``key`` that ``new`` is there; None (a deletion) tells them nothing."""
        if new is None or key not in self._waiting:
            return
        for wanted, future in self._waiting[key]:
            if not future.done() and wanted(new):
                future.set_result(new)

    async def next(self, key: Key, wanted: Callable[[T], bool]) -> T:
        """The next value of ``key`` that is ``wanted``. Waits as long as the caller lets it."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiter = (wanted, future)
        waiting = self._waiting.setdefault(key, [])
        waiting.append(waiter)
        try:
            return await future
        finally:
            waiting.remove(waiter)
            if not waiting:
                del self._waiting[key]
