"""How the shim's files reach a container: a volume, a mount in each container, and for one way an init container.

Nothing here comes from a policy or a pod but the choice of the way: names of images and ConfigMaps are the operator's.
A volume or init container is ours if it has our name and one of our shapes; a user's own of that name is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from raddle import delivery
from raddle_operator.pods import Container, Mount, Pod, Volume
from raddle_operator.reasons import Skip, SkipReason

SHIM_VOLUME: Final = "raddle-shim"
SHIM_INIT_CONTAINER: Final = "raddle-shim"
CONFIG_MAP_PREFIX: Final = "raddle-shim-"
# On the ConfigMap; its value is the content's hash.
SHIM_LABEL: Final = "raddle.dev/shim"
# The autoscaler would not remove a node for a pod with an emptyDir that is not named here.
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"

_IN_IMAGE: Final = delivery.MOUNT_PATH.lstrip("/")
_STAGING: Final = "/raddle-shim"
_SIZE_LIMIT: Final = "16Mi"
_MOUNT: Final[Mapping[str, Any]] = {"name": SHIM_VOLUME, "mountPath": delivery.MOUNT_PATH, "readOnly": True}
# Parts of a container's security context that an added one takes over, so that what holds for the pod holds for it.
_SHARED_SECURITY: Final = ("runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile", "seLinuxOptions")


def config_map_name(content_hash: str) -> str:
    """The name of the shim's ConfigMap with this content: the controller writes it, the webhook mounts it."""
    return CONFIG_MAP_PREFIX + content_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimDelivery:
    """What the operator was started with. `config_map` is the shim ConfigMap's name, None: there is none.

    `items` are raddle.delivery.items(). `image` holds the shim below /opt/raddle, for ImageVolume and InitContainer;
    `copy_command` is run in it, with the source and the target folder as last arguments.
    """

    config_map: str | None = None
    items: Sequence[Mapping[str, str]] = ()
    image: str | None = None
    copy_command: tuple[str, ...] = ("cp", "-r")


@dataclass(frozen=True, slots=True)
class Shim:
    """A way of delivery for one pod, as the objects to be in its spec."""

    volume: Mapping[str, Any]
    mount: Mapping[str, Any]
    init_container: Mapping[str, Any] | None = None


def choose(pod: Pod, wish: str, settings: ShimDelivery, *, config_map_present: bool | None) -> Shim | Skip | None:
    """The way that the policy's `shim` asks for; None for None, a Skip where it can't be had.

    `config_map_present` None: not known; the volume is optional, so a missing one holds no pod up.
    """
    if wish == "None":
        return None
    taken = _volume(pod)
    if taken is not None and not _is_our_volume(taken):
        return _missing(f"the pod has a volume {SHIM_VOLUME} of its own")
    if wish in ("Auto", "ConfigMap"):
        if settings.config_map is None:
            return _missing("the operator has no shim ConfigMap")
        if config_map_present is False:
            return _missing(f"the namespace has no ConfigMap {settings.config_map} yet")
        return Shim(_config_map_volume(settings.config_map, settings.items), _MOUNT)
    if settings.image is None:
        return _missing(f"shim {wish} needs an image, and the operator was started without one")
    if wish == "ImageVolume":
        image = {"reference": settings.image, "pullPolicy": "IfNotPresent"}
        return Shim({"name": SHIM_VOLUME, "image": image}, {**_MOUNT, "subPath": _IN_IMAGE})
    if not pod.containers or _init_name_is_taken(pod):
        return _missing(f"the pod has a container {SHIM_INIT_CONTAINER} of its own")
    volume = {"name": SHIM_VOLUME, "emptyDir": {"sizeLimit": _SIZE_LIMIT}}
    return Shim(volume, _MOUNT, _init_container(pod, settings.image, settings.copy_command))


def _missing(detail: str) -> Skip:
    return Skip(reason=SkipReason.SHIM_MISSING, detail=detail)


def _config_map_volume(name: str, items: Sequence[Mapping[str, str]]) -> Mapping[str, Any]:
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


# --- what stands in the way -----------------------------------------------------------------------------------------


