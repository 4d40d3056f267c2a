"""The loop: changes mark keys, keys are handled from the present state, and status is written in one place.

Changes of policies and topologies come from kopf and from the resync, those of pods, namespaces, nodes and shim
ConfigMaps from informers. Nothing is decided here: `status` and `freshness` do that, and `publish` writes.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, NoReturn

from raddle import env
from raddle_operator.controller import metrics
from raddle_operator.controller.counting import PodCounts
from raddle_operator.controller.examine import case_of, verdict
from raddle_operator.controller.freshness import topology_status
from raddle_operator.controller.handlers import WATCHED
from raddle_operator.controller.pace import Pace
from raddle_operator.controller.publish import StatusWriter
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.controller.shim_keeper import ShimKeeper
from raddle_operator.controller.status import PolicyKey, policy_status, says
from raddle_operator.controller.store import VersionedStore
from raddle_operator.controller.workqueue import KeyedQueue
from raddle_operator.controller.world import (
    NamespaceFacts,
    NodeFacts,
    PodFacts,
    PodReader,
    PolicyRecord,
    TopologyRecord,
    key_text,
    read_namespace,
    read_node,
    read_policy,
    read_topology,
)
from raddle_operator.injection import matching
from raddle_operator.injection.decide import Facts
from raddle_operator.injection.matching import Policies
from raddle_operator.injection.volumes import ShimDelivery
from raddle_operator.kube import (
    CLUSTER_INFERENCE_THREADINGS,
    INFERENCE_THREADINGS,
    NAMESPACES,
    NODE_CPU_TOPOLOGIES,
    NODES,
    PODS,
    Kube,
    KubeError,
    NotFound,
    Object,
    Resource,
)
from raddle_operator.kube.events import Recorder
from raddle_operator.kube.informer import CacheState, Informer, Key, backoffs, key_of
from raddle_operator.objects.nodecheck import Checker

log = logging.getLogger(__name__)

WORKERS: Final = 4
UPKEEP_WORKERS: Final = 2
_UPKEEP: Final = frozenset(("topology", "shim"))
COUNTING_SHARE: Final = 0.1
"""Counting takes this share of the time at most: one tenant with ten thousand policies must not hold up the others."""
PENDING_S: Final = 10.0
"""A status waits so long for the reasons of pods without values, and then does without."""
_RESOURCES: Final[Mapping[str, Resource]] = {
    resource.kind: resource for resource in (INFERENCE_THREADINGS, CLUSTER_INFERENCE_THREADINGS)
}
# Pods that have ended stay on the server, and their metadata alone does not say so.
_LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"


class HistoryRewoundError(Exception):
    """The API server's past is another one now, as after a restore of etcd. Versions that were known mean nothing."""


class Work(NamedTuple):
    """One thing to bring up to date. ``count`` counts every marked namespace in one pass over the pods.

    Topologies and shims have a queue and workers of their own: a thousand nodes that come at once, or a first start,
    make no policy's status late.
    """

    what: Literal["count", "examine", "policy", "topology", "shim"]
    kind: str = ""
    namespace: str = ""
    name: str = ""


_COUNT: Final = Work("count")


