"""The benchmark itself, phase by phase, on one cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cluster import Cluster
from cluster.local_raddle import LocalRaddle, Process
from cluster.progress import Progress
from raddle_operator.kube import CLUSTER_INFERENCE_THREADINGS, INFERENCE_THREADINGS, Kube, Resource
from scale import calls, figures, objects, traffic
from scale.figures import Idle, Results
from scale.filling import Filler
from scale.objects import Size
from scale.truth import PodRow
from scale.watching import Policies, pod_rows

# Nodes have no kubelets and pods no owners: what would take them for lost must not run.
CONTROLLERS: Final = "serviceaccount,serviceaccount-token,root-ca-cert-publisher,namespace"
TAKES_ALL: Final = "the cluster policy takes all pods"
CHANGES_ALL: Final = "its settings change for all pods"
LETS_GO: Final = "it lets go of them"
CHANGES_ONE: Final = "one policy of a namespace changes"
ROLLOUT: Final = "pods replaced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured. `settle_s` is given to the processes before they are watched for `idle_s`."""

    size: Size = field(default_factory=Size)
    starts: int = 5
    repetitions: int = 3
    rollout_pods: int = 1_000
    settle_s: float = 15.0
    idle_s: float = 120.0


def run(plan: Plan) -> Results:
    """Measure everything."""
    progress = Progress(name="scale")
    flags = {"kube-controller-manager": [f"--controllers={CONTROLLERS}"]}
    with (
        Cluster(scheduler=False, extra_flags=flags, audit_policy=calls.policy(), progress=progress) as cluster,
        LocalRaddle(cluster, start=()) as raddle,
    ):
        return asyncio.run(_Bench(plan, raddle, cluster.directory / "logs" / "audit.log", progress).run())


