"""The door: a file over /etc/ld.so.preload has the loader of every program load the shim. Whether it is open for a pod.

It is closed where something else has that file. Two mounts of one path, and the API server would refuse the pod. A
device plugin's mount, which no pod spec shows, would lie below ours, and what it enforces would silently be gone.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, Final

from raddle import delivery, env
from raddle_operator.injection.volumes import SHIM_VOLUME, ShimDelivery, shim_volume
from raddle_operator.objects.pods import Container, Pod
from raddle_operator.objects.reasons import Skip, SkipReason

CLOSED: Final = "closed"
"""The value of the pod's label raddle.dev/door that closes it; any other has no effect."""

# Kubernetes' names of architectures -> uname's. Others are not shipped for.
_ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
# Device plugins that share GPUs by a library which they preload by this file, and how a pod shows that it asks for one:
# prefixes of what its containers are limited in, of its annotations and labels, and its scheduler. Read in the sources
# of HAMi and its plugin for Ascend, k8s-vgpu-scheduler, volcano-vgpu-device-plugin, vgpu-manager and tensor-fusion.
_RESOURCES: Final = {
    "nvidia.com/gpumem": "HAMi",
    "nvidia.com/gpucores": "HAMi",
    "nvidia.com/priority": "HAMi",
    "nvidia.com/vgpu-": "vgpu-manager",
    "volcano.sh/vgpu-": "Volcano vGPU",
}
_KEYS: Final = {
    "hami.io/": "HAMi",
    "nvidia.com/vgpu-mode": "HAMi",
    "huawei.com/vnpu-mode": "HAMi",
    "4pd.io/": "k8s-vgpu-scheduler",
    "volcano.sh/vgpu-": "Volcano vGPU",
    "tensor-fusion.ai/": "tensor-fusion",
}
_SCHEDULERS: Final = {
    "hami-scheduler": "HAMi",
    "4pd-scheduler": "k8s-vgpu-scheduler",
    "vgpu-scheduler": "vgpu-manager",
    "tensor-fusion-scheduler": "tensor-fusion",
}
_RESOURCE_PREFIXES: Final = tuple(_RESOURCES)
_KEY_PREFIXES: Final = tuple(_KEYS)


def opened(
    pod: Pod, architecture: str | Skip, settings: ShimDelivery, *, config_map_present: bool, switch: bool
) -> Mapping[str, Any] | Skip:
    """The volume with the shim for a pod without ours, or why the door is closed for all of its containers.

    `architecture` is `architecture_of` the pod, `switch` the operator's own.
    """
    if pod.labels.get(env.DOOR_LABEL) == CLOSED:
        return Skip(reason=SkipReason.DOOR_CLOSED, detail=f"the pod's label {env.DOOR_LABEL} is {CLOSED}")
    if not switch:
        return Skip(reason=SkipReason.DOOR_CLOSED, detail="the chart's value shim.door is false")
    shows = _shared_gpu(pod)
    if shows:
        detail = f"{shows}, which mounts {delivery.PRELOAD_FILE} without showing it in the pod spec"
        return Skip(reason=SkipReason.DOOR_OCCUPIED, detail=detail)
    if isinstance(architecture, Skip):
        return architecture
    if architecture not in settings.items:
        return _missing(f"this build has no native shim for {architecture[:63]}")
    if any(volume.name == SHIM_VOLUME for volume in pod.volumes):
        return _missing(f"the pod already has a volume {SHIM_VOLUME}")
    if settings.config_map is None:
        return _missing("the operator has no shim ConfigMap")
    if not config_map_present:
        return _missing(f"the namespace has no ConfigMap {settings.config_map} yet")
    return shim_volume(settings.config_map, settings.items[architecture])


def occupied(container: Container) -> Skip | None:
    """Why the door is closed for one container of a pod that has it open; None where it is open."""
    for path in (delivery.PRELOAD_FILE, delivery.MOUNT_PATH):
        detail = in_the_way(container, path)
        if detail:
            return Skip(reason=SkipReason.DOOR_OCCUPIED, detail=detail)
    return None


def architecture_of(wished: str, machine: str, known: frozenset[str]) -> str | Skip:
    """The architecture of the node that a pod will run on, as uname names it.

    `wished` is what the pod asks of its node, `machine` that of its node where it is known ("" for both: nothing),
    `known` those of all nodes that Raddle knows.
    """
    if machine:
        return machine
    if wished:
        return _ARCHITECTURES.get(wished, wished)
    if len(known) == 1:
        return next(iter(known))
    where = f"the nodes have {', '.join(sorted(known))}" if known else "no node is known"
    detail = f"{where}; set nodeSelector kubernetes.io/arch in the pod spec"
    return Skip(reason=SkipReason.ARCHITECTURE_UNKNOWN, detail=detail)


def in_the_way(container: Container, wanted: str) -> str:
    """What stands in words where a mount of ours would be, "" for nothing.

    A mount path can be used once, and below or above another volume's mount the container might not start.
    """
    for mount in container.mounts + container.devices:
        path = "/" + mount.path.strip("/")
        if "//" in path or "/." in path:
            path = posixpath.normpath(path)
        if path in ("/", wanted) or path.startswith(wanted + "/") or wanted.startswith(path + "/"):
            return f"volume {mount.volume[:63]} is mounted at {path[:63]}, which conflicts with {wanted}"
    return ""


def _missing(detail: str) -> Skip:
    return Skip(reason=SkipReason.SHIM_MISSING, detail=detail)


def _shared_gpu(pod: Pod) -> str:
    """What in the pod asks for a share of a GPU, in words; "" for nothing."""
    if pod.scheduler in _SCHEDULERS:
        return f"schedulerName {pod.scheduler} is {_SCHEDULERS[pod.scheduler]}'s"
    for container in pod.containers + pod.init_containers:
        for key in container.limits:
            if key.startswith(_RESOURCE_PREFIXES):
                return _is_of(key, _RESOURCES)
    for keys in (pod.annotations, pod.labels):
        for key in keys:
            if key.startswith(_KEY_PREFIXES):
                return _is_of(key, _KEYS)
    return ""


def _is_of(key: str, plugins: Mapping[str, str]) -> str:
    plugin = next(plugin for prefix, plugin in plugins.items() if key.startswith(prefix))
    return f"{key[:127]} is {plugin}'s"
