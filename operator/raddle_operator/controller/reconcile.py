"""The loop: changes mark keys, keys are handled from what is known then, and each status is written once at the end.

Level-triggered: it does not matter how often or in which order changes came. What a status says is decided in `status`
and `freshness`, `publish` writes it, `state` holds what is known.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, NoReturn

from raddle_operator.controller import metrics
from raddle_operator.controller.counting import PodCounts
from raddle_operator.controller.duty_cycle import DutyCycle
from raddle_operator.controller.examine import examine
from raddle_operator.controller.facts import TopologyRecord, has_new_spec
from raddle_operator.controller.freshness import topology_status
from raddle_operator.controller.publish import StatusWriter
from raddle_operator.controller.running import RunningTotals
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.controller.shim_reconciler import ShimReconciler
from raddle_operator.controller.state import POLICY_KINDS, ClusterState
from raddle_operator.controller.status import policy_status, status_matches
from raddle_operator.controller.tuning_reconciler import TuningReconciler
from raddle_operator.controller.workqueue import KeyedQueue
from raddle_operator.injection.matching import Policies
from raddle_operator.injection.volumes import ShimDelivery
from raddle_operator.jobs import supervisor
from raddle_operator.jobs.manifest import FOLDER
from raddle_operator.jobs.manifest import Settings as TunerSettings
from raddle_operator.kube import (
    INFERENCE_TUNINGS,
    NAMESPACES,
    NODE_CPU_TOPOLOGIES,
    NODES,
    PODS,
    Kube,
    KubeError,
    Object,
    Resource,
)
from raddle_operator.kube.events import Recorder
from raddle_operator.kube.informer import Key, backoffs
from raddle_operator.objects.running import PolicyKey, Running

log = logging.getLogger(__name__)

WORKERS: Final = 4
UPKEEP_WORKERS: Final = 2
_UPKEEP: Final = frozenset(("topology", "shim"))
COUNTING_SHARE: Final = 0.1
"""Counting takes this share of the time at most: one tenant with ten thousand policies must not hold up the others."""
RELIST_S: Final = 1.0
"""kopf lists its kinds one after the other; one resync is enough for those that come within this time."""
PENDING_S: Final = 10.0
"""A status waits so long for the reasons of pods without values, and then does without."""


class HistoryRewoundError(Exception):
    """The API server's past is another one now, as after a restore of etcd. Versions that were known mean nothing."""


class Work(NamedTuple):
    """One thing to bring up to date. ``count`` counts every marked namespace in one pass over the pods.

    Topologies and shims have a queue and workers of their own: a thousand nodes that come at once, or a first start,
    make no policy's status late. So have tunings, one worker, so that no two begin on one node at the same time.
    """

    what: Literal["count", "examine", "policy", "topology", "shim", "tuning"]
    kind: str = ""
    namespace: str = ""
    name: str = ""


_COUNT: Final = Work("count")


def _has_new_facts(old: TopologyRecord | None, new: TopologyRecord | None) -> bool:
    """Whether a topology says anything else, what runs there aside."""
    return old is None or new is None or replace(old, running=new.running) != new


