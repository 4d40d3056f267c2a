"""What agents say in a very large cluster: 5,000 nodes' summaries of 150,000 containers, summed up by the controller.

Nodes, topologies and summaries are written through the API, the summaries by server-side apply of the status as agents
write them; there are no agents. The first pod of each app is created, bound and run through the API, and the others are
copies of it (see `copying`). What is measured is the controller: its memory, its writes, and the time from the last of
some nodes' words until every policy's status is right.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cluster import Cluster
from cluster.local_raddle import LocalRaddle
from cluster.progress import Progress
from raddle import env
from raddle_operator.kube import INFERENCE_THREADINGS, NODE_CPU_TOPOLOGIES, PODS, Kube
from raddle_operator.kube.informer import Informer, Key
from raddle_operator.objects.nodereport import Cause
from raddle_operator.objects.running import Counts, Drift, PolicyKey, Running, to_document
from report import BUDGET_HEADINGS, Budget, machine, markdown_table, short, spread
from scale import calls, copying, figures, objects
from scale.filling import Filler
from scale.objects import Object, Size
from scale.phases import CONTROLLERS

MANAGER: Final = "raddle-agent-running"
WAIT_S: Final = 600.0
MEMORY_MB, RIGHT_S = 1000.0, 5.0
SERVERS: Final = {"GOGC": "100", "GOMEMLIMIT": "9GiB"}
"""Within the 2 GiB that a cluster's programs have by default, 150,000 pods leave an API server no time but to collect
garbage; so do 5 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much there is and is measured; each node runs `per_node` governed containers of one policy after the other.

    One node's word changes `singles` times, then that of `burst` nodes at once and that of all, `repeats` times each. A
    change begins `pause_s` after the one before is right.
    """

    size: Size = field(default_factory=lambda: Size(pods=150_000, nodes=5_000, policies=200))
    per_node: int = 30
    singles: int = 10
    burst: int = 200
    repeats: int = 5
    pause_s: float = 4.0
    idle_s: float = 20.0


QUICK: Final = Plan(size=Size(pods=1_000, nodes=200, policies=20), singles=5, burst=50, repeats=2, idle_s=5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What some nodes said at once: how long writing it took, and from the last of it until every status was right.

    `cpu_s` and `calls` are the controller's.
    """

    written_s: float
    right_s: float
    cpu_s: float
    calls: Counter[calls.Call]


@dataclass(slots=True, kw_only=True)
class Results:
    """What was measured; changes are by the number of nodes, calls the controller's."""

    start: figures.Start
    first_right_s: float
    changes: dict[int, list[Change]] = field(default_factory=dict)
    idle_calls: Counter[calls.Call] = field(default_factory=Counter)
    peak_mb: float = 0.0
    settled_mb: float = 0.0
    load: list[float] = field(default_factory=list)


def run(plan: Plan) -> Results:
    """Measure everything."""
    progress = Progress(name="agents")
    os.environ.update(SERVERS)
    flags = {"kube-controller-manager": [f"--controllers={CONTROLLERS}"], "etcd": copying.FLAGS}
    with (
        Cluster(scheduler=False, extra_flags=flags, audit_policy=calls.policy(), progress=progress) as cluster,
        LocalRaddle(cluster, start=()) as raddle,
    ):
        log = calls.Log(cluster.directory / "logs" / "audit.log")
        return asyncio.run(_Bench(plan, raddle, log, progress).run())


