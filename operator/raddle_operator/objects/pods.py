"""The only reader of pod objects: JSON in, one frozen value out.

It keeps what decisions need, environment variables with their position in the container's list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from raddle import env
from raddle_operator.objects.reading import SpecError, as_object, mapping, sequence, text, text_map, texts

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"

PYTHON_PATH: Final = "PYTHONPATH"
NODE_OPTIONS: Final = "NODE_OPTIONS"
PRELOAD: Final = "LD_PRELOAD"
JAVA_OPTIONS: Final = "JAVA_TOOL_OPTIONS"
# Lists in one text, to which Raddle adds a part of its own.
EXTENDED: Final = (PYTHON_PATH, NODE_OPTIONS, PRELOAD, JAVA_OPTIONS)
# The name that a reference gets when its variable becomes a text that contains it.
ORIGINAL: Final = "ORIGINAL_"
# Variables that say how many processes a container runs (workers.py).
WORKER_VARIABLES: Final = ("WEB_CONCURRENCY", "GUNICORN_CMD_ARGS", "UVICORN_WORKERS", "TS_DEFAULT_WORKERS_PER_MODEL")
_OPENMP: Final = "OMP_"
_OURS: Final = tuple(f"metadata.annotations['{prefix}" for prefix in env.CONTAINER_PREFIXES)
_ARCHITECTURE: Final = "kubernetes.io/arch"


class EnvEntry(NamedTuple):
    """One environment variable.

    `place` is its index in the container's list; `value` is the literal, None for valueFrom; `ours` is the key of our
    annotation that a fieldRef names, else None;
    `optional` is true for a valueFrom that may resolve to nothing.
    """

    place: int
    name: str
    value: str | None
    ours: str | None
    optional: bool


class Mount(NamedTuple):
    """A volume mount: the volume's name and where it is."""

    place: int
    volume: str
    path: str


@dataclass(frozen=True, slots=True)
class Container:
    """A container or init container. `field` is the list in the pod spec that holds it, `index` its place there.

    `env` holds its variables in order; `env_count` is how many there are, None where the list is absent. `devices` are
    block devices, which share no path with a mount. `limits` and `requests` are quantities as written. `sidecar`: a
    native one (an init container that restarts always).
    """

    field: str
    index: int
    name: str
    image: str
    arguments: tuple[str, ...]
    env: tuple[EnvEntry, ...]
    env_count: int | None
    env_from: bool
    mounts: tuple[Mount, ...]
    devices: tuple[Mount, ...]
    has_mounts: bool
    limits: Mapping[str, Any]
    requests: Mapping[str, Any]
    security_context: Mapping[str, Any]
    sidecar: bool
    raw: Mapping[str, Any]

    @property
    def pointer(self) -> str:
        """The JSON pointer of the container."""
        return f"/spec/{self.field}/{self.index}"

    @property
    def sets_omp(self) -> bool:
        """Whether a variable OMP_* other than OMP_NUM_THREADS is set."""
        return any(entry.name.startswith(_OPENMP) and entry.name != env.OMP for entry in self.env)

    def effective(self, name: str) -> EnvEntry | None:
        """The entry that decides a variable: the last of that name."""
        for entry in reversed(self.env):
            if entry.name == name:
                return entry
        return None


class Volume(NamedTuple):
    """A volume: its name and the object as it is."""

    place: int
    name: str
    raw: Mapping[str, Any]


