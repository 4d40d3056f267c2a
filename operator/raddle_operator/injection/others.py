"""What others have decided about a pod's CPUs, read where it stands in the pod; pure.

Labels, annotations and resource names are anybody's to write: sizes are bounded, no shape raises, and what can't be
read is as if it were absent, with a reason. A container that claims more CPUs than it has is cut by its own shim.

VPA                      pkg/utils/annotations/vpa_cpu_boost.go (1.8.1): a container's resources without the boost
kube-startup-cpu-boost   internal/boost/pod/pod.go: the same, CPUs only, of all containers in one annotation
Koordinator              apis/extension/{constants,qos,resource,numa_aware}.go
Katalyst                 katalyst-api, pkg/consts
nri-plugins              the keys of all its policies end in one domain
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from raddle.cpus import cpuset
from raddle.cpus.topology import Machine
from raddle_operator.objects.pods import Container, Pod
from raddle_operator.objects.quantities import QuantityError, parse

RESOURCE_STATUS: Final = "scheduling.koordinator.sh/resource-status"
KOORDINATOR: Final = "Koordinator"
"""What `Decided.dedicated` begins with where its scheduler chooses the CPUs, and writes them into RESOURCE_STATUS."""
_VPA_BOOST: Final = "vpaCpuStartupBoost/"
_STARTUP_BOOST: Final = "autoscaling.x-k8s.io/startup-cpu-boost"
_CPU_BURST: Final = "koordinator.sh/cpuBurst"
_QUOTA_BURSTS: Final = ("cfsQuotaBurstOnly", "auto")
_KOORDINATOR_QOS: Final = "koordinator.sh/qosClass"
_KATALYST_QOS: Final = "katalyst.kubewharf.io/qos_level"
_NRI: Final = "resource-policy.nri.io"
_NRI_PRESERVES: Final = "cpu.preserve." + _NRI
# Thousandths of a CPU that are lent until their owner wants them back. Katalyst's documents spell its own in both ways.
_RECLAIMED: Final = (
    ("kubernetes.io/batch-cpu", "Koordinator BE"),
    ("resource.katalyst.kubewharf.io/reclaimed_millicpu", "Katalyst reclaimed_cores"),
    ("katalyst.kubewharf.io/reclaimed_millicpu", "Katalyst reclaimed_cores"),
)
_MAX_TEXT: Final = 8192
_MAX_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class Decided:
    """What others have decided about one container.

    `limit`, `request`: CPUs that hold in the long run, None where the pod spec's hold. `because` says where the limit
    stands, "" in the pod spec; `note` what else a reader of it should know, "" nothing. `reclaimed`: the CPUs may be
    taken back at any time. `dedicated`: who gives the container whole CPUs of its own, "" the kubelet if anybody.
    """

    limit: Decimal | None = None
    request: Decimal | None = None
    because: str = ""
    note: str = ""
    reclaimed: bool = False
    dedicated: str = ""


NOTHING: Final = Decided()


def decided(pod: Pod, container: Container) -> Decided:
    """What others have decided about a container of the pod, before the pod has a node. Never raises."""
    notes = _notes(pod.annotations)
    limit, request, because, lender = _lent(container)
    lender = lender or _lender(pod)
    if not because:
        try:
            limit, request, because = _settled(pod.annotations, container.name)
        except QuantityError as error:
            notes.append(str(error))
    return Decided(
        limit=limit,
        request=request,
        because=because,
        note="; ".join(notes),
        reclaimed=bool(lender),
        dedicated="" if lender else _dedicated(pod),
    )


def assigned(annotations: Mapping[str, str], machine: Machine) -> tuple[int | None, str]:
    """The CPUs of the node that a scheduler has given the pod, None for none, and where that stands.

    Or why it does not count; "" where no scheduler says anything. Never raises.
    """
    text = annotations.get(RESOURCE_STATUS)
    if text is None:
        return None, ""
    named = _object(text).get("cpuset")
    if named is None or named == "":
        # Without CPUs of its own the pod is told NUMA nodes at most.
        return None, ""
    try:
        cpus = cpuset.parse_list(named) if isinstance(named, str) else 0
    except ValueError:
        cpus = 0
    if not cpus:
        return None, f"{RESOURCE_STATUS} is ignored: its cpuset is not a CPU list"
    if cpus & ~machine.online:
        return None, f"{RESOURCE_STATUS} is ignored: it names CPUs that the node does not have"
    return cpus, f"{KOORDINATOR}: {RESOURCE_STATUS}"


def _settled(annotations: Mapping[str, str], name: str) -> tuple[Decimal | None, Decimal | None, str]:
    """The limit and the request after a boost, and in words what the limit is; nothing of these where nobody boosts.

    Raises QuantityError, which names the annotation, for one that can't be read.
    """
    text = annotations.get(_VPA_BOOST + name)
    if text is not None:
        before = _object(text)
        parts = (before.get(part) for part in ("limits", "requests"))
        limit, request = (_cpus(part, "cpu", _VPA_BOOST + name) for part in parts)
        return limit, request, _after(limit, "VPA's startup boost")
    text = annotations.get(_STARTUP_BOOST)
    if text is None:
        return None, None, ""
    before = _object(text)
    parts = (before.get(part, {}) for part in ("initCPULimits", "initCPURequests"))
    limit, request = (_cpus(part, name, _STARTUP_BOOST) for part in parts)
    return limit, request, _after(limit, "kube-startup-cpu-boost")


def _after(limit: Decimal | None, boost: str) -> str:
    return "" if limit is None else f"limits.cpu {limit.normalize():f} after {boost}"


def _cpus(part: Any, key: str, annotation: str) -> Decimal | None:
    """The quantity at `key`, None for none. Raises QuantityError."""
    try:
        if isinstance(part, dict):
            return parse(part[key]) if key in part else None
    except QuantityError:
        pass
    raise QuantityError(f"{annotation} is ignored: it can't be read")


def _lent(container: Container) -> tuple[Decimal | None, Decimal | None, str, str]:
    """The limit and the request of CPUs that are lent, where they stand, and who lends; nothing where there are none.

    A quantity that can't be read is none: the API server has let it through for what it can't be.
    """
    for resource, lender in _RECLAIMED:
        limit, request = container.limits.get(resource), container.requests.get(resource)
        if limit is not None or request is not None:
            result = [_thousandths(one) for one in (limit, request)]
            return result[0], result[1] or result[0], f"limits {resource} {str(limit)[:_MAX_SHOWN]} ({lender})", lender
    return None, None, "", ""


def _thousandths(quantity: Any) -> Decimal | None:
    try:
        return None if quantity is None else parse(quantity) / 1000
    except QuantityError:
        return None


def _lender(pod: Pod) -> str:
    if pod.labels.get(_KOORDINATOR_QOS) == "BE":
        return "Koordinator BE"
    return "Katalyst reclaimed_cores" if pod.annotations.get(_KATALYST_QOS) == "reclaimed_cores" else ""


def _dedicated(pod: Pod) -> str:
    qos = pod.labels.get(_KOORDINATOR_QOS)
    if qos in ("LSE", "LSR"):
        return f"{KOORDINATOR} {qos}"
    return "Katalyst dedicated_cores" if pod.annotations.get(_KATALYST_QOS) == "dedicated_cores" else ""


def _notes(annotations: Mapping[str, str]) -> list[str]:
    result = []
    if _CPU_BURST in annotations and _object(annotations[_CPU_BURST]).get("policy") in _QUOTA_BURSTS:
        result.append("without Koordinator's quota burst")
    nri = [key.partition("/")[0] for key in annotations if _NRI in key]
    if any(key.endswith(_NRI) for key in nri) and _NRI_PRESERVES not in nri:
        result.append("nri-plugins may change its CPUs while it runs")
    return result


def _object(text: str) -> Mapping[str, Any]:
    """The JSON object that a text is; {} for any other text."""
    if len(text) > _MAX_TEXT:
        return {}
    try:
        result = json.loads(text)
    # A deep nesting raises RecursionError.
    except (ValueError, RecursionError):
        return {}
    return result if isinstance(result, dict) else {}
