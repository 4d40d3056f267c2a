"""The load on a program: what was asked and how long it took, and the process that asks.

It is a process of its own, so that nothing else delays it, and lives as long as the program: one line of JSON on its
standard input is a load to offer, one on its standard output is what was seen.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import IO, Any, Final

from raddle_tuner.trials import ending

# A request that is unanswered so long after the end is missed.
GRACE_S: Final = 2.0
# Or so many times as long as the longest answer took that waited for no other: a model may take seconds.
_GRACE_ANSWERS: Final = 4.0
# The warm-up's requests are waited for until then, to know that.
WARM_UP_GRACE_S: Final = 30.0
# Two CFS periods: what the warm-up burned is refilled.
PAUSE_S: Final = 0.2


class LoadError(Exception):
    """The program under load, or the load itself, broke off; the message says how, in words for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """The load to offer: `rate` requests a second, None: each caller asks when it has its last answer.

    `seed` and `burst` as in `arrivals.due`. Before it there are `warm_up_s` of a closed loop that no figure has. `most`
    is for a server asked without a rate: by as many callers as it takes until no more is answered. What is unanswered
    `grace_s` after the end is missed; it is waited longer for a program that is slow, see `grace_s`.
    """

    rate: float | None
    seconds: float
    seed: int | None = None
    warm_up_s: float = 0.0
    grace_s: float = GRACE_S
    most: bool = False
    burst: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """Latencies from when each request was due, in that order; of one that was missed, the time that it had waited.

    `seconds` last from the start to the end of the offer or to the last answer, whichever is later. `cpu_s` is what
    asking took. `refused` counts, by what was said, the answers that say that the request failed; they are missed too.
    """

    latencies_ms: list[float]
    missed: int
    seconds: float
    cpu_s: float = 0.0
    refused: dict[str, int] = field(default_factory=dict)


class Caller:
    """The process that asks. Raises LoadError where it ends before its time."""

    def __init__(self, module: str, arguments: Sequence[str], *, links: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=links,
            text=True,
            start_new_session=True,  # Ctrl-C is for the program that measures, which ends this one in order
        )
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def offered(self, offer: LoadSpec) -> Iterator[Callable[[], LoadResult]]:
        """Entered when the warm-up is over and the load begins; what it gives waits for the end of it."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asdict(offer)) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._broken() from None
        self._answer()
        yield lambda: LoadResult(**self._answer())

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        with ending.awaited():
            line = self._process.stdout.readline()
        if not line:
            raise self._broken()
        result: dict[str, Any] = json.loads(line)
        if "error" in result:
            raise LoadError(result["error"])
        return result

    def _broken(self) -> LoadError:
        assert self._process.stderr is not None
        self._process.kill()
        lines = self._process.stderr.read().strip().splitlines()
        return LoadError(f"the load generator failed: {lines[-1] if lines else 'no output'}")

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()


def serve(offered: Callable[[LoadSpec, Callable[[], None]], LoadResult], lines: IO[str] = sys.stdin) -> None:
    """The caller's side: for each line the answers, until the input ends.

    `offered(offer, begun)` offers a load, and calls `begun` when the warm-up is over. It may raise LoadError.
    """
    with contextlib.suppress(OSError):
        # Its own wake-ups shall not be counted as latency. Needs root; without it they are.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    _say({})
    for line in lines:
        offer = LoadSpec(**json.loads(line))
        gc.collect()
        gc.disable()
        before_s = time.process_time()
        try:
            seen = asdict(offered(offer, lambda: _say({})))
        except LoadError as error:
            _say({"error": str(error)})
            continue
        gc.enable()
        _say({**seen, "cpu_s": time.process_time() - before_s})


def _say(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


def grace_s(offer: LoadSpec, longest_s: float) -> float:
    """How long after the end an answer is waited for, of a program whose longest one took so long in its warm-ups."""
    return max(offer.grace_s, _GRACE_ANSWERS * longest_s)


def rounded_ms(seconds: float) -> float:
    """To the microsecond, in milliseconds."""
    return round(1000 * seconds, 3)
