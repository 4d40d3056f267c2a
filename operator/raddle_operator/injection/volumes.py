"""How the shim's files reach a container, and reports leave it: volumes, mounts, for one way an init container.

Nothing here comes from a policy or a pod but the choice of the way: names of images and ConfigMaps are the operator's.
A volume is ours if it has our name and one of our shapes, and is mounted nowhere else; so are its mounts, and an init
container that has our name and mounts one. A user's own of that name is left alone.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from raddle import delivery
from raddle_operator.objects.pods import Container, Pod, Volume
from raddle_operator.objects.reasons import Skip, SkipReason

SHIM_VOLUME: Final = "raddle-shim"
REPORT_VOLUME: Final = "raddle-report"
SHIM_INIT_CONTAINER: Final = "raddle-shim"
CONFIG_MAP_PREFIX: Final = "raddle-shim-"
_Name = TypeVar("_Name", str, tuple[str, str])
# On the ConfigMap; its value is the content's hash.
SHIM_LABEL: Final = "raddle.dev/shim"
# The autoscaler would not remove a node for a pod with an emptyDir that is not named here.
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"

_IN_IMAGE: Final = delivery.MOUNT_PATH.lstrip("/")
_STAGING: Final = "/raddle-shim"
_SIZE_LIMIT: Final = "16Mi"
# The kubelet evicts a pod that fills such a volume. A shim writes 1 MiB a container at most, in 64 files; a block more
# for each, and the folder's own, stay far below this.
_REPORT_MIB: Final = 2
_MOUNT: Final[Mapping[str, Any]] = {"name": SHIM_VOLUME, "mountPath": delivery.MOUNT_PATH, "readOnly": True}
_DOOR_MOUNT: Final[Mapping[str, Any]] = {
    **_MOUNT,
    "mountPath": delivery.PRELOAD_FILE,
    "subPath": delivery.PRELOAD_KEY,
}
# Parts of a container's security context that an added one takes over, so that what holds for the pod holds for it.
_SHARED_SECURITY: Final = ("runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile", "seLinuxOptions")


def config_map_name(content_hash: str) -> str:
    """The name of the shim's ConfigMap with this content: the controller writes it, the webhook mounts it."""
    return CONFIG_MAP_PREFIX + content_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimDelivery:
    """What the operator was started with. `config_map` is the shim ConfigMap's name, None: there is none.

    `items` are raddle.delivery.items(); `door_items` the door's, for each architecture that there is a native shim for.
    `image` holds the shim below /opt/raddle, for ImageVolume and InitContainer; `copy_command` is run in it, with the
    source and the target folder as last arguments.
    """

    config_map: str | None = None
    items: Sequence[Mapping[str, Any]] = ()
    door_items: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    image: str | None = None
    copy_command: tuple[str, ...] = ("cp", "-r")


@dataclass(frozen=True, slots=True)
class Shim:
    """A way of delivery for one pod, as the objects to be in its spec. `architectures` are those of the native shim.

    `by_door`: every process loads it; else variables have to name it.
    """

    volume: Mapping[str, Any]
    mounts: tuple[Mapping[str, Any], ...] = (_MOUNT,)
    init_container: Mapping[str, Any] | None = None
    architectures: Collection[str] = ()
    by_door: bool = False


