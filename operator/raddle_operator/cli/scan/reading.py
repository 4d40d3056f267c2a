"""What `raddle scan` asks a cluster: pods by pages, of which only rows are kept, and what else the user may read."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import click
import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from raddle.cpus import cpuset
from raddle_operator.cli import cluster as asking
from raddle_operator.cli import reports
from raddle_operator.injection.matching import Policies
from raddle_operator.kube import (
    NAMESPACES,
    NODE_CPU_TOPOLOGIES,
    NODES,
    PODS,
    Forbidden,
    Kube,
    KubeError,
    NotFound,
    Object,
)
from raddle_operator.kube.session import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Call, lines
from raddle_operator.objects import nodecheck, nodetopology, quantities, running
from raddle_operator.objects.nodereport import NodeReport
from raddle_operator.objects.quantities import QuantityError
from raddle_operator.objects.reading import SpecError
from raddle_operator.scanning import measured
from raddle_operator.scanning.assess import Cluster, Drifted, Node, assess
from raddle_operator.scanning.measured import Key
from raddle_operator.scanning.rows import Gathered, Part

T = TypeVar("T")
# Ended ones make no threads, and neither do those without a node.
RUNNING: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
AT_ONCE: Final = 8
WINDOW: Final = "1h"
NAMESPACES_A_QUERY: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which pods, what a node's CPUs are where nobody says, and who is asked what they cost; `usage`: the kubelets."""

    namespace: str = ""
    selector: str = ""
    cpus: int = 64
    prometheus: str | None = None
    usage: bool = True


