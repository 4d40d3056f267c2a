"""How the shim's files reach a container: a volume, mounts, for one way an init container.

Nothing here comes from a policy or a pod but the choice of the way: names of images and ConfigMaps are the operator's.
Pods and containers are those without ours, as `injected` gives them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raddle import delivery
from raddle_operator.objects.pods import Container, Pod
from raddle_operator.objects.reasons import Skip, SkipReason

SHIM_VOLUME: Final = "raddle-shim"
OUR_VOLUMES: Final = frozenset((SHIM_VOLUME,))
SHIM_INIT_CONTAINER: Final = "raddle-shim"
CONFIG_MAP_PREFIX: Final = "raddle-shim-"
# On the ConfigMap; its value is the content's hash.
SHIM_LABEL: Final = "raddle.dev/shim"
# The autoscaler would not remove a node for a pod with an emptyDir that is not named here.
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"

_IN_IMAGE: Final = delivery.MOUNT_PATH.lstrip("/")
STAGING: Final = "/raddle-shim"
SIZE_LIMIT: Final = "16Mi"
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
    if any(volume.name == SHIM_VOLUME for volume in pod.volumes):
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
    if not pod.containers or any(
        container.name == SHIM_INIT_CONTAINER for container in pod.containers + pod.init_containers
    ):
        return _missing(f"the pod has a container {SHIM_INIT_CONTAINER} of its own")
    copies = _init_container(pod, settings.image, settings.copy_command)
    volume = {"name": SHIM_VOLUME, "emptyDir": {"sizeLimit": SIZE_LIMIT}}
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
    resources = {"limits": first.limits, "requests": first.requests}
    return {
        "name": SHIM_INIT_CONTAINER,
        "image": image,
        "command": [*copy_command, delivery.MOUNT_PATH + "/.", STAGING],
        "resources": {part: dict(quantities) for part, quantities in resources.items() if quantities},
        "securityContext": {**narrow_security(first.security_context), "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": SHIM_VOLUME, "mountPath": STAGING}],
    }


def narrow_security(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The security context of a container of ours beside one of theirs: its user, and no right that isn't needed."""
    shared = {name: theirs[name] for name in _SHARED_SECURITY if name in theirs}
    return {**shared, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def in_the_way(container: Container, wanted: str) -> str:
    """What stands in words where a mount of ours would be, "" for nothing.

    A mount path can be used once, and below or above another volume's mount the container might not start.
    """
    for mount in container.mounts + container.devices:
        path = "/" + mount.path.strip("/")
        if "//" in path or "/." in path:
            path = posixpath.normpath(path)
        if path in ("/", wanted) or path.startswith(wanted + "/") or wanted.startswith(path + "/"):
            return f"volume {mount.volume[:63]} is mounted on {path[:63]}, where {wanted} would be"
    return ""
