"""Load from outside the node: requests due at a fixed rate, one after another to each pod that is ready.

A request's time counts from when it was due, so those that wait behind a throttled container are not left out. It
does what a Service does: it spreads connections evenly over the ready pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple

from cluster.background import Background
from load.measure import percentile

REQUEST = b"GET / HTTP/1.0\r\n\r\n"
ANSWER = b" 200 "
GIVE_UP_SECONDS = 10.0
# Its own wake-ups shall not be counted as the server's latency.
NICENESS = -10


class Answer(NamedTuple):
    """A request: when it was due (time.monotonic()), how long it took, `ok` with an answer or without."""

    due: float
    seconds: float
    ok: bool


class Offered(Background):
    """Offers `rate_per_s` from `with` to the end of the block, to the addresses last given to `aim`.

    It ends once the requests that are on their way have been answered or given up.
    """

    def __init__(self, rate_per_s: float) -> None:
        """Describe it; with no address, nothing is due."""
        super().__init__()
        self._rate_per_s = rate_per_s
        self._targets: tuple[tuple[str, int], ...] = ()
        self._aimed = 0.0
        self._answers: list[Answer] = []

    def run(self) -> None:
        """Offer until the end."""
        asyncio.run(self._offer())

    def aim(self, targets: Sequence[tuple[str, int]]) -> None:
        """Send to these addresses and ports from now on."""
        if not self._targets:
            self._aimed = time.monotonic()
        self._targets = tuple(targets)

    def answers(self, since: float = 0.0) -> list[Answer]:
        """Those so far that were due since then (time.monotonic())."""
        return [one for one in tuple(self._answers) if one.due >= since]

    async def _offer(self) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        under_way: set[asyncio.Task[None]] = set()
        number, due = 0, time.monotonic()
        while not self.end.is_set():
            due += 1 / self._rate_per_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            targets = self._targets
            # A loop that is late has moments to catch up with at which there was no address.
            if targets and due >= self._aimed:
                task = asyncio.create_task(self._ask(targets[number % len(targets)], due))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                number += 1
        await asyncio.gather(*under_way)

    async def _ask(self, target: tuple[str, int], due: float) -> None:
        ok = False
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(GIVE_UP_SECONDS):
                reader, writer = await asyncio.open_connection(*target)
                try:
                    writer.write(REQUEST)
                    await writer.drain()
                    ok = ANSWER in (await reader.read()).partition(b"\r\n")[0]
                finally:
                    writer.close()
        self._answers.append(Answer(due, time.monotonic() - due, ok))


def percentile_ms(answers: Sequence[Answer], percent: float) -> float | None:
    """The time in ms that this share of the requests did not exceed (nearest rank), None without requests."""
    times = sorted(one.seconds for one in answers)
    return 1000 * percentile(times, percent) if times else None
