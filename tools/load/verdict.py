"""What the rows of a cell say: a variant against stock, and against the best fixed setting.

A variant's repetitions fall into two series, the even and the odd ones. A figure of a series is the median of its runs'
figures: one run that the host held up says nothing of the variant, and would be the whole p99 of all requests together.
A figure of a variant is the geometric mean of its two series. How far the two lie apart is what chance does to this
variant: its own A/A. A variant is worse than another beyond chance where its figure is higher by more than
both variants' A/A *together*, as ratios: a distance of two series is one draw and often small by luck, and the root of
the squares would call every sixth equal pair different.

The best fixed setting for one series is the one that is best in the *other*: the lowest of several noisy figures would
flatter it, and lose against itself if it were measured again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from load import variants
from load.compare import Row
from load.measure import Run

FIGURES = ("p50_ms", "p99_ms", "cpu_ms_per_request")
# Settings whose p99 are this near are equal in it, and the p50 decides: half of what the goal allows.
TIE = 1.05
# A cell in which equals may lie further apart than the widest of the goals allows tells nothing of "never worse".
TELLING = 1.25
_LEAST = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A variant's figure against another's, in the figure's unit; `chance` is how far equals may lie apart (a log)."""

    row: Row
    other: str
    figure: str
    ours: float
    theirs: float
    chance: float

    @property
    def ratio(self) -> float:
        """Above 1: worse."""
        return self.ours / self.theirs

    def exceeds(self, allowed: float) -> bool:
        """Whether the ratio is above what is allowed by more than chance."""
        return math.log(self.ratio / allowed) > self.chance

    @property
    def worse(self) -> bool:
        """Worse than chance."""
        return self.exceeds(1.0)


def series(runs: Sequence[Run]) -> tuple[Sequence[Run], Sequence[Run]]:
    """The repetitions as two series, interleaved."""
    return runs[::2], runs[1::2]


def typical(runs: Sequence[Run], figure: str) -> float:
    """The median of the runs' figures."""
    values: list[float] = [getattr(run, figure) for run in runs]
    return max(statistics.median(values), _LEAST)


def compared(row: Row, others: tuple[Row, Row], figure: str) -> Comparison:
    """The variant against another; `others` names it for each of the two series."""
    ours = [typical(runs, figure) for runs in series(row.runs)]
    theirs = [typical(series(other.runs)[which], figure) for which, other in enumerate(others)]
    return Comparison(
        row=row,
        other=" / ".join(dict.fromkeys(other.variant for other in others)),
        figure=figure,
        ours=statistics.geometric_mean(ours),
        theirs=statistics.geometric_mean(theirs),
        chance=_apart(row, figure) + statistics.fmean(_apart(other, figure) for other in others),
    )


def _apart(row: Row, figure: str) -> float:
    one, other = (typical(runs, figure) for runs in series(row.runs))
    return abs(math.log(one / other))


def best(rows: Sequence[Row]) -> tuple[Row, Row]:
    """The best fixed setting of a cell for Latency, for each of the two series, chosen in the other one."""
    fixed = [row for row in rows if row.variant not in (variants.STOCK, variants.RADDLE, variants.WITH_LOAD)]
    return _best(fixed, 1), _best(fixed, 0)


def _best(fixed: Sequence[Row], which: int) -> Row:
    p50, p99 = ({row.variant: typical(series(row.runs)[which], name) for row in fixed} for name in FIGURES[:2])
    tied = [row for row in fixed if p99[row.variant] <= TIE * min(p99.values())]
    return min(tied, key=lambda row: p50[row.variant])


def against_best(rows: Sequence[Row], variant: str) -> list[Comparison]:
    """A variant's figures against the best fixed setting."""
    return [compared(_row(rows, variant), best(rows), figure) for figure in FIGURES]


def against_stock(rows: Sequence[Row], variant: str) -> list[Comparison]:
    """A variant's figures against stock."""
    stock = _row(rows, variants.STOCK)
    return [compared(_row(rows, variant), (stock, stock), figure) for figure in FIGURES]


def losses(rows: Sequence[Row]) -> list[Comparison]:
    """Where Raddle, with `load` or without, is worse than chance in this cell; once where `load` changes nothing."""
    result = []
    same = _row(rows, variants.RADDLE).runs == _row(rows, variants.WITH_LOAD).runs
    for variant in (variants.RADDLE, variants.WITH_LOAD)[: 1 if same else 2]:
        result += [one for one in against_best(rows, variant) + against_stock(rows, variant) if one.worse]
    return result


def false_alarms(rows: Sequence[Row]) -> int | None:
    """In how many figures the best fixed setting's odd repetitions lose to its even ones by the same rule.

    None where there are too few repetitions to divide each series again.
    """
    one = best(rows)[0]
    even, odd = (replace(one, runs=tuple(runs)) for runs in series(one.runs))
    if min(len(even.runs), len(odd.runs)) < 2:
        return None
    return sum(compared(odd, (even, even), figure).worse for figure in FIGURES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`allowed` is the highest ratio of each figure, which `variant` keeps in `percent` of the cells."""

    words: str
    variant: str
    stock: bool
    allowed: dict[str, float]
    percent: int = 100

    def missed(self, rows: Sequence[Row]) -> list[Comparison]:
        """The comparisons of a cell that miss the goal beyond chance."""
        return [one for one in self._above(rows) if one.exceeds(self.allowed[one.figure])]

    def untold(self, rows: Sequence[Row]) -> list[Comparison]:
        """Those of which chance forbids to say whether they keep it.

        A ratio of 1 is exceeded by every second of two equals, so there what chance explains keeps it, unless chance
        is so wide that hardly anything could miss it.
        """
        return [
            one
            for one in self._above(rows)
            if not one.exceeds(self.allowed[one.figure])
            and (self.allowed[one.figure] > 1 or math.exp(one.chance) > TELLING)
        ]

    def _above(self, rows: Sequence[Row]) -> Iterator[Comparison]:
        for one in against_stock(rows, self.variant) if self.stock else against_best(rows, self.variant):
            if one.ratio > self.allowed.get(one.figure, math.inf):
                yield one


_NEVER_WORSE = {"p99_ms": 1.0, "cpu_ms_per_request": 1.0}
GOALS = (
    Goal(
        words="by default never worse than stock in p99 or CPU",
        variant=variants.RADDLE,
        stock=True,
        allowed=_NEVER_WORSE,
    ),
    Goal(
        words="with `load` never worse than stock in p99 or CPU",
        variant=variants.WITH_LOAD,
        stock=True,
        allowed=_NEVER_WORSE,
    ),
    Goal(
        words="with `load` p99 within 10 % and p50 within 15 % of the best fixed setting",
        variant=variants.WITH_LOAD,
        stock=False,
        allowed={"p99_ms": 1.10, "p50_ms": 1.15},
        percent=95,
    ),
    Goal(
        words="by default p99 at most 25 % above the best fixed setting",
        variant=variants.RADDLE,
        stock=False,
        allowed={"p99_ms": 1.25},
    ),
)


def _row(rows: Sequence[Row], variant: str) -> Row:
    return next(row for row in rows if row.variant == variant)
