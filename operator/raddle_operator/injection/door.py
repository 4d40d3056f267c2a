"""The door: a file over /etc/ld.so.preload has the loader of every program load the shim. Whether it is open for a pod.

It is closed where something else has that file. Two mounts of one path, and the API server would refuse the pod. A
device plugin's mount, which no pod spec shows, would lie below ours, and what it enforces would silently be gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from raddle import delivery, env
from raddle_operator.injection.volumes import in_the_way
from raddle_operator.objects.pods import Container, Pod
from raddle_operator.objects.reasons import Skip, SkipReason

CLOSED: Final = "closed"
"""The value of the pod's label raddle.dev/door that closes it; any other has no effect."""

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
    pod: Pod,
    containers: Sequence[Container],
    architecture: str | Skip,
    *,
    shipped: Collection[str],
    switch: bool,
) -> str | Skip:
    """The architecture for which the door is open, for a pod whose `containers` would have it; or why it is closed.

    The pod is without ours. `shipped` are the architectures of the native shim, `switch` is the operator's own.
    """
    if pod.labels.get(env.DOOR_LABEL) == CLOSED:
        return Skip(reason=SkipReason.DOOR_CLOSED, detail=f"the pod's label {env.DOOR_LABEL} is {CLOSED}")
    if not switch:
        return Skip(reason=SkipReason.DOOR_CLOSED, detail="the chart's value shim.door is false")
    occupied = _occupied(pod, containers)
    if occupied:
        return Skip(reason=SkipReason.DOOR_OCCUPIED, detail=occupied)
    if isinstance(architecture, Skip):
        return architecture
    if architecture not in shipped:
        detail = f"this build has no native shim for {architecture[:63]}"
        return Skip(reason=SkipReason.SHIM_MISSING, detail=detail)
    return architecture


def _occupied(pod: Pod, containers: Iterable[Container]) -> str:
    """What has the file, in words; "" for nothing."""
    for container in containers:
        found = in_the_way(container, delivery.PRELOAD_FILE)
        if found:
            return f"container {container.name[:63]}: {found}"
    shows = _shared_gpu(pod)
    return shows and f"{shows}, which mounts {delivery.PRELOAD_FILE} where the pod spec does not show it"


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