class Owner(NamedTuple):
    """The controller that made the pod."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Pod:
    """What Raddle needs of a pod. Absent texts are "".

    `node_name` is the node that the pod is bound to, or pinned to by its DaemonSet. `architecture` is what its node
    selector or required affinity asks of the node, as Kubernetes names it (amd64, arm64), "" where that is no single
    one. `limits` and `requests` are the pod-level ones, None where spec.resources is absent.
    """

    name: str
    namespace: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    has_labels: bool
    has_annotations: bool
    owner: Owner | None
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    has_init_containers: bool
    limits: Mapping[str, Any] | None
    requests: Mapping[str, Any] | None
    volumes: tuple[Volume, ...]
    has_volumes: bool
    node_name: str
    architecture: str
    os: str
    priority_class: str
    scheduler: str

    @property
    def mirror(self) -> bool:
        """True for the API server's picture of a static pod, which nobody can change."""
        return MIRROR_ANNOTATION in self.annotations

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Regular containers, then init containers."""
        return self.containers + self.init_containers


def pod_from_object(obj: Any) -> Pod:
    """The pod that a JSON object is. Raises SpecError for a shape that no pod has."""
    obj = as_object(obj, "pod")
    # Patches add to both, so both must be there.
    metadata = as_object(obj.get("metadata"), "metadata")
    spec = as_object(obj.get("spec"), "spec")
    resources = mapping(spec, "resources", "spec") if spec.get("resources") is not None else None
    return Pod(
        name=text(metadata, "name", "metadata") or text(metadata, "generateName", "metadata"),
        namespace=text(metadata, "namespace", "metadata"),
        uid=text(metadata, "uid", "metadata"),
        labels=text_map(metadata, "labels", "metadata"),
        annotations=text_map(metadata, "annotations", "metadata"),
        has_labels=metadata.get("labels") is not None,
        has_annotations=metadata.get("annotations") is not None,
        owner=_owner(metadata),
        containers=_containers(spec, "containers"),
        init_containers=_containers(spec, "initContainers"),
        has_init_containers=spec.get("initContainers") is not None,
        limits=mapping(resources, "limits", "spec.resources") if resources is not None else None,
        requests=mapping(resources, "requests", "spec.resources") if resources is not None else None,
        volumes=_volumes(spec),
        has_volumes=spec.get("volumes") is not None,
        node_name=text(spec, "nodeName", "spec") or _pinned_node(spec),
        architecture=_architecture(spec),
        os=_os(spec),
        priority_class=text(spec, "priorityClassName", "spec"),
        scheduler=text(spec, "schedulerName", "spec"),
    )


def with_env(container: Container, entries: Sequence[Mapping[str, Any]]) -> Container:
    """The container with another list of environment variables, read anew."""
    kept = _env(entries, f"spec.{container.field}[{container.index}]")
    return replace(container, env=kept, env_count=len(entries), raw={**container.raw, "env": entries})


def _owner(metadata: Mapping[str, Any]) -> Owner | None:
    for reference in sequence(metadata, "ownerReferences", "metadata"):
        path = "metadata.ownerReferences"
        if as_object(reference, path).get("controller") is True:
            return Owner(*(text(reference, key, path) for key in ("apiVersion", "kind", "name", "uid")))
    return None


def _containers(spec: Mapping[str, Any], field: str) -> tuple[Container, ...]:
    found = sequence(spec, field, "spec")
    return tuple(_container(raw, field, index) for index, raw in enumerate(found))


def _container(raw: Any, field: str, index: int) -> Container:
    path = f"spec.{field}[{index}]"
    raw = as_object(raw, path)
    resources = mapping(raw, "resources", path)
    entries = sequence(raw, "env", path)
    mounts = sequence(raw, "volumeMounts", path)
    return Container(
        field=field,
        index=index,
        name=text(raw, "name", path),
        image=text(raw, "image", path),
        arguments=texts(raw, "command", path) + texts(raw, "args", path),
        env=_env(entries, path),
        env_count=len(entries) if raw.get("env") is not None else None,
        env_from=bool(sequence(raw, "envFrom", path)),
        mounts=tuple(_mount(mount, f"{path}.volumeMounts[{place}]", place) for place, mount in enumerate(mounts)),
        devices=_devices(raw, path) if "volumeDevices" in raw else (),
        has_mounts=raw.get("volumeMounts") is not None,
        limits=mapping(resources, "limits", path),
        requests=mapping(resources, "requests", path),
        security_context=mapping(raw, "securityContext", path),
        sidecar=field == "initContainers" and raw.get("restartPolicy") == "Always",
        raw=raw,
    )


def _env(entries: Sequence[Any], path: str) -> tuple[EnvEntry, ...]:
    kept = []
    for index, entry in enumerate(entries):
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise SpecError(f"{path}.env[{index}]", "must be an object with a name")
        kept.append(_env_entry(index, entry, name, f"{path}.env[{index}]"))
    return tuple(kept)


def _env_entry(place: int, entry: Mapping[str, Any], name: str, path: str) -> EnvEntry:
    source = entry.get("valueFrom")
    if source is None:
        return EnvEntry(place, name, text(entry, "value", path), None, optional=False)
    return EnvEntry(place, name, None, *_source(as_object(source, path + ".valueFrom")))


def _source(source: Mapping[str, Any]) -> tuple[str | None, bool]:
    """Our annotation's key if the source names one, and whether the source may resolve to nothing."""
    field = source.get("fieldRef")
    if isinstance(field, dict):
        path = field.get("fieldPath")
        if isinstance(path, str) and path.startswith(_OURS) and path.endswith("']"):
            return path[len("metadata.annotations['") : -2], False
    for kind in ("configMapKeyRef", "secretKeyRef", "fileKeyRef"):
        reference = source.get(kind)
        if isinstance(reference, dict) and reference.get("optional") is True:
            return None, True
    return None, False


def _mount(raw: Any, path: str, place: int, key: str = "mountPath") -> Mount:
    raw = as_object(raw, path)
    return Mount(place, text(raw, "name", path), text(raw, key, path))


def _devices(raw: Mapping[str, Any], path: str) -> tuple[Mount, ...]:
    found = enumerate(sequence(raw, "volumeDevices", path))
    return tuple(_mount(device, f"{path}.volumeDevices[{place}]", place, "devicePath") for place, device in found)


def _volumes(spec: Mapping[str, Any]) -> tuple[Volume, ...]:
    found = sequence(spec, "volumes", "spec")
    return tuple(
        Volume(index, text(as_object(raw, "spec.volumes"), "name", "spec.volumes"), raw)
        for index, raw in enumerate(found)
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
    found = {_value_of_term(as_object(term, path), requirements, key) for term in terms}
    return found.pop() if len(found) == 1 else ""


def _value_of_term(term: Mapping[str, Any], requirements: str, key: str) -> str:
    for requirement in sequence(term, requirements, "spec.affinity"):
        requirement = as_object(requirement, "spec.affinity")  # noqa: PLW2901 (the same value, known to be an object)
        values = sequence(requirement, "values", "spec.affinity")
        if requirement.get("key") == key and requirement.get("operator") == "In" and len(values) == 1:
            return text({"value": values[0]}, "value", "spec.affinity")
    return ""
