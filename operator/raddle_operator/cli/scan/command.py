"""`raddle scan`: who makes too many threads, before anything is installed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from raddle_operator.cli.scan import files, reading, writing

EPILOG = """\b
Examples:
  kubectl raddle scan
  kubectl raddle scan -n models -o wide
  kubectl raddle scan -l app=ranker --min-saving 0.5
  kubectl raddle scan --prometheus http://127.0.0.1:9090 -o html > scan.html
  helm template app | raddle scan -f - --cpus 64 --exit-code 3

\b
It only reads pods and, if permitted, nodes, namespaces, the kubelets' metrics (nodes/proxy) and Raddle's objects.
Exit codes: 0 success, 1 no answer from the cluster, 2 invalid input or usage; with --exit-code, that code if there are
findings.
"""


@click.command(epilog=EPILOG)
@click.option("-n", "--namespace", default="", help="Only this namespace. Default: all namespaces.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All namespaces (the default).")
@click.option("-l", "--selector", default="", help="Label selector, as in kubectl.")
@click.option(
    "-f", "--filename", "sources", multiple=True, help="Manifests instead of a cluster: file or folder; - is stdin."
)
@click.option(
    "--cpus",
    type=click.IntRange(1, 4096),
    default=64,
    show_default=True,
    help="CPUs of an unknown node: with -f, or without permission to read nodes.",
)
@click.option(
    "--min-saving", type=click.FloatRange(min=0), default=0.0, help="Only findings that save at least this many CPUs."
)
@click.option("--prometheus", metavar="URL", help="Read the usage of the last hour from this Prometheus.")
@click.option("--no-usage", is_flag=True, help="Do not read usage from the kubelets; assume the limit.")
@click.option("--exit-code", type=click.IntRange(0, 255), default=0, help="Exit code if there are findings.")
@click.option(
    "--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Path to the kubeconfig file."
)
@click.option("--context", help="Kubeconfig context. Default: the current context.")
@click.option("-o", "--output", "form", default="table", show_default=True, type=click.Choice(tuple(writing.FORMS)))
def scan(
    namespace: str,
    selector: str,
    sources: Sequence[str],
    cpus: int,
    min_saving: float,
    prometheus: str | None,
    exit_code: int,
    kubeconfig: Path | None,
    context: str | None,
    form: str,
    *,
    everywhere: bool,
    no_usage: bool,
) -> None:
    """Find containers that run more threads than their CPU limit allows, with the cost and the fix."""
    namespace = "" if everywhere else namespace
    if sources and (selector or prometheus):
        raise click.UsageError("-l and --prometheus are for a cluster; -f reads files")
    if sources:
        scanned = files.scan(sources, namespace, cpus)
    else:
        asked = reading.Asked(
            namespace=namespace, selector=selector, cpus=cpus, prometheus=prometheus, usage=not no_usage
        )
        scanned = asyncio.run(reading.scan(asked, kubeconfig, context))
    rows = scanned.gathered.rows(min_saving)
    writing.write(writing.Scan(rows=rows, pods=scanned.gathered.pods, notes=scanned.notes), form)
    if any(row.seen.is_finding for row in rows):
        sys.exit(exit_code)
