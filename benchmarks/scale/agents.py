"""What agents say in a very large cluster: 5,000 nodes' summaries of 150,000 containers, summed up by the controller.

The summaries are written as agents write them, by server-side apply of the status; there are no agents. Pods are
created through the webhook and stay unbound: the controller counts them all the same. What is measured is the
controller: its memory, its writes, and the time from a node's word to the right status of the policy that it is about.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from cluster import Cluster
from cluster.local_raddle import LocalRaddle
from cluster.progress import Progress
from raddle_operator.kube import INFERENCE_THREADINGS, NODE_CPU_TOPOLOGIES, PODS, Kube
from raddle_operator.kube.informer import Informer, Key
from raddle_operator.objects.nodereport import Cause
from raddle_operator.objects.running import Counts, Drift, PolicyKey, Running, to_document
from report import BUDGET_HEADINGS, Budget, machine, markdown_table, short, spread
from scale import calls, figures, objects
from scale.filling import Filler
from scale.objects import Size
from scale.phases import CONTROLLERS

MANAGER: Final = "raddle-agent-running"
WAIT_S: Final = 600.0
MEMORY_MB, RIGHT_S = 1000.0, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much there is and is measured; each node runs `per_node` governed containers of one policy after the other.

    A node's word changes `changes` times, each after the one before is right and `pause_s` more; then `burst` nodes
    change at once.
    """

    size: Size = field(default_factory=lambda: Size(pods=150_000, nodes=5_000, policies=200))
    per_node: int = 30
    changes: int = 20
    pause_s: float = 1.0
    burst: int = 500
    idle_s: float = 60.0


QUICK: Final = Plan(size=Size(pods=1_000, nodes=200, policies=20), changes=5, pause_s=0.5, burst=50, idle_s=5.0)


@dataclass(slots=True, kw_only=True)
class Results:
    """What was measured; calls are the controller's."""

    start: figures.Start | None = None
    first_right_s: float = 0.0
    changes_s: list[float] = field(default_factory=list)
    change_calls: Counter[calls.Call] = field(default_factory=Counter)
    burst_s: float = 0.0
    burst_calls: Counter[calls.Call] = field(default_factory=Counter)
    idle_calls: Counter[calls.Call] = field(default_factory=Counter)
    peak_mb: float = 0.0
    settled_mb: float = 0.0
    load: list[float] = field(default_factory=list)


def run(plan: Plan) -> Results:
    """Measure everything."""
    progress = Progress(name="agents")
    flags = {"kube-controller-manager": [f"--controllers={CONTROLLERS}"]}
    with (
        Cluster(scheduler=False, extra_flags=flags, audit_policy=calls.policy(), progress=progress) as cluster,
        LocalRaddle(cluster, start=()) as raddle,
    ):
        log = calls.Log(cluster.directory / "logs" / "audit.log")
        return asyncio.run(_Bench(plan, raddle, log, progress).run())


