"""What the controller knows: frozen facts made from API objects, kept as small as the decisions need."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from raddle import env
from raddle.cpus import cpuset
from raddle_operator.jobs.places import Node, node_from_object
from raddle_operator.kube import Object, Resource
from raddle_operator.kube.informer import Key
from raddle_operator.objects import quantities
from raddle_operator.objects.nodecheck import machine_of
from raddle_operator.objects.pods import MIRROR_ANNOTATION
from raddle_operator.objects.policy import PolicyObject, SpecError, policy_from_object
from raddle_operator.objects.quantities import QuantityError
from raddle_operator.objects.running import Running
from raddle_operator.objects.times import epoch_s
from raddle_operator.objects.tuning import TuningObject, tuning_from_object
from raddle_operator.results.key import NodeClass

# As wire.plan_text writes them.
_SAFE_VALUES: Final = '"node":null'
_NO_SHIM: Final = '"shim":false'
_CPU: Final = "f:cpu"
# Inside a text of the annotation the quotes would have backslashes. As many digits as the CRD takes.
_INSTANCES: Final = r'\{"workers":([1-9][0-9]{0,4}),"threads":([1-9][0-9]{0,4})'
_LAYOUT: Final = re.compile(rf'"layout":{_INSTANCES}(?:,"others":\[{_INSTANCES}\}}(?:,{_INSTANCES}\}}){{0,2}}\])?\}}')

# The first of the plan's values, where it sets any.
_THREADS: Final = re.compile(r'"set":\{"intraOp":([1-9][0-9]{0,3})[,}]')
_TUNED: Final = re.compile(r'"tuned":\{"by":"([-a-z0-9]{1,63})"')
_BECAUSE_TUNED: Final = re.compile(r'"tuned":("(?:[^"\\]|\\.){1,512}")')

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """An opted-in namespace's pod, from its metadata alone. ``settings_hash`` is empty when absent.

    ``safe_values``: a plan on it was made without knowing its node. ``shimless``: one was made for a process that the
    shim does not reach, so spinning can't be controlled. ``resized``: a CPU limit or request was changed in place
    since. ``layouts``: advice for Throughput in its plans, such as ``16x4`` (workers x threads), each once.
    ``threads``: the counts that its plans give one session each, each once.
    ``tuned``: the InferenceTuning that one of its plans follows; ``untuned``: why none does. Both are empty where the
    policy names none.
    """

    labels: Labels
    created_s: int
    injected: bool
    safe_values: bool
    settings_hash: str
    shimless: bool = False
    resized: bool = False
    layouts: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    tuned: str = ""
    untuned: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceFacts:
    """A namespace. ``opted_in_s`` is when the inject label was last written, its creation where that is not known."""

    labels: Mapping[str, str]
    opted_in_s: int
    terminating: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node's own word on what an agent's object says; None and empty where it says nothing.

    ``silent``: the kubelet is not heard of (Ready is Unknown), so what its agent has said is of some time ago.
    """

    boot_id: str
    capacity_cpus: int | None
    silent: bool = False
    place: Node | None = None
    """What it is to pods, where tunings are carried out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRecord:
    """A policy as it is on the server. ``policy`` is None where it can't be used, and then ``problem`` says why.

    ``changed_s``: when its spec was last written, as far as its managed fields tell.
    """

    resource: Resource
    uid: str
    generation: int
    changed_s: int
    policy: PolicyObject | None
    problem: str
    status: Object


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRecord:
    """A NodeCPUTopology as it is on the server. ``cpus`` is None where its online list can't be read.

    ``cores`` counts the physical cores, None where they are not listed. ``architecture`` is as uname names it, empty
    where it is not said. ``problem`` says why it describes no machine, empty where it does.
    """

    uid: str
    generation: int
    boot_id: str
    cpus: int | None
    cores: int | None
    status: Object
    architecture: str = ""
    problem: str = ""
    node_class: NodeClass | None = None
    """Where tunings are carried out and it describes a machine."""
    running: Running | None = None
    """What its agent says of the node's containers, which is not in ``status`` here; None where it doesn't look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningRecord:
    """An InferenceTuning as it is on the server. ``tuning`` is None where it can't be used; ``problem`` says why."""

    uid: str
    generation: int
    tuning: TuningObject | None
    problem: str
    spec: Object
    status: Object


