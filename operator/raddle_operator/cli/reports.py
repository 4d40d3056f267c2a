"""What the agents of nodes report, read through the API server's proxy with the user's own rights."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from raddle_operator.cli.picture.model import printable
from raddle_operator.kube import MUTATING_WEBHOOKS, PODS, Forbidden, Kube, KubeError, NotFound, Object, Unavailable
from raddle_operator.objects import nodereport
from raddle_operator.objects.nodereport import Container, NodeReport, Pool, Process
from raddle_operator.objects.reading import SpecError

PORT: Final = 8082
AGENTS: Final = "app.kubernetes.io/name=raddle,app.kubernetes.io/component=agent"
NAMESPACE: Final = "raddle-system"
"""Where Raddle is looked for where one may not read where it is."""
AT_ONCE: Final = 32
TIMEOUT_S: Final = 10.0
NOBODY: Final = "no agent observes containers there"
SILENT: Final = f"its agent does not answer on port {PORT}; set agent.watch to a value other than None"

Fetch = Callable[[str], Awaitable[Object]]
"""The name of an agent's pod -> the JSON that it answers. Raises KubeError or ValueError."""
Kept = Callable[[NodeReport], NodeReport]
"""A report -> what is kept of it."""
ProgressCallback = Callable[[int, int], None]
"""Called each time a node has answered or has not: how many of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Reports by node; `failed` says why a node's agent gave none, `problem` why no agent could be asked, else ""."""

    by_node: Mapping[str, NodeReport] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    def missing(self, nodes: Collection[str]) -> str:
        """Why what runs on some of these nodes is not known, in a line; "" where it is known of all."""
        if self.problem:
            return self.problem
        silent = {node: self.failed.get(node, NOBODY) for node in nodes if node not in self.by_node}
        if not silent:
            return ""
        (why, count), *others = Counter(silent.values()).most_common()
        names = [node for node, said in silent.items() if said == why]
        shown = ", ".join(names[:3]) + f" and {count - 3} more" * (count > 3)
        more = f"; {len(silent) - count} more nodes for other reasons" if others else ""
        return f"node{'s' * (count > 1)} {shown}: {why}{more}"


def summed(report: NodeReport) -> NodeReport:
    """The report with all pools of a container as one: what tables need, in a tenth of the memory."""
    return replace(report, containers=tuple(replace(one, processes=_summed(one)) for one in report.containers))


def _summed(container: Container) -> tuple[Process, ...]:
    pools = [pool for process in container.processes for pool in process.pools]
    delays = [pool.delay_cpus for pool in pools if pool.delay_cpus is not None]
    if not pools:
        return ()
    threads = sum(pool.threads for pool in pools)
    pool = Pool(
        name="all",
        threads=threads,
        ran=sum(pool.ran for pool in pools),
        used_cpus=sum(pool.used_cpus for pool in pools),
        delay_cpus=sum(delays) if delays else None,
    )
    return (Process(pid=0, command="all", threads=threads, pools=(pool,)),)


async def read(
    agents: Mapping[str, str],
    fetch: Fetch,
    progress: ProgressCallback | None = None,
    kept: Kept = summed,
) -> Reports:
    """The reports of agents, node -> pod, some at once, and of each what is `kept`.

    A node that gives none is named, and is not fatal.
    """
    gate = asyncio.Semaphore(AT_ONCE)
    by_node: dict[str, NodeReport] = {}
    failed: dict[str, str] = {}

    async def one(node: str, pod: str) -> None:
        async with gate:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    by_node[node] = kept(nodereport.from_document(await fetch(pod)))
            except TimeoutError:
                failed[node] = f"no answer within {TIMEOUT_S:g} s"
            except Forbidden:
                failed[node] = "you can't query its agent: that requires permission to get pods/proxy there"
            except (NotFound, Unavailable) as error:
                # In these words the API server says that it did not reach the port; others are the agent's.
                unreached = isinstance(error, NotFound) or "trying to reach service" in error.message
                failed[node] = SILENT if unreached else f"its agent says: {printable(error.message.strip())}"
            except (KubeError, SpecError, ValueError) as error:
                failed[node] = printable(f"its agent's report can't be read: {error}")[:200]
        if progress is not None:
            progress(len(by_node) + len(failed), len(agents))

    await asyncio.gather(*(one(node, pod) for node, pod in agents.items()))
    return Reports(by_node=dict(sorted(by_node.items())), failed=dict(sorted(failed.items())))


async def of_nodes(
    kube: Kube, nodes: Collection[str] | None = None, progress: ProgressCallback | None = None, kept: Kept | None = None
) -> Reports:
    """The reports of these nodes, None: of all that have an agent; without `kept` only that of a single node is whole.

    Raises KubeError other than Forbidden.
    """
    namespace = await _installed_in(kube)
    try:
        pods = (await kube.list(PODS, namespace, label_selector=AGENTS)).items
    except Forbidden:
        return Reports(problem=f"you can't list the agents: that requires permission to list pods in {namespace}")
    agents = {
        node: str(pod["metadata"]["name"])
        for pod in pods
        if (node := str((pod.get("spec") or {}).get("nodeName") or ""))
        and (pod.get("status") or {}).get("phase") == "Running"
        and (nodes is None or node in nodes)
    }
    if not agents:
        return Reports(problem=f"no agent runs {'there' if nodes is not None and pods else f'in {namespace}'}")

    async def fetch(pod: str) -> Object:
        path = PODS.path(namespace, f"{pod}:{PORT}", "proxy/v1/report")
        return await kube.request("GET", path, timeout_s=TIMEOUT_S)

    return await read(agents, fetch, progress, kept or (summed if nodes is None or len(nodes) > 1 else _whole))


def _whole(report: NodeReport) -> NodeReport:
    return report


async def _installed_in(kube: Kube) -> str:
    """The namespace of Raddle's own pods, as its webhook's configuration names it."""
    try:
        configuration = await kube.get(MUTATING_WEBHOOKS, "raddle")
    except (NotFound, Forbidden):
        return NAMESPACE
    services = [(one.get("clientConfig") or {}).get("service") or {} for one in configuration.get("webhooks") or ()]
    return next((str(one["namespace"]) for one in services if one.get("namespace")), NAMESPACE)
