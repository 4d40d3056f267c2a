"""`python -m raddle_tuner.trials.runner_load LINK...`: the load on runners, each behind an open socket.

They are workers behind one queue: a request that is due goes to one that is free, in the order in which requests are
due, and its waiting counts (no coordinated omission). A request is one line of a few bytes.
"""

from __future__ import annotations

import contextlib
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from raddle_tuner.trials import arrivals, load
from raddle_tuner.trials.load import LoadError, LoadResult, LoadSpec

# How long a runner may take for what it was asked at the end, beyond the grace.
_DRAIN_S: Final = 30.0
_REQUEST: Final = b"run\n"


class Runners:
    """Runners of one candidate, all of them free between loads."""

    def __init__(self, links: Sequence[socket.socket]) -> None:
        self._links = {link.fileno(): link for link in links}
        self._free = list(self._links)
        self._busy: list[int] = []
        self._longest_s = 0.0

    def offered(self, offer: LoadSpec, begun: Callable[[], None]) -> LoadResult:
        """Offers the load; every runner has answered what it was sent at the end. Raises LoadError."""
        if offer.warm_up_s:
            warm_up = self._offer(None, offer.warm_up_s, load.WARM_UP_GRACE_S)
            self._longest_s = max([self._longest_s, *(one_ms / 1000 for one_ms in warm_up.latencies_ms)])
            time.sleep(load.PAUSE_S)
        begun()
        due = None if offer.rate is None else arrivals.due(offer.rate, offer.seconds, offer.seed, offer.burst)
        return self._offer(due, offer.seconds, load.grace_s(offer, self._longest_s))

    def _offer(self, due: Sequence[float] | None, seconds: float, grace_s: float) -> LoadResult:
        clock = time.perf_counter
        start_s = clock() + 0.02
        end_s = start_s + seconds
        give_up_s = end_s + grace_s
        # When a request was due, and from when it was answered; None for one that is not yet.
        due_s: list[float] = [] if due is None else [start_s + one for one in due]
        answered_s: list[float | None] = [None] * len(due_s)
        asked: dict[int, int] = {}
        sent = 0
        while (now_s := clock()) < give_up_s:
            if due is None:
                while self._free and start_s <= now_s < end_s:
                    due_s.append(clock())
                    answered_s.append(None)
                    asked[self._send()] = sent
                    sent += 1
                done = now_s >= end_s
                wait_s = end_s - now_s if now_s >= start_s else start_s - now_s
            else:
                while self._free and sent < len(due_s) and due_s[sent] <= now_s:
                    asked[self._send()] = sent
                    sent += 1
                done = sent == len(due_s)
                wait_s = due_s[sent] - now_s if self._free and not done else give_up_s - now_s
            if done and not asked:
                break
            for number in self._answers(give_up_s - now_s if done else wait_s):
                answered_s[asked.pop(number)] = clock()
        over_s = clock()
        self._drain(asked)
        return LoadResult(
            latencies_ms=[
                load.rounded_ms((at if at is not None else over_s) - was)
                for was, at in zip(due_s, answered_s, strict=True)
            ],
            missed=answered_s.count(None),
            seconds=max(seconds, max((at or over_s for at in answered_s), default=0.0) - start_s),
        )

    def _send(self) -> int:
        number = self._free.pop(0)
        self._busy.append(number)
        try:
            self._links[number].sendall(_REQUEST)
        except OSError as error:
            raise LoadError(f"the runner has ended: {error.strerror}") from None
        return number

    def _answers(self, wait_s: float) -> list[int]:
        """The runners that answer within this time, free again."""
        # Not poll, whose timeouts are whole milliseconds.
        result, _, _ = select.select(self._busy, [], [], max(0.0, wait_s))
        for number in result:
            try:
                answer = self._links[number].recv(len(_REQUEST))
            except OSError:
                answer = b""
            if not answer:
                raise LoadError("the runner has ended")
            self._busy.remove(number)
            self._free.append(number)
        return result

    def _drain(self, asked: dict[int, int]) -> None:
        end_s = time.perf_counter() + _DRAIN_S
        while asked:
            if (left_s := end_s - time.perf_counter()) <= 0:
                raise LoadError(f"a runner does not answer within {_DRAIN_S:g} s")
            for number in self._answers(left_s):
                del asked[number]


def main() -> None:
    """Serves loads for the runners whose sockets were inherited."""
    links = [socket.socket(fileno=int(number)) for number in sys.argv[1:]]
    with contextlib.ExitStack() as stack:
        for link in links:
            stack.enter_context(link)
        load.serve(Runners(links).offered)


if __name__ == "__main__":
    main()
