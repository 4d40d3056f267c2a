"""What the rows of a cell say about Raddle: losses beyond chance, and whether the budgets are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from load import variants
from load.compare import FIGURES, TWIN, Row, chance

# A closed loop uses all of the quota by its nature: what counts is how much it serves with it.
CLOSED_FIGURES = ("p50_ms", "p99_ms", "served_per_s", "cpu_ms_per_request")
MORE_IS_BETTER = {"served_per_s"}
ONE_LINE_FIXES = (variants.COUNT, variants.NO_SPIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Raddle's median of a figure is worse than another variant's by more than the A/A spread of the cell."""

    row: Row
    other: Row
    figure: str
    aa_spread: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """What Raddle did where stock is throttled in most periods: stock's figure over Raddle's (larger is better)."""

    row: Row
    throttled: float
    cpu: float
    p99: float

    @property
    def kept(self) -> bool:
        """Design's budget: 10 times fewer throttled periods, half the CPU, a third of the p99."""
        return self.throttled >= 10 and self.cpu >= 2 and self.p99 >= 3


def figures(row: Row) -> tuple[str, ...]:
    """The figures that count in this row's cell."""
    return CLOSED_FIGURES if row.cell.rate is None else tuple(FIGURES)


def by_name(rows: Sequence[Row]) -> dict[str, Row]:
    """The rows of one cell by variant, the two series of a variant that was measured twice joined into one."""
    found: dict[str, Row] = {}
    for row in rows:
        name = row.variant.removesuffix(TWIN)
        earlier = found[name].runs if name in found else ()
        found[name] = Row(cell=row.cell, variant=name, runs=earlier + row.runs)
    return found


def aa_spread(rows: Sequence[Row], figure: str) -> float:
    """By how much two series of one variant differ by chance in this cell, in the figure's own unit.

    The larger of stock's and Raddle's: a stock that sits at its limit varies little and would make chance look small.
    """
    found = {row.variant: row for row in rows}
    twins = [(found[name.removesuffix(TWIN)], twin) for name, twin in found.items() if name.endswith(TWIN)]
    return max((chance(one.values(figure), twin.values(figure)) for one, twin in twins), default=0.0)


def losses(rows: Sequence[Row]) -> list[Loss]:
    """Where Raddle loses in this cell, against stock or a one-line fix."""
    found = by_name(rows)
    raddle = found[variants.RADDLE]
    lost = []
    for figure in figures(raddle):
        spread = aa_spread(rows, figure)
        for name in (variants.STOCK, *ONE_LINE_FIXES):
            ours, theirs = raddle.median(figure), found[name].median(figure)
            if ours is None or theirs is None:
                continue
            worse = theirs - ours if figure in MORE_IS_BETTER else ours - theirs
            if worse > spread:
                lost.append(Loss(row=raddle, other=found[name], figure=figure, aa_spread=spread))
    return lost


def cure(rows: Sequence[Row]) -> Cure | None:
    """What Raddle did in this cell; None where stock is not throttled in most periods, and for a closed loop."""
    found = by_name(rows)
    stock, raddle = found[variants.STOCK], found[variants.RADDLE]
    if stock.cell.rate is None or (stock.median("throttled_percent") or 0) <= 50:
        return None
    return Cure(
        row=raddle,
        throttled=_times(stock, raddle, "throttled_percent"),
        cpu=_times(stock, raddle, "cpu_percent"),
        p99=_times(stock, raddle, "p99_ms"),
    )


def _times(stock: Row, raddle: Row, figure: str) -> float:
    theirs, ours = stock.median(figure) or 0.0, raddle.median(figure) or 0.0
    return theirs / ours if ours else float("inf")
