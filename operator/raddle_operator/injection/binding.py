"""What Raddle changes when a pod is bound: the values of its own annotations, now that the node is known.

Nothing validates what a Binding adds, so only keys that are on the pod already are overwritten, and only within the
length that was reserved at CREATE. Whatever can't be read keeps its safe values, with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Any, Final

from raddle import env
from raddle.cpus.topology import Machine
from raddle.planning import wire
from raddle.planning.planner import Budget
from raddle_operator.injection import plan_annotations
from raddle_operator.injection.claims import Claimed
from raddle_operator.injection.decide import MAX_PLANNED_CONTAINERS
from raddle_operator.injection.others import KOORDINATOR, RESOURCE_STATUS, assigned
from raddle_operator.injection.tuning import TuningContext, Tunings, overlay
from raddle_operator.objects.reading import EMPTY

# TotalAnnotationSizeLimitB of apimachinery. Nothing checks it at binding, and a pod above it can't be updated any more,
# not even by its kubelet.
MAX_TOTAL_BYTES: Final = 256 * 1024


@unique
class BindingOutcome(StrEnum):
    """What became of the safe values. The value is what the log and the metric's label show.

    :func:`rebind` decides on the first five; with the others the webhook did not come that far.
    """

    NODE_SPECIFIC = "NodeSpecific"
    SAFE_NO_TOPOLOGY = "SafeNoTopology"
    SAFE_MALFORMED = "SafeMalformed"
    SAFE_ANNOTATION_BUDGET = "SafeAnnotationBudget"
    NOT_INJECTED = "NotInjected"
    TOPOLOGY_STALE = "TopologyStale"
    CACHES_NOT_READY = "CachesNotReady"
    DEADLINE = "Deadline"
    POD_NOT_SEEN = "PodNotSeen"
    POD_NOT_FOUND = "PodNotFound"
    POD_ANOTHER_UID = "PodAnotherUID"
    POD_LOOKUP_FAILED = "PodLookupFailed"
    POD_TOO_MANY_LOOKUPS = "PodTooManyLookups"
    FOREIGN = "Foreign"
    FAILED_OPEN = "FailedOpen"


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingDecision:
    """The annotations to put on the Binding, all of them keys of the pod; `detail` names what could not be read.

    With several containers the outcome is SafeMalformed if one of them could not be read; the others have values.
    """

    outcome: BindingOutcome
    annotations: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""


def has_claims(annotations: Mapping[str, str]) -> bool:
    """Whether a container with a plan has ResourceClaims, which may give it CPUs."""
    return any(wire.has_claims(text) for key, text in annotations.items() if key.startswith(env.PLAN_PREFIX))


def awaits_cpus(annotations: Mapping[str, str]) -> bool:
    """Whether the pod's scheduler is to choose CPUs and has not been seen to: it writes them just before it binds."""
    return RESOURCE_STATUS not in annotations and any(
        wire.is_dedicated_by(text, KOORDINATOR) for key, text in annotations.items() if key.startswith(env.PLAN_PREFIX)
    )


def rebind(
    annotations: Mapping[str, str],
    node: str,
    machine: Machine | None,
    *,
    namespace: str = "",
    tunings: Tunings | None = None,
    claimed: Mapping[str, Claimed] = EMPTY,
    other_bytes: int = 0,
) -> BindingDecision:
    """The node's values for a pod with these annotations; `machine` is the node's, None where it is not known.

    `tunings` are looked at for policies that name one, in the pod's `namespace`; None: nobody reads them.
    `claimed` are the CPUs that ResourceClaims give its containers, by name.
    `other_bytes` is the size of the pod's annotations that are not among these: they may have grown since CREATE.
    Never raises: annotations are untrusted.
    """
    containers = [key[len(env.PLAN_PREFIX) :] for key in annotations if key.startswith(env.PLAN_PREFIX)]
    if not containers:
        return BindingDecision(outcome=BindingOutcome.NOT_INJECTED)
    if machine is None:
        return BindingDecision(outcome=BindingOutcome.SAFE_NO_TOPOLOGY, detail=f"node {node[:253]}")
    result: dict[str, str] = {}
    problems: list[str] = []
    cpus = assigned(annotations, machine)
    for context, container in enumerate(containers):
        try:
            if context >= MAX_PLANNED_CONTAINERS:
                raise wire.WireError(f"more than {MAX_PLANNED_CONTAINERS} plans")  # noqa: TRY301 (one way out)
            own = claimed.get(container) or cpus
            result.update(_values(annotations, container, node, machine, own, namespace, tunings))
        except wire.WireError as error:
            problems.append(f"{container[:63]}: {error}")
    total = other_bytes + plan_annotations.size_of({**annotations, **result})
    if total > MAX_TOTAL_BYTES:
        detail = f"the pod's annotations would have {total} bytes of {MAX_TOTAL_BYTES}"
        return BindingDecision(outcome=BindingOutcome.SAFE_ANNOTATION_BUDGET, detail=detail)
    outcome = BindingOutcome.SAFE_MALFORMED if problems else BindingOutcome.NODE_SPECIFIC
    return BindingDecision(outcome=outcome, annotations=result, detail="; ".join(problems)[:512])