class _Bench:
    def __init__(self, plan: Plan, raddle: LocalRaddle, log: calls.Log, progress: Progress) -> None:
        self._plan, self._raddle, self._log, self._progress = plan, raddle, log, progress
        self._policies: list[PolicyKey] = [
            (INFERENCE_THREADINGS.kind, one["metadata"]["namespace"], one["metadata"]["name"])
            for one in objects.policies(plan.size)
        ]
        self._containers = Counter(key for number in range(plan.size.nodes) for key in self._keys(number))
        self._drifted: set[int] = set()
        self._drifted_of: Counter[PolicyKey] = Counter()
        self._seen: dict[Key, Mapping[str, Any]] = {}
        self._changed = asyncio.Event()

    async def run(self) -> Results:
        async with await Kube.from_settings(self._raddle.cluster.kubeconfig) as kube:
            self._kube = kube
            self._filler = Filler(kube, self._plan.size, self._progress)
            await self._fill()
            informer = Informer(kube, INFERENCE_THREADINGS, _running, on_change=self._take)
            following = asyncio.create_task(informer.run())
            try:
                await informer.synced.wait()
                return await self._measure()
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    # ---- what there is

    async def _fill(self) -> None:
        size, filler = self._plan.size, self._filler
        await filler.namespaces()
        await figures.started(self._raddle.webhook)
        await filler.policies()
        await filler.nodes()
        await filler.each("nodes say what runs", range(size.nodes), self._say)
        apps = [(name, app) for name in size.namespaces for app in range(objects.APPS)]
        waiting = [objects.pod(name, app, 0, objects.GENERATION, 1, 1) for name, app in apps]
        while waiting:
            await filler.pods(waiting)
            stored = (await self._kube.list(PODS)).items
            waiting = [pod for pod in waiting if _name(pod) not in {_name(one) for one in stored if _has_values(one)}]
            await filler.delete(waiting)  # those for which the webhook had no time
        batches = [
            (pod, number, range(start, min(start + copying.AT_ONCE, size.replicas)))
            for number, pod in enumerate(stored)
            for start in range(1, size.replicas, copying.AT_ONCE)
        ]
        async with copying.Etcd(self._raddle.cluster.directory) as etcd:
            await filler.each("batches of pods copied", batches, lambda batch: etcd.put(copying.of(*batch, size)))
        await self._all_pods()

    async def _all_pods(self) -> None:
        """Waits until the API server knows all pods: its cache comes after etcd."""
        async with asyncio.timeout(WAIT_S):
            while True:
                page = await anext(self._kube.pages(PODS, metadata_only=True, chunk_size=1))
                if len(page.items) + (page.remaining or 0) == self._plan.size.pods:
                    return
                await asyncio.sleep(0.1)

    async def _say(self, number: int) -> None:
        """Writes what a node's agent says: as many containers of each policy as it has, one of the first drifted."""
        drifted, (first, *_) = number in self._drifted, self._keys(number)
        counts = {
            key: Counts(
                containers=containers,
                drifted=int(drifted and key == first),
                causes=((Cause.CODE_SETS_IT, 1),) if drifted and key == first else (),
            )
            for key, containers in Counter(self._keys(number)).items()
        }
        detail = "the code sets 16 threads for onnxruntime of process 7 (python), 2 were planned; limit 2 CPUs"
        pod = f"app-0-{objects.GENERATION}-{number:05}"
        drift = Drift(
            policy=first, namespace=first[1], pod=pod, container="serve", cause=Cause.CODE_SETS_IT, detail=detail
        )
        body = {
            "metadata": {"name": objects.node_name(number)},
            "status": {"running": to_document(Running(policies=counts, worst=(drift,) if drifted else ()))},
        }
        await self._kube.apply_status(NODE_CPU_TOPOLOGIES, body, field_manager=MANAGER)

    def _keys(self, number: int) -> list[PolicyKey]:
        """The policies of a node's containers."""
        return [self._policies[(number + place) % len(self._policies)] for place in range(self._plan.per_node)]

    # ---- what is measured

    async def _measure(self) -> Results:
        plan, controller = self._plan, self._raddle.controller
        start_s = time.monotonic()
        start = await figures.started(controller, leads=True)
        results = Results(start=start, first_right_s=await self._right(start_s))
        self._progress.say(f"ready {start.ready_s:.1f} s, right {results.first_right_s:.1f} s after the start")
        await asyncio.to_thread(controller.wait, self._is_quiet, "the queue is empty", WAIT_S)
        single = [[number] for number in range(plan.singles)]
        some = [range(plan.singles, plan.singles + plan.burst)] * plan.repeats
        every = [range(plan.size.nodes)] * plan.repeats
        for nodes in (*single, *some, *every):
            results.load.append(figures.load())
            results.changes.setdefault(len(nodes), []).append(await self._change(nodes))
        mark = self._log.mark()
        await asyncio.sleep(plan.idle_s)
        results.idle_calls = self._log.since(mark)
        results.peak_mb, results.settled_mb = figures.peak_mb(controller), figures.settled_mb(controller)
        return results

    async def _change(self, nodes: Sequence[int]) -> Change:
        """Has each of these nodes say that a container drifted, or that it no longer does."""
        self._drifted ^= set(nodes)
        self._drifted_of = Counter(self._keys(number)[0] for number in self._drifted)
        controller, mark = self._raddle.controller, self._log.mark()
        cpu_s, start_s = figures.cpu_s(controller), time.monotonic()
        await self._filler.each("nodes change", nodes, self._say)
        last_s = time.monotonic()
        right_s = await self._right(last_s)
        self._progress.say(f"right {right_s:.2f} s after the last")
        await asyncio.sleep(self._plan.pause_s)  # else the next write of a status may have to wait for its time
        return Change(
            written_s=last_s - start_s,
            right_s=right_s,
            cpu_s=figures.cpu_s(controller) - cpu_s,
            calls=self._log.since(mark),
        )

    def _take(self, key: Key, _old: Any, new: Mapping[str, Any] | None) -> None:
        self._seen[key] = new or {}
        self._changed.set()

    async def _right(self, start_s: float) -> float:
        """Waits until every policy's status says what all nodes say; the seconds since `start_s`."""
        async with asyncio.timeout(WAIT_S):
            while not self._is_right():
                self._changed.clear()
                await self._changed.wait()
        return time.monotonic() - start_s

    def _is_right(self) -> bool:
        reported = ((key, self._seen.get(key[1:], {})) for key in self._policies)
        return all(
            (one.get("containers"), one.get("drifted")) == (self._containers[key], self._drifted_of[key])
            for key, one in reported
        )

    def _is_quiet(self) -> bool:
        return self._raddle.controller.metric("raddle_controller_queue_depth") == 0


