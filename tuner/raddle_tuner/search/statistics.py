"""What blocks say: one figure of each, and how sure a difference between two candidates is.

Figures are compared as natural logarithms, lower is better in each, so that a difference is a part of the figure and
not so many milliseconds. Two blocks that are compared were measured one soon after the other with the same arrivals: a
pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from raddle_operator.results.objective import Kind
from raddle_operator.results.verdict import BoundTest, Interval
from raddle_tuner.search.blocks import Block

FIGURES: Final = {
    Kind.LATENCY: "slowest_tenth_ms",
    Kind.THROUGHPUT: "throughput",
    Kind.COST: "cpu_ms_per_request",
}
# p99 of one block is one or two of its requests. The mean of more of the slowest is known better and ranks alike;
# `python -m tuning figures` compares.
_TAIL: Final = 0.1
# What comes nearest to p99 of what a block knows.
_LAST: Final = 0.02
_CONFIDENCE: Final = 0.99
LATE: Final = 0.01


def slowest_tenth_ms(latencies_ms: Sequence[float]) -> float:
    """The mean of the slowest tenth, of one request at least; there has to be one."""
    return _slowest_ms(latencies_ms, _TAIL)


def _slowest_ms(latencies_ms: Sequence[float], part: float) -> float:
    count = max(1, round(part * len(latencies_ms)))
    return float(np.mean(np.partition(np.asarray(latencies_ms), -count)[-count:]))


def loss(kind: Kind, block: Block) -> float | None:
    """The logarithm of the objective's figure, negated for throughput; None where the block has no such figure."""
    answered = len(block.latencies_ms) - block.missed
    if answered <= 0:
        return None
    if kind is Kind.THROUGHPUT:
        return -math.log(block.throughput)
    if kind is Kind.COST:
        return math.log(1000 * block.cpu_s / answered) if block.cpu_s else None
    tail_ms = slowest_tenth_ms(block.latencies_ms)
    return math.log(tail_ms) if tail_ms > 0 else None


def figures(kind: Kind, block: Block) -> tuple[float, ...]:
    """What the search learns from a block that has a loss: the logarithm of what it aims at, and of what tells of it.

    For latency the mean of the slowest fiftieth, and that of all: most settings change all requests alike, and the mean
    is known much better.
    """
    result = loss(kind, block)
    if kind is not Kind.LATENCY or result is None:
        return (result or 0.0,)
    return math.log(_slowest_ms(block.latencies_ms, _LAST)), math.log(_slowest_ms(block.latencies_ms, 1.0))


def p99_ms(blocks: Sequence[Block]) -> float | None:
    """The 99th percentile of all requests of the blocks; None where there are none."""
    latencies_ms = [latency for block in blocks for latency in block.latencies_ms]
    return float(np.quantile(latencies_ms, 1 - LATE, method="inverted_cdf")) if latencies_ms else None


def cpu_ms_per_request(blocks: Sequence[Block]) -> float | None:
    """CPU time by answered requests; None where a block doesn't know it or nothing was answered."""
    answered = sum(len(block.latencies_ms) - block.missed for block in blocks)
    times_s = [block.cpu_s for block in blocks if block.cpu_s is not None]
    return 1000 * sum(times_s) / answered if answered and len(times_s) == len(blocks) else None


def bound_test(bound_ms: float, blocks: Sequence[Block]) -> BoundTest:
    """Whether p99 <= bound_ms is certain: how many queries it takes where so many were over-latency.

    The binomial tail of mlcommons/inference loadgen/early_stopping.cc at confidence 0.99: if one in a hundred were
    late, so few in `needed` queries would be seen once in a hundred times. A request that was not answered is late.
    """
    over = sum(sum(latency > bound_ms for latency in block.latencies_ms) for block in blocks)
    over = max(over, sum(block.missed for block in blocks))
    # In time before the one that is one too late: the negative binomial distribution's.
    in_time = math.ceil(special.nbdtrik(_CONFIDENCE, over + 1, LATE)) + 1
    queries = sum(len(block.latencies_ms) for block in blocks)
    return BoundTest(bound_ms=bound_ms, queries=queries, over=over, needed=in_time + over)


def surely_above(test: BoundTest) -> bool:
    """Whether p99 is above the bound with 99 % confidence."""
    return bool(special.bdtrc(test.over - 1, test.queries, LATE) < 1 - _CONFIDENCE)


def seems_above(test: BoundTest) -> bool:
    """Whether p99 of these queries is above the bound, however sure that is."""
    return test.over > LATE * test.queries


@dataclass(frozen=True, slots=True)
class Noise:
    """The variance of the differences between pairs of equal candidates (A/A), and how many there were."""

    variance: float
    pairs: int

    @classmethod
    def of(cls, differences: Sequence[float]) -> Noise:
        """The noise in these, whose true mean is 0."""
        return cls(float(np.mean(np.square(differences))), len(differences))

    def percent(self, pairs: int) -> float:
        """How far equal candidates may lie apart after so many pairs, in 95 % of the cases."""
        return 100 * math.expm1(special.stdtrit(self.pairs, 0.975) * math.sqrt(self.variance / pairs))


def interval(kind: Kind, differences: Sequence[float], *, error: float = 0.05) -> Interval:
    """The mean difference in percent of the figure, and its interval, which misses the true one with this error.

    It takes two pairs. Student's t on logarithms: `python -m tuning tests` compares with Wilcoxon's test.
    """
    half = special.stdtrit(len(differences) - 1, 1 - error / 2) * np.std(differences, ddof=1) / len(differences) ** 0.5
    return _interval(kind, float(np.mean(differences)), float(half))


def normal(kind: Kind, mean: float, deviation: float) -> Interval:
    """A difference in percent of the figure that is known as a normal distribution of logarithms, and its interval."""
    return _interval(kind, mean, float(special.ndtri(0.975)) * deviation)


def _interval(kind: Kind, mean: float, half: float) -> Interval:
    sign = -1 if kind is Kind.THROUGHPUT else 1
    low, high = sorted((sign * (mean - half), sign * (mean + half)))
    percent, low, high = (100 * math.expm1(value) for value in (sign * mean, low, high))
    return Interval(percent=percent, low=low, high=high)
