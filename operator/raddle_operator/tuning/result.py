"""What a tuning found: who won, by how much, how sure that is, and all that was measured on the way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique

from raddle_operator.tuning.candidate import Candidate
from raddle_operator.tuning.measured import Block
from raddle_operator.tuning.objective import Objective


@unique
class Verdict(StrEnum):
    """How it ended. BETTER: in the figure, or it keeps the bound, which the baseline does not.

    INCONCLUSIVE: the budget ended, or someone did, before the difference was certain.
    """

    BETTER = "Better"
    NO_DIFFERENCE = "NoDifference"
    INCONCLUSIVE = "Inconclusive"
    BOUND_NOT_MET = "BoundNotMet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """All blocks of one candidate; `skipped` says why there are none, "" where there are."""

    candidate: Candidate
    phases: tuple[str, ...]
    blocks: tuple[Block, ...]
    skipped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A difference in percent of the baseline and its 95 % confidence interval. Below zero: less."""

    percent: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTest:
    """MLPerf loadgen's test of p99 <= bound: `over` of `queries` were later, and it takes `needed` to be sure."""

    bound_ms: float
    queries: int
    over: int
    needed: int

    @property
    def holds(self) -> bool:
        """Whether p99 is below the bound with 99 % confidence."""
        return self.queries >= self.needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One tuning on one kind of node.

    `figure` names what was compared: `slowest_tenth_ms` (the mean latency of the slowest tenth of the requests, which
    is known from far fewer of them than p99), `throughput`, `cpu_ms_per_request`. `noise_percent` is how far two equal
    candidates may lie apart in it (A/A). `gain` is the winner against the baseline on fresh blocks, signed so that
    below zero is better in latency and CPU, above in throughput; None where the winner is the baseline. `contributions`
    is what each setting of the winner adds, by path. `front` are the candidates that no other beats in p99, throughput
    and CPU time together. `trials` are all candidates under the objective's load. `remarks` are validity lines for
    people. `capacity` is how many requests a second are served where each follows the last answer; None: not measured.
    """

    objective: Objective
    verdict: Verdict
    figure: str
    baseline: Candidate
    winner: Candidate
    gain: Interval | None
    noise_percent: float
    bound: BoundTest | None
    contributions: tuple[tuple[str, Interval], ...]
    front: tuple[Candidate, ...]
    trials: tuple[Trial, ...]
    remarks: tuple[str, ...]
    capacity: float | None = None
