"""The demo's second half: stock onnxruntime against the same process with what one pod got, under the pod's quota."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from devcluster import Cluster
from load import chart, compare
from load.cgroup import UnavailableError
from localraddle import podenv
from raddle_operator.quantities import parse

RATE_PER_S = 100.0
REPETITIONS = 3
DURATION_S = 3.0


def run(cluster: Cluster, pod: dict[str, Any], folder: Path, console: Console) -> None:
    """Measure, print the table, and write the chart to load.svg in `folder`."""
    container = pod["spec"]["containers"][0]
    limit = float(parse(container["resources"]["limits"]["cpu"]))
    with tempfile.TemporaryDirectory(prefix="raddle-demo-") as files:
        environment = podenv.environment(cluster.client, pod, container["name"], Path(files))
        for name, value in sorted(environment.items()):
            console.print(f"    [dim]{escape(name)}={escape(value)}[/]")
        try:
            rows = _compare(environment, limit, console)
        except UnavailableError as error:
            console.print(f"    [yellow]No CPU quota can be had here ({escape(str(error))}); measuring without one.[/]")
            rows = _compare(environment, None, console)
    compare.print_table(rows, console=console)
    chart.draw(rows, folder / "load.svg")


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