class Reconciler:
    """The controller's state and its work, all in one event loop.

    ``on_rewind`` is called when a list is older than what the API server has said before; nothing is written then.
    """

    def __init__(
        self, kube: Kube, settings: ControllerSettings, recorder: Recorder, *, on_rewind: Callable[[], None]
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._resynced = asyncio.Event()
        self._rewound = False
        self._on_rewind = on_rewind
        self._policies: dict[str, VersionedStore[Key, PolicyRecord]] = {
            kind: VersionedStore(functools.partial(self._policy, kind)) for kind in _RESOURCES
        }
        self._topologies = VersionedStore[Key, TopologyRecord](lambda key, _old, _new: self._topology(key))
        self._arranged: Policies | None = None
        self._counted = Policies()
        """As at the last count."""
        self._uncounted: set[PolicyKey] = set()
        """Policies that have changed since."""
        self._pace = Pace(COUNTING_SHARE)
        self._counts = PodCounts(settings.unlabelled)
        self._pending_s: dict[Work, float] = {}
        self._reader = PodReader()
        self._checker = Checker()
        self._writer = StatusWriter(kube, recorder, interval_s=settings.status_interval_s)
        self._namespaces: Informer[NamespaceFacts] = Informer(
            kube,
            NAMESPACES,
            read_namespace,
            metadata_only=True,
            on_change=self._namespace,
            on_rewind=self._rewind,
        )
        self._nodes: Informer[NodeFacts] = Informer(
            kube,
            NODES,
            read_node,
            on_change=lambda key, _old, _new: self._topology(key),
            on_rewind=self._rewind,
        )
        self._pods: Informer[PodFacts] = Informer(
            kube,
            PODS,
            self._read_pod,
            field_selector=_LIVE_PODS,
            metadata_only=True,
            on_change=lambda key, _old, _new: self._count_again((key[0],)),
            on_rewind=self._rewind,
        )
        self._shim = ShimKeeper(kube, self._shim_of, settings.shim_namespaces) if settings.keep_shim else None
        self.queue: Final[KeyedQueue[Work]] = KeyedQueue(
            interval_s=lambda work: settings.tally_interval_s if work.what == "count" else 0.0
        )
        self._upkeep: Final[KeyedQueue[Work]] = KeyedQueue()

    # ---- what comes in

    def deliver(self, resource: Resource, key: Key, obj: Object, *, deleted: bool = False) -> None:
        """Take one of our own objects as it is on the server now. Call it in this loop's thread; it never raises."""
        try:
            version = _version(obj)
            if resource is NODE_CPU_TOPOLOGIES:
                record = None if deleted else read_topology(obj, self._checker.problem)
                self._topologies.offer(key, version, record)
            else:
                self._policies[resource.kind].offer(key, version, None if deleted else read_policy(resource, obj))
        except Exception:
            log.exception("%s %s can't be read; what was known of it stays", resource.kind, key_text(key))

    async def resync(self) -> None:
        """List our own kinds and correct what kopf has told: it never compares a list with what it had.

        Then bring everything up to date, changed or not. Raises KubeError.
        """
        for resource in WATCHED:
            page = await self._kube.list(resource)
            for item in page.items:
                self.deliver(resource, key_of(item), item)
            store = self._topologies if resource is NODE_CPU_TOPOLOGIES else self._policies[resource.kind]
            store.keep_only({key_of(item) for item in page.items}, int(page.resource_version))
        self._reader.forget()
        self._counts.doubt()
        self._count_again(name for _, name in self._namespaces.store)
        for work in self._everything():
            (self._upkeep if work.what in _UPKEEP else self.queue).add(work)
        self._resynced.set()

    def _everything(self) -> Iterator[Work]:
        for kind, store in self._policies.items():
            yield from (Work("policy", kind, *key) for key in store)
        yield from (Work("topology", name=name) for _, name in self._topologies)
        yield from (Work("shim", namespace=name) for _, name in self._namespaces.store)

    def _policy(self, kind: str, key: Key, old: PolicyRecord | None, new: PolicyRecord | None) -> None:
        # Our own status writes come back here too; they change no count.
        if old is None or new is None or (old.policy, old.changed_s) != (new.policy, new.changed_s):
            self._arranged = None
            self._uncounted.add((kind, *key))
            namespaces = (key[0],) if key[0] else (name for _, name in self._namespaces.store)
            self._count_again(namespaces)
        self.queue.add(Work("policy", kind, *key))

    def _topology(self, key: Key) -> None:
        self._upkeep.add(Work("topology", name=key[1]))

    def _shim_of(self, namespace: str) -> None:
        self._upkeep.add(Work("shim", namespace=namespace))

    def _namespace(self, key: Key, old: NamespaceFacts | None, new: NamespaceFacts | None) -> None:
        name = key[1]
        self._count_again((name,))
        self._shim_of(name)
        if old is not None and new is not None and self._is_open(name, new) and not self._is_open(name, old):
            self._pods.relist()  # its pods were left out

    def _is_open(self, namespace: str, facts: NamespaceFacts) -> bool:
        """Tell whether pods of a namespace may be opted in."""
        if namespace == self._settings.namespace or namespace in self._settings.excluded_namespaces:
            return False
        mode = facts.labels.get(env.INJECT_LABEL, self._settings.unlabelled)
        return mode in (matching.ENABLED, matching.LABELLED)

    def _read_pod(self, obj: Object) -> PodFacts | None:
        namespace = obj["metadata"]["namespace"]
        facts = self._namespaces.store.get(("", namespace))
        # A namespace that the other watch has not shown yet is new: its pods are kept until it is known.
        return self._reader.read(obj) if facts is None or self._is_open(namespace, facts) else None

    def _count_again(self, namespaces: Iterable[str]) -> None:
        self._counts.mark(namespaces)
        self.queue.add(_COUNT)

    # ---- what is done

    async def run(self) -> NoReturn:
        """Follow the API server and keep every status right, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._namespaces.run())
            group.create_task(self._nodes.run())
            if self._shim is not None:
                for informer in self._shim.informers:
                    group.create_task(informer.run())
            await self._namespaces.synced.wait()  # which pods are kept depends on them
            group.create_task(self._pods.run())
            group.create_task(self._resync_forever())
            for event in (self._nodes.synced, self._pods.synced, self._resynced):
                await event.wait()
            log.info("all lists are complete, work begins")
            group.create_task(self._upkeep.run(self._handle, workers=UPKEEP_WORKERS))
            await self.queue.run(self._handle, workers=WORKERS)
        raise AssertionError("the queue never ends")

    def _rewind(self) -> None:
        self._rewound = True
        self._on_rewind()

    def unsynced(self) -> list[str]:
        """Return the kinds of which the first list is not complete yet; empty when the controller is at work."""
        waits = {
            "namespaces": self._namespaces.synced,
            "nodes": self._nodes.synced,
            "pods": self._pods.synced,
            "policies": self._resynced,
        }
        return [name for name, event in waits.items() if not event.is_set()]

    async def _resync_forever(self) -> NoReturn:
        pauses = backoffs()
        while True:
            try:
                await self.resync()
            except KubeError as error:
                metrics.RESYNCS.labels("failed").inc()
                log.warning("resync: %s", error)
                await asyncio.sleep(next(pauses))
            else:
                metrics.RESYNCS.labels("done").inc()
                pauses = backoffs()
                await asyncio.sleep(self._settings.resync_s)

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
            else:
                await self._keep_shim(work.namespace)

    def _count(self) -> None:
        """Count the marked namespaces; mark the policies whose counts have changed, and pods to examine."""
        if self._counts.is_current:
            return
        with self._pace.work():
            self._count_marked()

    def _count_in_time(self) -> None:
        """Count, or come back when it is time to: a request does not say how long ago the last count ended."""
        if (wait_s := self._pace.wait_s()) > 0:
            self.queue.add(_COUNT, delay_s=wait_s)
        else:
            self._count()

    def _count_marked(self) -> None:
        found = self._namespaces.store.items()
        opened = {name: facts for (_, name), facts in found if self._is_open(name, facts)}
        self._counted = self._arrange()
        self._uncounted.clear()
        changes = self._counts.count(opened, self._pods.store, self._counted, self._changed_s())
        for key in changes.policies:
            self.queue.add(Work("policy", *key))
        for namespace, name in changes.examine:
            self.queue.add(Work("examine", namespace=namespace, name=name))

    async def _examine(self, work: Work) -> None:
        """Find out why one pod has no values, for all pods like it."""
        key = (work.namespace, work.name)
        pod, namespace = self._pods.store.get(key), self._namespaces.store.get(("", work.namespace))
        if pod is None or namespace is None:
            return  # it is gone, and with it the question
        policies = self._arrange()
        policy = matching.select(dict(pod.labels), work.namespace, namespace.labels, policies).policy
        if policy is None:
            return
        try:
            obj = await self._kube.get(PODS, work.name, work.namespace)
        except NotFound:
            return
        nodes = [record for record in self._topologies.values() if not record.problem]
        facts = Facts(
            smallest_cores=min((record.cores for record in nodes if record.cores), default=None),
            architectures=frozenset(record.architecture for record in nodes) - {""},
        )
        reason = verdict(
            obj,
            work.namespace,
            namespace.labels,
            policies,
            facts,
            shim=ShimDelivery() if self._shim is None else self._shim.delivery_in(work.namespace),
            door=self._settings.door,
            unlabelled=self._settings.unlabelled,
        )
        self._counts.judge(case_of(work.namespace, pod.labels, policy), reason)
        self.queue.add(_COUNT)

    def _arrange(self) -> Policies:
        if self._arranged is None:
            records = (record for store in self._policies.values() for record in store.values())
            self._arranged = Policies(record.policy for record in records if record.policy is not None)
        return self._arranged

    def _changed_s(self) -> dict[PolicyKey, int]:
        return {
            (kind, *key): record.changed_s for kind, store in self._policies.items() for key, record in store.items()
        }

    async def _write_policy(self, work: Work) -> None:
        resource, key = _RESOURCES[work.kind], (work.namespace, work.name)
        record = self._policies[work.kind].get(key)
        if record is None:
            self._writer.forget(resource, key)
            self.queue.forget(work)
            self._pending_s.pop(work, None)
            return
        if (work.kind, *key) in self._uncounted:  # the status must not give old counts for a new generation
            if (wait_s := self._pace.wait_s()) > 0:
                self.queue.add(work, delay_s=wait_s)
                return
            self._count()
        wants_shim = record.policy is not None and record.policy.policy.shim in ("Auto", "ConfigMap")
        forbidden = self._shim.forbidden if self._shim is not None and wants_shim else frozenset()
        total, shimless = self._counts.total((work.kind, *key), forbidden)
        if total.pending and time.monotonic() < self._pending_s.setdefault(work, time.monotonic()) + PENDING_S:
            self.queue.add(work, delay_s=PENDING_S)  # the verdict will come sooner, and bring it back
            return
        self._pending_s.pop(work, None)
        too_many = record.policy is not None and self._counted.of_namespace(key[0]).is_beyond(record.policy)
        wanted = policy_status(record, total, too_many=too_many, shimless=shimless, now_s=time.time())
        wait_s = self._writer.wait_s(resource, key, record.generation)
        if wait_s > 0 and not says(record.status, wanted):
            self.queue.add(work, delay_s=wait_s)  # what is written then is what is right then
            return
        stored = await self._writer.write(resource, key, record.uid, record.status, wanted)
        if stored is not None:
            self.deliver(resource, key, stored)

    async def _write_topology(self, key: Key) -> None:
        record = self._topologies.get(key)
        if record is None:
            self._writer.forget(NODE_CPU_TOPOLOGIES, key)
            return
        wanted = topology_status(record, self._nodes.store.get(key), now_s=time.time())
        stored = await self._writer.write(NODE_CPU_TOPOLOGIES, key, record.uid, record.status, wanted)
        if stored is not None:
            self.deliver(NODE_CPU_TOPOLOGIES, key, stored)

    async def _keep_shim(self, namespace: str) -> None:
        facts = self._namespaces.store.get(("", namespace))
        if self._shim is None or facts is None or facts.terminating or not self._is_open(namespace, facts):
            return
        was_forbidden = namespace in self._shim.forbidden
        await self._shim.reconcile(namespace, self._counts.of(namespace).oldest_injected_s)
        if was_forbidden != (namespace in self._shim.forbidden):
            for key in self._counts.of(namespace).policies:
                self.queue.add(Work("policy", *key))

    def measure(self) -> None:
        """Bring the gauges up to date; called when they are about to be read."""
        metrics.QUEUE_DEPTH.set(len(self.queue) + len(self._upkeep))
        metrics.measure_pods(self._counts.tallies)
        records = [record for store in self._policies.values() for record in store.values()]
        metrics.measure_conditions(
            [record.status for record in records], [record.status for record in self._topologies.values()]
        )
        metrics.NODES_WITHOUT_TOPOLOGY.set(len(self._nodes.store.keys() - self._topologies.keys()))
        metrics.READINGS.caches = tuple(self._caches())

    def _caches(self) -> Iterator[CacheState]:
        """Say how many objects of each kind are kept; kopf does not tell when it last heard of its kinds."""
        for kind, store in self._policies.items():
            yield CacheState(kind, len(store), None)
        yield CacheState(NODE_CPU_TOPOLOGIES.kind, len(self._topologies), None)
        informers: tuple[Informer[Any], ...] = (self._namespaces, self._nodes, self._pods)
        for informer in informers:
            yield CacheState(informer.resource.kind, len(informer.store), informer.age_s)


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])
