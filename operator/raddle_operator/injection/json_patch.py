"""From a decision to JSON-patch operations (RFC 6902) on the pod as it is.

One function covers all: a pod without changes becomes as if Raddle had never seen it. Operations are written
directly, not found by comparing two documents, which costs more than the whole decision.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from raddle import env
from raddle_operator.injection import plan_annotations
from raddle_operator.injection.variables import Edits, Entry
from raddle_operator.objects.pods import Container, Pod
from raddle_operator.objects.policy import PolicyObject

Operation = dict[str, Any]

_INJECTED: Final = "true"
_Name = TypeVar("_Name", str, tuple[str, str])


class ContainerChange(NamedTuple):
    """What a container without ours gets: changes of its environment, mounts of ours, its annotations, key to value."""

    container: Container
    environment: Edits = Edits()
    mounts: Sequence[Mapping[str, Any]] = ()
    annotations: Mapping[str, str] = {}


def operations(
    pod: Pod,
    clean: Pod,
    policy: PolicyObject | None = None,
    changes: Sequence[ContainerChange] = (),
    shim: Mapping[str, Any] | None = None,
) -> list[Operation]:
    """From the pod as it is to `clean`, which is the pod without ours, with these changes; `shim` is its volume."""
    result: list[Operation] = []
    by_place = {(change.container.field, change.container.place): change for change in changes}
    for container in clean.containers + clean.init_containers:
        present = (pod.init_containers if container.field == "initContainers" else pod.containers)[container.place]
        change = by_place.get((container.field, container.place))
        if change is not None or present is not container:
            change = change or ContainerChange(container)
            result += _environment(present, change) + _mounts(present, change)
    result += _volumes(pod, clean, [] if shim is None else [shim])
    annotations = {key: value for change in changes for key, value in change.annotations.items()}
    if policy is not None:
        annotations = {env.GOVERNED_BY: policy.reference, env.SETTINGS_HASH: policy.settings_hash, **annotations}
    result += _annotations(pod, annotations)
    result += _label(pod, injected=policy is not None)
    return result


# --- containers -----------------------------------------------------------------------------------------------------


def apply(pod: Mapping[str, Any], operations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A copy of the pod with the JSON-patch operations of `operations`."""
    changed = copy.deepcopy(dict(pod))
    for operation in operations:
        *parents, last = (p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:])
        target: Any = changed
        for step in parents:
            target = target[int(step)] if isinstance(target, list) else target[step]
        if isinstance(target, list):
            index = len(target) if last == "-" else int(last)
            if operation["op"] != "add":
                del target[index]
            if operation["op"] != "remove":
                target.insert(index, copy.deepcopy(operation["value"]))
        elif operation["op"] == "remove":
            del target[last]
        else:
            target[last] = copy.deepcopy(operation["value"])
    return changed


def _environment(container: Container, change: ContainerChange) -> list[Operation]:
    """A container that Raddle has not touched gets one operation an entry; one that it has gets its list again."""
    pointer, replaced, appended = container.pointer + "/env", change.environment.replaced, change.environment.appended
    entries = change.container.entries
    if container.entries is not entries:
        changed = (replaced.get(place, there) for place, there in enumerate(entries))
        wanted = [*(entry for entry in changed if entry is not None), *appended]
        # Ours may stand anywhere: another webhook may have added variables behind them.
        if _are_the_same(wanted, container.entries):
            return []
        return [{"op": "replace", "path": pointer, "value": wanted} if wanted else {"op": "remove", "path": pointer}]
    if not replaced and not appended:
        return []
    # Containers share what is appended, and no matter what makes the patch may change the result.
    if not entries:
        return [{"op": "add", "path": pointer, "value": [{**entry} for entry in appended]}]
    result: list[Operation] = []
    # From the back, so that a removal moves no place that is still to be changed.
    for place in sorted(replaced, reverse=True):
        entry = replaced[place]
        operation = {"op": "remove"} if entry is None else {"op": "replace", "value": entry}
        result.append({**operation, "path": f"{pointer}/{place}"})
    result.extend({"op": "add", "path": pointer + "/-", "value": {**entry}} for entry in appended)
    return result


