"""`python -m load`: `table` is the load table of docs/benchmarks.md, `cell` compares variants in one cell.

`surface` measures all settings of many cells, for `python -m regret`.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

import report
from load import chart, measure, models, serving, variants
from load import surface as surfaces
from load import table as load_table
from load.compare import FIGURES, print_table, rows
from load.measure import Cell, Run, Variant
from load.store import Store
from raddle_operator.local import quota

# What a table of a cell takes; a pipe has 80.
_COLUMNS = 140


@click.group()
def main() -> None:
    """Measure what a CPU limit does to a serving process."""


@main.command()
@click.option("--runtime", type=click.Choice(list(serving.RUNTIMES)), default="onnxruntime", show_default=True)
@click.option("--model", type=click.Choice(list(models.ALL)), default=models.SMALL.name, show_default=True)
@click.option("--limit", type=click.FloatRange(0), default=0.5, show_default=True, help="CPUs; 0: no quota")
@click.option("--rate", type=click.FloatRange(0), default=None, help="requests/s; 0: closed loop")
@click.option(
    "--utilisation", type=click.IntRange(1), default=50, show_default=True, help="percent of the limit, without --rate"
)
@click.option(
    "--callers", type=click.IntRange(1), default=1, show_default=True, help="that run the one session at once"
)
@click.option("--arrivals", type=click.Choice(measure.ARRIVALS), default=measure.REGULAR, show_default=True)
@click.option(
    "--containers",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="alike, at the same time; CPUs / limit fill the node",
)
@click.option("--exclusive", is_flag=True, help="each container on as many CPUs of its own as its limit, by taskset")
@click.option("--neighbour", is_flag=True, help="beside a container that keeps one CPU busy")
@click.option(
    "--duration", type=click.FloatRange(0, min_open=True), default=3.0, show_default=True, help="seconds a run"
)
@click.option("--repetitions", type=click.IntRange(1), default=4, show_default=True)
@click.option(
    "--fixed",
    multiple=True,
    metavar="SETTING",
    help="THREADS[:HOW][+BLAS_THREADS] instead of all settings; HOW: never, always, microseconds; for torch and openmp"
    " OMP_WAIT_POLICY",
)
@click.option("--chart", "chart_path", type=click.Path(path_type=Path), help="write a chart there (.svg or .png)")
def cell(
    runtime: str,
    model: str,
    limit: float,
    rate: float | None,
    utilisation: int,
    *,
    callers: int,
    arrivals: str,
    containers: int,
    exclusive: bool,
    neighbour: bool,
    duration: float,
    repetitions: int,
    fixed: tuple[str, ...],
    chart_path: Path | None,
) -> None:
    """Compare stock, Raddle, Raddle with `load` and fixed settings in one cell."""
    if exclusive and (limit < 1 or limit % 1 or containers * limit > len(os.sched_getaffinity(0))):
        raise click.UsageError("--exclusive requires a whole --limit, and that many CPUs for each container")
    service_s = measure.service_time_s(model, runtime)
    share = utilisation if rate is None else None
    if rate is None:
        rate = load_table.rate_of(utilisation, limit or 1.0, service_s)
    conditions = Cell(
        runtime=runtime,
        model=model,
        limit_cpus=limit or None,
        requests_per_s=rate or None,
        share_percent=share,
        neighbour=neighbour,
        duration_s=duration,
        callers=callers,
        arrivals=arrivals,
        containers=containers,
        exclusive=exclusive,
    )
    with tempfile.TemporaryDirectory(prefix="raddle-load-shim-") as folder:
        try:
            compared = variants.competitors(conditions, service_s, variants.deliver(Path(folder)), fixed or None)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        result = rows(conditions, compared, repetitions=repetitions, measured=_measured, progress=_say)
    click.echo(f"\n{1000 * service_s:.3g} ms a request on one thread")
    print_table(result, console=Console(width=max(Console().width, _COLUMNS)), figures=tuple(FIGURES))
    if chart_path is not None:
        click.echo(f"chart: {chart.draw(result, chart_path)}")


@main.command()
@click.option("--quick", "size", flag_value="quick", default=True, help="the most telling cells, an hour [default]")
@click.option("--full", "size", flag_value="full", help="all cells, many hours; stop it and start it again at will")
@click.option("--results", type=click.Path(path_type=Path), help="results file; default build/load/SIZE.jsonl")
@click.option("--minutes", type=float, default=math.inf, help="begin no cell after so long; the next call goes on")
@click.option("--fresh", is_flag=True, help="measure again what the results file has")
@click.option("--write/--no-write", default=False, help="write the section of docs/benchmarks.md")
@click.option("-o", "--output", type=click.Choice(["markdown", "json"]), default="markdown", show_default=True)
def table(size: str, results: Path | None, *, minutes: float, fresh: bool, write: bool, output: str) -> None:
    """The load table: the goals, every cell where Raddle is worse than chance, then a line a cell."""
    load_table.require_quota()
    path = results or serving.BUILD / f"{size}.jsonl"
    if fresh:
        path.unlink(missing_ok=True)
    wanted = load_table.QUICK if size == "quick" else load_table.FULL
    store = Store(path, attempts=wanted.attempts)
    result = load_table.measured(load_table.shapes(wanted), wanted, store, progress=_say, minutes=minutes)
    if not result.cells:
        raise click.ClickException("no cell is complete yet; what was measured is kept for the next time")
    text = load_table.markdown(
        result, wanted, command=f"python -m load table --{size}", results=f"build/load/{path.name}"
    )
    click.echo(json.dumps(load_table.document(result), indent=1) if output == "json" else text)
    if write:
        report.write_section(f"load table, {size}", text)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--minutes", type=float, default=math.inf, help="begin no cell after so long; the next call goes on")
def surface(file: Path, minutes: float) -> None:
    """Measure every setting of as many cells as there is time for, and write FILE, for `python -m regret`.

    Raw runs are kept in build/load/surface.jsonl.
    """
    load_table.require_quota()
    store = Store(serving.BUILD / "surface.jsonl", attempts=surfaces.SIZE.attempts)
    result = surfaces.measured(store, surfaces.here(), progress=_say, minutes=minutes)
    if not result.cells:
        raise click.ClickException("no cell is complete yet; what was measured is kept for the next time")
    file.write_text(surfaces.text(result))


def _measured(conditions: Cell, variant: Variant, _repetition: int) -> Run:
    return measure.quiet_run(conditions, variant, attempts=2)


def _say(text: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{text}", err=True, nl=False)


if __name__ == "__main__":
    # An orderly end, so that the measured process and its cgroup go too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        main(prog_name="python -m load")
    except quota.UnavailableError as error:
        sys.exit(str(error))
