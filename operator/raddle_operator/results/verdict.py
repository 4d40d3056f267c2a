"""How a tuning ended: the verdict, the difference to the plan and its certainty."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final


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
class Figure:
    """`less` and `more` are what a change of it means, with {} for how much. `unit` is "" for a plain number."""

    title: str
    unit: str
    lower_is_better: bool
    less: str
    more: str


# Result's `figure` -> what it is.
FIGURES: Final = {
    "slowest_tenth_ms": Figure(
        title="slowest tenth",
        unit="ms",
        lower_is_better=True,
        less="the slowest tenth of the requests takes {} less time",
        more="the slowest tenth of the requests takes {} more time",
    ),
    "throughput": Figure(
        title="requests/s",
        unit="",
        lower_is_better=False,
        less="{} fewer requests are answered",
        more="{} more requests are answered",
    ),
    "cpu_ms_per_request": Figure(
        title="CPU a request",
        unit="ms",
        lower_is_better=True,
        less="a request takes {} less CPU time",
        more="a request takes {} more CPU time",
    ),
}
