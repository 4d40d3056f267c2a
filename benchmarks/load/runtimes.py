"""Each runtime, stock against planned: the same program, with and without what a container gets, at a fixed rate.

The rate is a share of what the quota can serve with one thread, found out first, so that no variant is judged by load
that it can't carry. Stock runs twice: what its two series differ by is what chance does here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import report
from load import measure, models, serving, variants
from load.compare import TWIN, Progress, Row, chance, rows
from load.measure import Cell, Run, Variant

LIMITS = (0.5, 1.0, 2.0)
SHARE_PERCENT = 30
DURATION_S = 2.0
REPETITIONS = 3
_HEADINGS = ("limit (CPUs)", "rate (1/s)", "", "threads", "p50 (ms)", "p99 (ms)", "CPU (% of limit)", "throttled (%)")
_FIGURES = ("p50_ms", "p99_ms", "cpu_percent", "throttled_percent")


def measured(names: Sequence[str], *, repetitions: int, progress: Progress) -> str:
    """The section as Markdown: where it was measured, a table a runtime, those that this machine has not got."""
    shim = variants.deliver(serving.BUILD / "shim-of-runtimes")
    machine = report.machine()
    how = (
        f"`python -m load runtimes --write` on {machine}. Each runtime serves about a millisecond of work, to one"
        f" caller, at {SHARE_PERCENT} % of what the quota serves with one thread; {repetitions} interleaved repetitions"
        f" of {DURATION_S:g} s, medians and ranges. A second series of stock is there to show what chance does."
    )
    text = ["## Runtimes", "", how]
    if (os.cpu_count() or 1) <= max(LIMITS):
        text.append(f"\nThis machine has {os.cpu_count()} CPUs, so a quota of 2 throttles nothing here.")
    missing = []
    for name in names:
        try:
            service_s = measure.service_time_s(models.SMALL, name)
        except (serving.MissingError, measure.ServerError) as error:
            missing.append(f"- {name}: {str(error).splitlines()[-1]}")
            continue
        text += _table(name, service_s, shim=shim, repetitions=repetitions, progress=progress)
    if missing:
        text += ["", "Not measured here:", "", *missing]
    return "\n".join(text)


def _table(name: str, service_s: float, *, shim: Path, repetitions: int, progress: Progress) -> list[str]:
    lines: list[list[str]] = []
    verdicts: list[str] = []
    for limit in LIMITS:
        cell = Cell(
            model=models.SMALL.name,
            limit_cpus=limit,
            rate=SHARE_PERCENT / 100 * limit / service_s,
            share_percent=SHARE_PERCENT,
            duration_s=DURATION_S,
            runtime=name,
        )
        listed = [Variant(name=variants.STOCK), Variant(name=variants.RADDLE, env=variants.raddle_env(cell, shim))]
        found = rows(
            cell, listed, repetitions=repetitions, twice=(variants.STOCK,), measured=_measured, progress=progress
        )
        lines += [_line(row) for row in found]
        verdicts += _losses(found)
    version = found[0].runs[0].version
    text = ["", f"### {name} ({version}), {1000 * service_s:.3g} ms alone with one thread", ""]
    text.append(report.markdown_table(_HEADINGS, lines))
    return [*text, *(verdicts or ["Nowhere worse than stock by more than chance does."])]


def _measured(cell: Cell, variant: Variant, _repetition: int) -> Run:
    return measure.quiet_run(cell, variant, attempts=3)


def _line(row: Row) -> list[str]:
    threads = "/".join(map(str, sorted({run.pool_threads for run in row.runs})))
    limit, rate = f"{row.cell.limit_cpus:g}", f"{row.cell.rate:.3g}"
    return [limit, rate, row.variant, threads, *(row.text(figure) for figure in _FIGURES)]


def _losses(found: Sequence[Row]) -> list[str]:
    """A sentence for each figure in which planned is worse than both series of stock by more than those differ."""
    by_name = {row.variant: row for row in found}
    stock, twin, planned = (by_name[name] for name in (variants.STOCK, variants.STOCK + TWIN, variants.RADDLE))
    said = []
    for figure in _FIGURES:
        ours, theirs = planned.median(figure), [row.median(figure) for row in (stock, twin)]
        known = [value for value in theirs if value is not None]
        if ours is None or not known:
            continue
        by_chance = chance(stock.values(figure), twin.values(figure))
        if ours > max(known) + by_chance:
            said.append(
                f"- worse than stock at limit {planned.cell.limit_cpus:g}: {figure} {ours:.3g} against"
                f" {max(known):.3g} (chance {by_chance:.3g})"
            )
    return said
