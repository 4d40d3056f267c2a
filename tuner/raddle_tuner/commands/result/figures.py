"""The numbers of a report, each made of the result in one place: for the table, the pictures and the page alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Objective
from raddle_operator.results.verdict import FIGURES
from raddle_tuner.search import statistics
from raddle_tuner.search.blocks import Block
from raddle_tuner.search.document import TuningResult
from raddle_tuner.search.result import Trial
from raddle_tuner.search.space import INSTANCES, THREADS

# A block's `conditions` -> what people read.
_CONDITIONS: Final = {
    "steal_percent": "Steal, % of the machine",
    "others_percent": "Other processes, % of the machine",
    "stalled_percent": "Waiting for a CPU (PSI), % of the time",
    "own_stalled_percent": "The program waiting for a CPU (PSI), % of the time",
    "mhz": "Frequency, MHz",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What blocks of one candidate showed together. `cpu_ms` is of a request; None where something isn't known."""

    p50_ms: float
    p99_ms: float
    slowest_tenth_ms: float
    throughput: float
    cpu_ms: float | None
    throttled_percent: float | None

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Figures | None:
        """None where there are no requests."""
        latencies_ms = [latency for block in blocks for latency in block.latencies_ms]
        if not latencies_ms:
            return None
        periods = sum(block.periods or 0 for block in blocks)
        answered = sum(len(block.latencies_ms) - block.missed for block in blocks)
        return cls(
            p50_ms=float(np.quantile(latencies_ms, 0.5, method="inverted_cdf")),
            p99_ms=statistics.p99_ms(blocks) or 0.0,
            slowest_tenth_ms=statistics.slowest_tenth_ms(latencies_ms),
            throughput=answered / max(1e-9, sum(block.seconds for block in blocks)),
            cpu_ms=statistics.cpu_ms_per_request(blocks),
            throttled_percent=100 * sum(block.throttled_periods or 0 for block in blocks) / periods
            if periods
            else None,
        )

    def named(self, figure: str) -> float | None:
        """The one that a result names."""
        known = {
            "slowest_tenth_ms": self.slowest_tenth_ms,
            "throughput": self.throughput,
            "cpu_ms_per_request": self.cpu_ms,
        }
        return known[figure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A candidate of a report.

    `threads` are those of all its sessions together; None: not known. `figures` are of all its blocks that nothing
    disturbed (of all where each was disturbed), None where it was skipped for the reason `skipped`. `each` is of one
    block each, `latencies_ms` all of them.
    """

    candidate: Candidate
    threads: int | None
    figures: Figures | None
    each: tuple[Figures, ...]
    latencies_ms: tuple[float, ...]
    blocks: int
    disturbed: int
    skipped: str
    is_plan: bool
    is_winner: bool
    on_front: bool


def rows(tuning: TuningResult) -> tuple[Row, ...]:
    """A row for each candidate, the best in the figure that is compared first, those that were skipped last."""
    result = tuning.result
    results = [_row(tuning, trial) for trial in result.trials]
    sign = 1 if FIGURES[result.figure].lower_is_better else -1

    def order(row: Row) -> tuple[bool, bool, float]:
        value = row.figures.named(result.figure) if row.figures else None
        return bool(row.skipped), value is None, sign * (value or 0.0)

    return tuple(sorted(results, key=order))


def _row(tuning: TuningResult, trial: Trial) -> Row:
    result, candidate = tuning.result, trial.candidate
    used = [block for block in trial.blocks if not block.disturbed] or trial.blocks
    each = [Figures.of([block]) for block in used]
    return Row(
        candidate=candidate,
        threads=_threads(candidate, tuning.planned),
        figures=Figures.of(used),
        each=tuple(figures for figures in each if figures),
        latencies_ms=tuple(sorted(latency for block in used for latency in block.latencies_ms)),
        blocks=len(trial.blocks),
        disturbed=sum(1 for block in trial.blocks if block.disturbed),
        skipped=trial.skipped or ("" if trial.blocks else "not measured under this load"),
        is_plan=candidate == result.baseline,
        is_winner=candidate == result.winner,
        on_front=candidate in result.front,
    )


def _threads(candidate: Candidate, planned: Candidate) -> int | None:
    each, instances = candidate.get(THREADS), candidate.get(INSTANCES) or 1
    if each is None:
        each = planned.get(THREADS)
    return each * instances if isinstance(each, int) and isinstance(instances, int) else None


def objective(aim: Objective) -> str:
    """For people: `Latency at 50 requests/s, p99 within 20 ms`."""
    rate = f" at {aim.rate:g} requests/s" if aim.rate is not None else ""
    return f"{aim.kind}{rate}{f', p99 within {aim.p99_ms:g} ms' if aim.p99_ms is not None else ''}"


def validity(tuning: TuningResult) -> Iterator[str]:
    """Yields what a reader has to know to trust it, a line each."""
    result, test = tuning.result, tuning.result.bound
    blocks = [block for trial in result.trials for block in trial.blocks]
    requests = sum(len(block.latencies_ms) for block in blocks)
    missed = sum(block.missed for block in blocks)
    seconds = sum(block.seconds for block in blocks)
    unanswered = f"; {missed} without a response" if missed else ""
    if blocks:
        count = f"{len(blocks)} block{'s' if len(blocks) > 1 else ''}"
        yield f"{requests} requests in {count}, {seconds:.0f} s of load{unanswered}"
    else:
        yield "Nothing was measured under this load"
    if test is not None:
        holds = "certain with 99 % confidence" if test.holds else "not certain"
        yield (
            f"p99 within {test.bound_ms:g} ms is {holds}: {test.over} of {test.queries} queries were over it, "
            f"{test.needed} queries are needed"
        )
    if result.capacity is not None:
        yield (
            f"Capacity: {number(result.capacity)} requests/s if each client sends the next request after the last "
            "response"
        )
    periods = sum(block.periods or 0 for block in blocks)
    if periods:
        throttled = sum(block.throttled_periods or 0 for block in blocks)
        yield f"Throttled in {throttled} of {periods} CFS periods ({100 * throttled / periods:.1f} %)"
    disturbed = sum(1 for block in blocks if block.disturbed)
    if disturbed:
        left_out = "figures exclude them if the candidate has other blocks"
        yield f"Disturbed and not repeated: {disturbed} of {len(blocks)} blocks; {left_out}"
    yield from _conditions(blocks)
    yield from result.remarks


def _conditions(blocks: Sequence[Block]) -> Iterator[str]:
    """Yields what the machine did meanwhile: the median of the blocks, and their range."""
    result: dict[str, list[float]] = {}
    for block in blocks:
        for name, value in block.conditions:
            result.setdefault(name, []).append(value)
    for name, values in result.items():
        low, middle, high = min(values), float(np.median(values)), max(values)
        yield f"{_CONDITIONS.get(name, name)}: {number(middle)} in the median block, {number(low)} to {number(high)}"


def number(value: float | None) -> str:
    """A number with three digits at least, "-" where there is none."""
    if value is None:
        return "-"
    size = abs(value)
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"
