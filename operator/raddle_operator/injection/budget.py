"""From a pod's resources to what the planner counts with: `raddle.planning.planner.Budget` for each container."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from raddle.planning.planner import MAX_QUOTA_CPUS, Budget
from raddle_operator.injection.workers import SIDECARS
from raddle_operator.objects.accelerators import has_accelerator
from raddle_operator.objects.pods import Container, Pod
from raddle_operator.objects.quantities import parse

_ZERO: Final = Decimal(0)
_QOS_RESOURCES: Final = ("cpu", "memory")
_MAX_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class Resources:
    """What holds for all containers of a pod.

    `guaranteed`: the pod's containers may get exclusive CPUs. `pod_cpus` is the pod-level CPU limit, None where there
    is none; `part_cpus` what each container without a limit of its own gets of it, and `because` how that came about.
    """

    guaranteed: bool
    pod_cpus: Decimal | None = None
    part_cpus: Decimal | None = None
    because: str = ""


def pod_resources(pod: Pod) -> Resources:
    """What holds for all containers of a pod without ours. Raises QuantityError for a quantity that can't be read.

    A container without a limit of its own counts with what the others leave of the pod-level limit, divided among those
    like it, but with no less than an equal part of the whole: the others need not use all that they may.
    """
    if pod.limits is None:
        return Resources(is_guaranteed(pod))
    limit = _cpus(pod.limits)
    if not limit:
        # With pod-level resources the kubelet hands out no exclusive CPUs (policy_static.go).
        return Resources(guaranteed=False)
    running = [*pod.containers, *(container for container in pod.init_containers if container.sidecar)]
    own = {container.name: _cpus(container.limits) for container in running}
    sharing = [name for name, cpus in own.items() if not cpus and name not in SIDECARS]
    rest = limit - sum(own.values(), _ZERO)
    part = max(rest / max(1, len(sharing)), limit / max(1, len(own)))
    because = f"pod-level limits.cpu {str(pod.limits['cpu'])[:_MAX_SHOWN]}"
    if part != limit:
        because += f", {part:.3g} for each container without a limit of its own"
    return Resources(guaranteed=False, pod_cpus=limit, part_cpus=part, because=because)


def container_budget(
    container: Container,
    resources: Resources,
    *,
    workers: int = 1,
    workers_source: str = "",
    shim: bool = True,
    smallest_cores: int | None = None,
) -> Budget:
    """The container's budget before it runs. Raises QuantityError where a CPU quantity can't be read.

    A limit of 0 is none, as for the kubelet. An absent request is the limit, as the API server defaults it.
    `workers_source` says what the number of workers was read from.
    """
    limit = _cpus(container.limits)
    request = _cpus(container.requests) or limit
    quota: Decimal | None = limit or None
    because, whole = "no CPU limit", 0
    if limit:
        because = f"limits.cpu {str(container.limits['cpu'])[:_MAX_SHOWN]}"
        if resources.guaranteed and request == limit and limit == int(limit):
            whole = int(min(limit, Decimal(MAX_QUOTA_CPUS)))
        if resources.pod_cpus is not None and resources.pod_cpus < limit:
            quota, because = resources.pod_cpus, resources.because
    elif resources.part_cpus is not None:
        quota, because = resources.part_cpus, resources.because
    if workers_source:
        because += f" ({workers} workers: {workers_source})"
    return Budget(
        # Finite numbers in a JSON annotation, whatever was asked for; the planner bounds them the same.
        quota_cpus=None if quota is None else min(float(quota), MAX_QUOTA_CPUS),
        request_cpus=min(float(request), MAX_QUOTA_CPUS) if request else None,
        whole_cpus=whole,
        workers=workers,
        gpu=has_accelerator(container),
        shim=shim,
        smallest_cores=smallest_cores,
        because=because,
    )


def is_guaranteed(pod: Pod) -> bool:
    """Whether the pod's QoS class is Guaranteed (k8s.io/kubernetes/pkg/apis/core/v1/helper/qos/qos.go).

    Init containers count; pod-level resources, where there are any, decide alone; a quantity of 0 is none.
    Raises QuantityError.
    """
    if pod.limits is not None:
        return _equal(pod.requests or {}, pod.limits)
    return bool(pod.containers) and all(_equal(c.requests, c.limits) for c in pod.containers + pod.init_containers)


def _equal(requests: Mapping[str, Any], limits: Mapping[str, Any]) -> bool:
    for name in _QOS_RESOURCES:
        limit = limits.get(name)
        request = requests.get(name)
        if limit is None or (request is not None and request != limit and parse(request) != parse(limit)):
            return False
        if parse(limit) == _ZERO:
            return False
    return True


def _cpus(resources: Mapping[str, Any]) -> Decimal:
    """0 where there are none."""
    quantity = resources.get("cpu")
    return _ZERO if quantity is None else parse(quantity)
