"""From a decision to JSON-patch operations (RFC 6902) on the pod as it is.

One function covers all: a pod without choices becomes as if Raddle had never seen it. Operations are written
directly, not found by comparing two documents, which costs more than the whole decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from raddle import env
from raddle_operator.injection import environment, plan_annotations, volumes
from raddle_operator.injection.volumes import Shim
from raddle_operator.objects.pods import Container, Pod
from raddle_operator.objects.policy import PolicyObject

Operation = dict[str, Any]

_INJECTED: Final = "true"
_NO_EDITS: Final = environment.Edits()


@dataclass(frozen=True, slots=True)
class Chosen:
    """One container that gets values: what its environment becomes, and its annotations, key to value."""

    clean: Container
    edits: environment.Edits
    mounts: Sequence[Mapping[str, Any]]
    annotations: Mapping[str, str]
    reserved_bytes: int


def operations(pod: Pod, policy: PolicyObject | None, chosen: Sequence[Chosen], shim: Shim | None) -> list[Operation]:
    """From the pod as it is to the pod with these choices; without any, to the pod as if Raddle had never seen it."""
    found: list[Operation] = []
    ours = volumes.names_of_ours(pod)
    by_place = {(choice.clean.field, choice.clean.index): choice for choice in chosen}
    copied = volumes.our_init_container(pod)
    for container in pod.all_containers:
        if container is copied:
            continue
        choice = by_place.get((container.field, container.index))
        if choice is not None:
            found += environment.operations(container, choice.clean, choice.edits)
            found += volumes.mount_operations(container, choice.mounts, ours=ours)
        else:
            found += environment.operations(container, environment.without_ours(container), _NO_EDITS)
            found += volumes.mount_operations(container, (), ours=ours)
    added = _volumes(chosen, shim)
    found += volumes.volume_operations(pod, added, shim.init_container if shim is not None else None)
    found += _annotation_operations(pod, _wanted_annotations(pod, policy, chosen, added))
    found += _label_operations(pod, injected=policy is not None)
    return found


def _volumes(chosen: Sequence[Chosen], shim: Shim | None) -> list[Mapping[str, Any]]:
    """Ours, as they are to be in the pod."""
    found = [] if shim is None else [shim.volume]
    reporting = sum(mount["name"] == volumes.REPORT_VOLUME for choice in chosen for mount in choice.mounts)
    if reporting:
        found.append(volumes.report_volume(reporting))
    return found


def _wanted_annotations(
    pod: Pod, policy: PolicyObject | None, chosen: Sequence[Chosen], added: Sequence[Mapping[str, Any]]
) -> dict[str, str | None]:
    """Key to value, None for a key of the autoscaler's that goes; not those of the user's that stay as they are."""
    wanted: dict[str, str | None] = _safe_to_evict(pod, [volume["name"] for volume in added if "emptyDir" in volume])
    if policy is None:
        return wanted
    wanted |= {env.GOVERNED_BY: policy.reference, env.SETTINGS_HASH: policy.settings_hash}
    for choice in chosen:
        wanted.update(choice.annotations)
    return wanted


def _safe_to_evict(pod: Pod, local: Sequence[str]) -> dict[str, str | None]:
    """The autoscaler's list of local volumes with ours as they are to be; {} where it stays as it is."""
    present = pod.annotations.get(volumes.SAFE_TO_EVICT, "")
    if not present and not local:
        return {}
    named = [name for name in present.split(",") if name]
    ours = volumes.names_of_ours(pod)
    kept = [name for name in named if name in local or name not in ours]
    changed = list(dict.fromkeys((*kept, *local)))
    return {} if set(changed) == set(named) else {volumes.SAFE_TO_EVICT: ",".join(changed) or None}


def _annotation_operations(pod: Pod, wanted: Mapping[str, str | None]) -> list[Operation]:
    if not pod.has_annotations:
        return [{"op": "add", "path": "/metadata/annotations", "value": dict(wanted)}] if wanted else []
    present = pod.annotations
    found: list[Operation] = [
        {"op": "remove", "path": "/metadata/annotations/" + _escaped(key)}
        for key in present
        if wanted.get(key) is None and (key in wanted or plan_annotations.is_ours(key))
    ]
    found.extend(
        {"op": "add", "path": "/metadata/annotations/" + _escaped(key), "value": value}
        for key, value in wanted.items()
        if value is not None and present.get(key) != value
    )
    return found


def _label_operations(pod: Pod, *, injected: bool) -> list[Operation]:
    present = pod.labels.get(env.INJECTED_LABEL)
    path = "/metadata/labels/" + _escaped(env.INJECTED_LABEL)
    if not injected:
        return [] if present is None else [{"op": "remove", "path": path}]
    if not pod.has_labels:
        return [{"op": "add", "path": "/metadata/labels", "value": {env.INJECTED_LABEL: _INJECTED}}]
    return [] if present == _INJECTED else [{"op": "add", "path": path, "value": _INJECTED}]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