def _name(pod: Object) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _has_values(pod: Object) -> bool:
    return env.INJECTED_LABEL in pod["metadata"]["labels"]


def _running(obj: Object) -> Mapping[str, Any]:
    return (obj.get("status") or {}).get("running") or {}


def section(plan: Plan, results: Results) -> str:
    """The section of docs/benchmarks.md."""
    size, start = plan.size, results.start
    created = len(size.namespaces) * objects.APPS
    budgets = [
        Budget(what="controller, resident memory, peak", value=results.peak_mb, allowed=MEMORY_MB, unit="MB"),
        *(
            Budget(
                what=f"{_nodes(number)} at once, from the last until every status is right, the longest",
                value=max(change.right_s for change in changes),
                allowed=RIGHT_S,
                unit="s",
            )
            for number, changes in results.changes.items()
        ),
    ]
    headings = ("at once", "times", "written in s", "then right after s", "controller CPU s", "writes", "of these")
    rows = [_row(number, changes) for number, changes in results.changes.items()]
    return f"""## What agents say, in a very large cluster

`python -m scale --agents`, from benchmarks/. {machine()}.
API server, etcd, the controller and what changes the nodes share this machine (load average
{spread(results.load)}); medians, ranges in brackets.
{size.pods} pods of one container in {len(size.namespaces)} namespaces, {size.nodes} nodes with
NodeCPUTopologies whose `status.running` counts {size.nodes * plan.per_node} containers of {size.policies - 1} policies.
{created} of the pods were created through the API and the webhook; the others are copies of these in etcd, each with
its own name, UID, node and time.

{markdown_table(BUDGET_HEADINGS, [budget.cells() for budget in budgets])}
The controller was ready {short(start.ready_s)} s after its start, with {short(start.cpu_s)} s of CPU time, and all
statuses were right after {short(results.first_right_s)} s; at the end it held {short(results.settled_mb)} MB.

{markdown_table(headings, rows)}
Writes are the controller's to the API server for one such change, but for its Lease. While nothing changed for
{plan.idle_s:g} s there were {_writes(results.idle_calls).total()}."""


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


def _row(number: int, changes: Sequence[Change]) -> list[str]:
    writes = [_writes(change.calls) for change in changes]
    kinds = sorted({what for item in writes for what in item})
    return [
        _nodes(number),
        str(len(changes)),
        spread([change.written_s for change in changes]),
        spread([change.right_s for change in changes]),
        spread([change.cpu_s for change in changes]),
        spread([item.total() for item in writes]),
        ", ".join(f"{what} {spread([item[what] for item in writes])}" for what in kinds) or "–",
    ]


def _writes(result: Mapping[calls.Call, int]) -> Counter[str]:
    """What the controller writes, but for its Lease, by kind."""
    verbs, writes = {"patch", "create", "update"}, Counter[str]()
    for call, count in result.items():
        if call.account == "controller" and call.verb in verbs and call.what != "leases":
            writes[call.what] += count
    return writes
