"""`raddle top pods|nodes|policies`: what runs now, as a table that is refreshed or as a picture."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table as RichTable
from rich.text import Text

from raddle import env
from raddle.cpus import cpuset
from raddle_operator.cli import cluster, output, reports, topology
from raddle_operator.cli.choice import chosen, pods
from raddle_operator.cli.picture import layout, svg
from raddle_operator.cli.picture.model import printable
from raddle_operator.cli.reports import ProgressCallback, Reports
from raddle_operator.cli.top import nodepicture, rows
from raddle_operator.cli.top.rows import Row
from raddle_operator.kube import (
    CLUSTER_INFERENCE_THREADINGS,
    INFERENCE_THREADINGS,
    NODE_CPU_TOPOLOGIES,
    Forbidden,
    Kube,
    NotFound,
)
from raddle_operator.objects import nodecheck
from raddle_operator.objects.nodetopology import TopologyError

EVERY_S: Final = 5.0
"""How often --watch looks."""
MANY: Final = 64
"""From so many nodes on a bar shows how many have answered."""
COLUMNS: Final = """\b
THREADS     planned/effective; effective is the count that the shim reports, or else the number of threads that ran
CPU         CPU seconds used per second
THROTTLED   share of quota periods in which the container was throttled; for a node, of its worst container
DELAY       seconds per second that threads waited for a CPU, summed over threads; with agent.watch=Cgroups, the share
            of time in which at least one waited
FINDING     why the threads differ from the plan; kubectl raddle explain shows the fix
"""
EXIT_CODES: Final = """\b
Exit codes: 0 success, 1 no answer from the cluster or from any agent, 2 invalid usage, 130 interrupted by Ctrl-C.
"""
_ALIASES: Final = {
    "pod": "pods",
    "po": "pods",
    "node": "nodes",
    "no": "nodes",
    "policy": "policies",
}


class _Aliased(click.Group):
    """A group whose commands have kubectl's other names too."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None for a name that isn't one."""
        return super().get_command(ctx, _ALIASES.get(cmd_name, cmd_name))


@click.group(
    cls=_Aliased,
    epilog=f"""\b
Examples:
  kubectl raddle top pods -n models
  kubectl raddle top pods -A --sort-by delay --watch
  kubectl raddle top nodes
  kubectl raddle top node worker-7                     (its cores, and the containers on each)
  kubectl raddle top policies

{COLUMNS}
{EXIT_CODES}""",
)
def top() -> None:
    """Show planned and effective threads, throttling and CPU delay of pods and nodes.

    Pods and nodes are read through the API server from the node agents, which must observe containers (chart value
    agent.watch). You need permission to list pods, and to get pods/proxy in Raddle's namespace. Policies are read from
    their statuses.
    """


def _options(command: Callable[..., None], *, orders: Sequence[str], forms: Sequence[str]) -> Callable[..., None]:
    """The options that all three have."""
    path = click.Path(exists=True, dir_okay=False, path_type=Path)
    for option in (
        click.option("--context", help="Kubeconfig context. Default: the current context."),
        click.option("--kubeconfig", type=path, help="Path to the kubeconfig file."),
        click.option("-o", "--output", "form", default="table", show_default=True, type=click.Choice(forms)),
        click.option("-w", "--watch", is_flag=True, help=f"Refresh every {EVERY_S:g} s until Ctrl-C."),
        click.option("--no-headers", "bare", is_flag=True, help="Do not print the header row."),
        click.option("--sort-by", "order", default="worst", show_default=True, type=click.Choice(orders)),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayOptions:
    """How a command was asked to read and to print."""

    kubeconfig: Path | None
    context: str | None
    form: str
    order: str
    bare: bool
    watch: bool

    def __post_init__(self) -> None:
        """Raises click.UsageError for what can't be had together."""
        if self.watch and self.form not in {"table", "wide"}:
            raise click.UsageError(f"--watch shows a table; it can't be had with -o {self.form}")


# --- pods -------------------------------------------------------------------------------------------------------------


