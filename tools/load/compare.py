"""Several variants in one cell: interleaved repetitions, medians and spread.

    rows = compare({"stock": {}, "Raddle": env_of_the_pod}, limit=0.5, rate=100, duration_s=3, repetitions=3)
    print_table(rows)
    chart.draw(rows, Path("load.svg"))

Within a repetition every variant runs once, in an order that is drawn again for each repetition, so that a machine that
drifts treats all of them alike and none always follows the same other.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import report
from load import models
from load.measure import Cell, Run, Variant, run
from raddle_operator.local import quota

Progress = Callable[[str], None]
# figure -> (heading, how it prints); smaller is better for all of them.
FIGURES = {
    "p50_ms": ("p50\nms", report.short),
    "p99_ms": ("p99\nms", report.short),
    "cpu_ms_per_request": ("CPU ms\na request", report.short),
    "cpu_percent": ("CPU %\nof limit", report.whole),
    "throttled_percent": ("throttled\nperiods %", report.whole),
    "missed": ("missed", report.whole),
}


SHOWN = ("p50_ms", "p99_ms", "cpu_percent", "throttled_percent", "missed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All runs of one variant in one cell. Figures are medians over the runs; None where they can't be known."""

    cell: Cell
    variant: str
    runs: tuple[Run, ...]

    def values(self, figure: str) -> list[float]:
        """This figure of each run, in order of repetition; empty where it can't be known."""
        result = [getattr(one, figure) for one in self.runs]
        return [float(value) for value in result if value is not None]

    def median(self, figure: str) -> float | None:
        """The median over the runs."""
        values = self.values(figure)
        return statistics.median(values) if values else None

    def text(self, figure: str) -> str:
        """Median and range for people: "1.43 (1.4–1.51)", or "–" where it can't be known."""
        values, (_, form) = self.values(figure), FIGURES[figure]
        return report.spread(values, form) if values else "–"


def compare(
    variants: Mapping[str, Mapping[str, str]],
    *,
    limit: float | None,
    rate: float | None,
    duration_s: float = 3.0,
    repetitions: int = 3,
    progress: Progress = lambda _: None,
) -> list[Row]:
    """One row per variant, in the order given: what each environment does to a process with this CPU limit.

    `variants` maps a name to the process's whole environment. `limit` in CPUs, None for no quota; `rate` in requests/s,
    None for a closed loop. Raises quota.UnavailableError where no quota can be had (None still works), and
    measure.ServerError.
    """
    cell = Cell(model=models.SMALL.name, limit_cpus=limit, requests_per_s=rate, duration_s=duration_s)
    if limit is not None and (reason := quota.available()):
        raise quota.UnavailableError(reason)
    listed = [Variant(name=name, env=env) for name, env in variants.items()]
    return rows(
        cell, listed, repetitions=repetitions, progress=progress, measured=lambda cell, variant, _: run(cell, variant)
    )


def rows(
    cell: Cell,
    variants: Sequence[Variant],
    *,
    repetitions: int,
    measured: Callable[[Cell, Variant, int], Run],
    progress: Progress = lambda _: None,
) -> list[Row]:
    """One row per variant. `measured(cell, variant, repetition)` gives one run.

    Variants that differ in name only are measured once: what differs by chance is not called a difference.
    """
    same = {variant.name: next(one for one in variants if one.alike(variant)) for variant in variants}
    measured_ones = list({id(one): one for one in same.values()}.values())
    runs: dict[str, list[Run]] = {variant.name: [] for variant in measured_ones}
    for repetition in range(repetitions):
        order = random.Random(f"{cell} {repetition}").sample(measured_ones, len(measured_ones))
        for variant in order:
            progress(f"{cell.title}: {variant.name}, repetition {repetition + 1} of {repetitions}")
            runs[variant.name].append(measured(cell, variant, repetition))
    return [Row(cell=cell, variant=variant.name, runs=tuple(runs[same[variant.name].name])) for variant in variants]


def print_table(result: Sequence[Row], *, console: Console | None = None, figures: Sequence[str] = SHOWN) -> None:
    """One line per variant: median and range of each figure, threads, and how quiet the machine was."""
    console = console or Console()
    repetitions = len(result[0].runs)
    runs = f"median (range) of {repetitions} runs" if repetitions > 1 else "one run"
    table = Table(title=f"{result[0].cell.title}: {runs}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    table.add_column("pool\nthreads", justify="right")
    for heading in (*(FIGURES[figure][0] for figure in figures), "steal\n%", "others\n%"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in result:
        threads = "/".join(map(str, sorted({one.pool_threads for one in row.runs})))
        machine = (f"{row.median(name) or 0:.1f}" for name in ("steal_percent", "others_percent"))
        texts = (row.text(figure).replace(" (", "\n[dim](", 1) for figure in figures)
        table.add_row(row.variant, threads, *texts, *machine)
    console.print(table)