def choose(
    pod: Pod, wish: str, settings: ShimDelivery, *, config_map_present: bool, by_door: str = ""
) -> Shim | Skip | None:
    """The way that the policy's `shim` asks for; None for None, a Skip where it can't be had.

    `by_door` is the architecture, one of the `door_items`, for which the door is open; "" for none.
    """
    if wish == "None":
        return None
    if SHIM_VOLUME not in names_of_ours(pod):
        return _missing(f"the pod has a volume {SHIM_VOLUME} of its own")
    if wish in ("Auto", "ConfigMap"):
        if settings.config_map is None:
            return _missing("the operator has no shim ConfigMap")
        if not config_map_present:
            return _missing(f"the namespace has no ConfigMap {settings.config_map} yet")
        if by_door:
            volume = _config_map_volume(settings.config_map, settings.door_items[by_door])
            return Shim(volume, (_MOUNT, _DOOR_MOUNT), by_door=True)
        return Shim(_config_map_volume(settings.config_map, settings.items), architectures=settings.door_items.keys())
    if settings.image is None:
        return _missing(f"shim {wish} needs an image, and the operator was started without one")
    if wish == "ImageVolume":
        image = {"reference": settings.image, "pullPolicy": "IfNotPresent"}
        mount = {**_MOUNT, "subPath": _IN_IMAGE}
        return Shim({"name": SHIM_VOLUME, "image": image}, (mount,), architectures=settings.door_items.keys())
    if not pod.containers or _init_name_is_taken(pod):
        return _missing(f"the pod has a container {SHIM_INIT_CONTAINER} of its own")
    copies = _init_container(pod, settings.image, settings.copy_command)
    volume = {"name": SHIM_VOLUME, "emptyDir": {"sizeLimit": _SIZE_LIMIT}}
    return Shim(volume, init_container=copies, architectures=settings.door_items.keys())


def _missing(detail: str) -> Skip:
    return Skip(reason=SkipReason.SHIM_MISSING, detail=detail)


