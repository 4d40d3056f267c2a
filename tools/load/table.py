"""The load table: which cells there are, how they are measured, and what is written of them.

A cell is a runtime, a run time, a limit, a utilisation of the limit, and whether a neighbour is there. In each, stock,
Raddle by default, Raddle that knows the load, and every fixed setting that a user could write are interleaved.
"""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import report
from load import measure, models, neighbour, serving, variants, verdict
from load.compare import Progress, Row, rows
from load.measure import Cell, Variant
from load.store import Store
from load.verdict import FIGURES, GOALS, Comparison
from raddle_operator.local import quota
from raddle_tuner.trials.conditions import QUIET_PERCENT
from unavailable import UnavailableError

RUN_TIMES = (models.SMALL, models.MEDIUM, models.LARGE)
LIMITS = (0.5, 1.0, 1.5, 2.0)
SHARES_PERCENT = (10, 50, 85)
# A p99 with less is the highest that was seen, and is called that.
LEAST_FOR_P99 = 100
_WORDS = {"p50_ms": "p50", "p99_ms": "p99", "cpu_ms_per_request": "CPU a request"}
_SHOWN = (variants.STOCK, variants.RADDLE, variants.WITH_LOAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured: repetitions, half of them in each series, and how long one takes.

    It takes as long as a third of a series needs for `requests`, within `seconds`.
    """

    repetitions: int
    requests: int
    seconds: tuple[float, float]
    attempts: int

    def duration_s(self, rate: float) -> float:
        """The length of one run at this rate."""
        low, high = self.seconds
        return round(min(high, max(low, self.requests / (self.repetitions / 2) / rate)), 1)


# Twenty cells in an hour of two CPUs.
QUICK = Size(repetitions=6, requests=200, seconds=(1.0, 3.5), attempts=2)
FULL = Size(repetitions=10, requests=500, seconds=(2.0, 10.0), attempts=3)

_ORT, _C, _NODE, _TORCH, _OPENMP, _BLAS = (
    "onnxruntime",
    "onnxruntime-c",
    "onnxruntime-node",
    "torch",
    "openmp",
    "blas",
)
_1MS, _2MS, _5MS, _33MS = models.SMALL, models.BELOW_2MS, models.MEDIUM, models.LARGE
_BUSY = True
# The most telling ones: where one thread and more of them differ most, each way.
_QUICK: tuple[tuple[str, models.Model, float, int, bool], ...] = (
    (_ORT, _33MS, 1.0, 50, not _BUSY),
    (_ORT, _33MS, 0.5, 50, not _BUSY),
    (_ORT, _33MS, 1.5, 85, not _BUSY),
    (_ORT, _2MS, 0.5, 85, not _BUSY),
    (_ORT, _1MS, 1.5, 50, not _BUSY),
    (_ORT, _1MS, 1.0, 85, not _BUSY),
    (_ORT, _1MS, 0.5, 10, not _BUSY),
    (_ORT, _1MS, 2.0, 50, not _BUSY),
    (_ORT, _5MS, 1.0, 50, not _BUSY),
    (_ORT, _5MS, 2.0, 85, not _BUSY),
    (_ORT, _1MS, 1.0, 50, _BUSY),
    (_ORT, _5MS, 1.5, 50, _BUSY),
    (_C, _1MS, 2.0, 50, not _BUSY),
    (_NODE, _1MS, 2.0, 50, not _BUSY),
    (_NODE, _5MS, 1.0, 50, not _BUSY),
    (_TORCH, _1MS, 2.0, 50, not _BUSY),
    (_TORCH, _5MS, 1.5, 50, _BUSY),
    (_OPENMP, _1MS, 2.0, 50, _BUSY),
    (_BLAS, _1MS, 1.0, 50, not _BUSY),
    (_BLAS, _1MS, 2.0, 50, not _BUSY),
)


def shapes(size: Size) -> list[Cell]:
    """The cells without their rates. All of them come in a fixed mixed order, so that any part is a sample."""
    chosen = list(_QUICK)
    if size is not QUICK:
        chosen = list(itertools.product(serving.RUNTIMES, RUN_TIMES, LIMITS, SHARES_PERCENT, (False, True)))
        random.Random(0).shuffle(chosen)
    return [
        Cell(
            runtime=runtime,
            model=model.name,
            limit_cpus=limit_cpus,
            requests_per_s=None,
            share_percent=share,
            neighbour=busy,
        )
        for runtime, model, limit_cpus, share, busy in chosen
    ]


def rate_of(share_percent: int, limit_cpus: float, service_s: float) -> float:
    """Requests a second that take this share of the limit with one thread."""
    return float(f"{share_percent / 100 * limit_cpus / service_s:.4g}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured: the rows of each complete cell, service times by runtime and model, and what was left out."""

    cells: list[list[Row]]
    service_s: dict[tuple[str, str], float]
    missing: dict[str, str]
    of: int


def measured(
    wanted: Sequence[Cell],
    size: Size,
    store: Store,
    *,
    competitors: Callable[[Cell, float, Path], list[Variant]] = variants.competitors,
    progress: Progress,
    minutes: float = math.inf,
) -> Measured:
    """These cells, from the store where it has them. Runtimes that this machine has not got are left out.

    No cell is begun after so many `minutes`. Ctrl-C ends it early too, with the cells that are complete; the store
    keeps the rest of the runs for the next time.
    """
    result = Measured(cells=[], service_s={}, missing={}, of=len(wanted))
    shim = variants.deliver(serving.BUILD / "shim")
    end_s = time.monotonic() + minutes * 60
    try:
        for shape in wanted:
            if time.monotonic() > end_s:
                break
            if shape.runtime in result.missing:
                continue
            try:
                service_s = _service_s(store, shape.runtime, shape.model)
            except (UnavailableError, measure.ServerError) as error:
                result.missing[shape.runtime] = str(error).splitlines()[-1]
                continue
            rate = rate_of(shape.share_percent or 0, shape.limit_cpus or 1.0, service_s)
            cell = replace(shape, requests_per_s=rate, duration_s=size.duration_s(rate))
            result.service_s[shape.runtime, shape.model] = service_s
            compared = competitors(cell, service_s, shim)
            result.cells.append(
                rows(cell, compared, repetitions=size.repetitions, progress=progress, measured=store.run)
            )
    except KeyboardInterrupt:
        progress("stopped")
    return result


def require_quota() -> None:
    """Raises quota.UnavailableError where no quota can be had: without one there is no table."""
    if reason := quota.available():
        raise quota.UnavailableError(reason)


def _service_s(store: Store, runtime: str, model: str) -> float:
    return store.service_time_s(model, runtime, lambda: measure.service_time_s(model, runtime))


# --- what is written ------------------------------------------------------------------------------------------------


def markdown(result: Measured, size: Size, *, command: str, results: str) -> str:
    """The section for docs/benchmarks.md: the goals, the cells worse than chance, and a line a cell."""
    return "\n".join(
        [
            "## Containers under load",
            "",
            *_goals(result.cells),
            *_losses(result.cells),
            *_cells(result),
            *_how(result, size, command, results),
        ]
    )


def _goals(cells: Sequence[Sequence[Row]]) -> Iterator[str]:
    lines, notes = [], []
    for goal in GOALS:
        judged = [(goal.missed(cell), goal.untold(cell)) for cell in cells]
        missed = sum(bool(beyond) for beyond, _ in judged)
        kept = sum(not beyond and not untold for beyond, untold in judged)
        wanted = goal.percent * len(cells) / 100
        word = "kept" if kept >= wanted else "missed" if len(cells) - missed < wanted else "chance forbids to say"
        counts = map(str, (kept, missed, len(cells) - kept - missed))
        lines.append([goal.words, f"{goal.percent} %", *counts, word])
        for beyond, untold in judged:
            for one, how in [*((one, "missed") for one in beyond), *((one, "not told") for one in untold)]:
                by = f"{_words(one)}, {one.ratio:.2f} × {one.other}, chance {math.exp(one.chance):.2f}"
                notes.append(f"- {goal.words}: {how} in {_title(one.row.cell)} by {by}")
    yield report.markdown_table(("goal", "in", "cells that keep it", "miss it", "chance forbids to say", ""), lines)
    yield from notes
    yield ""


def _losses(cells: Sequence[Sequence[Row]]) -> Iterator[str]:
    lost = [one for cell in cells for one in verdict.losses(cell)]
    yield f"### Worse than chance: {len({one.row.cell for one in lost})} of {len(cells)} cells\n"
    alarms = [count for cell in cells if (count := verdict.false_alarms(cell)) is not None]
    if alarms:
        yield (
            f"By the same rule the best fixed setting loses to itself, its odd repetitions to its even ones, in"
            f" {sum(alarms)} of {len(alarms) * len(FIGURES)} comparisons.\n"
        )
    if lost:
        yield "Where `load` changes nothing, what is said of Raddle holds with it too.\n"
        lines = [
            [
                _title(one.row.cell),
                one.row.variant,
                _WORDS[one.figure],
                f"{report.short(one.ours)} ms",
                f"{report.short(one.theirs)} ms",
                f"{one.ratio:.2f}",
                f"{math.exp(one.chance):.2f}",
                one.other,
            ]
            for one in lost
        ]
        yield report.markdown_table(("cell", "", "figure", "ours", "theirs", "ratio", "chance", "against"), lines)


def _cells(result: Measured) -> Iterator[str]:
    yield "### Each cell\n"
    yield (
        "p50 / p99 / CPU a request: of the best fixed setting in ms, of the others as ratio to it or to stock, bold"
        " where they are worse than chance; threads of the pools and throttled periods in % for"
        f" {', '.join(_SHOWN)}.\n"
    )
    lines = []
    for cell in result.cells:
        by_name = {row.variant: row for row in cell}
        shown = [by_name[name] for name in _SHOWN]
        lines.append(
            [
                f"{_title(cell[0].cell)}; {report.short(_service_ms(result, cell))} ms",
                _requests(cell),
                _best(cell),
                _ratios(verdict.against_best(cell, variants.STOCK)),
                *(
                    _ratios(against(cell, name))
                    for name in (variants.RADDLE, variants.WITH_LOAD)
                    for against in (verdict.against_best, verdict.against_stock)
                ),
                " / ".join(_threads(row) for row in shown),
                " / ".join(f"{row.median('throttled_percent') or 0:.0f}" for row in shown),
            ]
        )
    headings = (
        "cell; one thread",
        "requests",
        "best fixed setting",
        "stock to it",
        "Raddle to it",
        "Raddle to stock",
        "with load to it",
        "with load to stock",
        "threads",
        "throttled",
    )
    yield report.markdown_table(headings, lines)


def _how(result: Measured, size: Size, command: str, results: str) -> Iterator[str]:
    runs = list(_runs(result.cells))
    retried = sum(one.attempts - 1 for one in runs)
    disturbed = sum(one.disturbed_percent > QUIET_PERCENT for one in runs)
    versions = dict.fromkeys(f"{row.cell.runtime} {row.runs[0].version}" for cell in result.cells for row in cell[:1])
    yield f"`{command}`: {len(result.cells)} of {result.of} cells. {report.machine()}; {', '.join(versions)}.\n"
    yield (
        "One caller, open loop at a fixed rate, latency from the due time. Each run is a process of its own, so that"
        " the luck of one, where its threads come to lie, is not taken for the variant's."
        f" {size.repetitions} repetitions in a shuffled order, the even and the odd ones as two series; a figure is the"
        " median of the runs of a series, and of a variant the geometric mean of both; requests are those of a run, and"
        f" where they are less than {LEAST_FOR_P99} the p99 is the highest of them."
        " Best is the lowest p99 and, of those within 5 %, the lowest p50, chosen in the one series and compared in"
        " the other. Worse than chance is a ratio above what the two series of each of the two lie apart, added up."
        " A goal of never worse is kept, too, by a ratio above 1 that chance explains, unless chance explains more than"
        f" {verdict.TELLING:g}. With `load` the policy states the measured run time and the exact rate, and the"
        " constants of its model were fitted to cells of this table."
        " On quiet CPUs the server has the most CPU weight there is; the neighbour keeps one CPU busy at the weight of"
        f" a pod that requests {neighbour.REQUESTED_CPUS:g} CPU, and beside it the server has that of one that requests"
        f" its limit. {retried} runs were made again because others took more than {QUIET_PERCENT:g} % of the"
        f" machine meanwhile; of the {len(runs)} that count {disturbed} were disturbed all the same."
    )
    yield f"\nEvery run, with each latency, is in {results} of the checkout that measured; `-o json` sums it up."
    for runtime, why in result.missing.items():
        yield f"\nNot measured here: {runtime}: {why}."


def document(result: Measured) -> list[dict[str, Any]]:
    """The table as JSON: for each cell what was offered and the two series' figures of each competitor."""
    return [
        {
            "cell": asdict(cell[0].cell),
            "service_ms": _service_ms(result, cell),
            "requests_a_run": _least_requests(cell),
            "best": [row.variant for row in verdict.best(cell)],
            "competitors": {
                row.variant: {
                    **{name: [verdict.typical(runs, name) for runs in verdict.series(row.runs)] for name in FIGURES},
                    "throttled_percent": row.median("throttled_percent"),
                    "threads": _threads(row),
                    "version": row.runs[0].version,
                }
                for row in cell
            },
        }
        for cell in result.cells
    ]


def _runs(cells: Iterable[Sequence[Row]]) -> Iterator[measure.Run]:
    # Two names may stand for the same runs.
    return itertools.chain.from_iterable({row.runs for cell in cells for row in cell})


def _service_ms(result: Measured, cell: Sequence[Row]) -> float:
    return 1000 * result.service_s[cell[0].cell.runtime, cell[0].cell.model]


def _title(cell: Cell) -> str:
    beside = ", neighbour" if cell.neighbour else ""
    return f"{cell.runtime} {cell.model}, limit {cell.limit_cpus:g}, {cell.share_percent} %{beside}"


def _words(one: Comparison) -> str:
    return f"{_WORDS[one.figure]} {report.short(one.ours)} ms against {report.short(one.theirs)}"


def _least_requests(cell: Sequence[Row]) -> int:
    return min(len(run.latencies_ms) for row in cell for run in row.runs)


def _requests(cell: Sequence[Row]) -> str:
    count = _least_requests(cell)
    return str(count) if count >= LEAST_FOR_P99 else f"{count}, p99 is the highest"


def _best(cell: Sequence[Row]) -> str:
    same = verdict.against_best(cell, variants.RADDLE)
    return f"{same[0].other}: " + " / ".join(report.short(one.theirs) for one in same)


def _ratios(ones: Sequence[Comparison]) -> str:
    return " / ".join(f"**{one.ratio:.2f}**" if one.worse else f"{one.ratio:.2f}" for one in ones)


def _threads(row: Row) -> str:
    return "–".join(map(str, sorted({run.pool_threads for run in row.runs})))
