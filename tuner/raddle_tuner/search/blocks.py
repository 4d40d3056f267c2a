"""What the search asks for, and what comes back: blocks of a few seconds, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from raddle_operator.results.candidate import Candidate

# The phase that asks how much is served at all, where a server is asked by as many callers as it takes.
CAPACITY: Final = "capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementRequest:
    """A block to be measured: `rate` requests a second arrive by chance (Poisson); None: each follows the last answer.

    The chance is drawn from `seed`: blocks with the same seed, rate and seconds have requests at the same moments, so
    that what the arrivals do to the latencies is the same in both. Without a rate there are as many callers as the
    program has instances; in the phase `capacity` a server has as many as get the most answers. Two of them for
    different candidates never run at the same time. `fresh`: by a program that was started for it, since two
    processes of the same program differ.
    """

    candidate: Candidate
    rate: float | None
    seconds: float
    seed: int
    phase: str
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What a block showed.

    `latencies_ms` are counted from when each request was due, in that order; one without an answer has the time that it
    had waited. `seconds` is how long the block lasted. `cpu_s` is the CPU time of the program; None: not known.
    `periods` and `throttled_periods` are CFS periods, None without a quota. `disturbed` says what of the machine's
    others may have changed it, in words for people; () where nothing did. `conditions` are figures of the machine
    meanwhile, by name, those that can be had there.
    """

    latencies_ms: tuple[float, ...]
    missed: int
    seconds: float
    cpu_s: float | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_s: float | None = None
    disturbed: tuple[str, ...] = ()
    conditions: tuple[tuple[str, float], ...] = ()

    @property
    def throughput(self) -> float:
        """Requests that were answered, a second."""
        return (len(self.latencies_ms) - self.missed) / self.seconds


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a candidate can't be measured, in words for people. It is asked for no more."""

    reason: str
