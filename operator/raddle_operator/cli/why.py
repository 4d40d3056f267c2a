"""Why a pod has what it has, or has nothing: decided again from what the cluster holds now. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from raddle import delivery, env
from raddle.planning import wire
from raddle.planning.policy import WITHOUT_SHIM
from raddle_operator.injection import decide, injected, json_patch, shipped, volumes
from raddle_operator.injection import explain as pure
from raddle_operator.injection.literals import VARIABLES
from raddle_operator.injection.matching import Policies, select
from raddle_operator.injection.tuning import NOT_READ, TuningContext, overlay
from raddle_operator.objects import quantities
from raddle_operator.objects.reasons import Skip, SkipReason

if TYPE_CHECKING:
    from raddle_operator.cli.cluster import Snapshot

Runtimes = Mapping[str, tuple[str, str]]
"""Container -> the runtime that it has loaded, and its version."""


def explained(snapshot: Snapshot) -> list[pure.ContainerExplanation]:
    """What the pod itself says of its containers, and what they do not get, decided again."""
    if not any(key.startswith(env.PLAN_PREFIX) for key in snapshot.annotations):
        return []
    decision = decided(snapshot)
    withheld = {outcome.name: outcome.withheld for outcome in decision.containers}
    would = _behind_the_door(json_patch.apply(snapshot.pod, decision.operations)) if decision.injected else frozenset()
    for name in would - _behind_the_door(snapshot.pod):
        withheld[name] = (
            Skip(reason=SkipReason.DOOR_CLOSED, detail=f"it was when the pod was created; {WITHOUT_SHIM}"),
            *withheld[name],
        )
    presets = {outcome.name: pure.preset(outcome.preset, outcome.advice) for outcome in decision.containers}
    return pure.explain(snapshot.annotations, injected.literals_of(snapshot.pod), withheld, presets)


def _behind_the_door(pod: Mapping[str, Any]) -> frozenset[str]:
    """The containers that have the shim by /etc/ld.so.preload."""
    spec = pod.get("spec") or {}
    return frozenset(
        container["name"]
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        for mount in container.get("volumeMounts") or ()
        if (mount["name"], mount["mountPath"]) == (volumes.SHIM_VOLUME, delivery.PRELOAD_FILE)
    )


def changed_since(snapshot: Snapshot) -> str | None:
    """The policy that would give the pod other values now, None where it has those; its status counts the pod.

    A pod that no policy governs any more keeps what it has, and is nobody's.
    """
    labels = snapshot.pod.get("metadata", {}).get("labels") or {}
    made_with = snapshot.annotations.get(env.SETTINGS_HASH)
    now = select(labels, snapshot.namespace, snapshot.namespace_labels, Policies(list(snapshot.policies))).policy
    if made_with is None or now is None or now.settings_hash == made_with:
        return None
    return now.reference


def resized_to(snapshot: Snapshot, one: pure.ContainerExplanation) -> float | None:
    """A container's own CPU limit now where it was planned with another, else None."""
    spec = snapshot.pod.get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    limits = [(item.get("resources") or {}).get("limits") or {} for item in containers if item["name"] == one.container]
    if not limits or "cpu" not in limits[0]:
        return None
    limit_cpus = float(quantities.parse(limits[0]["cpu"]))
    return None if one.problem or limit_cpus == one.planned_cpus else limit_cpus


def decided(snapshot: Snapshot) -> decide.Decision:
    """Decides on the pod with what the cluster holds now.

    When it was created no node was chosen yet, so its architecture may not have been known; the door says that it was.
    """
    machine, pod = snapshot.machine, snapshot.pod
    spec = pod.get("spec") or {}
    node, architectures = spec.get("nodeName"), snapshot.architectures
    if _behind_the_door(pod):
        architectures = frozenset({(machine.architecture if machine is not None else "") or delivery.ARCHITECTURES[0]})
    else:
        pod = {**pod, "spec": {key: value for key, value in spec.items() if key != "nodeName"}}
    facts = decide.Facts(
        smallest_cores=(len(machine.cores) or None) if machine is not None else None,
        machines={node: machine} if node and machine is not None else {},
        architectures=architectures,
    )
    # The operator's native shims, of which this installation may have none.
    shim = replace(shipped.shim(), items=dict.fromkeys(delivery.ARCHITECTURES, ()))
    settings = decide.Settings(shim=shim, unlabelled=snapshot.unlabelled)
    policies = Policies(list(snapshot.policies))
    return decide.decide_object(pod, snapshot.namespace, snapshot.namespace_labels, policies, facts, settings)


def why_not(snapshot: Snapshot) -> Skip:
    """Why a pod has no values, by deciding on it again with what the cluster holds now."""
    decision = decided(snapshot)
    if decision.skip is not None:
        return decision.skip
    assert decision.policy is not None
    detail = (
        f"{decision.policy.reference} governs it now, but the pod was created before that, or while the webhook did"
        " not answer; a new pod gets values"
    )
    return Skip(reason=SkipReason.WEBHOOK_MISSED, detail=detail)


def tuned_now(snapshot: Snapshot, one: pure.ContainerExplanation, runtimes: Runtimes | None = None) -> str | None:
    """What the tuning comes to now, where that is something else; None where it is not.

    The node has told which image it runs, its process perhaps the runtime, and a tuning may have found more since.
    """
    if snapshot.tunings is None or snapshot.machine is None or one.node is None:
        return None
    recorded = wire.read_plan_text(snapshot.annotations[env.PLAN_PREFIX + one.container])
    made_with = recorded.because.get(wire.TUNED, NOT_READ)
    if recorded.tuning is None or made_with == NOT_READ:
        return None
    image_id = _image_id(snapshot.pod, one.container)
    runtime = (runtimes or {}).get(one.container, ("", ""))
    references = (env.OMP, env.OPENBLAS)
    given = {name: "" if name in references else value for name, value in one.variables.items()}
    context = TuningContext(
        *(snapshot.namespace, one.container, recorded.tuning, snapshot.machine),
        *(image_id, *runtime),
        own=one.kept,
        # Of a pod that was created for a node, without a binding, they are that node's.
        given={name: value for name, value in given.items() if name in (*references, *VARIABLES)},
    )
    now = overlay(recorded.policy, recorded.budget, context, snapshot.tunings)
    if now is None or now.because == made_with:
        return None
    return pure.tuning(now.target.by, {wire.TUNED: now.because})


def _image_id(pod: Mapping[str, Any], container: str) -> str:
    """The digest of the image that the node runs, "" where it has told none."""
    status = pod.get("status") or {}
    told = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    ids = (str(one.get("imageID") or "") for one in told if one.get("name") == container)
    return next(ids, "").rpartition("@")[2]
