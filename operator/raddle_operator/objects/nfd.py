"""What Node Feature Discovery and the Node itself say of a node that has no agent, as a Machine. Pure.

Known that way: how many CPUs there are, how they are spread over NUMA nodes, and perhaps whether SMT is on. Not known:
which CPUs these are, their caches, core types, the CPU manager's policy. So the machine's CPU numbers are made up (its
`source` says so), it is good for counting at binding and for nothing else, and no CPU on it counts as exclusive.
What is not known never adds a core: see `machine_of`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from raddle.cpus import cpuset
from raddle.cpus.topology import Kubelet, Machine, NUMANode
from raddle_operator.objects import quantities
from raddle_operator.objects.quantities import QuantityError

API_VERSION: Final = "topology.node.k8s.io/v1alpha2"
LABEL_PREFIX: Final = "feature.node.kubernetes.io/"
MULTITHREADING: Final = f"{LABEL_PREFIX}cpu-hardware_multithreading"
"""true or false; absent where NFD could not tell (source/cpu/cpu.go)."""
MAX_ZONES: Final = 1024

# As uname says it, and the most threads that a core of that kind has had: Xeon and EPYC 2, ThunderX2 4, POWER 8, Z 2.
_ARCHITECTURES: Final[Mapping[str, tuple[str, int]]] = {
    "amd64": ("x86_64", 2),
    "arm64": ("aarch64", 4),
    "ppc64le": ("ppc64le", 8),
    "s390x": ("s390x", 2),
    "riscv64": ("riscv64", 4),
}
_UNKNOWN_ARCHITECTURE: Final = ("", 8)
_ZONE_NAME: Final = re.compile(r"node-([0-9]{1,5})")
_POLICIES: Final = ("none", "best-effort", "restricted", "single-numa-node")
_SCOPES: Final = ("container", "pod")
# The words of before attributes: topologyPolicies, deprecated and still written.
_OLD_POLICIES: Final[Mapping[str, tuple[str, str]]] = {
    "SingleNUMANodeContainerLevel": ("single-numa-node", "container"),
    "SingleNUMANodePodLevel": ("single-numa-node", "pod"),
    "Restricted": ("restricted", "unknown"),
    "RestrictedContainerLevel": ("restricted", "container"),
    "RestrictedPodLevel": ("restricted", "pod"),
    "BestEffort": ("best-effort", "unknown"),
    "BestEffortContainerLevel": ("best-effort", "container"),
    "BestEffortPodLevel": ("best-effort", "pod"),
    "None": ("none", "unknown"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What a Node says: its CPUs (None where it doesn't), and by NFD's labels whether SMT is on (None: unknown).

    `labelled`: NFD has labelled it. `architecture` is Kubernetes' word for it, "" where unknown.
    """

    cpus: int | None
    architecture: str = ""
    labelled: bool = False
    multithreading: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """A NUMA node of a NodeResourceTopology: its id, how many CPUs it has, its distances to zones by id."""

    id: int
    cpus: int
    distances: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonesReport:
    """What a NodeResourceTopology says: the zones by ascending id, and the topology manager's policy and scope."""

    zones: tuple[Zone, ...]
    policy: str = "unknown"
    scope: str = "unknown"


def read_node(obj: Mapping[str, Any]) -> NodeReport | None:
    """What a Node object says; None for a Windows node. Raises nothing for a Node as the API server has it."""
    labels = (obj.get("metadata") or {}).get("labels") or {}
    if labels.get("kubernetes.io/os", "linux") != "linux":
        return None
    said = {"true": True, "false": False}.get(labels.get(MULTITHREADING, ""))
    return NodeReport(
        cpus=_count(((obj.get("status") or {}).get("capacity") or {}).get("cpu")),
        architecture=str(labels.get("kubernetes.io/arch", "")),
        labelled=any(key.startswith(LABEL_PREFIX) for key in labels),
        multithreading=said,
    )


def read_zones(obj: Mapping[str, Any]) -> ZonesReport | None:
    """What a NodeResourceTopology says; None for one whose zones of type Node can't all be read."""
    items = obj.get("zones")
    if not isinstance(items, list) or len(items) > MAX_ZONES:
        return None
    zones = [_zone(item) for item in items if isinstance(item, Mapping) and item.get("type") == "Node"]
    found = {zone.id: zone for zone in zones if zone is not None}
    if not zones or len(found) != len(zones):
        return None
    attributes = _pairs(obj.get("attributes"), "name", "value")
    policies = obj.get("topologyPolicies")
    old = policies[0] if isinstance(policies, list) and policies and isinstance(policies[0], str) else ""
    policy, scope = _OLD_POLICIES.get(old, ("unknown", "unknown"))
    said_policy, said_scope = attributes.get("topologyManagerPolicy"), attributes.get("topologyManagerScope")
    return ZonesReport(
        zones=tuple(found[number] for number in sorted(found)),
        policy=said_policy if said_policy in _POLICIES else policy,
        scope=said_scope if said_scope in _SCOPES else scope,
    )


