"""What the controller knows of the cluster: the facts of each kind by key. Nothing is decided or written here.

kopf watches policies, topologies, namespaces and nodes. Pods, which are the most by far, come from an informer that
asks for their metadata only and keeps those of opted-in namespaces (docs/explanation/architecture.md has figures).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

from raddle import env
from raddle_operator.controller import running
from raddle_operator.controller.facts import (
    NamespaceFacts,
    NodeFacts,
    PodFacts,
    PodReader,
    PolicyRecord,
    TopologyRecord,
    TuningRecord,
    has_new_spec,
    key_text,
    read_namespace,
    read_node,
    read_policy,
    read_topology,
    read_tuning,
)
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.controller.store import VersionedStore
from raddle_operator.injection import matching
from raddle_operator.injection.decide import Facts
from raddle_operator.injection.matching import Policies
from raddle_operator.kube import (
    CLUSTER_INFERENCE_THREADINGS,
    INFERENCE_THREADINGS,
    INFERENCE_TUNINGS,
    NAMESPACES,
    NODE_CPU_TOPOLOGIES,
    NODES,
    PODS,
    Forbidden,
    Kube,
    NotFound,
    Object,
    Resource,
)
from raddle_operator.kube.informer import CHUNK_SIZE, CacheState, Informer, Key, key_of
from raddle_operator.objects.nodecheck import Checker
from raddle_operator.objects.running import PolicyKey

log = logging.getLogger(__name__)

POLICY_KINDS: Final = {kind.kind: kind for kind in (INFERENCE_THREADINGS, CLUSTER_INFERENCE_THREADINGS)}
_WATCHED: Final = (NAMESPACES, NODES, *POLICY_KINDS.values(), NODE_CPU_TOPOLOGIES)
# Pods that have ended stay on the server, and their metadata alone does not say so.
_LIVE_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"


def watched(settings: ControllerSettings) -> tuple[Resource, ...]:
    """The kinds that kopf watches."""
    return (*_WATCHED, INFERENCE_TUNINGS) if settings.tuning else _WATCHED


OnChange = Callable[[Resource, Key, Any, Any], None]
"""``on_change(resource, key, old, new)``: the facts of an object have changed; None for what is not there."""


class ClusterState:
    """The facts of all objects that matter. ``on_change`` is called after each difference.

    ``on_rewind`` is called when the list of pods is older than what the API server has said before.
    """

    def __init__(
        self, kube: Kube, settings: ControllerSettings, *, on_change: OnChange, on_rewind: Callable[[], None]
    ) -> None:
        self.listed: Final = asyncio.Event()
        """Set after the first :meth:`resync`."""
        self.policies: Final[dict[str, VersionedStore[Key, PolicyRecord]]] = {
            name: VersionedStore(functools.partial(self._policy_changed, kind)) for name, kind in POLICY_KINDS.items()
        }
        self.topologies: Final = VersionedStore[Key, TopologyRecord](functools.partial(on_change, NODE_CPU_TOPOLOGIES))
        self.tunings: Final = VersionedStore[Key, TuningRecord](functools.partial(on_change, INFERENCE_TUNINGS))
        self.nodes: Final = VersionedStore[Key, NodeFacts](functools.partial(on_change, NODES))
        self.namespaces: Final = VersionedStore[Key, NamespaceFacts](self._namespace_changed)
        self.pods: Final[Informer[PodFacts]] = Informer(
            kube,
            PODS,
            self._read_pod,
            field_selector=_LIVE_PODS,
            metadata_only=True,
            on_change=functools.partial(on_change, PODS),
            on_rewind=on_rewind,
        )
        self._kube = kube
        self._settings = settings
        self._on_change = on_change
        self._pod_reader = PodReader()
        self._running_reader = running.Reader()
        self._arranged: Policies | None = None
        self._stores: dict[Resource, VersionedStore[Key, Any]] = {
            **{kind: self.policies[name] for name, kind in POLICY_KINDS.items()},
            NODE_CPU_TOPOLOGIES: self.topologies,
            INFERENCE_TUNINGS: self.tunings,
            NAMESPACES: self.namespaces,
            NODES: self.nodes,
        }
        problem_of = Checker().problem
        self._readers: dict[Resource, Callable[[Object], Any]] = {
            **{kind: functools.partial(read_policy, kind) for kind in POLICY_KINDS.values()},
            NODE_CPU_TOPOLOGIES: lambda obj: read_topology(
                obj, problem_of, self._running_reader.read, tuning=settings.tuning
            ),
            INFERENCE_TUNINGS: read_tuning,
            NAMESPACES: read_namespace,
            NODES: functools.partial(read_node, tuning=settings.tuning),
        }

    # ---- what comes in

    def deliver(self, resource: Resource, key: Key, obj: Object, *, deleted: bool = False) -> None:
        """Takes an object as it is on the server now, or was when it was deleted. It never raises."""
        try:
            version = int(obj["metadata"]["resourceVersion"])
            self._stores[resource].put_newer(key, version, None if deleted else self._readers[resource](obj))
        except Exception:
            log.exception("%s %s can't be read; keeping its last known state", resource.kind, key_text(key))

    async def resync(self) -> None:
        """List what kopf watches and correct what is known by it: kopf does not compare lists. Raises KubeError."""
        for resource in watched(self._settings):
            try:
                await self._list(resource)
            except (Forbidden, NotFound) as error:
                if resource is not INFERENCE_TUNINGS:
                    raise
                log.warning("tunings do not run: %s", error)  # nothing else waits for them
        self._pod_reader.forget()
        self._running_reader.forget()
        self.listed.set()

    async def _list(self, resource: Resource) -> None:
        result: set[Key] = set()
        async for page in self._kube.pages(resource, chunk_size=CHUNK_SIZE):
            for item in page.items:
                result.add(key_of(item))
                self.deliver(resource, key_of(item), item)
            version = int(page.resource_version)
        self._stores[resource].retain(result, version)

    def _policy_changed(self, kind: Resource, key: Key, old: PolicyRecord | None, new: PolicyRecord | None) -> None:
        if has_new_spec(old, new):
            self._arranged = None
        self._on_change(kind, key, old, new)

    def _namespace_changed(self, key: Key, old: NamespaceFacts | None, new: NamespaceFacts | None) -> None:
        self._on_change(NAMESPACES, key, old, new)
        if old is not None and new is not None and self._is_open(key[1], new) and not self._is_open(key[1], old):
            self.pods.relist()  # its pods were left out

    def _read_pod(self, obj: Object) -> PodFacts | None:
        namespace = obj["metadata"]["namespace"]
        facts = self.namespaces.get(("", namespace))
        # A namespace that kopf has not shown yet is new: its pods are kept until it is known.
        return self._pod_reader.read(obj) if facts is None or self._is_open(namespace, facts) else None

    # ---- what is known

    def unsynced(self) -> list[str]:
        """Which first lists are not complete yet."""
        waits = {"namespaces, nodes, policies": self.listed, "pods": self.pods.synced}
        return [name for name, event in waits.items() if not event.is_set()]

    def _is_open(self, namespace: str, facts: NamespaceFacts) -> bool:
        if namespace == self._settings.namespace or namespace in self._settings.excluded_namespaces:
            return False
        return facts.labels.get(env.INJECT_LABEL, self._settings.unlabelled) in (matching.ENABLED, matching.LABELLED)

    def opened(self, namespace: str) -> NamespaceFacts | None:
        """The facts of a namespace where pods may be opted in; None of any other."""
        facts = self.namespaces.get(("", namespace))
        return facts if facts is not None and self._is_open(namespace, facts) else None

    def arranged(self) -> Policies:
        """The policies that can be used, ready for matching."""
        if self._arranged is None:
            records = (record for store in self.policies.values() for record in store.values())
            self._arranged = Policies(record.policy for record in records if record.policy is not None)
        return self._arranged

    def changed_s(self) -> dict[PolicyKey, int]:
        """When each policy's spec was last written, in seconds of the epoch."""
        return {
            (kind, *key): record.changed_s for kind, store in self.policies.items() for key, record in store.items()
        }

    def machines(self) -> Facts:
        """What the webhook decides by at CREATE: the smallest machine and the architectures of all nodes."""
        known = [record for record in self.topologies.values() if not record.problem]
        return Facts(
            smallest_cores=min((record.cores for record in known if record.cores), default=None),
            architectures=frozenset(record.architecture for record in known) - {""},
        )

    def caches(self) -> Iterator[CacheState]:
        """Yields how many objects of each kind are kept; kopf does not say when it last heard of its kinds."""
        for resource in watched(self._settings):
            yield CacheState(resource.kind, len(self._stores[resource]), None)
        yield CacheState(PODS.kind, len(self.pods.store), self.pods.age_s)