def has_new_spec(old: PolicyRecord | None, new: PolicyRecord | None) -> bool:
    """Whether a policy came, went or has another spec now, rather than a status that we wrote ourselves."""
    return old is None or new is None or (old.policy, old.changed_s) != (new.policy, new.changed_s)


class PodReader:
    """Makes PodFacts, one object for equal pods: the replicas of a Deployment share theirs."""

    def __init__(self) -> None:
        self._facts: dict[PodFacts, PodFacts] = {}
        self._labels: dict[Labels, Labels] = {}
        self._texts: dict[str, str] = {}

    def read(self, obj: Object) -> PodFacts | None:
        """The facts of a pod's metadata; None for a mirror pod, which nobody can change."""
        metadata = obj["metadata"]
        annotations: Mapping[str, str] = metadata.get("annotations") or {}
        if MIRROR_ANNOTATION in annotations:
            return None
        labels: Mapping[str, str] = metadata.get("labels") or {}
        plans = [text for key, text in annotations.items() if key.startswith(env.PLAN_PREFIX)]
        tuned = _first(_TUNED, plans)
        facts = PodFacts(
            labels=self._shared(labels),
            created_s=epoch_s(metadata["creationTimestamp"]),
            injected=labels.get(env.INJECTED_LABEL) == "true",
            safe_values=any(_SAFE_VALUES in text for text in plans),
            settings_hash=self._text(annotations.get(env.SETTINGS_HASH, "")),
            shimless=any(_NO_SHIM in text for text in plans),
            resized=bool(plans) and _is_resized(metadata),
            layouts=self._layouts(plans),
            threads=tuple(sorted({int(result[1]) for text in plans if (result := _THREADS.search(text))})),
            tuned=self._text(tuned),
            untuned="" if tuned else self._text(_unquoted(_first(_BECAUSE_TUNED, plans))),
        )
        return self._facts.setdefault(facts, facts)

    def forget(self) -> None:
        """Drops the pool (what is in use stays); called now and then, so that it does not grow with every pod ever."""
        self._facts.clear()
        self._labels.clear()
        self._texts.clear()

    def _shared(self, labels: Mapping[str, str]) -> Labels:
        pairs = tuple((self._text(key), self._text(value)) for key, value in sorted(labels.items()))
        return self._labels.setdefault(pairs, pairs)

    def _layouts(self, plans: Iterable[str]) -> tuple[str, ...]:
        result = [_LAYOUT.search(text) for text in plans]
        kinds = (re.findall(_INSTANCES, layout[0]) for layout in result if layout)
        return tuple(sorted({self._text("+".join(map("x".join, each))) for each in kinds}))

    def _text(self, text: str) -> str:
        return self._texts.setdefault(text, text)


def _first(wanted: re.Pattern[str], plans: Iterable[str]) -> str:
    """What the first plan that has it says, "" where none does."""
    return next((result[1] for text in plans if (result := wanted.search(text))), "")


def _unquoted(text: str) -> str:
    """What a text of JSON says, printable; "" for what is none: annotations are untrusted, and statuses quote it."""
    try:
        result = str(json.loads(text)) if text else ""
    except ValueError:
        return ""
    return "".join(character if character.isprintable() else " " for character in result)


def read_namespace(obj: Object) -> NamespaceFacts:
    """The facts of a namespace's metadata."""
    metadata = obj["metadata"]
    labels = dict(metadata.get("labels") or {})
    written = _written_s(metadata, ("f:metadata", "f:labels", f"f:{env.INJECT_LABEL}"))
    return NamespaceFacts(labels=labels, opted_in_s=written, terminating="deletionTimestamp" in metadata)


def _is_resized(metadata: Mapping[str, Any]) -> bool:
    """Whether, by managedFields, anybody has written a container's CPUs through pods/resize (Kubernetes 1.33)."""
    writes = [entry for entry in metadata.get("managedFields") or () if entry.get("subresource") == "resize"]
    return any(_CPU in _resources(entry) for entry in writes)


