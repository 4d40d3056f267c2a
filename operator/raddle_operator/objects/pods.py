"""The only reader of pod objects: JSON in, one frozen value out.

Every part that a decision looks at is checked here; what it looks at in few pods only is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from raddle import env
from raddle_operator.objects.reading import EMPTY, SpecError, as_object, mapping, sequence, text, text_map, texts

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"

_OURS: Final = tuple(f"metadata.annotations['{prefix}" for prefix in env.CONTAINER_PREFIXES)
_ARCHITECTURE: Final = "kubernetes.io/arch"
_TEMPLATE_HASH: Final = "pod-template-hash"
# The kinds of workloads that a tuning can measure.
WORKLOADS: Final = ("Deployment", "StatefulSet", "DaemonSet")


class EnvEntry(NamedTuple):
    """One environment variable.

    `place` is its index in the container's list; `value` is the literal, None for valueFrom; `ours` is the key of our
    annotation that a fieldRef names, else None.
    """

    place: int
    name: str
    value: str | None
    ours: str | None


class Mount(NamedTuple):
    """A volume mount: the volume's name and where it is."""

    place: int
    volume: str
    path: str


class Container(NamedTuple):
    """A container or init container. `field` is the list in the pod spec that holds it, `place` its index there.

    `entries` are its environment variables as they are, `env` is name -> place of the one that decides: the last.
    `annotated`: one of them reads an annotation of ours. `devices` are block devices, which share no path with a mount.
    `limits` and `requests` are quantities as written.
    """

    name: str
    field: str = "containers"
    place: int = 0
    image: str = ""
    arguments: tuple[str, ...] = ()
    entries: Sequence[Mapping[str, Any]] = ()
    env: Mapping[str, int] = EMPTY
    annotated: bool = False
    env_from: bool = False
    mounts: tuple[Mount, ...] = ()
    devices: tuple[Mount, ...] = ()
    limits: Mapping[str, Any] = EMPTY
    requests: Mapping[str, Any] = EMPTY
    raw: Mapping[str, Any] = EMPTY

    @property
    def pointer(self) -> str:
        """The JSON pointer of the container."""
        return f"/spec/{self.field}/{self.place}"

    @property
    def sidecar(self) -> bool:
        """Whether it is a native sidecar: an init container that restarts always."""
        return self.field == "initContainers" and self.raw.get("restartPolicy") == "Always"

    @property
    def claims(self) -> bool:
        """Whether it uses ResourceClaims of the pod."""
        resources = self.raw.get("resources")
        return isinstance(resources, dict) and bool(resources.get("claims"))

    def effective(self, name: str) -> EnvEntry | None:
        """The entry that decides a variable; None where there is none."""
        place = self.env.get(name)
        return None if place is None else env_entry(place, self.entries[place])


class Volume(NamedTuple):
    """A volume: its name and the object as it is."""

    place: int
    name: str
    raw: Mapping[str, Any]


class Pod(NamedTuple):
    """What Raddle needs of a pod. Absent texts are "".

    `node_name` is the node that the pod is bound to, or pinned to by its DaemonSet. `architecture` is what its node
    selector or required affinity asks of the node, as Kubernetes names it (amd64, arm64), "" where that is no single
    one. `limits` and `requests` are the pod-level ones, None where spec.resources is absent.
    """

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    limits: Mapping[str, Any] | None
    requests: Mapping[str, Any] | None
    volumes: tuple[Volume, ...]
    node_name: str
    architecture: str
    os: str
    priority_class: str
    scheduler: str
    raw: Mapping[str, Any]

    @property
    def mirror(self) -> bool:
        """True for the API server's picture of a static pod, which nobody can change."""
        return MIRROR_ANNOTATION in self.annotations


def pod_from_object(obj: Any) -> Pod:
    """The pod that a JSON object is. Raises SpecError for a shape that no pod has."""
    obj = as_object(obj, "pod")
    # Patches add to both, so both must be there.
    metadata = as_object(obj.get("metadata"), "metadata")
    spec = as_object(obj.get("spec"), "spec")
    resources = mapping(spec, "resources", "spec") if spec.get("resources") is not None else None
    labels, annotations = text_map(metadata, "labels", "metadata"), text_map(metadata, "annotations", "metadata")
    containers, init_containers = (
        tuple(_container(raw, field, place) for place, raw in enumerate(sequence(spec, field, "spec")))
        for field in ("containers", "initContainers")
    )
    return Pod(
        labels=labels,
        annotations=annotations,
        containers=containers,
        init_containers=init_containers,
        limits=mapping(resources, "limits", "spec.resources") if resources is not None else None,
        requests=mapping(resources, "requests", "spec.resources") if resources is not None else None,
        volumes=_volumes(spec),
        node_name=text(spec, "nodeName", "spec") or _pinned_node(spec),
        architecture=_architecture(spec),
        os=_os(spec),
        priority_class=text(spec, "priorityClassName", "spec"),
        scheduler=text(spec, "schedulerName", "spec"),
        raw=obj,
    )


def workload_of(pod: Pod) -> str:
    """The workload that the pod belongs to, `Deployment/ranker`; "" for none of those that can be tuned.

    A Deployment is told by its ReplicaSet: its name ends in the label that the pods have from it.
    """
    owners = as_object(pod.raw["metadata"], "metadata").get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if not isinstance(owner, dict) or owner.get("controller") is not True:
            continue
        kind, name = str(owner.get("kind")), str(owner.get("name"))
        if kind in WORKLOADS:
            return f"{kind}/{name}"
        deployment, _, template = name.rpartition("-")
        if kind == "ReplicaSet" and deployment and template == pod.labels.get(_TEMPLATE_HASH):
            return f"Deployment/{deployment}"
    return ""


