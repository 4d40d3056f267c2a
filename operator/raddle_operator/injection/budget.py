"""From a pod's resources to what the planner counts with: `raddle.planning.planner.Budget` for each container."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from raddle.planning.planner import MAX_QUOTA_CPUS, Budget
from raddle_operator.injection.others import NOTHING, Decided, decided
from raddle_operator.injection.workers import SIDECARS
from raddle_operator.objects.accelerators import has_accelerator
from raddle_operator.objects.pods import Container, Pod
from raddle_operator.objects.quantities import parse
from raddle_operator.objects.reading import EMPTY

_ZERO: Final = Decimal(0)
_LEAST: Final = Decimal("0.001")
_QOS_RESOURCES: Final = ("cpu", "memory")
_MAX_SHOWN: Final = 40


class Resources(NamedTuple):
    """What holds for all containers of a pod.

    `guaranteed`: the pod's containers may get exclusive CPUs. `reserve`: CPUs that the policy leaves for the others,
    None where it says nothing. `decided` is what others have decided, by container. `pod_cpus` is what one container
    may use of the pod-level CPU limit, None where there is none, and `because` where it comes from; `parts` what each
    may that has no limit of its own, and `divided` how that came about.
    """

    guaranteed: bool
    reserve: Decimal | None = None
    decided: Mapping[str, Decided] = EMPTY
    pod_cpus: Decimal | None = None
    because: str = ""
    parts: Mapping[str, Decimal] = EMPTY
    divided: str = ""


def pod_resources(pod: Pod, reserve_cpus: float | None = None) -> Resources:
    """What holds for all containers of a pod without ours. Raises QuantityError for a quantity that can't be read.

    `reserve_cpus`: what the policy leaves for the others, None where it says nothing.
    """
    reserve = None if reserve_cpus is None else Decimal(repr(reserve_cpus))
    result = {one.name: decided(pod, one) for one in (*pod.containers, *pod.init_containers)}
    limit = _cpus(pod.limits or EMPTY)
    if pod.limits is None or not limit:
        # With pod-level resources the kubelet hands out no exclusive CPUs (policy_static.go).
        return Resources(pod.limits is None and is_guaranteed(pod), reserve, result)
    because = f"pod-level limits.cpu {str(pod.limits['cpu'])[:_MAX_SHOWN]}"
    if reserve:
        limit, because = max(limit - reserve, _LEAST), because + _reserved(reserve)
    running = [*pod.containers, *(container for container in pod.init_containers if container.sidecar)]
    own = {one.name: _limit(one, result[one.name]) for one in running}
    requests = {one.name: _cpus(one.requests) for one in running if reserve is None and not own[one.name]}
    return Resources(
        guaranteed=False,
        reserve=reserve,
        decided=result,
        pod_cpus=_of_reserved(limit, reserve),
        because=because,
        parts={name: _of_reserved(part, reserve) for name, part in _parts(limit, own, requests).items()},
        divided="after the requests of the others"
        if any(requests.values())
        else "for each container without a limit of its own",
    )


def _parts(limit: Decimal, own: Mapping[str, Decimal], requests: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """What each container without a limit of its own gets of the pod's.

    What the others leave, divided among those like it, but no less than an equal part of the whole: the others need not
    use all that they may. What those without a limit request is theirs. `own` are limits, 0 for none.
    """
    sharing = [name for name, cpus in own.items() if not cpus and name not in SIDECARS]
    requested = _total(requests.values())
    rest = limit - _total(own.values()) - _total(requests.get(name, _ZERO) for name in SIDECARS & own.keys())
    part = max(rest / max(1, len(sharing)), limit / max(1, len(own)))
    result = {}
    for name, cpus in own.items():
        if not cpus:
            mine = requests.get(name, _ZERO)
            result[name] = max(min(part, limit - requested + mine), mine, _LEAST)
    return result


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
    others = resources.decided.get(container.name, NOTHING)
    limit = _limit(container, others)
    request = others.request or _cpus(container.requests) or limit
    quota: Decimal | None = limit or None
    because, whole = "no CPU limit", 0
    if limit:
        because = others.because
        if limit != others.limit:
            because = f"limits.cpu {str(container.limits['cpu'])[:_MAX_SHOWN]}"
        if (resources.guaranteed or others.dedicated) and request == limit and limit == int(limit):
            whole = int(min(limit, Decimal(MAX_QUOTA_CPUS)))
        if resources.pod_cpus is None and resources.reserve:
            quota, because = (
                _of_reserved(limit - resources.reserve, resources.reserve),
                because + _reserved(resources.reserve),
            )
        elif resources.pod_cpus is not None and resources.pod_cpus < limit:
            quota, because = resources.pod_cpus, resources.because
    elif resources.pod_cpus is not None:
        quota, because = resources.parts.get(container.name, resources.pod_cpus), resources.because
        if quota != resources.pod_cpus:
            because += f", {float(quota):.3g} {resources.divided}"
    if others.note:
        because += f"; {others.note}"
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
        reclaimed=others.reclaimed,
        dedicated=others.dedicated,
        claims=container.claims,
        because=because,
    )


def _limit(container: Container, others: Decided) -> Decimal:
    """The container's own limit in the long run, 0 for none: what others say lowers it, or is there in its place."""
    limit = _cpus(container.limits)
    return min(limit, others.limit) if limit and others.limit else limit or others.limit or _ZERO


def _of_reserved(left: Decimal, reserve: Decimal | None) -> Decimal:
    """What is left, in whole CPUs where there is a reserve: a thread for a part of a CPU would take that too."""
    if not reserve:
        return left
    return Decimal(int(left)) if left >= 1 else max(left, _LEAST)


def _reserved(reserve: Decimal) -> str:
    return f" less budget.reserve {reserve.normalize():f}"


def _total(cpus: Iterable[Decimal]) -> Decimal:
    return sum(cpus, _ZERO)


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
