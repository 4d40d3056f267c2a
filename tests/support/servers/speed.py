"""How fast a row's program is at its own work, stock and with what Raddle gives it, on the same quota in turns."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import report
from support.servers.lab import Running

ROUNDS, SECONDS = 5, 0.7
# The many rows of limits, each in a quarter of a minute.
BRIEF_ROUNDS, BRIEF_SECONDS = 3, 0.5
# Where Raddle is slower after the first rounds there are others, so that this is no chance.
MOST_ROUNDS = 10
# After a round in which a unit took so long there is no other.
SLOW_SECONDS = 4.0
# What is below it, by more than the same side differs from itself, is slower than stock.
LEAST_RATIO = 0.95


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Units of work a second. `ratio` is Raddle's to stock's: the least of the rounds, their median, the greatest.

    `same` is by what part the medians of two halves of one side's values differ, of stock's and of Raddle's.
    """

    stock: float
    raddle: float
    ratio: tuple[float, float, float]
    same: tuple[float, float]

    @property
    def is_slower(self) -> bool:
        """Whether Raddle makes the program slower."""
        return self.ratio[1] * (1 + max(self.same)) < LEAST_RATIO


def compared(stock: Running, raddle: Running, *, brief: bool) -> Speed:
    """Both work in turns, first and last the one, in the middle the other, so that neither has the better moment."""
    taken: dict[str, list[float]] = {"stock": [], "raddle": []}
    ratios = []
    rounds, seconds = (BRIEF_ROUNDS, BRIEF_SECONDS) if brief else (ROUNDS, SECONDS)
    for number in range(MOST_ROUNDS):
        outer, inner = (stock, raddle) if number % 2 else (raddle, stock)
        first, *middle, last = (side.units_per_second(seconds) for side in (outer, inner, inner, outer))
        values = {outer is stock: [first, last], inner is stock: middle}
        taken["stock"] += values[True]
        taken["raddle"] += values[False]
        ratios.append(sum(values[False]) / sum(values[True]))
        result = Speed(
            stock=statistics.median(taken["stock"]),
            raddle=statistics.median(taken["raddle"]),
            ratio=(min(ratios), statistics.median(ratios), max(ratios)),
            same=(_same(taken["stock"]), _same(taken["raddle"])),
        )
        is_slow = min(values[False] + values[True]) < 1 / SLOW_SECONDS
        if is_slow or (number + 1 >= rounds and not result.is_slower):
            break
    return result


def _same(values: list[float]) -> float:
    return report.apart(values) / statistics.median(values)