def _values(
    annotations: Mapping[str, str],
    container: str,
    node: str,
    machine: Machine,
    own: Claimed | tuple[int | None, str],
    namespace: str,
    tunings: Tunings | None,
) -> dict[str, str]:
    """The container's annotations with the node's values. Raises WireError; then none of them is to change.

    `own` are the CPUs of its claims, or those that a scheduler has given the pod, None for none, and where that stands.
    """
    recorded = wire.read_plan_text(annotations[env.PLAN_PREFIX + container])
    budget, source = _budget(recorded.budget, own, machine)
    kept, tuning_overlay = plan_annotations.kept_in(recorded.because), None
    if recorded.tuning is not None:
        context = TuningContext(namespace, container, recorded.tuning, machine, own=kept)
        tuning_overlay = overlay(recorded.policy, budget, context, tunings)
    _, values = plan_annotations.compose(
        machine,
        budget,
        recorded.policy,
        kept=kept,
        governed_by=recorded.governed_by,
        node=node,
        tuning_overlay=tuning_overlay,
        cpus_source=source,
    )
    result = {}
    for prefix in env.CONTAINER_PREFIXES:
        key = prefix + container
        present = annotations.get(key)
        if present is None:
            continue
        value = values.get(prefix)
        if value is None:
            raise wire.WireError(f"the plan has no value for {key[:128]}")
        if len(value.encode()) > plan_annotations.reserved(prefix):
            raise wire.WireError(f"the value for {key[:128]} is longer than the space reserved for it")
        result[key] = value
    return result


def _budget(budget: Budget, own: Claimed | tuple[int | None, str], machine: Machine) -> tuple[Budget, str]:
    """What is planned with where others have chosen a container's CPUs, and who; "" where the budget itself says it."""
    if not isinstance(own, Claimed):
        if own == (None, "") and budget.dedicated.startswith(KOORDINATOR):
            # Such a pod runs on the CPUs that are left for all, or on those that the kubelet gives it.
            return budget._replace(dedicated=""), f"{budget.dedicated}, but no CPUs in {RESOURCE_STATUS}"
        return budget if own[0] is None else budget._replace(cpus=own[0]), own[1]
    there = own.cpus is not None and not own.cpus & ~machine.online
    whole = budget._replace(whole_cpus=own.whole_cpus, dedicated=own.source)
    return whole._replace(cpus=own.cpus) if there else whole, ""


def operations(binding: Mapping[str, Any], annotations: Mapping[str, str]) -> list[dict[str, Any]]:
    """JSON-patch operations that put the annotations on a Binding, given as JSON; [] for none."""
    if not annotations:
        return []
    metadata = binding.get("metadata")
    if not isinstance(metadata, dict):
        return [{"op": "add", "path": "/metadata", "value": {"annotations": dict(annotations)}}]
    if not isinstance(metadata.get("annotations"), dict):
        return [{"op": "add", "path": "/metadata/annotations", "value": dict(annotations)}]
    return [
        {"op": "add", "path": "/metadata/annotations/" + key.replace("~", "~0").replace("/", "~1"), "value": value}
        for key, value in annotations.items()
    ]