def with_entries(container: Container, entries: Sequence[Mapping[str, Any]]) -> Container:
    """The container with another list of environment variables."""
    places, annotated = _env(entries, f"spec.{container.field}[{container.place}]")
    return container._replace(entries=entries, env=places, annotated=annotated)


def env_entry(place: int, entry: Mapping[str, Any]) -> EnvEntry:
    """The environment variable that an object of a container that was read is."""
    source = entry.get("valueFrom")
    if source is None:
        return EnvEntry(place, entry["name"], entry.get("value") or "", None)
    return EnvEntry(place, entry["name"], None, _source(source))


def _container(raw: Any, field: str, place: int) -> Container:
    path = f"spec.{field}[{place}]"
    raw = as_object(raw, path)
    resources = mapping(raw, "resources", path)
    entries = sequence(raw, "env", path)
    mounts = sequence(raw, "volumeMounts", path)
    name, image = text(raw, "name", path), text(raw, "image", path)
    arguments = texts(raw, "command", path) + texts(raw, "args", path)
    places, annotated = _env(entries, path)
    return Container(
        field=field,
        place=place,
        name=name,
        image=image,
        arguments=arguments,
        entries=entries,
        env=places,
        annotated=annotated,
        env_from=bool(sequence(raw, "envFrom", path)),
        mounts=_mounts(mounts, path, "volumeMounts", "mountPath"),
        devices=_mounts(sequence(raw, "volumeDevices", path), path, "volumeDevices", "devicePath"),
        limits=mapping(resources, "limits", path),
        requests=mapping(resources, "requests", path),
        raw=raw,
    )


def _env(entries: Sequence[Any], path: str) -> tuple[dict[str, int], bool]:
    """The place of each variable, of several the last, and whether one reads an annotation of ours."""
    places: dict[str, int] = {}
    annotated = False
    for place, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise SpecError(f"{path}.env[{place}]", "must be an object with a name")
        places[name] = place
        source = entry.get("valueFrom")
        if source is not None:
            ours = _source(as_object(source, f"{path}.env[{place}].valueFrom"))
            annotated = annotated or ours is not None
        elif not isinstance(entry.get("value", ""), str):
            text(entry, "value", f"{path}.env[{place}]")
    return places, annotated


def _source(source: Mapping[str, Any]) -> str | None:
    """Our annotation's key if the source names one."""
    field = source.get("fieldRef")
    path = field.get("fieldPath") if isinstance(field, dict) else None
    if isinstance(path, str) and path.startswith(_OURS) and path.endswith("']"):
        return path[len("metadata.annotations['") : -2]
    return None


def _mounts(result: Sequence[Any], path: str, field: str, key: str) -> tuple[Mount, ...]:
    if not result:
        return ()
    path = f"{path}.{field}[{{}}]"
    return tuple(_mount(raw, path.format(place), place, key) for place, raw in enumerate(result))


def _mount(raw: Any, path: str, place: int, key: str) -> Mount:
    raw = as_object(raw, path)
    return Mount(place, text(raw, "name", path), text(raw, key, path))


def _volumes(spec: Mapping[str, Any]) -> tuple[Volume, ...]:
    result = sequence(spec, "volumes", "spec")
    return tuple(
        Volume(index, text(as_object(raw, "spec.volumes"), "name", "spec.volumes"), raw)
        for index, raw in enumerate(result)
    )


def _os(spec: Mapping[str, Any]) -> str:
    named = text(mapping(spec, "os", "spec"), "name", "spec.os")
    return named or text(mapping(spec, "nodeSelector", "spec"), "kubernetes.io/os", "spec.nodeSelector")


def _pinned_node(spec: Mapping[str, Any]) -> str:
    """The one node that required node affinity allows by metadata.name, as the DaemonSet controller writes it.

    "" where there is none. Terms are ORed, so each must name the same node.
    """
    return _required(spec, "matchFields", "metadata.name")


def _architecture(spec: Mapping[str, Any]) -> str:
    named = text(mapping(spec, "nodeSelector", "spec"), _ARCHITECTURE, "spec.nodeSelector")
    return named or _required(spec, "matchExpressions", _ARCHITECTURE)


def _required(spec: Mapping[str, Any], requirements: str, key: str) -> str:
    """The one value that required node affinity allows for a key; "" where there is none, or more than one."""
    if not spec.get("affinity"):
        return ""
    path = "spec.affinity"
    affinity = mapping(mapping(spec, "affinity", "spec"), "nodeAffinity", path)
    required = mapping(affinity, "requiredDuringSchedulingIgnoredDuringExecution", path)
    terms = sequence(required, "nodeSelectorTerms", path)
    result = {_value_of_term(as_object(term, path), requirements, key) for term in terms}
    return result.pop() if len(result) == 1 else ""


def _value_of_term(term: Mapping[str, Any], requirements: str, key: str) -> str:
    for requirement in sequence(term, requirements, "spec.affinity"):
        requirement = as_object(requirement, "spec.affinity")  # noqa: PLW2901 (the same value, known to be an object)
        values = sequence(requirement, "values", "spec.affinity")
        if requirement.get("key") == key and requirement.get("operator") == "In" and len(values) == 1:
            return text({"value": values[0]}, "value", "spec.affinity")
    return ""