def _resources(entry: Mapping[str, Any]) -> set[str]:
    """The resources that one entry of managedFields owns in containers and sidecars, such as ``f:cpu``."""
    spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
    containers = [*(spec.get("f:containers") or {}).values(), *(spec.get("f:initContainers") or {}).values()]
    owned = [fields.get("f:resources") or {} for fields in containers if isinstance(fields, dict)]
    return {name for fields in owned for part in fields.values() for name in part or ()}


def read_node(obj: Object, *, tuning: bool = False) -> NodeFacts | None:
    """The facts of a Node's status; None for one that does not run Linux, of which no agent tells.

    ``tuning``: and what it is to pods.
    """
    status = obj.get("status") or {}
    if (status.get("nodeInfo") or {}).get("operatingSystem") not in (None, "", "linux"):
        return None
    try:
        # The canonical form of 1000 CPUs is "1k".
        capacity = int(quantities.parse((status.get("capacity") or {}).get("cpu")))
    except QuantityError:
        capacity = None
    boot_id = str((status.get("nodeInfo") or {}).get("bootID", ""))
    states = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
    return NodeFacts(
        boot_id=boot_id,
        capacity_cpus=capacity,
        silent=states.get("Ready") == "Unknown",
        place=node_from_object(obj) if tuning else None,
    )


def read_policy(resource: Resource, obj: Object) -> PolicyRecord:
    """The record of a policy of either kind. One that can't be used is a record with a problem, not an error."""
    metadata = obj["metadata"]
    policy, problem = None, ""
    try:
        policy = policy_from_object({**obj, "kind": resource.kind})
    except SpecError as error:
        problem = str(error)
    return PolicyRecord(
        resource=resource,
        uid=metadata["uid"],
        generation=int(metadata.get("generation") or 0),
        changed_s=_written_s(metadata, ("f:spec",)),
        policy=policy,
        problem=problem,
        status=obj.get("status") or {},
    )


def read_tuning(obj: Object) -> TuningRecord:
    """The record of an InferenceTuning. One that can't be used is a record with a problem, not an error."""
    metadata, tuning, problem = obj["metadata"], None, ""
    try:
        tuning = tuning_from_object(obj)
    except SpecError as error:
        problem = str(error)
    return TuningRecord(
        uid=metadata["uid"],
        generation=int(metadata.get("generation") or 0),
        tuning=tuning,
        problem=problem,
        spec=obj.get("spec") or {},
        status=obj.get("status") or {},
    )


def read_topology(
    obj: Object,
    problem_of: Callable[[Object], str],
    running_of: Callable[[Object], Running | None] = lambda _: None,
    *,
    tuning: bool = False,
) -> TopologyRecord:
    """The record of a NodeCPUTopology; ``problem_of`` says why one describes no machine (nodecheck.Checker).

    ``running_of`` reads what its agent says of containers (running.Reader); ``tuning``: and its class.
    """
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    try:
        cpus = cpuset.count(cpuset.parse_list(str((spec.get("cpus") or {}).get("online", ""))))
    except ValueError:
        cpus = None
    problem = problem_of(obj)
    return TopologyRecord(
        uid=metadata["uid"],
        generation=int(metadata.get("generation") or 0),
        boot_id=str(spec.get("bootID") or ""),
        cpus=cpus or None,
        cores=len(spec.get("cores") or ()) or None,
        status={name: value for name, value in (obj.get("status") or {}).items() if name != "running"},
        architecture=str(spec.get("architecture") or ""),
        problem=problem,
        node_class=NodeClass.of(machine_of(obj)) if tuning and not problem else None,
        running=running_of(obj),
    )


def _written_s(metadata: Mapping[str, Any], path: tuple[str, ...]) -> int:
    """When a field was last written by anybody, from managedFields; the creation where they don't say."""
    result = epoch_s(metadata["creationTimestamp"])
    for entry in metadata.get("managedFields") or ():
        fields: Any = entry.get("fieldsV1") or {}
        for step in path:
            fields = fields.get(step) if isinstance(fields, dict) else None
        if fields is not None and not entry.get("subresource") and entry.get("time"):
            result = max(result, epoch_s(entry["time"]))
    return result


def key_text(key: Key) -> str:
    """``namespace/name``, or the name of a cluster-scoped object."""
    return "/".join(part for part in key if part)
