"""Several variants in one cell: interleaved repetitions, medians, spread, and the A/A spread.

    rows = compare({"stock": {}, "Raddle": env_of_the_pod}, limit=0.5, rate=100, duration_s=3, repetitions=3)
    print_table(rows)
    chart.draw(rows, Path("load.svg"))

Within a repetition every variant runs once, and the order turns by one from repetition to repetition, so that a
machine that drifts treats all of them alike. A variant can be run twice: what its two series differ by is what chance
does here, and no smaller difference is called one.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from load import cgroup, models
from load.measure import Cell, Run, Variant, quiet_run

Progress = Callable[[str], None]
TWIN = " (again)"
# figure -> (heading, how it prints); smaller is better for all of them.
FIGURES = {
    "p50_ms": ("p50\nms", "{:.3g}"),
    "p99_ms": ("p99\nms", "{:.3g}"),
    "cpu_percent": ("CPU %\nof limit", "{:.0f}"),
    "throttled_percent": ("throttled\nperiods %", "{:.0f}"),
    "missed": ("missed", "{:.0f}"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All runs of one variant in one cell. Figures are medians over the runs; None where they can't be known."""

    cell: Cell
    variant: str
    runs: tuple[Run, ...]

    def values(self, figure: str) -> list[float]:
        """This figure of each run, in order of repetition; empty where it can't be known."""
        found = [getattr(one, figure) for one in self.runs]
        return [float(value) for value in found if value is not None]

    def median(self, figure: str) -> float | None:
        """The median over the runs."""
        values = self.values(figure)
        return statistics.median(values) if values else None

    def text(self, figure: str) -> str:
        """Median and range for people: "1.43 (1.4–1.51)", or "–" where it can't be known."""
        values, form = self.values(figure), FIGURES[figure][1]
        if not values:
            return "–"
        low, middle, high = (number(form, value) for value in (min(values), statistics.median(values), max(values)))
        return middle if low == high else f"{middle} ({low}–{high})"


def number(form: str, value: float) -> str:
    """The value in this format, without an exponent."""
    return f"{value:.0f}" if value >= 100 else form.format(value)


def compare(
    variants: Mapping[str, Mapping[str, str]],
    *,
    limit: float | None,
    rate: float | None,
    duration_s: float = 3.0,
    repetitions: int = 3,
    model: str = models.SMALL.name,
    callers: int = 1,
    host_cores: int | None = None,
    twice: bool = False,
    attempts: int = 1,
    progress: Progress = lambda _: None,
) -> list[Row]:
    """One row per variant, in the order given: what each environment does to a process with this CPU limit.

    `variants` maps a name to the process's whole environment. `limit` in CPUs, None for no quota; `rate` in requests/s,
    None for a closed loop. `twice` measures the first variant a second time. A run that others disturbed is made
    again, up to `attempts` times in all. Raises cgroup.UnavailableError where no quota can be had (None still works),
    and measure.ServerError.
    """
    cell = Cell(model=model, limit_cpus=limit, rate=rate, callers=callers, duration_s=duration_s, host_cores=host_cores)
    if limit is not None and (reason := cgroup.available()):
        raise cgroup.UnavailableError(reason)
    listed = [Variant(name=name, env=env) for name, env in variants.items()]
    measured = partial(_one, attempts=attempts)
    again = (listed[0].name,) if twice else ()
    return rows(cell, listed, repetitions=repetitions, twice=again, progress=progress, measured=measured)


def _one(cell: Cell, variant: Variant, _repetition: int, attempts: int) -> Run:
    return quiet_run(cell, variant, attempts)


def rows(
    cell: Cell,
    variants: Sequence[Variant],
    *,
    repetitions: int,
    measured: Callable[[Cell, Variant, int], Run],
    twice: Collection[str] = (),
    progress: Progress = lambda _: None,
) -> list[Row]:
    """One row per variant, and at the end one for the twin of each variant whose name is in `twice`.

    `measured(cell, variant, repetition)` gives one run.
    """
    twins = [replace(variant, name=variant.name + TWIN) for variant in variants if variant.name in twice]
    everyone = [*variants, *twins]
    runs: dict[str, list[Run]] = {variant.name: [] for variant in everyone}
    for repetition in range(repetitions):
        turn = repetition % len(everyone)
        for variant in everyone[turn:] + everyone[:turn]:
            progress(f"{cell.title}: {variant.name}, repetition {repetition + 1} of {repetitions}")
            runs[variant.name].append(measured(cell, variant, repetition))
    return [Row(cell=cell, variant=variant.name, runs=tuple(runs[variant.name])) for variant in everyone]


def chance(one: Sequence[float], other: Sequence[float]) -> float:
    """The A/A spread of a figure: how far the medians of two series of the same thing lie apart by chance.

    The values are pairs of one repetition, so each pair may be swapped: the answer is the difference that 19 of 20
    such swaps do not exceed (all 2^n for n up to 10, else 1024 drawn ones). 0 for empty series.
    """
    pairs = list(zip(one, other, strict=True))
    if not pairs:
        return 0.0
    if len(pairs) <= 10:
        swaps = list(itertools.product((False, True), repeat=len(pairs)))
    else:
        rng = random.Random(len(pairs))
        swaps = [tuple(rng.random() < 0.5 for _ in pairs) for _ in range(1024)]
    apart = sorted(_apart(pairs, swap) for swap in swaps)
    return apart[max(0, -(-95 * len(apart) // 100) - 1)]


def _apart(pairs: list[tuple[float, float]], swap: tuple[bool, ...]) -> float:
    turned = [(b, a) if swapped else (a, b) for (a, b), swapped in zip(pairs, swap, strict=True)]
    return abs(statistics.median(a for a, _ in turned) - statistics.median(b for _, b in turned))


def print_table(found: Sequence[Row], *, console: Console | None = None) -> None:
    """One line per variant: median and range of each figure, threads, and how quiet the machine was."""
    console = console or Console()
    repetitions = len(found[0].runs)
    runs = f"median (range) of {repetitions} runs" if repetitions > 1 else "one run"
    table = Table(title=f"{found[0].cell.title}: {runs}", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    table.add_column("pool\nthreads", justify="right")
    for heading in (*(heading for heading, _ in FIGURES.values()), "steal\n%", "others\n%"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in found:
        threads = "/".join(map(str, sorted({one.pool_threads for one in row.runs})))
        machine = (f"{row.median(name) or 0:.1f}" for name in ("steal_percent", "others_percent"))
        figures = (row.text(figure).replace(" (", "\n[dim](", 1) for figure in FIGURES)
        table.add_row(row.variant, threads, *figures, *machine)
    console.print(table)
