"""How many threads a container has CPUs for: the tightest of its quota, its CPUs and the machine, with the reason."""

from __future__ import annotations

from math import ceil, floor
from typing import List, NamedTuple, Optional, Tuple

from raddle import env
from raddle.cpus import cpuset
from raddle.cpus.placement import PlacementPolicy, in_words, kinds_of, of_core_type, one_cpu_each, place
from raddle.cpus.topology import Machine
from raddle.planning.policy import Policy

# A quota above this is written by nobody who means it; the kubelet itself stops far below.
MAX_QUOTA_CPUS = 65536.0
# The smallest quantity of CPU that Kubernetes has.
MIN_QUOTA_CPUS = 0.001
# Policy's placement.numa -> PlacementPolicy's.
_NUMA = {"Auto": "auto", "SingleNUMANode": "single", "Any": "any"}


class Budget(NamedTuple):
    """What one container may use, as far as it is known where the plan is made.

    quota_cpus       CPU limit in CPUs, fractional; None: no limit. A pod-level limit is already divided.
    request_cpus     CPU request in CPUs; None: none.
    whole_cpus       the integer CPU count if the pod is Guaranteed and asks for whole CPUs itself, else 0.
    cpus             the CPUs that the container may use; None: not known yet (before the container runs).
    workers          processes that share the container's CPUs.
    gpu              the container has a GPU.
    shim             a shim will be in the process, so spinning can be controlled.
    smallest_cores   physical cores of the smallest node known to Raddle; None: no node is known.
    reclaimed        the CPUs are lent: whoever owns them may take them back at any time.
    dedicated        who gives the container `whole_cpus` of its own; "": the kubelet if anybody.
    claims           the container has ResourceClaims, which may hold CPUs: that is read when the pod is bound.
    because          where the limit comes from, in words.
    """

    quota_cpus: Optional[float] = None
    request_cpus: Optional[float] = None
    whole_cpus: int = 0
    cpus: Optional[int] = None
    workers: int = 1
    gpu: bool = False
    shim: bool = True
    smallest_cores: Optional[int] = None
    reclaimed: bool = False
    dedicated: str = ""
    claims: bool = False
    because: str = "no CPU limit"


class CPUCapacity(NamedTuple):
    """What a container has CPUs for.

    kind         exclusive, quota or unlimited: what bounds it.
    threads      threads that all streams together may have; None: nothing bounds them.
    budget_cpus  CPUs that the plan counts with; None: unknown.
    because      the input that decided `threads`.
    cpus         the exclusive CPUs chosen for a pool; None: not known, or not exclusive.
    cores        what `threads` would be without the cut to one NUMA node.
    places       one CPU for each core that there is to choose from; 0: the machine is not known.
    """

    kind: str
    threads: Optional[int]
    budget_cpus: Optional[float]
    because: str
    cpus: Optional[int] = None
    cores: int = 0
    places: int = 0


def bounded(budget: Budget) -> Budget:
    """The budget with absurd numbers bounded, as text from annotations may hold them."""
    quota, request = (
        # NaN compares false with everything, so it ends as None like a negative number does.
        max(MIN_QUOTA_CPUS, min(cpus, MAX_QUOTA_CPUS)) if cpus is not None and cpus > 0 else None
        for cpus in (budget.quota_cpus, budget.request_cpus)
    )
    return budget._replace(
        quota_cpus=quota,
        request_cpus=request,
        whole_cpus=min(budget.whole_cpus, env.MAX_EXCLUSIVE_CPUS),
        workers=min(max(1, budget.workers), env.MAX_STREAMS),
        cpus=budget.cpus or None,
    )


def placement_policy(policy: Policy, *, gpu: bool = False) -> PlacementPolicy:
    """What the policy asks of the CPUs, as `placement` has it."""
    return PlacementPolicy(_NUMA[policy.numa], policy.core_type.lower(), policy.smt == "AllThreads", gpu)


def is_exclusive(machine: Optional[Machine], budget: Budget) -> bool:
    """True when the container has CPUs to itself.

    A cpuset alone never says so: on a node with the static CPU manager every shared container has one too.
    """
    if machine is None or budget.whole_cpus < 1:
        return False
    if budget.cpus is not None:
        owned = cpuset.count(budget.cpus) == budget.whole_cpus
    else:
        # Nobody but the pod says so: in the container all CPUs of a node would be no sign of it.
        owned = not budget.dedicated or budget.whole_cpus < cpuset.count(machine.online)
    return owned and (budget.dedicated != "" or machine.kubelet.cpu_manager_policy == "static")


def capacity_for(machine: Optional[Machine], budget: Budget, policy: Policy) -> CPUCapacity:
    """The capacity of a container with a `bounded` budget; `machine` is None where the node is not known yet."""
    if machine is not None and is_exclusive(machine, budget):
        return _exclusive(machine, budget, policy)
    quota, source = _quota(budget, policy)
    if quota is None:
        return _unlimited(machine, budget, policy)
    latency = policy.objective == "Latency"
    rule = "rounded up for Latency" if latency else "rounded down for Throughput"
    threads = max(1, ceil(quota) if latency else floor(quota))
    because = source if quota == threads else f"{source}, {rule}" if quota > 1 else source + ", below one CPU"
    places = 0
    if machine is not None:
        fits, where, places = _shared(machine, budget, policy, one_numa_node=policy.numa == "SingleNUMANode")
        if fits < threads:
            threads, because = fits, f"{source}; {where}"
        # What the limit allows beyond the node's CPUs is not there.
        quota = min(quota, float(cpuset.count(_balanced_cpus(machine, budget.cpus))))
    return CPUCapacity("quota", threads, quota, because, cores=threads, places=places)