def _are_the_same(wanted: Sequence[Entry], present: Sequence[Entry]) -> bool:
    """Whether both lists have the same entries, in any order."""
    if len(wanted) != len(present):
        return False
    # By text: comparing each with each takes minutes for the longest list that a pod may have.
    return wanted == present or sorted(map(_text, wanted)) == sorted(map(_text, present))


def _text(entry: Entry) -> str:
    return json.dumps(entry, sort_keys=True)


def _mounts(container: Container, change: ContainerChange) -> list[Operation]:
    there = set(container.mounts).difference(change.container.mounts)
    if not there and not change.mounts:
        return []
    pointer = container.pointer + "/volumeMounts"
    has_list = container.raw.get("volumeMounts") is not None
    if not there:
        return _added(pointer, change.mounts, has_list=has_list)
    raw = container.raw["volumeMounts"]
    wanted = {(mount["name"], mount["mountPath"]): mount for mount in change.mounts}
    present = [(mount.place, (mount.volume, mount.path), raw[mount.place]) for mount in sorted(there)]
    named = {name for _, name, _ in present}
    new = [mount for name, mount in wanted.items() if name not in named]
    return _changed(pointer, present, wanted) + _added(pointer, new, has_list=has_list)


# --- the pod --------------------------------------------------------------------------------------------------------


def _volumes(pod: Pod, clean: Pod, volumes: Sequence[Mapping[str, Any]]) -> list[Operation]:
    result: list[Operation] = []
    named: set[str] = set()
    if len(clean.volumes) < len(pod.volumes):
        kept = {volume.place for volume in clean.volumes}
        present = [(volume.place, volume.name, volume.raw) for volume in pod.volumes if volume.place not in kept]
        named = {name for _, name, _ in present}
        result = _changed("/spec/volumes", present, {volume["name"]: volume for volume in volumes})
    new = [volume for volume in volumes if volume["name"] not in named]
    return result + _added("/spec/volumes", new, has_list=pod.raw["spec"].get("volumes") is not None)


def _changed(
    pointer: str, present: Sequence[tuple[int, _Name, Mapping[str, Any]]], wanted: Mapping[_Name, Mapping[str, Any]]
) -> list[Operation]:
    """Operations that make the present items (place, name, object) the wanted ones; of one name the first stays."""
    first = {name: place for place, name, _ in reversed(present)}
    result: list[Operation] = []
    # From the back, so that a removal moves no place that is still to be changed.
    for place, name, raw in sorted(present, key=lambda item: item[0], reverse=True):
        if name not in wanted or place != first[name]:
            result.append({"op": "remove", "path": f"{pointer}/{place}"})
        elif raw != wanted[name]:
            result.append({"op": "replace", "path": f"{pointer}/{place}", "value": wanted[name]})
    return result


def _added(pointer: str, values: Sequence[Mapping[str, Any]], *, has_list: bool) -> list[Operation]:
    if not values:
        return []
    if has_list:
        return [{"op": "add", "path": pointer + "/-", "value": value} for value in values]
    return [{"op": "add", "path": pointer, "value": list(values)}]


def _annotations(pod: Pod, wanted: dict[str, str]) -> list[Operation]:
    """From the annotations there are to those of the user's and the `wanted` ones."""
    if pod.raw["metadata"].get("annotations") is None:
        return [{"op": "add", "path": "/metadata/annotations", "value": wanted}] if wanted else []
    present = pod.annotations
    result: list[Operation] = [
        {"op": "remove", "path": "/metadata/annotations/" + _escaped(key)}
        for key in present
        if key not in wanted and plan_annotations.is_ours(key)
    ]
    result.extend(
        {"op": "add", "path": "/metadata/annotations/" + _escaped(key), "value": value}
        for key, value in wanted.items()
        if present.get(key) != value
    )
    return result


def _label(pod: Pod, *, injected: bool) -> list[Operation]:
    present = pod.labels.get(env.INJECTED_LABEL)
    path = "/metadata/labels/" + _escaped(env.INJECTED_LABEL)
    if not injected:
        return [] if present is None else [{"op": "remove", "path": path}]
    if pod.raw["metadata"].get("labels") is None:
        return [{"op": "add", "path": "/metadata/labels", "value": {env.INJECTED_LABEL: _INJECTED}}]
    return [] if present == _INJECTED else [{"op": "add", "path": path, "value": _INJECTED}]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
