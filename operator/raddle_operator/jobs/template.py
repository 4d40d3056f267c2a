"""What a tuning measures: a container of a workload's pod template, or an image alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from raddle_operator.injection.budget import pod_resources
from raddle_operator.jobs.run import TUNER
from raddle_operator.objects.pods import pod_from_object
from raddle_operator.objects.quantities import QuantityError, parse
from raddle_operator.objects.reading import as_object, mapping, sequence, text, text_map
from raddle_operator.objects.tuning import TuningObject

IMAGE_CONTAINER: Final = "measured"
"""The container of an image that no workload runs."""


class RefusedError(Exception):
    """A tuning that can't be carried out as things are: a word for programs, and a sentence that says what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A pod template of which `container` is measured, with the limit that it is measured under.

    `guaranteed`: all containers of its pods make them so, and the measured one may get exclusive CPUs. `labels` and
    `spec` are the template's, {} for an image alone. `claims` are volumes that each replica of a StatefulSet has for
    itself, by name.
    """

    container: Mapping[str, Any]
    spec: Mapping[str, Any]
    labels: Mapping[str, str]
    guaranteed: bool
    claims: frozenset[str] = frozenset()


def template_of(tuning: TuningObject, workload: Mapping[str, Any] | None) -> Template:
    """What is measured. `workload` is the object that the tuning names, None where it is not there.

    Raises RefusedError, and SpecError for a shape that no workload has.
    """
    if tuning.workload is None:
        image = {"name": IMAGE_CONTAINER, "image": tuning.image}
        return _checked(tuning, _template(_limited(image, tuning.cpus), spec={}, labels={}))
    named = f"{tuning.workload.kind.lower()}/{tuning.workload.name}"
    if workload is None:
        raise RefusedError("WorkloadNotFound", f"there is no {named} in the namespace; correct spec.workload")
    spec = mapping(workload, "spec", "")
    template = mapping(spec, "template", "spec")
    pod_spec = mapping(template, "spec", "spec.template")
    container = _container(pod_spec, tuning.workload.container, named)
    claims = (mapping(as_object(one, "spec"), "metadata", "spec") for one in sequence(spec, "volumeClaimTemplates", ""))
    return _checked(
        tuning,
        _template(
            _limited(container, tuning.cpus or _of_pod(pod_spec, container)),
            spec=pod_spec,
            labels=text_map(mapping(template, "metadata", "spec.template"), "labels", "spec.template.metadata"),
            claims=(text(claim, "name", "spec.volumeClaimTemplates") for claim in claims),
        ),
    )


def counted(template: Template, reserve_cpus: float | None) -> Mapping[str, Any]:
    """The measured container as its plan is to count: where the pod's own limit is its, with its part of that alone.

    With the limit of the whole pod, as it is measured under, the plan would be another than in the workload's pods.
    `reserve_cpus` is what the policy leaves for the others, None where it says nothing: it is in the limit yet, since
    it is taken from a limit of the container's own too. Raises SpecError.
    """
    container, spec = template.container, template.spec
    original = next((one for one in spec.get("containers") or () if one.get("name") == container["name"]), container)
    if not (of_pod := _of_pod(spec, original)) or _cpu_limit(container) != of_pod:
        return container
    pod = pod_resources(pod_from_object({"metadata": {}, "spec": spec}), reserve_cpus)
    part = pod.parts.get(container["name"], pod.pod_cpus)
    return container if part is None else _with_limit(container, f"{part + (pod.reserve or 0):f}")


def _template(
    container: Mapping[str, Any], *, spec: Mapping[str, Any], labels: Mapping[str, str], claims: Iterable[str] = ()
) -> Template:
    """The template, by all of whose containers the pods' QoS class is decided. Raises RefusedError, SpecError."""
    others = [one for one in spec.get("containers") or () if one.get("name") != container.get("name")]
    pod = pod_from_object({"metadata": {}, "spec": {**spec, "containers": [*others, container]}})
    try:
        guaranteed = pod_resources(pod).guaranteed
    except QuantityError as error:
        raise RefusedError("Invalid", f"the resources of the workload's containers: {error}") from None
    return Template(container=container, spec=spec, labels=labels, guaranteed=guaranteed, claims=frozenset(claims))


def _container(pod_spec: Mapping[str, Any], wanted: str, named: str) -> Mapping[str, Any]:
    """The container of this name; "" is the first."""
    path = "spec.template.spec.containers"
    result = [as_object(one, path) for one in sequence(pod_spec, "containers", "spec.template.spec")]
    for container in result:
        if wanted in ("", container.get("name")):
            return container
    names = ", ".join(text(one, "name", path) for one in result)
    raise RefusedError(
        "ContainerNotFound", f"{named} has no container {wanted}, only {names}; correct spec.workload.container"
    )


def _of_pod(pod_spec: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """The pod's own CPU limit where the container has none, as it is not in the pod alone; "" where it has."""
    of_pod = mapping(mapping(pod_spec, "resources", "spec"), "limits", "spec.resources")
    return "" if _cpu_limit(container) else str(of_pod.get("cpu") or "")


def _cpu_limit(container: Mapping[str, Any]) -> str:
    limits = mapping(mapping(container, "resources", "container"), "limits", "container.resources")
    return str(limits.get("cpu", ""))


def _with_limit(container: Mapping[str, Any], cpus: str) -> Mapping[str, Any]:
    resources = mapping(container, "resources", "container")
    limits = mapping(resources, "limits", "container.resources")
    return {**container, "resources": {**resources, "limits": {**limits, "cpu": cpus}}}


def _limited(container: Mapping[str, Any], cpus: str) -> Mapping[str, Any]:
    """The container under another CPU limit; "" leaves its own.

    A request above it would be refused, and one that was equal stays so, by which the pod may be Guaranteed.
    """
    if not cpus:
        return container
    resources = mapping(container, "resources", "container")
    requests, limits = (dict(mapping(resources, part, "container.resources")) for part in ("requests", "limits"))
    try:
        if "cpu" in requests:
            asked = parse(requests["cpu"])
            if asked > parse(cpus) or ("cpu" in limits and asked == parse(limits["cpu"])):
                requests["cpu"] = cpus
    except QuantityError as error:
        raise RefusedError("Invalid", f"the container's CPUs in resources: {error}") from None
    changed = {"limits": {**limits, "cpu": cpus}, **({"requests": requests} if requests else {})}
    return {**container, "resources": {**resources, **changed}}


def _checked(tuning: TuningObject, template: Template) -> Template:
    """Raises RefusedError where nobody but the image knows which program is to be started, or the pod's names clash."""
    if template.container.get("name") == TUNER:
        raise RefusedError("Invalid", f"{TUNER} is the name of Raddle's own container; rename the measured one")
    if tuning.server is not None and not tuning.server.command and not template.container.get("command"):
        message = (
            f"container {template.container['name']} has no command, so its image's default command is used, which "
            "is not known; set spec.server.command"
        )
        raise RefusedError("CommandUnknown", message)
    return template