class Reconciler:
    """The leader's work, all in one event loop.

    ``on_rewind`` is called when a list is older than what the API server has said before; nothing is written then.
    """

    def __init__(
        self, kube: Kube, settings: ControllerSettings, recorder: Recorder, *, on_rewind: Callable[[], None]
    ) -> None:
        self.state: Final = ClusterState(kube, settings, on_change=self._changed, on_rewind=self._rewind)
        self.queue: Final[KeyedQueue[Work]] = KeyedQueue(
            interval_s=lambda work: settings.tally_interval_s if work.what == "count" else 0.0,
            group=lambda work: work.namespace,
        )
        self._upkeep: Final[KeyedQueue[Work]] = KeyedQueue()
        self._tunings: Final[KeyedQueue[Work]] = KeyedQueue(interval_s=lambda _: settings.tally_interval_s)
        self._kube = kube
        self._settings = settings
        self._on_rewind = on_rewind
        self._rewound = False
        self._writer = StatusWriter(kube, recorder, interval_s=settings.status_interval_s)
        self._shim = ShimReconciler(kube, self._shim_of, settings.shim_namespaces) if settings.keep_shim else None
        self._tuning: TuningReconciler | None = None
        if settings.tuning:
            self._tuning = TuningReconciler(
                kube,
                self.state,
                self._writer,
                recorder,
                TunerSettings(image=settings.tuner_image, command=supervisor.command(FOLDER), door=settings.door),
                delivery_in=self._delivery_in,
                unlabelled=settings.unlabelled,
                on_change=self._tune_again,
            )
        self._duty = DutyCycle(COUNTING_SHARE)
        self._counts = PodCounts(settings.unlabelled)
        self._running = RunningTotals()
        self._reports: dict[str, Running] = {}
        """What is in those totals of each node."""
        self._counted = Policies()
        """As at the last count."""
        self._uncounted: set[PolicyKey] = set()
        """Policies that have changed since."""
        self._pending_s: dict[Work, float] = {}
        self._listed: defaultdict[Resource, set[str]] = defaultdict(set)
        """The objects of each kind that kopf has told of since it began to list them, by uid."""
        self._resync_due = asyncio.Event()

    # ---- what marks keys

    def notify(self, resource: Resource, key: Key, obj: Object, change: str | None) -> None:
        """Takes what kopf tells of an object: what a watch said of it, None where kopf has listed it.

        kopf lists a kind again when the API server has forgotten where its watch was, and does not say what is gone
        since; so an object that comes by a list for the second time calls for a resync.
        """
        self.state.deliver(resource, key, obj, deleted=change == "DELETED")
        listed, uid = self._listed[resource], obj["metadata"]["uid"]
        if change is None and uid in listed:
            listed.clear()
            self._resync_due.set()
        if change == "DELETED":
            listed.discard(uid)
        else:
            listed.add(uid)

    def _changed(self, resource: Resource, key: Key, old: Any, new: Any) -> None:
        if resource is INFERENCE_TUNINGS:
            self._tunings.add(Work("tuning", namespace=key[0], name=key[1]))
            return
        if resource in (NODES, NODE_CPU_TOPOLOGIES):
            self._hear(key)
        if resource is NODE_CPU_TOPOLOGIES and not _has_new_facts(old, new):
            return
        if resource in (NODES, NODE_CPU_TOPOLOGIES, NAMESPACES):
            self._tune_again()
        if resource is PODS:
            self._count_again((key[0],))
        elif resource is NAMESPACES:
            self._count_again((key[1],))
            self._shim_of(key[1])
        elif resource.kind in POLICY_KINDS:
            if has_new_spec(old, new):
                self._uncounted.add((resource.kind, *key))
                self._count_again((key[0],) if key[0] else (name for _, name in self.state.namespaces))
            self.queue.add(Work("policy", resource.kind, *key))
        else:  # a node, or what its agent says
            self._upkeep.add(Work("topology", name=key[1]))

    def _hear(self, key: Key) -> None:
        """Marks the policies of which the node's agent says something else.

        Only of a node that is there and heard of: an agent writes changes alone, and can't take back what it has said.
        """
        node, record = self.state.nodes.get(key), self.state.topologies.get(key)
        was = self._reports.pop(key[1], None)
        now = record.running if record is not None and node is not None and not node.silent else None
        if now is not None:
            self._reports[key[1]] = now
        if was == now:
            return
        was_known = self._running.is_known
        changed = self._running.put(key[1], was, now)
        if was_known != self._running.is_known:
            changed.update((kind, *one) for kind, store in self.state.policies.items() for one in store)
        for policy in changed:
            if policy[0] in POLICY_KINDS:  # an agent may say anything
                self.queue.add(Work("policy", *policy))

    def _count_again(self, namespaces: Iterable[str]) -> None:
        self._counts.mark(namespaces)
        self.queue.add(_COUNT)

    def _shim_of(self, namespace: str) -> None:
        self._upkeep.add(Work("shim", namespace=namespace))

    def _tune_again(self) -> None:
        for namespace, name in self.state.tunings:
            self._tunings.add(Work("tuning", namespace=namespace, name=name))

    def _delivery_in(self, namespace: str) -> ShimDelivery:
        return ShimDelivery() if self._shim is None else self._shim.delivery_in(namespace)

    async def resync(self) -> None:
        """Corrects what is known by lists, then brings everything up to date, changed or not. Raises KubeError."""
        await self.state.resync()
        self._counts.invalidate()
        self._count_again(name for _, name in self.state.namespaces)
        self._tune_again()
        for work in self._everything():
            (self._upkeep if work.what in _UPKEEP else self.queue).add(work)

    def _everything(self) -> Iterator[Work]:
        for kind, store in self.state.policies.items():
            yield from (Work("policy", kind, *key) for key in store)
        yield from (Work("topology", name=name) for _, name in self.state.topologies)
        yield from (Work("shim", namespace=name) for _, name in self.state.namespaces)

    def _rewind(self) -> None:
        self._rewound = True
        self._on_rewind()

    # ---- what is done

    async def run(self) -> NoReturn:
        """Follows the API server and keeps every status right, until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._shim is not None:
                for informer in self._shim.informers:
                    group.create_task(informer.run())
            group.create_task(self._resync_forever())
            await self.state.listed.wait()  # which pods are kept depends on their namespaces
            group.create_task(self.state.pods.run())
            await self.state.pods.synced.wait()
            log.info("all lists are complete, starting work")
            group.create_task(self._upkeep.run(self._handle, workers=UPKEEP_WORKERS))
            if self._tuning is not None:
                group.create_task(self._run_tunings(self._tuning))
            await self.queue.run(self._handle, workers=WORKERS)
        raise AssertionError("the queue never ends")

    async def _run_tunings(self, tuning: TuningReconciler) -> NoReturn:
        """Where Jobs may not be listed tunings wait, and nothing else does."""
        async with asyncio.TaskGroup() as group:
            for informer in tuning.informers:
                group.create_task(informer.run())
            for informer in tuning.informers:
                await informer.synced.wait()
            await self._tunings.run(self._handle)
        raise AssertionError("the queue never ends")

    async def _resync_forever(self) -> NoReturn:
        pauses = backoffs()
        while True:
            self._resync_due.clear()
            try:
                await self.resync()
            except KubeError as error:
                metrics.RESYNCS.labels("failed").inc()
                log.warning("resync: %s", error)
                await asyncio.sleep(next(pauses))
            else:
                metrics.RESYNCS.labels("done").inc()
                pauses = backoffs()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._resync_due.wait(), self._settings.resync_s)
                    await asyncio.sleep(RELIST_S)

    async def _handle(self, work: Work) -> None:
        if self._rewound:
            return  # what is known is of another past
        with metrics.RECONCILE_SECONDS.labels(work.what).time():
            if work.what == "count":
                self._count_in_time()
            elif work.what == "examine":
                await self._examine(work)
            elif work.what == "policy":
                await self._write_policy(work)
            elif work.what == "topology":
                await self._write_topology(("", work.name))
            elif work.what == "tuning":
                await self._tune(work)
            else:
                await self._keep_shim(work.namespace)

    def _count_in_time(self) -> None:
        """Counts, or comes back when it is time to: a request does not say how long ago the last count ended."""
        if (wait_s := self._duty.wait_s()) > 0:
            self.queue.add(_COUNT, delay_s=wait_s)
        else:
            self._count()

    def _count(self) -> None:
        """Counts the marked namespaces; marks the policies whose counts have changed, and pods to examine."""
        if self._counts.is_current:
            return
        with self._duty.work():
            opened = {name: facts for _, name in self.state.namespaces if (facts := self.state.opened(name))}
            self._counted = self.state.arranged()
            self._uncounted.clear()
            changes = self._counts.count(opened, self.state.pods.store, self._counted, self.state.changed_s())
        for key in changes.policies:
            self.queue.add(Work("policy", *key))
        for namespace, name in changes.examine:
            self.queue.add(Work("examine", namespace=namespace, name=name))

    async def _examine(self, work: Work) -> None:
        shim = self._delivery_in(work.namespace)
        result = await examine(self._kube, self.state, self._settings, shim, (work.namespace, work.name))
        if result is not None:
            self._counts.record(*result)
            self.queue.add(_COUNT)

    async def _write_policy(self, work: Work) -> None:
        resource, key = POLICY_KINDS[work.kind], (work.namespace, work.name)
        record = self.state.policies[work.kind].get(key)
        if record is None:
            self._writer.forget(resource, key)
            self.queue.forget(work)
            self._pending_s.pop(work, None)
            return
        if (work.kind, *key) in self._uncounted:  # the status must not give old counts for a new generation
            if (wait_s := self._duty.wait_s()) > 0:
                self.queue.add(work, delay_s=wait_s)
                return
            self._count()
        wants_shim = record.policy is not None and record.policy.policy.shim == "Auto"
        forbidden = self._shim.forbidden if self._shim is not None and wants_shim else frozenset()
        total, shimless = self._counts.total((work.kind, *key), forbidden)
        if total.pending and time.monotonic() < self._pending_s.setdefault(work, time.monotonic()) + PENDING_S:
            self.queue.add(work, delay_s=PENDING_S)  # the verdict will come sooner, and bring it back
            return
        self._pending_s.pop(work, None)
        too_many = record.policy is not None and self._counted.of_namespace(key[0]).is_beyond(record.policy)
        running = self._running.of((work.kind, *key))
        wanted = policy_status(record, total, too_many=too_many, shimless=shimless, running=running, now_s=time.time())
        wait_s = self._writer.wait_s(resource, key, record.generation)
        if wait_s > 0 and not status_matches(record.status, wanted):
            self.queue.add(work, delay_s=wait_s)  # what is written then is what is right then
            return
        stored = await self._writer.write(resource, key, record.uid, record.status, wanted)
        if stored is not None:
            self.state.deliver(resource, key, stored)

    async def _write_topology(self, key: Key) -> None:
        record = self.state.topologies.get(key)
        if record is None:
            self._writer.forget(NODE_CPU_TOPOLOGIES, key)
            return
        wanted = topology_status(record, self.state.nodes.get(key), now_s=time.time())
        stored = await self._writer.write(NODE_CPU_TOPOLOGIES, key, record.uid, record.status, wanted)
        if stored is not None:
            self.state.deliver(NODE_CPU_TOPOLOGIES, key, stored)

    async def _tune(self, work: Work) -> None:
        if self._tuning is None:
            return
        again_s = await self._tuning.reconcile((work.namespace, work.name))
        if again_s is not None:
            self._tunings.add(work, delay_s=again_s)
        elif (work.namespace, work.name) not in self.state.tunings:
            self._tunings.forget(work)

    async def _keep_shim(self, namespace: str) -> None:
        facts = self.state.opened(namespace)
        if self._shim is None or facts is None or facts.terminating:
            return
        was_forbidden = namespace in self._shim.forbidden
        await self._shim.reconcile(namespace, self._counts.of(namespace).oldest_injected_s)
        if was_forbidden != (namespace in self._shim.forbidden):
            for key in self._counts.of(namespace).policies:
                self.queue.add(Work("policy", *key))

    def measure(self) -> None:
        """Brings the gauges up to date; called when they are about to be read."""
        state = self.state
        metrics.QUEUE_DEPTH.set(len(self.queue) + len(self._upkeep) + len(self._tunings))
        metrics.measure_pods(self._counts.tallies)
        metrics.measure_running(self._running.items())
        policies = [record.status for store in state.policies.values() for record in store.values()]
        topologies, tunings = (
            [record.status for record in store.values()] for store in (state.topologies, state.tunings)
        )
        metrics.measure_conditions(policies, topologies, tunings)
        metrics.NODES_WITHOUT_TOPOLOGY.set(len(state.nodes.keys() - state.topologies.keys()))
        jobs = () if self._tuning is None else (self._tuning.cache(),)
        metrics.READINGS.caches = (*state.caches(), *jobs)