def mount_is_taken(container: Container) -> Skip | None:
    """Why the shim can't be mounted in the container, None where it can.

    A mount path can be used once, and below or above another volume's mount the container might not start.
    """
    ours = delivery.MOUNT_PATH
    for mount in container.mounts:
        path = "/" + mount.path.strip("/")
        if mount.volume != SHIM_VOLUME and (path == ours or path.startswith(ours + "/") or _is_above(path, ours)):
            return _missing(f"volume {mount.volume[:63]} is mounted on {path[:63]}, where the shim would be")
    return None


def _is_above(path: str, below: str) -> bool:
    return path == "/" or below.startswith(path + "/")


# --- writing --------------------------------------------------------------------------------------------------------


def our_volume(pod: Pod) -> Volume | None:
    """Our volume in the pod, None where there is none."""
    volume = _volume(pod)
    return volume if volume is not None and _is_our_volume(volume) else None


def name_is_ours(pod: Pod) -> bool:
    """Whether mounts of a volume with our name are ours: not where the pod has a volume of its own by that name."""
    volume = _volume(pod)
    return volume is None or _is_our_volume(volume)


def our_init_container(pod: Pod) -> Container | None:
    """Our init container in the pod, None where there is none."""
    if our_volume(pod) is None:
        return None
    for container in pod.init_containers:
        if container.name == SHIM_INIT_CONTAINER and any(mount.volume == SHIM_VOLUME for mount in container.mounts):
            return container
    return None


def _init_name_is_taken(pod: Pod) -> bool:
    ours = our_init_container(pod)
    return any(container.name == SHIM_INIT_CONTAINER and container is not ours for container in pod.all_containers)


def volume_operations(pod: Pod, shim: Shim | None) -> list[dict[str, Any]]:
    """JSON-patch operations that make the pod's volume and init container those of the shim (None: remove ours)."""
    found: list[dict[str, Any]] = []
    present = our_volume(pod)
    if shim is None:
        if present is not None:
            found.append({"op": "remove", "path": f"/spec/volumes/{present.place}"})
    elif present is None:
        found.append(_added("/spec/volumes", shim.volume, has_list=pod.has_volumes))
    elif present.raw != shim.volume:
        found.append({"op": "replace", "path": f"/spec/volumes/{present.place}", "value": shim.volume})
    found.extend(_init_operations(pod, shim.init_container if shim is not None else None))
    return found


def _init_operations(pod: Pod, wanted: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    present = our_init_container(pod)
    if wanted is None:
        return [] if present is None else [{"op": "remove", "path": present.pointer}]
    if present is None:
        return [_added("/spec/initContainers", wanted, has_list=pod.has_init_containers)]
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


def mount_operations(container: Container, mount: Mapping[str, Any] | None, *, ours: bool) -> list[dict[str, Any]]:
    """JSON-patch operations that make the container's mount of our volume the given one (None: remove it).

    `ours` says whether the pod's volume of that name is ours; a user's own is left alone.
    """
    present: list[Mount] = [found for found in container.mounts if found.volume == SHIM_VOLUME] if ours else []
    pointer = container.pointer + "/volumeMounts"
    # From the back, so that a removal moves no place that is still to be changed.
    surplus = present if mount is None else present[1:]
    found: list[dict[str, Any]] = [{"op": "remove", "path": f"{pointer}/{extra.place}"} for extra in reversed(surplus)]
    if mount is not None:
        if not present:
            found.append(_added(pointer, mount, has_list=container.has_mounts))
        elif container.raw["volumeMounts"][present[0].place] != mount:
            found.append({"op": "replace", "path": f"{pointer}/{present[0].place}", "value": mount})
    return found


def _added(pointer: str, value: Mapping[str, Any], *, has_list: bool) -> dict[str, Any]:
    if has_list:
        return {"op": "add", "path": pointer + "/-", "value": value}
    return {"op": "add", "path": pointer, "value": [value]}


def _volume(pod: Pod) -> Volume | None:
    for volume in pod.volumes:
        if volume.name == SHIM_VOLUME:
            return volume
    return None


def _is_our_volume(volume: Volume) -> bool:
    source = volume.raw.get("configMap")
    if isinstance(source, dict):
        return str(source.get("name")).startswith(CONFIG_MAP_PREFIX)
    return "image" in volume.raw or "emptyDir" in volume.raw
