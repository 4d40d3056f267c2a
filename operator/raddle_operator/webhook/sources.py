"""Where the webhook's knowledge comes from: one small value per kind of object, kept by informers or put in by hand.

Each reader below turns a JSON object into what decisions need of it, so that the caches hold nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

from raddle import env
from raddle.cpus.topology import Machine
from raddle_operator.injection.others import RESOURCE_STATUS
from raddle_operator.injection.plan_annotations import size_of
from raddle_operator.injection.volumes import SHIM_LABEL
from raddle_operator.kube import (
    CLUSTER_INFERENCE_THREADINGS,
    CONFIG_MAPS,
    INFERENCE_THREADINGS,
    INFERENCE_TUNINGS,
    NAMESPACES,
    NODE_CPU_TOPOLOGIES,
    PODS,
    Kube,
    Object,
    Resource,
)
from raddle_operator.kube.informer import Informer, Key, key_of
from raddle_operator.objects import nodecheck, nodetopology
from raddle_operator.objects.policy import PolicyObject, SpecError, policy_from_object
from raddle_operator.objects.tuning import TuningResults, results_from_object
from raddle_operator.webhook.settings import WebhookSettings

log = logging.getLogger(__name__)

_POD_KEYS: Final = frozenset((env.GOVERNED_BY, env.SETTINGS_HASH, RESOURCE_STATUS))

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Callback = Callable[[Key, T | None, T | None], None]


class Source(Protocol[T_co]):
    """What an informer offers to its readers."""

    @property
    def store(self) -> Mapping[Key, T_co]:
        """The present values."""
        ...

    @property
    def synced(self) -> asyncio.Event:
        """Set once the store has been complete."""
        ...

    @property
    def age_s(self) -> float | None:
        """Seconds since the API server was last heard; None before the first list."""
        ...

    @property
    def errors(self) -> int:
        """How many attempts have failed."""
        ...

    def subscribe(self, callback: Callable[[Key, T_co | None, T_co | None], None]) -> None:
        """Calls ``callback(key, old, new)`` for every change from now on."""
        ...


@dataclass(frozen=True, slots=True)
class Unbound:
    """An injected pod without a node: its uid, the annotations that binding reads, and the size of all others."""

    uid: str
    annotations: Mapping[str, str]
    other_bytes: int = 0


class Shape:
    """A machine that many nodes have in common (weakly referable, unlike the machine itself)."""

    __slots__ = ("__weakref__", "cores", "machine")

    def __init__(self, machine: Machine) -> None:
        self.machine: Final = machine
        self.cores: Final = len(machine.cores)


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node's topology. ``fresh`` is false where the controller has found that the node has changed since."""

    shape: Shape
    fresh: bool


class TopologyReader:
    """Reads NodeCPUTopologies; nodes of one make share one Machine, parsed once."""

    def __init__(self) -> None:
        self.shapes: Final[WeakValueDictionary[str, Shape]] = WeakValueDictionary()
        """Those that some node has, by hash."""

    def __call__(self, obj: Object) -> NodeFacts | None:
        """The node's facts; None (with one line in the log) for an object that describes no machine."""
        spec = obj.get("spec")
        digest = nodetopology.shape_hash(spec if isinstance(spec, dict) else {})
        shape = self.shapes.get(digest)
        if shape is None:
            try:
                machine = nodecheck.machine_of(obj)
            except nodetopology.TopologyError as error:
                log.warning("NodeCPUTopology %s is ignored: %s", key_of(obj)[1], error)
                return None
            shape = self.shapes[digest] = Shape(machine._replace(boot_id=""))
        return NodeFacts(shape, _is_fresh(obj))


def _is_fresh(obj: Object) -> bool:
    """Whether no condition says otherwise: before the controller has looked, what the agent wrote holds."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return not any(
        condition.get("type") == "Fresh" and condition.get("status") == "False"
        for condition in conditions
        if isinstance(condition, dict)
    )


def read_unbound(obj: Object) -> Unbound:
    """What binding needs of an injected pod. Equal texts are one object: replicas share them."""
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    kept = {
        sys.intern(key): sys.intern(value)
        for key, value in annotations.items()
        if key in _POD_KEYS or key.startswith(env.CONTAINER_PREFIXES)
    }
    return Unbound(metadata.get("uid") or "", kept, size_of(annotations) - size_of(kept))


def read_labels(obj: Object) -> Mapping[str, str]:
    """An object's labels."""
    return dict(obj["metadata"].get("labels") or {})


def read_shim(obj: Object) -> str:
    """The content hash of a shim ConfigMap."""
    return str((obj["metadata"].get("labels") or {}).get(SHIM_LABEL) or "")


def policy_reader(resource: Resource) -> Callable[[Object], PolicyObject | None]:
    """The reader of one kind of policy; one that can't be used is left out, with one line in the log."""

    def read(obj: Object) -> PolicyObject | None:
        try:
            # Items of a list need not carry their kind.
            return policy_from_object({**obj, "kind": resource.kind})
        except SpecError as error:
            log.warning("%s %s is ignored: %s", resource.kind, "/".join(filter(None, key_of(obj))), error)
            return None

    return read


