"""How run times fall with threads: Amdahl's law fitted to what was measured, and up to which count it pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from scipy import stats

_CHANCE: Final = 0.05


def told_apart(rounds: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the one is faster than the other by more than chance (Mann and Whitney's test, below 5 %).

    Fewer than four rounds of each can't tell that.
    """
    return bool(stats.mannwhitneyu(rounds, others, method="exact").pvalue < _CHANCE)


def serial_share(times: Mapping[int, float]) -> float | None:
    """The share of the time with one thread that more threads don't shorten, 0 to 1; None for fewer than two counts.

    Amdahl: T(n) = T(1) (s + (1 - s) / n). The least squares of T(n)/T(1) - 1/n = s (1 - 1/n) over the counts.
    """
    one = times.get(1)
    others = {threads: time for threads, time in times.items() if threads > 1}
    if not one or not others:
        return None
    spans = {threads: 1 - 1 / threads for threads in others}
    fitted = sum((time / one - 1 / threads) * spans[threads] for threads, time in others.items())
    return min(1.0, max(0.0, fitted / sum(span * span for span in spans.values())))


def paying_threads(serial: float) -> int | None:
    """The threads of which each is used by half at least; None: any count.

    By Amdahl n threads are used by 1 / (s n + 1 - s), which is 1/2 at n = 1 + 1/s.
    """
    # A share of a tenth of a percent is below what is measured; the division must not end just under a whole number.
    return int(1 + 1 / serial + 1e-9) if serial else None