def _config_map_volume(name: str, items: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    # Optional: no pod waits for one that was removed since. What is mounted then is an empty folder, for the file too.
    return {
        "name": SHIM_VOLUME,
        "configMap": {"name": name, "items": list(items), "defaultMode": 0o444, "optional": True},
    }


def _init_container(pod: Pod, image: str, copy_command: Sequence[str]) -> Mapping[str, Any]:
    """Copies the shim's files, with the first container's resources, verbatim.

    Anything else could change the QoS class, or what a LimitRange or a quota says of the pod.
    """
    first = pod.containers[0]
    theirs = first.security_context
    security: dict[str, Any] = {name: theirs[name] for name in _SHARED_SECURITY if name in theirs}
    security |= {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    resources = {"limits": first.limits, "requests": first.requests}
    return {
        "name": SHIM_INIT_CONTAINER,
        "image": image,
        "command": [*copy_command, delivery.MOUNT_PATH + "/.", _STAGING],
        "resources": {part: dict(quantities) for part, quantities in resources.items() if quantities},
        "securityContext": security,
        "volumeMounts": [{"name": SHIM_VOLUME, "mountPath": _STAGING}],
    }


# --- reports --------------------------------------------------------------------------------------------------------


def report_volume(containers: int) -> Mapping[str, Any]:
    """The volume for the reports of so many containers."""
    return {"name": REPORT_VOLUME, "emptyDir": {"sizeLimit": f"{_REPORT_MIB * containers}Mi"}}


def report_mount(container: str) -> Mapping[str, Any]:
    """Where a container writes its own; the kubelet makes the folder, as writable as the volume."""
    return {"name": REPORT_VOLUME, "mountPath": delivery.REPORT_PATH, "subPath": container}


def no_report(container: Container, *, ours: Collection[str]) -> Skip | None:
    """Why the container can't have a place for reports, None where it can. `ours` are the pod's `names_of_ours`."""
    detail = f"the pod has a volume {REPORT_VOLUME} of its own"
    if REPORT_VOLUME in ours:
        detail = in_the_way(container, delivery.REPORT_PATH, ours=ours)
    return Skip(reason=SkipReason.REPORTS_MISSING, detail=detail) if detail else None


# --- what stands in the way -----------------------------------------------------------------------------------------


def mount_is_taken(container: Container, *, ours: Collection[str]) -> Skip | None:
    """Why the shim can't be mounted in the container, None where it can. `ours` are the pod's `names_of_ours`."""
    detail = in_the_way(container, delivery.MOUNT_PATH, ours=ours)
    return _missing(detail) if detail else None


def in_the_way(container: Container, wanted: str, *, ours: Collection[str]) -> str:
    """What stands in words where a mount of ours would be, "" for nothing.

    A mount path can be used once, and below or above another volume's mount the container might not start. Mounts of
    ours stand nowhere: they are made anew.
    """
    for mount in container.mounts + container.devices:
        path = "/" + mount.path.strip("/")
        if "//" in path or "/." in path:
            path = posixpath.normpath(path)
        if mount.volume not in ours and _meet(path, wanted):
            return f"volume {mount.volume[:63]} is mounted on {path[:63]}, where {wanted} would be"
    return ""


def _meet(path: str, other: str) -> bool:
    return path in ("/", other) or path.startswith(other + "/") or other.startswith(path + "/")


# --- writing --------------------------------------------------------------------------------------------------------


def our_volumes(pod: Pod) -> Sequence[Volume]:
    """Our volumes in the pod, in order. Several may have one name, before the API server has refused such a pod."""
    found = [volume for volume in pod.volumes if volume.name in _OURS]
    elsewhere = _mounted_elsewhere(pod) if found else ()
    return [volume for volume in found if volume.name not in elsewhere and _has_shape(volume)]


def names_of_ours(pod: Pod) -> Collection[str]:
    """The names under which a volume and its mounts are ours: not those that the pod has a volume of its own by."""
    found = [volume for volume in pod.volumes if volume.name in _OURS]
    if not found:
        return _OURS
    elsewhere = _mounted_elsewhere(pod)
    theirs = [volume.name for volume in found if volume.name in elsewhere or not _has_shape(volume)]
    return _OURS.difference(theirs)


def our_init_container(pod: Pod) -> Container | None:
    """Our init container in the pod, None where there is none."""
    if not pod.init_containers or all(volume.name != SHIM_VOLUME for volume in our_volumes(pod)):
        return None
    for container in pod.init_containers:
        if container.name == SHIM_INIT_CONTAINER and any(mount.volume == SHIM_VOLUME for mount in container.mounts):
            return container
    return None


def _init_name_is_taken(pod: Pod) -> bool:
    ours = our_init_container(pod)
    return any(container.name == SHIM_INIT_CONTAINER and container is not ours for container in pod.all_containers)


def volume_operations(
    pod: Pod, volumes: Sequence[Mapping[str, Any]], init_container: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """JSON-patch operations that make our volumes and our init container in the pod the given ones."""
    present = our_volumes(pod)
    found: list[dict[str, Any]] = []
    if present:
        wanted = {volume["name"]: volume for volume in volumes}
        found = _changed("/spec/volumes", [(v.place, v.name, v.raw) for v in present], wanted)
    named = {volume.name for volume in present}
    new = [volume for volume in volumes if volume["name"] not in named]
    found.extend(_added("/spec/volumes", new, has_list=pod.has_volumes))
    found.extend(_init_operations(pod, init_container))
    return found


def _init_operations(pod: Pod, wanted: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    present = our_init_container(pod)
    if wanted is None:
        return [] if present is None else [{"op": "remove", "path": present.pointer}]
    if present is None:
        return _added("/spec/initContainers", [wanted], has_list=pod.has_init_containers)
    if _holds(present.raw, wanted):
        return []
    return [{"op": "replace", "path": present.pointer, "value": wanted}]


def _holds(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether the init container is the wanted one, but for what the API server adds (defaults, a token's mount)."""
    for key, value in wanted.items():
        if key == "volumeMounts":
            if not all(mount in present.get(key, ()) for mount in value):
                return False
        elif present.get(key) != value:
            return False
    return True


def mount_operations(
    container: Container, mounts: Sequence[Mapping[str, Any]], *, ours: Collection[str]
) -> list[dict[str, Any]]:
    """JSON-patch operations that make the container's mounts of our volumes the given ones.

    `ours` are the names of volumes that are ours in this pod; a user's own by such a name is left alone.
    """
    there = [mount for mount in container.mounts if mount.volume in ours]
    if not there and not mounts:
        return []
    pointer = container.pointer + "/volumeMounts"
    if not there:
        return _added(pointer, mounts, has_list=container.has_mounts)
    raw = container.raw["volumeMounts"]
    wanted = {(mount["name"], mount["mountPath"]): mount for mount in mounts}
    present = [(mount.place, (mount.volume, mount.path), raw[mount.place]) for mount in there]
    named = {name for _, name, _ in present}
    new = [mount for name, mount in wanted.items() if name not in named]
    return _changed(pointer, present, wanted) + _added(pointer, new, has_list=container.has_mounts)


def _changed(
    pointer: str, present: Sequence[tuple[int, _Name, Mapping[str, Any]]], wanted: Mapping[_Name, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Operations that make the present items (place, name, object) the wanted ones; of one name the first stays."""
    first = {name: place for place, name, _ in reversed(present)}
    found: list[dict[str, Any]] = []
    # From the back, so that a removal moves no place that is still to be changed.
    for place, name, raw in sorted(present, key=lambda item: item[0], reverse=True):
        if name not in wanted or place != first[name]:
            found.append({"op": "remove", "path": f"{pointer}/{place}"})
        elif raw != wanted[name]:
            found.append({"op": "replace", "path": f"{pointer}/{place}", "value": wanted[name]})
    return found


def _added(pointer: str, values: Sequence[Mapping[str, Any]], *, has_list: bool) -> list[dict[str, Any]]:
    if not values:
        return []
    if has_list:
        return [{"op": "add", "path": pointer + "/-", "value": value} for value in values]
    return [{"op": "add", "path": pointer, "value": list(values)}]


_OURS: Final = frozenset((SHIM_VOLUME, REPORT_VOLUME))


_REPORT_SIZE: Final = re.compile("[1-9][0-9]*Mi")


def _mounted_elsewhere(pod: Pod) -> Collection[str]:
    """Those of our names that some container has mounted where we would not.

    One walk over the mounts, however many volumes of a name a hostile pod has.
    """
    return {
        mount.volume
        for container in pod.all_containers
        for mount in container.mounts
        if mount.volume in _OURS and mount.path not in _paths(mount.volume, container)
    }


def _has_shape(volume: Volume) -> bool:
    """Whether a volume with one of our names has one of our shapes."""
    source = {key: value for key, value in volume.raw.items() if key != "name"}
    return _has_report_shape(source) if volume.name == REPORT_VOLUME else _has_shim_shape(source)


def _paths(volume: str, container: Container) -> tuple[str, ...]:
    if volume == REPORT_VOLUME:
        return (delivery.REPORT_PATH,)
    if container.field == "initContainers" and container.name == SHIM_INIT_CONTAINER:
        return (delivery.MOUNT_PATH, _STAGING)
    return (delivery.MOUNT_PATH, delivery.PRELOAD_FILE)


def _has_report_shape(source: Mapping[str, Any]) -> bool:
    folder = source.get("emptyDir")
    if len(source) != 1 or not isinstance(folder, dict) or len(folder) != 1:
        return False
    limit = folder.get("sizeLimit")
    return isinstance(limit, str) and _REPORT_SIZE.fullmatch(limit) is not None


def _has_shim_shape(source: Mapping[str, Any]) -> bool:
    if len(source) != 1:
        return False
    config_map, image = source.get("configMap"), source.get("image")
    if isinstance(config_map, dict):
        # Its items are those of the version that wrote it.
        return config_map.get("optional") is True and str(config_map.get("name")).startswith(CONFIG_MAP_PREFIX)
    if isinstance(image, dict):
        return image.keys() == {"reference", "pullPolicy"}
    return source == {"emptyDir": {"sizeLimit": _SIZE_LIMIT}}
