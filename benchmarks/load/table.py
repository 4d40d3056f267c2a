"""The load table of design §9: which cells there are, how they are measured, and what is written of them.

A cell is a model, a limit, a rate, a number of callers and a host. In each, stock, the two one-line fixes and Raddle
are interleaved, and stock and Raddle are measured a second time to know what chance does.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import report
from load import cgroup, host, measure, models, serving, variants, verdict
from load.compare import Progress, Row, number, rows
from load.measure import Cell
from load.store import Store

FAKED_CORES = 16
_TWICE = (variants.STOCK, variants.RADDLE)
SHARES_PERCENT = (10, 25, 50, 70)
FULL_REPETITIONS, FULL_DURATION_S = 10, 3.0
QUICK_REPETITIONS, QUICK_DURATION_S = 3, 2.0
# Named in the design: 1.5 CPUs, about 30 ms, 20 requests/s, where rounding the limit down ruins the tail.
NAMED = Cell(model=models.LARGE.name, limit_cpus=1.5, rate=20.0, duration_s=QUICK_DURATION_S)


def quick_cells(store: Store) -> list[Cell]:
    """A handful: the disease, the named cell, a whole CPU with four callers, the mix, and the faked host."""
    disease = Cell(model=models.SMALL.name, limit_cpus=0.5, rate=100.0, duration_s=QUICK_DURATION_S)
    return [
        disease,
        NAMED,
        _cell(store, models.SMALL, 1.0, 25, callers=4, duration_s=QUICK_DURATION_S),
        _cell(store, models.MIX, 1.0, 25, callers=1, duration_s=QUICK_DURATION_S),
        Cell(model=disease.model, limit_cpus=0.5, rate=100.0, duration_s=QUICK_DURATION_S, host_cores=FAKED_CORES),
    ]


def full_cells(store: Store) -> list[Cell]:
    """All of the protocol: the named cell, then the others in a fixed mixed order, so that any part is a sample."""
    limits = [0.5, 1.0, 1.5] + [2.0] * ((os.cpu_count() or 1) >= 4)  # 2 of 2 CPUs can't throttle
    named = Cell(model=NAMED.model, limit_cpus=NAMED.limit_cpus, rate=NAMED.rate, duration_s=FULL_DURATION_S)
    found = []
    shares: tuple[int | None, ...] = (*SHARES_PERCENT, None)
    for cores, model, limit, callers, share in itertools.product(
        (None, FAKED_CORES), models.ALL.values(), limits, (1, 4), shares
    ):
        found.append(_cell(store, model, limit, share, callers=callers, duration_s=FULL_DURATION_S, host_cores=cores))
    random.Random(0).shuffle(found)
    return [named, *found]


def measured(
    cells: Iterable[Cell], store: Store, *, repetitions: int, progress: Progress, minutes: float = math.inf
) -> list[list[Row]]:
    """The rows of each cell, from the store where they are there. Faked hosts are left out where none can be had.

    No cell is begun after so many `minutes`. Ctrl-C ends it early too, with the cells that are complete; the store
    keeps the rest of the runs for the next time.
    """
    shim = variants.deliver(serving.BUILD / "shim")
    with tempfile.TemporaryDirectory() as folder:
        unfaked = host.available(Path(folder))
    found = []
    end_s = time.monotonic() + minutes * 60
    for cell in cells:
        if time.monotonic() > end_s:
            break
        if cell.host_cores is not None and unfaked:
            progress(f"{cell.title}: left out: {unfaked}")
            continue
        compared = variants.of_table(cell, shim)
        try:
            found.append(
                rows(cell, compared, repetitions=repetitions, twice=_TWICE, progress=progress, measured=store.run)
            )
        except KeyboardInterrupt:
            progress("stopped")
            break
    return found


def require_quota() -> None:
    """Raises cgroup.UnavailableError where no quota can be had: without one there is no table."""
    if reason := cgroup.available():
        raise cgroup.UnavailableError(reason)


def markdown(table: Sequence[Sequence[Row]], *, of: int, command: str, store: Store) -> str:
    """The section for docs/benchmarks.md: losses first, then the budgets, then every cell.

    `of` is how many cells there are in all, measured or not.
    """
    repetitions, duration_s = len(table[0][0].runs), table[0][0].cell.duration_s
    times = ", ".join(f"{name} {1000 * _service_time_s(store, model):.2f} ms" for name, model in models.ALL.items())
    retried = sum(one.attempts - 1 for cell in table for row in cell for one in row.runs)
    ort = table[0][0].runs[0].version
    faked = f" On the faked host the pool is that of {FAKED_CORES} cores, the CPUs are the real ones."
    protocol = (
        f"{len(table)} of {of} cells. One request on one thread here: {times}. "
        f"Open loop at a fixed rate, latency from the due time, {repetitions} interleaved runs of {duration_s:g} s "
        "a variant; figures are median (range). "
        "The A/A spread is how far the medians of two series of stock, or of Raddle, lie apart by chance. "
        f"The server has the most CPU weight there is; {retried} runs were made again because others took more than "
        f"{measure.QUIET_PERCENT:g} % of the machine meanwhile."
    )
    return "\n".join(
        [
            f"## Containers under load\n\n`{command}`. {report.machine()}; ONNX Runtime {ort}.",
            protocol + faked,
            _losses(table),
            _cures(table),
            "### All cells\n",
            *(_cell_table(cell) for cell in table),
        ]
    )


def _losses(table: Sequence[Sequence[Row]]) -> str:
    lost = [loss for cell in table for loss in verdict.losses(cell)]
    cells = len({loss.row.cell for loss in lost})
    title = f"\n### Cells where Raddle loses: {cells} of {len(table)}\n"
    if not lost:
        return f"{title}\nNone beyond the A/A spread, against stock or either one-line fix.\n"
    lines = [
        [
            loss.row.cell.title,
            loss.other.variant,
            _words(loss.figure),
            number("{:.3g}", loss.row.median(loss.figure) or 0),
            number("{:.3g}", loss.other.median(loss.figure) or 0),
            number("{:.2g}", loss.aa_spread),
            f"{loss.row.median('steal_percent') or 0:.1f}",
        ]
        for loss in lost
    ]
    return f"{title}\n" + report.markdown_table(
        ("cell", "against", "figure", "Raddle", "other", "A/A spread", "steal %"), lines
    )


def _cures(table: Sequence[Sequence[Row]]) -> str:
    cures = [cure for cell in table if (cure := verdict.cure(cell)) is not None]
    kept = sum(cure.kept for cure in cures)
    lines = [
        [cure.row.cell.title, *(_factor(times) for times in (cure.throttled, cure.cpu, cure.p99)), _verdict(cure.kept)]
        for cure in cures
    ]
    headings = ("cell", "fewer throttled periods (≥ 10)", "less CPU (≥ 2)", "lower p99 (≥ 3)", "budget")
    return (
        f"### Where stock is throttled in more than half of the periods: budget kept in {kept} of {len(cures)}\n\n"
        + report.markdown_table(headings, lines)
    )


def _cell_table(cell: Sequence[Row]) -> str:
    names = verdict.figures(cell[0])
    lines = [
        [
            row.variant,
            "/".join(map(str, sorted({one.pool_threads for one in row.runs}))),
            *(report.spread(row.values(name)) if row.values(name) else "–" for name in names),
            f"{row.median('steal_percent') or 0:.1f}",
            f"{row.median('others_percent') or 0:.1f}",
        ]
        for row in cell
    ]
    lines.append(["A/A spread", "", *(number("{:.2g}", verdict.aa_spread(cell, name)) for name in names), "", ""])
    headings = ("", "threads", *map(_words, names), "steal %", "others %")
    return f"**{cell[0].cell.title}**\n\n" + report.markdown_table(headings, lines)


_WORDS = {
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_percent": "CPU, % of limit",
    "throttled_percent": "throttled periods, %",
    "missed": "missed",
    "served_per_s": "served/s",
    "cpu_ms_per_request": "CPU ms a request",
}


def _words(figure: str) -> str:
    return _WORDS[figure]


def _factor(times: float) -> str:
    return "all" if times == float("inf") else f"{times:.1f} ×"


def _verdict(kept: bool) -> str:
    return "kept" if kept else "missed"


def _cell(
    store: Store,
    model: models.Model,
    limit_cpus: float,
    share_percent: int | None,
    *,
    callers: int,
    duration_s: float,
    host_cores: int | None = None,
) -> Cell:
    """A cell whose rate is this share of what the quota can serve with one thread; None: closed loop."""
    rate = None
    if share_percent is not None:
        rate = round(share_percent / 100 * limit_cpus / _service_time_s(store, model), 1)
    return Cell(
        model=model.name,
        limit_cpus=limit_cpus,
        rate=rate,
        share_percent=share_percent,
        callers=callers,
        duration_s=duration_s,
        host_cores=host_cores,
    )


def _service_time_s(store: Store, model: models.Model) -> float:
    return store.service_time_s(model.name, lambda: measure.service_time_s(model))
