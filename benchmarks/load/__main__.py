"""`python -m load`: `table` is the load table of docs/benchmarks.md, `cell` compares variants in one cell."""

from __future__ import annotations

import math
import signal
import sys
import tempfile
from pathlib import Path

import click

import report
from load import cgroup, chart, measure, models, runtimes, serving, variants
from load import table as load_table
from load.compare import print_table, rows
from load.measure import Cell, Run, Variant
from load.store import Store


@click.group()
def main() -> None:
    """Measure what a CPU limit does to a serving process."""


@main.command()
@click.option("--model", type=click.Choice(sorted(models.ALL)), default=models.SMALL.name, show_default=True)
@click.option("--limit", type=float, default=0.5, show_default=True, help="CPUs; 0: no quota")
@click.option("--rate", type=float, default=100.0, show_default=True, help="requests/s; 0: closed loop")
@click.option("--callers", type=int, default=1, show_default=True)
@click.option("--duration", type=float, default=3.0, show_default=True, help="seconds a run")
@click.option("--repetitions", type=int, default=3, show_default=True)
@click.option("--host-cores", type=int, default=None, help="fake a host with this many cores")
@click.option("--threads", type=int, multiple=True, help="also a pool of this size, spinning and not")
@click.option("--chart", "chart_path", type=click.Path(path_type=Path), help="write a chart there (.svg or .png)")
def cell(
    model: str,
    limit: float,
    rate: float,
    callers: int,
    duration: float,
    repetitions: int,
    host_cores: int | None,
    threads: tuple[int, ...],
    chart_path: Path | None,
) -> None:
    """Compare stock, the one-line fixes and Raddle in one cell."""
    conditions = Cell(
        model=model,
        limit_cpus=limit or None,
        rate=rate or None,
        callers=callers,
        duration_s=duration,
        host_cores=host_cores,
    )
    with tempfile.TemporaryDirectory(prefix="raddle-load-shim-") as folder:
        compared = variants.of_table(conditions, variants.deliver(Path(folder)))
        compared += [variants.fixed(count, spin=spin) for count in threads for spin in (True, False)]
        found = rows(
            conditions, compared, repetitions=repetitions, twice=(variants.STOCK,), measured=_measured, progress=_say
        )
    print_table(found)
    if chart_path is not None:
        click.echo(f"chart: {chart.draw(found, chart_path)}")


@main.command()
@click.option("--quick", "size", flag_value="quick", default=True, help="a handful of cells, some minutes [default]")
@click.option("--full", "size", flag_value="full", help="all cells, many hours; stop it and start it again at will")
@click.option("--results", type=click.Path(path_type=Path), help="results file; default build/load/SIZE.jsonl")
@click.option("--minutes", type=float, default=math.inf, help="begin no cell after so long; the next call goes on")
@click.option("--fresh", is_flag=True, help="measure again what the results file has")
@click.option("--write/--no-write", default=False, help="write the section of docs/benchmarks.md")
def table(size: str, results: Path | None, *, minutes: float, fresh: bool, write: bool) -> None:
    """The load table: cells where Raddle loses first, budgets, then every cell."""
    load_table.require_quota()
    path = results or serving.BUILD / f"{size}.jsonl"
    if fresh:
        path.unlink(missing_ok=True)
    quick = size == "quick"
    store = Store(path, attempts=1 if quick else 3)
    cells = load_table.quick_cells(store) if quick else load_table.full_cells(store)
    repetitions = load_table.QUICK_REPETITIONS if quick else load_table.FULL_REPETITIONS
    found = load_table.measured(cells, store, repetitions=repetitions, progress=_say, minutes=minutes)
    if not found:
        raise click.ClickException("no cell is complete yet; what was measured is kept for the next time")
    text = load_table.markdown(found, of=len(cells), command=f"python -m load table --{size}", store=store)
    click.echo(text)
    if write:
        report.write_section(f"load table, {size}", text)


@main.command(name="runtimes")
@click.argument("names", nargs=-1, type=click.Choice(sorted(serving.RUNTIMES)))
@click.option("--repetitions", type=int, default=runtimes.REPETITIONS, show_default=True)
@click.option("--write/--no-write", default=False, help="write the section of docs/benchmarks.md")
def of_runtimes(names: tuple[str, ...], *, repetitions: int, write: bool) -> None:
    """Each runtime, or those of NAMES, stock against planned under quotas of 0.5, 1 and 2 CPUs at a fixed rate."""
    load_table.require_quota()
    text = runtimes.measured(names or tuple(serving.RUNTIMES), repetitions=repetitions, progress=_say)
    click.echo(text)
    if write:
        report.write_section("runtimes", text)


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
    except cgroup.UnavailableError as error:
        sys.exit(str(error))
