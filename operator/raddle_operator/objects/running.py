"""What an agent says of its node's governed containers in its NodeCPUTopology's `status.running`: counts and the worst.

crds/nodecputopologies.yaml is the source of truth for its form. What one node says is taken as that node's word only;
whatever can't be read is none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from raddle_operator.objects import load, reading
from raddle_operator.objects.load import ObservedLoad
from raddle_operator.objects.nodereport import Cause
from raddle_operator.objects.reading import SpecError

MOST_POLICIES: Final = 256
MOST_WORST: Final = 10
MOST_CHARACTERS: Final = 400

_KINDS: Final = ("InferenceThreading", "ClusterInferenceThreading")
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")

PolicyKey = tuple[str, str, str]
"""(kind, namespace, name); the namespace is empty for a ClusterInferenceThreading."""

BY_HARM: Final = (
    Cause.OVERSUBSCRIBED,
    Cause.CODE_SETS_IT,
    Cause.NOT_REACHED,
    Cause.OTHER_THREADS,
    Cause.SHARED_CORES,
    Cause.CPUSET_CHANGED,
    Cause.RESIZED,
)
"""Causes by what each costs as a rule: by what one costs just now their order would waver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """One policy's containers on a node: how many run, how many of them otherwise than planned, and these by cause.

    A container has as many causes as it has findings, so that their sum may be above `drifted`; a cause of none is left
    out. `load` is what was observed of those that count their runs.
    """

    containers: int = 0
    drifted: int = 0
    causes: tuple[tuple[Cause, int], ...] = ()
    load: ObservedLoad | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A container that runs otherwise than planned, and the worst cause of that."""

    policy: PolicyKey
    namespace: str
    pod: str
    container: str
    cause: Cause
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A node's summary; `worst` has some of the containers that run otherwise than planned, by harm."""

    policies: Mapping[PolicyKey, Counts] = field(default_factory=dict)
    worst: tuple[Drift, ...] = ()


def by_harm(one: Drift) -> tuple[int, str, str, str]:
    """The order of several containers: what costs most as a rule, then by name."""
    return BY_HARM.index(one.cause), one.namespace, one.pod, one.container


def policy_key(reference: str, namespace: str) -> PolicyKey | None:
    """The policy that a reference means (Kind/name, or Kind/namespace/name) in a pod's namespace; None for none.

    Whoever may change a pod may write the reference: none of another namespace, nor one that no policy can have.
    """
    kind, _, rest = reference.partition("/")
    named, _, name = rest.rpartition("/")
    if kind not in _KINDS or _NAME.fullmatch(name) is None:
        return None
    if kind == "ClusterInferenceThreading":
        return None if named else (kind, "", name)
    return (kind, namespace, name) if namespace and named in ("", namespace) else None


def to_document(running: Running) -> dict[str, Any]:
    """The summary as it is written, in an order that depends on nothing else."""
    return {
        "policies": [
            {
                "policy": _text_of(key),
                "containers": counts.containers,
                "drifted": counts.drifted,
                "causes": [{"cause": str(cause), "containers": containers} for cause, containers in counts.causes],
                **({} if counts.load is None else {"load": load.to_document(counts.load)}),
            }
            for key, counts in sorted(running.policies.items())[:MOST_POLICIES]
        ],
        "worst": [
            {
                "policy": _text_of(one.policy),
                "namespace": one.namespace,
                "pod": one.pod,
                "container": one.container,
                "cause": str(one.cause),
                "detail": one.detail[:MOST_CHARACTERS],
            }
            for one in running.worst[:MOST_WORST]
        ],
    }


def _text_of(key: PolicyKey) -> str:
    return "/".join(part for part in key if part)


def from_document(document: Mapping[str, Any]) -> Running:
    """The summary that a document holds; unknown fields are ignored. Raises SpecError with the field's path."""
    policies = {}
    for one in _objects(document, "policies")[:MOST_POLICIES]:
        causes = tuple((_cause(item), _count(item, "containers")) for item in _objects(one, "causes"))
        policies[_key(one)] = Counts(
            containers=_count(one, "containers"),
            drifted=_count(one, "drifted"),
            causes=causes,
            load=load.read(one),
        )
    return Running(
        policies=policies,
        worst=tuple(_drift(one) for one in _objects(document, "worst")[:MOST_WORST]),
    )


def _objects(parent: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    return [reading.as_object(one, f"running.{key}[]") for one in reading.sequence(parent, key, "running")]


def _drift(one: Mapping[str, Any]) -> Drift:
    path = "running.worst[]"
    return Drift(
        policy=_key(one),
        namespace=reading.text(one, "namespace", path),
        pod=reading.text(one, "pod", path),
        container=reading.text(one, "container", path),
        cause=_cause(one),
        detail=reading.text(one, "detail", path)[:MOST_CHARACTERS],
    )


def _key(one: Mapping[str, Any]) -> PolicyKey:
    said = reading.text(one, "policy", "running")
    kind, *namespace, name = said.split("/")
    if not (kind and name) or len(namespace) != (not kind.startswith("Cluster")) or not all(namespace):
        raise SpecError("running.policy", f"is {said[:64]!r}, must be Kind/namespace/name, or Kind/name of a cluster's")
    return kind, "".join(namespace), name


def _cause(one: Mapping[str, Any]) -> Cause:
    said = reading.text(one, "cause", "running")
    try:
        return Cause(said)
    except ValueError:
        raise SpecError("running.cause", f"is {said[:64]!r}, must be one of {', '.join(Cause)}") from None


def _count(one: Mapping[str, Any], key: str) -> int:
    value = one.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise SpecError(f"running.{key}", f"is {value!r:.40}, must be a whole number from 0")
    return value
