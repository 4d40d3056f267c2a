"""A result in words, for tables, statuses and reasons."""

from __future__ import annotations

from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Objective
from raddle_operator.results.verdict import FIGURES, BoundTest, Interval


def signed(interval: Interval) -> str:
    """An interval for tables: `-18.0 % [-23.0, -12.0]`."""
    return f"{interval.percent:+.1f} % [{interval.low:+.1f}, {interval.high:+.1f}]"


def improved_percent(figure: str, gain: Interval | None) -> float:
    """By how much the winner's figure is better, in percent; 0 where that is not certain: it keeps the bound alone."""
    if gain is None:
        return 0.0
    is_certain = gain.high < 0 if FIGURES[figure].lower_is_better else gain.low > 0
    return abs(gain.percent) if is_certain else 0.0


def gained(figure: str, gain: Interval, bound: BoundTest | None) -> str:
    """For what a winner is better than the plan, in a few words: its gain, or the bound where it keeps that alone."""
    if bound is not None and not improved_percent(figure, gain):
        return f"keeps p99 within {bound.bound_ms:g} ms (the plan does not)"
    return f"{FIGURES[figure].title} {signed(gain)}"


def change(figure: str, gain: Interval) -> str:
    """`the slowest tenth of the requests takes 18 % less time (95 % interval: 12 to 23 %)`."""
    known = FIGURES[figure]
    percent, (low, high) = abs(gain.percent), sorted((abs(gain.low), abs(gain.high)))
    said = (known.less if gain.percent < 0 else known.more).format(f"{percent:.1f} %")
    return f"{said} (95 % interval: {low:.1f} to {high:.1f} %)"


def bound_not_met(
    objective: Objective, test: BoundTest | None, winner: Candidate, capacity: float | None, measured: int
) -> str:
    """What came of a bound or a rate that nothing keeps, and what to do; so many candidates were `measured`."""
    if test is None or not test.queries:
        result = "" if capacity is None else f": at most {round(capacity, 1):g} are served"
        asked = f"{objective.rate or 0:g} requests a second"
        return f"{asked} are above the capacity{result}. Lower the rate, or give more CPUs."
    late = f"with {winner.title}, {test.over} of {test.queries} requests took longer"
    if 100 * test.over <= test.queries:
        way = f"and it takes {test.needed} requests to be sure. Set a longer budget."
        return f"Not certain that p99 stays within {test.bound_ms:g} ms: {late}, {way}"
    way = "Lower the rate, raise the bound, or give more CPUs."
    if measured < 2:
        return f"p99 does not stay within {test.bound_ms:g} ms: {late}. No other setting was measured. {way}"
    return f"No setting that was measured keeps p99 within {test.bound_ms:g} ms: {late}. {way}"