def read_tuning(obj: Object) -> TuningResults | None:
    """What a tuning has found; one that can't be read is left out, with one line in the log."""
    try:
        return results_from_object(obj)
    except SpecError as error:
        log.warning("InferenceTuning %s is ignored: %s", "/".join(key_of(obj)), error)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything that the caches read. ``shims`` may stay unsynced: without the right to look, none is there.

    ``tunings`` may too; None: nobody asks for them.
    """

    policies: Source[PolicyObject]
    cluster_policies: Source[PolicyObject]
    namespaces: Source[Mapping[str, str]]
    topologies: Source[NodeFacts]
    unbound: Source[Unbound]
    shims: tuple[Source[str], ...]
    tunings: Source[TuningResults] | None = None


def informers(kube: Kube, settings: WebhookSettings) -> tuple[Sources, list[Informer[object]]]:
    """Sources that follow the API server, and the informers to run for that."""
    started: list[Informer[object]] = []

    def informer(resource: Resource, read: Callable[[Object], T | None], **selection: object) -> Informer[T]:
        made = Informer(kube, resource, read, **selection)  # type: ignore[arg-type]
        started.append(made)  # type: ignore[arg-type]
        return made

    sources = Sources(
        policies=informer(INFERENCE_THREADINGS, policy_reader(INFERENCE_THREADINGS)),
        cluster_policies=informer(CLUSTER_INFERENCE_THREADINGS, policy_reader(CLUSTER_INFERENCE_THREADINGS)),
        namespaces=informer(NAMESPACES, read_labels, metadata_only=True),
        topologies=informer(NODE_CPU_TOPOLOGIES, TopologyReader()),
        unbound=informer(
            PODS,
            read_unbound,
            label_selector=f"{env.INJECTED_LABEL}=true",
            field_selector="spec.nodeName=",
            metadata_only=True,
        ),
        shims=tuple(
            informer(CONFIG_MAPS, read_shim, namespace=namespace, label_selector=SHIM_LABEL, metadata_only=True)
            for namespace in settings.shim_namespaces or ("",)
        ),
        tunings=informer(INFERENCE_TUNINGS, read_tuning) if settings.tuning else None,
    )
    return sources, started


class MemorySource(Generic[T]):
    """A source filled by hand, with the same reader: for benchmarks and tests."""

    def __init__(self, read: Callable[[Object], T | None], *, synced: bool = True) -> None:
        self._objects: dict[Key, T] = {}
        self._callbacks: list[Callback[T]] = []
        self._read = read
        self.store: Final[Mapping[Key, T]] = MappingProxyType(self._objects)
        self.synced: Final = asyncio.Event()
        self.errors: Final = 0
        self.age_s: Final = 0.0
        if synced:
            self.synced.set()

    def subscribe(self, callback: Callback[T]) -> None:
        """Calls ``callback(key, old, new)`` for every change from now on."""
        self._callbacks.append(callback)

    def put(self, obj: Object) -> None:
        """Adds or replaces an object, given as JSON."""
        self._set(key_of(obj), self._read(obj))

    def remove(self, obj: Object) -> None:
        """Takes an object out."""
        self._set(key_of(obj), None)

    def _set(self, key: Key, new: T | None) -> None:
        old = self._objects.pop(key, None)
        if new is not None:
            self._objects[key] = new
        for callback in self._callbacks:
            callback(key, old, new)


@dataclass(frozen=True, slots=True)
class MemorySources:
    """A whole set of sources filled by hand."""

    policies: MemorySource[PolicyObject]
    cluster_policies: MemorySource[PolicyObject]
    namespaces: MemorySource[Mapping[str, str]]
    topologies: MemorySource[NodeFacts]
    unbound: MemorySource[Unbound]
    shims: MemorySource[str]
    tunings: MemorySource[TuningResults]

    @classmethod
    def empty(cls, *, synced: bool = True) -> MemorySources:
        """Sources with nothing in them, complete or still to come."""
        return cls(
            MemorySource(policy_reader(INFERENCE_THREADINGS), synced=synced),
            MemorySource(policy_reader(CLUSTER_INFERENCE_THREADINGS), synced=synced),
            MemorySource(read_labels, synced=synced),
            MemorySource(TopologyReader(), synced=synced),
            MemorySource(read_unbound, synced=synced),
            MemorySource(read_shim, synced=synced),
            MemorySource(read_tuning, synced=synced),
        )

    def sources(self, *, tuning: bool = False) -> Sources:
        """Them as the caches take them."""
        return Sources(
            policies=self.policies,
            cluster_policies=self.cluster_policies,
            namespaces=self.namespaces,
            topologies=self.topologies,
            unbound=self.unbound,
            shims=(self.shims,),
            tunings=self.tunings if tuning else None,
        )