@top.command("pods", epilog=f"{COLUMNS}\n{EXIT_CODES}")
@click.argument("target", required=False)
@click.option("-n", "--namespace", help="Namespace. Default: the context's namespace.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Pods of all namespaces.")
@click.option("-l", "--selector", default="", help="Pods with these labels.")
@partial(_options, orders=tuple(rows.POD_ORDERS), forms=("table", "wide", "json", "yaml"))
def pods_command(target: str | None, namespace: str | None, selector: str, *, everywhere: bool, **how: Any) -> None:
    """Show containers of pods that have a policy. TARGET is pod/NAME, deployment/NAME or another workload."""
    options = DisplayOptions(**how)
    choice = chosen(target, namespace, selector, options.kubeconfig, options.context, everywhere=everywhere)

    async def read(kube: Kube, progress: ProgressCallback | None) -> Table:
        if not (choice.namespace or choice.selector):
            result = await reports.of_nodes(kube, progress=progress)
            _fail_without(result)
            lines = rows.pods(rows.seen(result), options.order)
            return Table(columns=rows.PODS, wide=rows.PODS_WIDE, rows=lines, failed=result.failed)
        nodes, uids = set(), set()
        async for pod in pods(kube, choice, f"{env.INJECTED_LABEL}=true"):
            nodes.add(str((pod.get("spec") or {}).get("nodeName") or ""))
            uids.add(str(pod["metadata"].get("uid")))
        if not uids:
            raise click.ClickException(f"no pods with values of {choice.words}")
        result = await reports.of_nodes(kube, nodes - {""}, progress)
        _fail_without(result)
        lines = rows.pods(rows.seen(result, uids), options.order)
        failed = {node: result.failed.get(node, reports.NOBODY) for node in sorted(nodes - {""} - set(result.by_node))}
        return Table(columns=rows.PODS, wide=rows.PODS_WIDE, rows=lines, failed=failed)

    _run(options, read)


# --- nodes ------------------------------------------------------------------------------------------------------------


@top.command("nodes", epilog=f"{COLUMNS}\n{EXIT_CODES}")
@click.argument("name", required=False)
@partial(_options, orders=tuple(rows.NODE_ORDERS), forms=("table", "json", "yaml", "svg"))
def nodes_command(name: str | None, **how: Any) -> None:
    """Show all nodes. With NAME, draw the cores of that node, each with the containers that last ran on it."""
    options = DisplayOptions(**how)
    if name is not None:
        _draw_node(options, name)
        return
    if options.form == "svg":
        raise click.UsageError("-o svg draws one node: name it")

    async def read(kube: Kube, progress: ProgressCallback | None) -> Table:
        result = await reports.of_nodes(kube, progress=progress)
        _fail_without(result)
        nodes = rows.summed(result, await _cpus(kube))
        return Table(columns=rows.NODES, rows=rows.nodes(nodes, options.order))

    _run(options, read)


async def _cpus(kube: Kube) -> Mapping[str, int]:
    """Node -> its CPUs, of the nodes that Raddle knows; none where one may not look."""
    result = {}
    try:
        async for page in kube.pages(NODE_CPU_TOPOLOGIES):
            for obj in page.items:
                online = ((obj.get("spec") or {}).get("cpus") or {}).get("online") or ""
                try:
                    result[str(obj["metadata"]["name"])] = cpuset.count(cpuset.parse_list(online))
                except ValueError:
                    continue
    except (NotFound, Forbidden):
        return {}
    return result


def _draw_node(options: DisplayOptions, name: str) -> None:
    if options.watch:
        raise click.UsageError("a node is drawn once, as text, -o svg, json or yaml")

    async def read() -> tuple[Reports, dict[str, Any]]:
        async with cluster.connected(options.kubeconfig, options.context) as kube:
            try:
                return await reports.of_nodes(kube, {name}), await kube.get(NODE_CPU_TOPOLOGIES, name)
            except NotFound:
                raise click.ClickException(f"nodecputopology/{name} not found") from None

    result, obj = asyncio.run(read())
    if missing := result.missing([name]):
        raise click.ClickException(missing)
    try:
        machine = nodecheck.machine_of(obj)
    except TopologyError as error:
        raise click.ClickException(f"nodecputopology/{name}: {error}") from None
    report = result.by_node[name]
    ran = nodepicture.occupancy(report, machine)
    if options.form in {"json", "yaml"}:
        output.write(nodepicture.document(report, ran, machine), options.form)
        return
    picture = layout.picture(machine, nodepicture.marks(report, ran))
    if options.form == "svg":
        click.echo(svg.draw(picture), nl=False)
    else:
        topology.show(picture, machine.problems)