class _Bench:
    def __init__(self, plan: Plan, raddle: LocalRaddle, audit_log: Path, progress: Progress) -> None:
        self._plan = plan
        self._raddle = raddle
        self._log = calls.Log(audit_log)
        self._progress = progress
        self._results = Results()
        self._rows: list[PodRow] = []

    async def run(self) -> Results:
        """Run every phase; the results."""
        start_s = time.monotonic()
        async with await Kube.from_settings(self._raddle.cluster.kubeconfig) as kube:
            self._kube = kube
            self._filler = Filler(kube, self._plan.size, self._progress)
            self._policies = Policies(kube)
            await self._fill()
            async with self._policies.following():
                await self._starts()
                await self._changes()
                await self._rollout()
                await self._idle()
        self._results.fill_s = self._filler.seconds
        self._results.without_values = sum(not row.injected for row in self._rows)
        self._results.total_s = time.monotonic() - start_s
        return self._results

    async def _fill(self) -> None:
        """Bring the namespaces their shim, then everything else without a controller, so that nothing has a status."""
        filler, controller = self._filler, self._raddle.controller
        await filler.namespaces()
        await figures.started(controller, leads=True)
        waited = len(self._plan.size.namespaces)
        await asyncio.to_thread(
            controller.wait,
            lambda: controller.metric("raddle_controller_shim_writes_total", outcome="created") >= waited,
            "every namespace has its shim",
        )
        await self._stop(controller)
        await figures.started(self._raddle.webhook)
        await filler.policies()
        await filler.nodes()
        size = self._plan.size
        await filler.pods([pod for name in size.namespaces for pod in objects.pods(name, size)])
        self._rows = await pod_rows(self._kube)

    async def _starts(self) -> None:
        """Start the controller for the first time and then again; and the webhook."""
        controller, webhook, results = self._raddle.controller, self._raddle.webhook, self._results
        start_s = time.monotonic()
        results.first_start = await figures.started(controller, leads=True)
        results.first_right_s = await self._policies.right(self._rows, {}, start_s)
        self._progress.say(
            f"first start: ready {results.first_start.ready_s:.1f} s, right {results.first_right_s:.1f} s"
        )
        await self._quiet(controller)
        for process, item in ((controller, results.starts), (webhook, results.webhook_starts)):
            for _ in range(self._plan.starts):
                results.load.append(figures.load())
                await self._stop(process)
                item.append(await figures.started(process, leads=process is controller))
                self._progress.say(f"start {len(item)}: ready {item[-1].ready_s:.1f} s, CPU {item[-1].cpu_s:.1f} s")

    async def _stop(self, process: Process) -> None:
        self._note_peak(process)
        await asyncio.to_thread(process.stop)

    def _note_peak(self, process: Process) -> None:
        name = "webhook" if process is self._raddle.webhook else "controller"
        self._results.peak_mb[name] = max(self._results.peak_mb.get(name, 0.0), figures.peak_mb(process))

    async def _quiet(self, controller: Process) -> None:
        """Wait until the controller has nothing to do."""
        await asyncio.to_thread(
            controller.wait,
            lambda: controller.metric("raddle_controller_queue_depth") == 0,
            "the queue is empty",
            120.0,
        )

    async def _changes(self) -> None:
        """Change policies, each time as soon as the change before is in every status."""
        fleet = (CLUSTER_INFERENCE_THREADINGS, ("", objects.FLEET))
        # Merge patches: null takes a selector's part away.
        everything, nobody = {"podSelector": {"matchLabels": None}}, {"podSelector": objects.nobody()}
        first = self._plan.size.namespaces[0]
        for number in range(self._plan.repetitions):
            self._results.load.append(figures.load())
            settings = {"threads": objects.SETTINGS[1 - number % 2]}
            await self._change(TAKES_ALL, *fleet, everything)
            await self._change(CHANGES_ALL, *fleet, settings)
            await self._change(LETS_GO, *fleet, nobody)
            await self._change(CHANGES_ONE, INFERENCE_THREADINGS, (first, "front"), settings)

    async def _change(self, what: str, resource: Resource, key: tuple[str, str], spec: Mapping[str, Any]) -> None:
        watch = self._stopwatch()
        stored = await self._kube.patch(resource, key[1], {"spec": dict(spec)}, key[0])
        right_s = await self._policies.right(self._rows, {key: stored["metadata"]["generation"]}, watch.start_s)
        self._done(what, watch.change(right_s))

    async def _rollout(self) -> None:
        """Replace pods, some hundred per namespace, and wait from the last request on."""
        size = self._plan.size
        for number in range(self._plan.repetitions):
            self._results.load.append(figures.load())
            names = size.namespaces[: max(1, self._plan.rollout_pods * len(size.namespaces) // size.pods)]
            old = objects.GENERATION if number == 0 else f"rollout{number - 1}"
            await self._filler.delete([pod for name in names for pod in objects.pods(name, size, old)])
            before = self._stopwatch()
            fresh = [pod for name in names for pod in objects.pods(name, size, f"rollout{number}")]
            await self._filler.pods(fresh, "new pods")
            last_s = time.monotonic()
            self._rows = await pod_rows(self._kube)
            self._done(ROLLOUT, before.change(await self._policies.right(self._rows, {}, last_s)))

    def _stopwatch(self) -> figures.Watch:
        return figures.Watch(self._raddle.controller, lambda: self._policies.changes)

    def _done(self, what: str, change: figures.Change) -> None:
        self._results.changes.setdefault(what, []).append(change)
        self._progress.say(f"{what}: right {change.right_s:.1f} s, CPU {change.cpu_s:.2f} s, {change.writes} changes")

    async def _idle(self) -> None:
        """Watch both processes while only kubelets write to their nodes."""
        processes = {"controller": self._raddle.controller, "webhook": self._raddle.webhook}
        beating = asyncio.create_task(self._filler.beat())
        try:
            await asyncio.sleep(self._plan.settle_s)
            before = {name: figures.cpu_s(process) for name, process in processes.items()}
            traffic_before = {name: traffic.of_process(process.pid or 0) for name, process in processes.items()}
            mark, start_s = self._log.mark(), time.monotonic()
            await asyncio.sleep(self._plan.idle_s)
            self._results.calls, self._results.idle_s = self._log.since(mark), time.monotonic() - start_s
            for name, process in processes.items():
                self._note_peak(process)
                self._results.idle[name] = Idle(
                    settled_mb=figures.settled_mb(process),
                    cpu_percent=(figures.cpu_s(process) - before[name]) / self._results.idle_s * 100,
                    received_bytes=traffic.between(traffic_before[name], traffic.of_process(process.pid or 0)),
                )
        finally:
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beating
