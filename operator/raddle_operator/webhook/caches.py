"""What the webhook knows, arranged for decisions. Reading never waits; what a change makes stale is rebuilt later."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

from raddle_operator.injection.matching import Policies
from raddle_operator.injection.tuning import Tunings
from raddle_operator.kube.informer import CacheState, Key
from raddle_operator.objects.policy import PolicyObject
from raddle_operator.webhook.sources import NodeFacts, Source, Sources, Unbound
from raddle_operator.webhook.waiters import Waiters


class Caches:
    """One view over all sources."""

    def __init__(self, sources: Sources) -> None:
        self._sources: Final = sources
        self._tunings: Final = () if sources.tunings is None else (sources.tunings,)
        self._policies: Policies | None = None
        self._shapes_are_known = False
        self._smallest_cores: int | None = None
        self._architectures: frozenset[str] = frozenset()
        self._synced = False
        self.version = 0
        """Rises with every change that a decision on a pod could see."""
        self.namespace_waiters: Final[Waiters[Mapping[str, str]]] = Waiters()
        self.unbound_waiters: Final[Waiters[Unbound]] = Waiters()
        sources.policies.subscribe(self._policy_changed)
        sources.cluster_policies.subscribe(self._policy_changed)
        sources.topologies.subscribe(self._topology_changed)
        sources.namespaces.subscribe(self.namespace_waiters.notify)
        sources.unbound.subscribe(self.unbound_waiters.notify)
        for source in (
            sources.policies,
            sources.cluster_policies,
            sources.topologies,
            sources.namespaces,
            *sources.shims,
            *self._tunings,
        ):
            source.subscribe(self._changed)

    @property
    def synced(self) -> bool:
        """Whether every cache that decisions rest on has been complete once."""
        if not self._synced:
            self._synced = self._all_synced()
        return self._synced

    def _all_synced(self) -> bool:
        sources = self._sources
        needed = (sources.policies, sources.cluster_policies, sources.namespaces, sources.topologies, sources.unbound)
        optional: list[Source[object]] = [*sources.shims, *self._tunings]
        return all(source.synced.is_set() for source in needed) and all(
            source.synced.is_set() or source.errors for source in optional
        )

    async def until_synced(self) -> None:
        """Waits until the caches are complete (but for the shims', which may be forbidden)."""
        sources = self._sources
        await asyncio.gather(
            sources.policies.synced.wait(),
            sources.cluster_policies.synced.wait(),
            sources.namespaces.synced.wait(),
            sources.topologies.synced.wait(),
            sources.unbound.synced.wait(),
        )

    @property
    def policies(self) -> Policies:
        """All policies that can be used."""
        if self._policies is None:
            sources = self._sources
            self._policies = Policies((*sources.policies.store.values(), *sources.cluster_policies.store.values()))
        return self._policies

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """A namespace's labels; None where it is not known (yet)."""
        return self._sources.namespaces.store.get(("", name))

    def node(self, name: str) -> NodeFacts | None:
        """A node's topology; None where none is known."""
        return self._sources.topologies.store.get(("", name))

    def nodes(self) -> Iterator[str]:
        """The names of the nodes that are known."""
        return (name for _, name in self._sources.topologies.store)

    @property
    def smallest_cores(self) -> int | None:
        """Physical cores of the smallest known node; None where no node is known."""
        self._look_at_shapes()
        return self._smallest_cores

    @property
    def architectures(self) -> frozenset[str]:
        """Those of all known nodes, as uname names them."""
        self._look_at_shapes()
        return self._architectures

    def _look_at_shapes(self) -> None:
        if not self._shapes_are_known:
            # Nodes share few.
            shapes = {facts.shape for facts in self._sources.topologies.store.values()}
            self._smallest_cores = min((shape.cores for shape in shapes if shape.cores), default=None)
            self._architectures = frozenset(shape.machine.architecture for shape in shapes) - {""}
            self._shapes_are_known = True

    def has_config_map(self, namespace: str, name: str) -> bool:
        """Whether the namespace has a shim ConfigMap of this name; without the right to look none is there."""
        return any((namespace, name) in shims.store for shims in self._sources.shims)

    @property
    def tunings(self) -> Tunings | None:
        """What tunings have found, by namespace and name; None where they are not asked for."""
        return None if self._sources.tunings is None else self._sources.tunings.store

    def unbound(self, namespace: str, name: str) -> Unbound | None:
        """An injected pod that has no node yet; None where none of that name is known (yet)."""
        return self._sources.unbound.store.get((namespace, name))

    def states(self) -> Iterator[CacheState]:
        """The size and age of each cache."""
        sources = self._sources
        yield CacheState("InferenceThreading", len(sources.policies.store), sources.policies.age_s)
        yield CacheState(
            "ClusterInferenceThreading", len(sources.cluster_policies.store), sources.cluster_policies.age_s
        )
        yield CacheState("Namespace", len(sources.namespaces.store), sources.namespaces.age_s)
        yield CacheState("NodeCPUTopology", len(sources.topologies.store), sources.topologies.age_s)
        yield CacheState("UnboundPod", len(sources.unbound.store), sources.unbound.age_s)
        for tunings in self._tunings:
            yield CacheState("InferenceTuning", len(tunings.store), tunings.age_s)
        ages = [shims.age_s for shims in sources.shims if shims.age_s is not None]
        yield CacheState("ShimConfigMap", sum(len(shims.store) for shims in sources.shims), max(ages, default=None))

    def _changed(self, _key: Key, _old: object, _new: object) -> None:
        self.version += 1

    def _policy_changed(self, _key: Key, _old: PolicyObject | None, _new: PolicyObject | None) -> None:
        self._policies = None

    def _topology_changed(self, _key: Key, old: NodeFacts | None, new: NodeFacts | None) -> None:
        if old is None or new is None or old.shape is not new.shape:
            self._shapes_are_known = False
