"""The demo's second half: stock onnxruntime against the same process with what one pod got, under the pod's quota."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

import report
from cluster import Cluster, kubelet_env
from load import chart, compare
from raddle_operator.local.quota import UnavailableError
from raddle_operator.objects.quantities import parse

# README's headings -> the figures' names
FIGURES = {
    "p50 (ms)": "p50_ms",
    "p99 (ms)": "p99_ms",
    "CPU (% of the limit)": "cpu_percent",
    "throttled periods (%)": "throttled_percent",
}
RATE_PER_S = 100.0
REPETITIONS = 3
DURATION_S = 3.0


def run(cluster: Cluster, pod: dict[str, Any], folder: Path, console: Console) -> list[compare.Row]:
    """Measure, print the table, and write the chart to load.svg in `folder`; the rows."""
    container = pod["spec"]["containers"][0]
    limit = float(parse(container["resources"]["limits"]["cpu"]))
    with tempfile.TemporaryDirectory(prefix="raddle-demo-") as files:
        environment = kubelet_env.environment(cluster.client, pod, container["name"], Path(files))
        for name, value in sorted(environment.items()):
            console.print(f"    [dim]{escape(name)}={escape(value)}[/]")
        try:
            rows = _compare(environment, limit, console)
        except UnavailableError as error:
            console.print(f"    [yellow]No CPU quota can be had here ({escape(str(error))}); measuring without one.[/]")
            rows = _compare(environment, None, console)
    compare.print_table(rows, console=console)
    chart.draw(rows, folder / "load.svg")
    return rows


def write(rows: list[compare.Row], folder: Path) -> None:
    """Put the figures into README.md between its markers, and the chart beside the docs' pictures."""
    shutil.copy(folder / "load.svg", report.ROOT / "docs" / "images" / "load.svg")
    cell = rows[0].cell
    limit = "no quota" if cell.limit_cpus is None else f"{cell.limit_cpus:g} CPU"
    lines = [[row.variant, *(row.text(figure) for figure in FIGURES.values())] for row in rows]
    text = (
        f"A CNN of 1 ms per request, {limit}, {cell.requests_per_s:g} requests/s: median (range) of"
        f" {len(rows[0].runs)} runs of `make demo ARGS=--write` on {report.machine()}:\n\n"
        + report.markdown_table(["", *FIGURES], lines)
    )
    report.write_section("measured", text, report.ROOT / "README.md")


def _compare(environment: dict[str, str], limit: float | None, console: Console) -> list[compare.Row]:
    with console.status("measuring") as status:
        return compare.compare(
            {"stock": {}, "Raddle": environment},
            limit=limit,
            rate=RATE_PER_S,
            duration_s=DURATION_S,
            repetitions=REPETITIONS,
            progress=status.update,
        )
