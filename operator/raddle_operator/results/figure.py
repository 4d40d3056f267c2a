"""What a tuning compares, and how people are told of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


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