@dataclass(frozen=True, slots=True)
class Scanned:
    """What was found, and what people should know of how."""

    gathered: Gathered
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Bar:
    """How far it is, on a terminal's standard error; nothing elsewhere."""

    shown: Progress = field(
        default_factory=lambda: Progress(
            TextColumn("[bold]{task.description:8}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
    )

    def task(self, name: str, total: int | None = None) -> TaskID:
        return self.shown.add_task(name, total=total)


async def scan(asked: Asked, kubeconfig: Path | None, context: str | None) -> Scanned:
    """What is found in the cluster. Raises click.ClickException where the pods can't be read."""
    notes: list[str] = []
    bar = _Bar()
    async with asking.connected(kubeconfig, context) as kube:
        with bar.shown:
            facts = await _cluster(kube, asked, notes)
            gathered, findings = await _pods(kube, asked, facts, bar)
            # Where nothing is found nobody is asked what it costs.
            if asked.prometheus and findings:
                await _prometheus(asked.prometheus, findings, bar)
                notes.append(f"measured by Prometheus, the last {WINDOW}")
            elif asked.usage and findings:
                notes.append(await _kubelets(kube, findings, bar))
    return Scanned(gathered, tuple(notes))


async def _cluster(kube: Kube, asked: Asked, notes: list[str]) -> Cluster:
    """All that decides beside the pods, as far as the user may read it."""
    known, drifting = await _topologies(kube)
    try:
        nodes = await _nodes(kube, known)
    except Forbidden:
        nodes = {}
        notes.append(f"no permission to read nodes: {asked.cpus} CPUs are assumed (--cpus)")
    unread: list[str] = []
    policies = await _or(asking.policies(kube, asked.namespace), (), "policies", unread)
    namespaces = await _or(_namespaces(kube, asked.namespace), {}, "namespaces", unread)
    if unread:
        notes.append(
            f"no permission to read {' and '.join(unread)}: policies and labels that can't be read are not considered"
        )
    return Cluster(
        policies=Policies(policies),
        namespaces=namespaces,
        nodes=nodes,
        unlabelled=await asking.unlabelled(kube),
        assumed=None if nodes else Node(asked.cpus),
        drifted=await _drifted(kube, drifting, notes) if drifting else {},
    )


async def _drifted(kube: Kube, nodes: Collection[str], notes: list[str]) -> Mapping[tuple[str, str], Drifted]:
    """What the agents of these nodes say of containers that run otherwise than planned, as far as they answer."""
    result = await reports.of_nodes(kube, nodes, kept=_with_findings)
    if why := result.missing(nodes):
        notes.append(f"containers that differ from their plan are not known: {why}")
    return {
        (one.uid, one.name): Drifted(one.findings[0], one.effective_threads)
        for report in result.by_node.values()
        for one in report.containers
    }


def _with_findings(report: NodeReport) -> NodeReport:
    """Of a report only what is needed of it: of a large cluster the rest would be most of a scan's memory."""
    return replace(report, containers=tuple(replace(one, processes=()) for one in report.containers if one.findings))


async def _or(call: Awaitable[T], otherwise: T, name: str, unread: list[str]) -> T:
    """What the call answers; the other where there is none, or the user may not read it: then it is `unread`."""
    try:
        return await call
    except NotFound:
        return otherwise
    except Forbidden:
        unread.append(name)
        return otherwise


async def _namespaces(kube: Kube, namespace: str) -> Mapping[str, Mapping[str, str]]:
    """The labels of the namespace, "": of all of them."""
    if namespace:
        result = [await kube.get(NAMESPACES, namespace, metadata_only=True)]
    else:
        result = (await kube.list(NAMESPACES, metadata_only=True)).items
    return {one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in result}


async def _topologies(kube: Kube) -> tuple[dict[str, Node], set[str]]:
    """The nodes that Raddle knows by name, those of one make share a machine; and those where something drifts."""
    shapes: dict[str, Node] = {}
    result: dict[str, Node] = {}
    drifting: set[str] = set()
    with contextlib.suppress(NotFound, Forbidden):
        async for page in kube.pages(NODE_CPU_TOPOLOGIES):
            for obj in page.items:
                name = obj["metadata"]["name"]
                with contextlib.suppress(nodetopology.TopologyError):
                    digest = nodetopology.shape_hash(obj.get("spec") or {})
                    if digest not in shapes:
                        machine = nodecheck.machine_of(obj)
                        shapes[digest] = Node(cpuset.count(machine.online), machine)
                    result[name] = shapes[digest]
                with contextlib.suppress(SpecError):
                    if running.from_document((obj.get("status") or {}).get("running") or {}).worst:
                        drifting.add(name)
    return result, drifting


async def _nodes(kube: Kube, known: Mapping[str, Node]) -> dict[str, Node]:
    """The nodes by name: those that Raddle knows, and the CPUs that the others have."""
    nodes = dict(known)
    async for page in kube.pages(NODES):
        for obj in page.items:
            name = obj["metadata"]["name"]
            if name not in nodes and (cpus := _capacity_cpus(obj)):
                nodes[name] = Node(cpus)
    return nodes


def _capacity_cpus(obj: Object) -> int | None:
    """The CPUs of a Node; None for a Windows node, and where the Node does not say."""
    if (obj["metadata"].get("labels") or {}).get("kubernetes.io/os", "linux") != "linux":
        return None
    try:
        return int(quantities.parse(((obj.get("status") or {}).get("capacity") or {}).get("cpu")))
    except QuantityError:
        return None


Findings = dict[str, dict[Key, Part]]
"""Node -> the containers there of which something is to be fixed."""


async def _pods(kube: Kube, asked: Asked, facts: Cluster, bar: _Bar) -> tuple[Gathered, Findings]:
    gathered, findings, done = Gathered(), Findings(), 0
    task = bar.task("pods")
    # So many pods may be read for longer than the server remembers how they were.
    pages = kube.pages(PODS, asked.namespace, label_selector=asked.selector, field_selector=RUNNING, consistent=False)
    async for page in pages:
        for obj in page.items:
            _one(obj, facts, gathered, findings)
        done += len(page.items)
        bar.shown.update(task, completed=done, total=done + (page.remaining or 0))
    return gathered, findings


def _one(obj: Object, facts: Cluster, gathered: Gathered, findings: Findings) -> None:
    for part in gathered.add(assess(obj, facts)):
        seen = part.seen
        if seen.is_finding:
            node = str(obj["spec"].get("nodeName") or "")
            findings.setdefault(node, {})[seen.namespace, str(obj["metadata"]["name"]), seen.container] = part


# --- what it costs ----------------------------------------------------------------------------------------------------


async def _kubelets(kube: Kube, findings: Findings, bar: _Bar) -> str:
    """Adds what the kubelets of these nodes measure; returns what people should know of it."""
    task = bar.task("kubelets", len(findings))
    failed: list[str] = []
    forbidden = False

    async def ask(node: str) -> None:
        nonlocal forbidden
        if not forbidden:
            try:
                await _kubelet(kube, node, findings[node])
            except Forbidden:
                forbidden = True
            except KubeError as error:
                failed.append(f"{node}: {error}")
        bar.shown.advance(task)

    await _each(sorted(findings), ask)
    if forbidden:
        return "no permission to read the kubelets' metrics (nodes/proxy): the limit is used instead of the CPU time"
    if failed:
        silent = f"{len(failed)} of {len(findings)} kubelets did not answer ({failed[0]})"
        return f"{silent}: the limit is used instead of the CPU time there"
    return "measured by the kubelets, since each container's start"


async def _kubelet(kube: Kube, node: str, wanted: Mapping[Key, Part]) -> None:
    """Adds what one kubelet measures, read line by line: all of it would be megabytes. Raises KubeError."""
    timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
    path = NODES.path(name=node, subresource="proxy/metrics/cadvisor")
    reader = measured.Node(wanted, time.time())
    async with kube.open(Call(method="GET", path=path, query={}, timeout=timeout, accept="text/plain")) as response:
        async for line in lines(response.content):
            reader.read(line)
    for key, usage in reader.usages():
        wanted[key].add(usage)


async def _prometheus(url: str, findings: Findings, bar: _Bar) -> None:
    """Adds what Prometheus measures. Raises click.ClickException where it does not answer."""
    wanted = {key: part for parts in findings.values() for key, part in parts.items()}
    namespaces = sorted({key[0] for key in wanted})
    chunks = [namespaces[at : at + NAMESPACES_A_QUERY] for at in range(0, len(namespaces), NAMESPACES_A_QUERY)]
    task = bar.task("queries", len(chunks))
    async with aiohttp.ClientSession(trust_env=True, timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)) as session:
        for chunk in chunks:
            try:
                answers = {
                    metric: await _query(session, url, query)
                    for metric, query in measured.queries(chunk, WINDOW).items()
                }
                for key, usage in measured.of_prometheus(answers):
                    if key in wanted:
                        wanted[key].add(usage)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                raise click.ClickException(f"Prometheus at {url}: {error or type(error).__name__}") from None
            bar.shown.advance(task)


async def _query(session: aiohttp.ClientSession, url: str, query: str) -> Any:
    async with session.post(f"{url.rstrip('/')}/api/v1/query", data={"query": query}) as response:
        response.raise_for_status()
        return orjson.loads(await response.read())


async def _each(items: Iterable[str], do: Callable[[str], Awaitable[None]]) -> None:
    """Does something with each, some at a time."""
    left = iter(list(items))

    async def work() -> None:
        for item in left:
            await do(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())
