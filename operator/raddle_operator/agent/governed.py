"""The governed pods of the agent's node: of each pod object only what a report needs is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from raddle import env
from raddle_operator.effective import planned
from raddle_operator.effective.planned import ContainerPlan
from raddle_operator.objects import quantities, reading
from raddle_operator.objects.quantities import QuantityError
from raddle_operator.objects.reading import SpecError

# It becomes a part of file names. All runtimes give 64 hexadecimal digits; a fake kubelet may give something else.
_CONTAINER_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedContainer:
    """A container with a plan: `id` is the runtime's, without its scheme, "" while it has none.

    `tells`: its shims have been told whom to tell what they do.
    """

    name: str
    id: str = ""
    limit_cpus: float | None = None
    tells: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GovernedPod:
    """A pod that has plans, `planned` by container; `containers` are those. `ip` is "" until it has one.

    `policy` is the reference of the policy that governs it, "" where it names none.
    """

    namespace: str
    name: str
    uid: str
    ip: str = ""
    policy: str = ""
    planned: Mapping[str, ContainerPlan]
    containers: tuple[GovernedContainer, ...]


def read(pod: Mapping[str, Any]) -> GovernedPod | None:
    """What is kept of a pod object; None for one without plans, that has ended, or of a shape that no pod has."""
    try:
        return _read(pod)
    except SpecError:
        return None


def _read(pod: Mapping[str, Any]) -> GovernedPod | None:
    plans = planned.read(pod)
    if not plans:
        return None
    metadata, status = reading.mapping(pod, "metadata", ""), reading.mapping(pod, "status", "")
    # What has ended runs nothing, and its address may be another's by now.
    if reading.text(status, "phase", "status") in ("Succeeded", "Failed"):
        return None
    ids = dict(_ids(status))
    return GovernedPod(
        namespace=reading.text(metadata, "namespace", "metadata"),
        name=reading.text(metadata, "name", "metadata"),
        uid=reading.text(metadata, "uid", "metadata"),
        ip=reading.text(status, "podIP", "status"),
        policy=reading.text_map(metadata, "annotations", "metadata").get(env.GOVERNED_BY, ""),
        planned=plans,
        containers=tuple(
            GovernedContainer(name=name, id=ids.get(name, ""), limit_cpus=_limit(container), tells=_tells(container))
            for container in _containers(reading.mapping(pod, "spec", ""))
            if (name := reading.text(container, "name", "spec.containers")) in plans
        ),
    )


def _containers(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for field in ("initContainers", "containers"):
        for index, container in enumerate(_objects(spec, field)):
            yield reading.as_object(container, f"spec.{field}[{index}]")


def _ids(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(container, id) of those that run; the scheme before it names the runtime."""
    for field in ("initContainerStatuses", "containerStatuses"):
        for one in _objects(status, field):
            state = reading.mapping(reading.as_object(one, f"status.{field}"), "state", f"status.{field}")
            result = reading.text(one, "containerID", f"status.{field}").rpartition("//")[2]
            if "running" in state and _CONTAINER_ID.fullmatch(result):
                yield reading.text(one, "name", f"status.{field}"), result


def _objects(parent: Mapping[str, Any], field: str) -> Sequence[Any]:
    return reading.sequence(parent, field, "")


def _tells(container: Mapping[str, Any]) -> bool:
    variables = (reading.as_object(one, "spec.containers.env") for one in _objects(container, "env"))
    return any(one.get("name") == env.AGENT and one.get("value") for one in variables)


def _limit(container: Mapping[str, Any]) -> float | None:
    resources = reading.mapping(container, "resources", "spec.containers")
    limit = reading.mapping(resources, "limits", "spec.containers.resources").get("cpu")
    try:
        return None if limit is None else float(quantities.parse(limit))
    except QuantityError:
        return None