# --- policies ---------------------------------------------------------------------------------------------------------


@top.command("policies", epilog=EXIT_CODES)
@click.option(
    "-n", "--namespace", help="Namespace. Default: the context's. ClusterInferenceThreadings are always shown."
)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Policies of all namespaces.")
@partial(_options, orders=rows.POLICY_ORDERS, forms=("table", "json", "yaml"))
def policies_command(namespace: str | None, *, everywhere: bool, **how: Any) -> None:
    """Show policies and their drifted containers, from the statuses."""
    options = DisplayOptions(**how)
    choice = chosen(None, namespace, "", options.kubeconfig, options.context, everywhere=everywhere)

    async def read(kube: Kube, _: ProgressCallback | None) -> Table:
        result = []
        for kind, place in ((INFERENCE_THREADINGS, choice.namespace), (CLUSTER_INFERENCE_THREADINGS, "")):
            result += [{**obj, "kind": kind.kind} for obj in (await kube.list(kind, place)).items]
        return Table(columns=rows.POLICIES, rows=rows.policies(result, options.order))

    _run(options, read)


# --- looking and printing ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What one look has found. `failed`: nodes of which nothing is known."""

    columns: Sequence[str]
    rows: Sequence[Row]
    wide: Sequence[str] = ()
    failed: Mapping[str, str] | None = None


ReadTable = Callable[[Kube, ProgressCallback | None], Awaitable[Table]]


def _run(options: DisplayOptions, read: ReadTable) -> None:
    """Looks and prints, once or until Ctrl-C."""
    asyncio.run(_running(options, read))


async def _running(options: DisplayOptions, read: ReadTable) -> None:
    console = output.console()
    async with cluster.connected(options.kubeconfig, options.context) as kube:
        if not options.watch:
            with _progress() as progress:
                result = await read(kube, progress)
            _print(options, console, result)
            return
        # Where there is no terminal, one table after the other; rich would print the last only.
        live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        with live or nullcontext():
            while True:
                shown = Group(_table(options, result := await read(kube, None)), *_not_known(result))
                live.update(shown, refresh=True) if live is not None else console.print(shown)
                await asyncio.sleep(EVERY_S)


def _print(options: DisplayOptions, console: Console, result: Table) -> None:
    if options.form in {"json", "yaml"}:
        document: dict[str, Any] = {"items": [dict(row.document) for row in result.rows]}
        output.write(document | ({"failed": dict(result.failed)} if result.failed else {}), options.form)
    else:
        console.print(_table(options, result))
        for line in _not_known(result):
            Console(stderr=True, highlight=False).print(line, soft_wrap=True)


def _table(options: DisplayOptions, result: Table) -> RichTable:
    wide = options.form == "wide"
    table = output.table(*result.columns, *(result.wide if wide else ()))
    table.show_header = not options.bare
    for row in result.rows:
        table.add_row(*(escape(printable(cell)) for cell in (*row.cells, *(row.more if wide else ()))))
    return table


def _not_known(result: Table) -> list[Text]:
    """The nodes that gave no report, each with its reason."""
    return [
        Text(f"node {printable(node)} is not shown: {why}", style="dim") for node, why in (result.failed or {}).items()
    ]


def _fail_without(result: Reports) -> None:
    """Raises ClickException where not one node has answered."""
    if result.problem:
        raise click.ClickException(result.problem)
    if not result.by_node:
        raise click.ClickException(result.missing(result.failed))


@contextmanager
def _progress() -> Iterator[ProgressCallback | None]:
    """Yields the callback for each answer; a bar on standard error, where it is a terminal and there are many nodes."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("asking agents", total=None, visible=False)

        def progress(answered: int, total: int) -> None:
            bar.update(task, completed=answered, total=total, visible=total >= MANY)

        yield progress