def places_by_kind(machine: Machine, budget: Budget, policy: Policy, capacity: CPUCapacity) -> List[int]:
    """One CPU for each core that there is to choose from, a set for each kind of core, the capacity's own kind first.

    Of several kinds the others' are here too, as instances that mix none may run on them, where a container's CPUs
    are known or shared.
    """
    exclusive = capacity.kind == "exclusive"
    cpus = budget.cpus if exclusive else _balanced_cpus(machine, budget.cpus)
    if policy.core_type != "Auto" or len(machine.core_types) < 2 or cpus is None:
        return [capacity.places]
    wanted = placement_policy(policy)
    taken = of_core_type(machine, cpus, wanted)
    others = [kind & ~taken for kind in kinds_of(machine, cpus, wanted)]
    return [one_cpu_each(machine, kind, wanted) for kind in (taken, *filter(None, others))]


def _quota(budget: Budget, policy: Policy) -> Tuple[Optional[float], str]:
    """The CPUs that bound the container, and why; None when only the node does."""
    quota, request = budget.quota_cpus, budget.request_cpus
    if policy.budget_source == "Node":
        quota = None
    elif policy.budget_source == "Request" and request is not None and (quota is None or request < quota):
        return request, f"requests.cpu {request:g} (budget.source Request)"
    if budget.cpus is not None:
        size = cpuset.count(budget.cpus)
        # A quota of at least as many CPUs as there are in the cpuset never throttles.
        if quota is not None and quota >= size:
            return float(size), f"cpuset of {size} CPUs, narrower than {budget.because}"
    return quota, budget.because


def _unlimited(machine: Optional[Machine], budget: Budget, policy: Policy) -> CPUCapacity:
    if policy.budget_source == "Limit":
        return CPUCapacity("unlimited", None, None, "budget.source is Limit and there is no limit")
    # A limit that there is does not count then.
    why = "budget.source Node" if policy.budget_source == "Node" else "no CPU limit"
    if machine is None:
        if budget.smallest_cores is None:
            return CPUCapacity("unlimited", None, None, why + ", and no node is known")
        cores = max(1, budget.smallest_cores)
        because = f"{why}; {cores} cores on the smallest node"
        return CPUCapacity("unlimited", cores, float(cores), because, cores=cores)
    # No thread is pinned to it: it is where a container without a limit stops before it takes the node from all others.
    latency = policy.numa == "Auto" and policy.objective == "Latency" and policy.budget_source != "Node"
    one_numa_node = latency or policy.numa == "SingleNUMANode"
    fits, where, places = _shared(machine, budget, policy, one_numa_node=one_numa_node)
    return CPUCapacity("unlimited", fits, float(fits), f"{why}; {where}", cores=fits, places=places)


def _shared(machine: Machine, budget: Budget, policy: Policy, *, one_numa_node: bool) -> Tuple[int, str, int]:
    """Threads that the CPUs a shared container may run on can hold, in words, and a CPU for each on the node.

    `one_numa_node`: no more than the largest NUMA node can.
    """
    wanted = placement_policy(policy)
    units = one_cpu_each(machine, of_core_type(machine, _balanced_cpus(machine, budget.cpus), wanted), wanted)
    total = max(1, cpuset.count(units))
    if one_numa_node and len(machine.numa_nodes) > 1:
        largest = max(cpuset.count(units & node.cpus) for node in machine.numa_nodes)
        if 0 < largest < total:
            return largest, in_words(machine, largest, wanted, units, "NUMA node"), units
    return total, in_words(machine, total, wanted, units) + " on the node", units


def _balanced_cpus(machine: Machine, within: Optional[int]) -> int:
    """The CPUs that a shared container is reckoned to run on: online, not isolated, not reserved.

    The kernel may run it on reserved CPUs too, unless the kubelet has the option strict-cpu-reservation, but these are
    left to the system that they are reserved for. `within` narrows to the container's own CPUs, as they are.
    """
    cpus = (machine.online if within is None else within & machine.online) or within or 1
    # The scheduler moves no thread to an isolated CPU by itself.
    cpus = cpus & ~machine.isolated or cpus
    if within is None and machine.kubelet.cpu_manager_policy == "static" and machine.kubelet.reserved_cpus:
        cpus = cpus & ~machine.kubelet.reserved_cpus or cpus
    return cpus


def _exclusive(machine: Machine, budget: Budget, policy: Policy) -> CPUCapacity:
    """All whole cores of the exclusive set, cut to one NUMA node where that holds enough of them."""
    whole, wanted = budget.whole_cpus, placement_policy(policy, gpu=budget.gpu)
    placed = place(machine, whole, wanted, budget.cpus)
    because = f"{whole} exclusive CPUs ({budget.dedicated or 'Guaranteed, static CPU manager'})"
    if placed.units != whole:
        because += " on " + in_words(machine, placed.units, wanted, placed.places)
    if placed.threads < placed.units:
        because += ", cut to the {} on one {}".format(placed.threads, placed.because.rpartition(" one ")[2])
    # A stale picture of the node may hold fewer than the kubelet has given.
    there = cpuset.count(machine.online if budget.cpus is None else budget.cpus & machine.online) or whole
    counted = float(min(whole, there))
    return CPUCapacity("exclusive", placed.threads, counted, because, placed.cpus, placed.units, placed.places)