class _Bench:
    def __init__(self, plan: Plan, raddle: LocalRaddle, log: calls.Log, progress: Progress) -> None:
        self._plan, self._raddle, self._log, self._progress = plan, raddle, log, progress
        self._policies: list[PolicyKey] = []
        self._drifted: dict[int, bool] = {}
        self._seen: dict[Key, Mapping[str, Any]] = {}
        self._changed = asyncio.Event()

    async def run(self) -> Results:
        results = Results()
        async with await Kube.from_settings(self._raddle.cluster.kubeconfig) as kube:
            self._kube = kube
            await self._fill()
            informer = Informer(kube, INFERENCE_THREADINGS, _running, on_change=self._take)
            following = asyncio.create_task(informer.run())
            try:
                await informer.synced.wait()
                await self._measure(results)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
        return results

    async def _fill(self) -> None:
        size, raddle = self._plan.size, self._raddle
        filler = Filler(self._kube, size, self._progress)
        await filler.namespaces()
        await figures.started(raddle.webhook)
        await filler.policies()
        made = list(objects.policies(size))
        self._policies = [
            (INFERENCE_THREADINGS.kind, one["metadata"]["namespace"], one["metadata"]["name"]) for one in made
        ]
        await filler.each("topologies with what runs", range(size.nodes), self._node)
        pods = [pod for name in size.namespaces for pod in objects.pods(name, size)]
        await filler.each("pods created", pods, lambda pod: self._kube.create(PODS, pod))

    async def _node(self, number: int) -> None:
        await self._kube.apply(NODE_CPU_TOPOLOGIES, objects.topology(number, "none"), field_manager="raddle-agent")
        await self._say(number, drifted=False)

    async def _say(self, number: int, *, drifted: bool) -> None:
        """Writes what a node's agent says: as many containers of each policy as it has, one of the first drifted."""
        self._drifted[number] = drifted
        keys = [self._policy(number + place) for place in range(self._plan.per_node)]
        first, counted = keys[0], Counter(keys)
        counts = {
            key: Counts(
                containers=containers,
                drifted=int(drifted and key == first),
                causes=((Cause.CODE_SETS_IT, 1),) if drifted and key == first else (),
            )
            for key, containers in counted.items()
        }
        detail = "the code sets 16 threads for onnxruntime of process 7 (python), 2 were planned; limit 2 CPUs"
        pod = f"app-0-7d4b9c6f5-{number:05}"
        drift = Drift(
            policy=first, namespace=first[1], pod=pod, container="serve", cause=Cause.CODE_SETS_IT, detail=detail
        )
        body = {
            "metadata": {"name": objects.node_name(number)},
            "status": {"running": to_document(Running(policies=counts, worst=(drift,) if drifted else ()))},
        }
        await self._kube.apply_status(NODE_CPU_TOPOLOGIES, body, field_manager=MANAGER)

    def _policy(self, number: int) -> PolicyKey:
        return self._policies[number % len(self._policies)]

    def _take(self, key: Key, _old: Any, new: Mapping[str, Any] | None) -> None:
        self._seen[key] = new or {}
        self._changed.set()

    def _is_right(self) -> bool:
        containers: Counter[PolicyKey] = Counter()
        drifted: Counter[PolicyKey] = Counter()
        for number in range(self._plan.size.nodes):
            containers.update(self._policy(number + place) for place in range(self._plan.per_node))
            drifted[self._policy(number)] += self._drifted[number]
        said = {key: self._seen.get(key[1:], {}) for key in self._policies}
        return all(
            (one.get("containers"), one.get("drifted")) == (containers[key], drifted[key]) for key, one in said.items()
        )

    async def _until(self, check: Callable[[], bool], start_s: float) -> float:
        async with asyncio.timeout(WAIT_S):
            while not check():
                self._changed.clear()
                await self._changed.wait()
        return time.monotonic() - start_s

    async def _measure(self, results: Results) -> None:
        plan, controller = self._plan, self._raddle.controller
        start_s = time.monotonic()
        results.start = await figures.started(controller, leads=True)
        results.first_right_s = await self._until(self._is_right, start_s)
        self._progress.say(f"right {results.first_right_s:.1f} s after the start")
        await asyncio.to_thread(controller.wait, self._is_quiet, "the queue is empty", WAIT_S)
        mark = self._log.mark()
        for number in range(plan.changes):
            results.load.append(figures.load())
            key = self._policy(number)
            wanted = sum(self._drifted[one] for one in self._nodes_of(key)) + 1
            start_s = time.monotonic()
            await self._say(number, drifted=True)
            results.changes_s.append(
                await self._until(lambda key=key, wanted=wanted: self._seen[key[1:]].get("drifted") == wanted, start_s)  # type: ignore[misc]
            )
            await asyncio.sleep(plan.pause_s)
        results.change_calls, mark = self._log.since(mark), self._log.mark()
        start_s = time.monotonic()
        numbers = range(plan.changes, plan.changes + plan.burst)
        await Filler(self._kube, plan.size, self._progress).each(
            "nodes change", numbers, lambda number: self._say(number, drifted=True)
        )
        results.burst_s = await self._until(self._is_right, time.monotonic())
        self._progress.say(f"burst: {time.monotonic() - start_s:.1f} s, right {results.burst_s:.1f} s after the last")
        results.burst_calls = self._log.since(mark)
        await asyncio.sleep(plan.idle_s / 2)
        mark = self._log.mark()
        await asyncio.sleep(plan.idle_s / 2)
        results.idle_calls = self._log.since(mark)
        results.peak_mb, results.settled_mb = figures.peak_mb(controller), figures.settled_mb(controller)

    def _is_quiet(self) -> bool:
        return self._raddle.controller.metric("raddle_controller_queue_depth") == 0

    def _nodes_of(self, key: PolicyKey) -> list[int]:
        """The nodes whose first container is of a policy."""
        place = self._policies.index(key)
        return list(range(place, self._plan.size.nodes, len(self._policies)))


def _running(obj: objects.Object) -> Mapping[str, Any]:
    return (obj.get("status") or {}).get("running") or {}


def section(plan: Plan, results: Results) -> str:
    """The section of docs/benchmarks.md."""
    size = plan.size
    assert results.start is not None
    budgets = [
        Budget(what="controller, resident memory, peak", value=results.peak_mb, allowed=MEMORY_MB, unit="MB"),
        Budget(
            what="a node's word, until the policy's status is right, the longest",
            value=max(results.changes_s),
            allowed=RIGHT_S,
            unit="s",
        ),
        Budget(what="the last of many, until all are right", value=results.burst_s, allowed=RIGHT_S, unit="s"),
    ]
    rows = [
        [what, str(number), str(_writes(found).total()), _by_kind(found)]
        for what, number, found in (
            ("nodes change, one after the other", plan.changes, results.change_calls),
            ("nodes change at once", plan.burst, results.burst_calls),
            (f"nothing changes for {plan.idle_s / 2:g} s", 0, results.idle_calls),
        )
    ]
    return f"""## What agents say, in a very large cluster

`python -m scale --agents`, from benchmarks/. {machine()}.
API server, etcd and all else share this machine (load average {spread(results.load)}). {size.pods} pods, {size.nodes}
NodeCPUTopologies whose `status.running` counts {size.nodes * plan.per_node} containers of {size.policies - 1} policies.

{markdown_table(BUDGET_HEADINGS, [budget.cells() for budget in budgets])}
The controller was ready {short(results.start.ready_s)} s after its start, all statuses were right after
{short(results.first_right_s)} s, and it settled at {short(results.settled_mb)} MB. One change took
{spread(results.changes_s)} s.

{markdown_table(("what happens", "times", "writes of the controller", "of these"), rows)}"""


def _writes(found: Counter[calls.Call]) -> Counter[calls.Call]:
    """What the controller writes, but for its Lease."""
    verbs = {"patch", "create", "update"}
    return Counter(
        {
            call: count
            for call, count in found.items()
            if call.account == "controller" and call.verb in verbs and call.what != "leases"
        }
    )


def _by_kind(found: Counter[calls.Call]) -> str:
    return ", ".join(f"{call.what} {count}" for call, count in sorted(_writes(found).items())) or "–"
