"""Work that goes on beside a test or a check."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self


class Background:
    """Calls `run` in threads of its own, from `with` to the end of the block; `run` returns soon after `end` is set."""

    def __init__(self, threads: int = 1) -> None:
        """Describes it; it begins in `with`."""
        self.end = threading.Event()
        self._threads = [threading.Thread(target=self.run, daemon=True) for _ in range(threads)]

    def run(self) -> None:
        """Works until `end` is set."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End, once all threads have."""
        self.end.set()
        for thread in self._threads:
            thread.join()