def machine_of(node: NodeReport | None, report: ZonesReport | None) -> Machine | None:
    """The machine that these describe, with made-up CPU numbers; None where NFD says nothing, or not how many CPUs.

    Never more cores than there are. SMT that is not known to be off counts as on, with as many threads per core as that
    architecture has had. CPUs that do not fill a core of their NUMA node count, all NUMA nodes together, as one core.
    Zones with more CPUs than the node has are left out, as are CPUs without a zone out of all NUMA nodes.
    """
    zones = report.zones if report is not None else ()
    if node is None or node.cpus is None or not (zones or node.labelled):
        return None
    if sum(zone.cpus for zone in zones) > node.cpus:
        zones = ()
    if not zones and not node.labelled:
        return None
    architecture, most_threads = _ARCHITECTURES.get(node.architecture, _UNKNOWN_ARCHITECTURE)
    threads = 1 if node.multithreading is False else most_threads
    cores: list[int] = []
    odd = first = 0
    sets = []
    for size in (*(zone.cpus for zone in zones), node.cpus - sum(zone.cpus for zone in zones)):
        sets.append(((1 << size) - 1) << first)
        whole = size - size % threads
        cores += [((1 << threads) - 1) << cpu for cpu in range(first, first + whole, threads)]
        odd |= ((1 << (size - whole)) - 1) << (first + whole)
        first += size
    if odd:
        cores.append(odd)
    return Machine(
        online=(1 << node.cpus) - 1,
        cores=tuple(sorted(cores, key=lambda core: core & -core)),
        numa_nodes=tuple(
            NUMANode(zone.id, cpus, None, _distances(zone, zones)) for zone, cpus in zip(zones, sets, strict=False)
        ),
        architecture=architecture,
        kubelet=Kubelet(
            topology_manager_policy=report.policy if report is not None else "unknown",
            topology_manager_scope=report.scope if report is not None else "unknown",
        ),
        source=_source(node, zones, threads),
    )


def _source(node: NodeReport, zones: tuple[Zone, ...], threads: int) -> str:
    known = "NodeResourceTopology" if zones else "labels"
    guess = "" if node.multithreading is not None else f", SMT{threads} assumed"
    return f"from NFD {known}, no agent{guess}"


def _zone(item: Mapping[str, Any]) -> Zone | None:
    name = _ZONE_NAME.fullmatch(str(item.get("name", "")))
    cpus = next((_count(capacity, least=0) for capacity in _resource(item, "cpu")), 0)
    if name is None or cpus is None:
        return None
    costs = _pairs(item.get("costs"), "name", "value")
    distances = []
    for other, cost in sorted(costs.items()):
        number = _ZONE_NAME.fullmatch(other)
        if number is not None and isinstance(cost, int) and not isinstance(cost, bool) and 0 <= cost <= cpuset.MAX_CPUS:
            distances.append((int(number[1]), cost))
    return Zone(id=int(name[1]), cpus=cpus, distances=tuple(distances))


def _resource(item: Mapping[str, Any], name: str) -> list[Any]:
    resources = item.get("resources")
    if not isinstance(resources, list):
        return []
    return [one.get("capacity") for one in resources if isinstance(one, Mapping) and one.get("name") == name]


def _pairs(items: object, key: str, value: str) -> dict[str, Any]:
    if not isinstance(items, list):
        return {}
    return {str(one.get(key)): one.get(value) for one in items if isinstance(one, Mapping)}


def _distances(zone: Zone, zones: tuple[Zone, ...]) -> tuple[int, ...]:
    """Those to every zone, in their order; () where one is missing."""
    known = dict(zone.distances)
    return tuple(known[other.id] for other in zones) if all(other.id in known for other in zones) else ()


def _count(quantity: object, least: int = 1) -> int | None:
    """A number of CPUs; None for anything else, and for more than Linux can have."""
    try:
        number = int(quantities.parse(quantity))
    except QuantityError:
        return None
    return number if least <= number < cpuset.MAX_CPUS else None
