"""Where a container's pool goes on its exclusive CPUs: how many threads, on which CPUs, a CPU set for each worker.

One function, `place`, decides at binding, where the kubelet has not chosen the CPUs yet, and in the container, where
they are known. Steps: the CPUs of one kind of core; one thread for each physical core; the cores of one NUMA node
where that holds at least three quarters of them. L3 domains only order the cores. Nothing known about cores, kinds,
caches or NUMA nodes leaves counts of CPUs.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from raddle.cpus import cpuset
from raddle.cpus.topology import CoreType, Machine, capacity_classes, cores_within


class PlacementPolicy(NamedTuple):
    """What is asked of the CPUs.

    numa         auto, single (never more than one NUMA node) or any (all that there are).
    core_type    auto, performance, efficient or any: which kind of core, where a machine has several.
    all_threads  every thread of a core takes one of the pool's, not one per core.
    gpu          the container has a GPU.
    """

    numa: str = "auto"
    core_type: str = "auto"
    all_threads: bool = False
    gpu: bool = False


class Placement(NamedTuple):
    """Where a pool goes.

    cpus     the CPUs that its threads may use, idle SMT siblings included; None: not known yet.
    threads  how many threads it has at most, at least 1.
    units    how many it would have without the cut to one NUMA node.
    places   one CPU for each of those; while `cpus` is not known, of all that there are to choose from.
    because  `threads` in words, e.g. "12 physical cores on one NUMA node".
    """

    cpus: Optional[int]
    threads: int
    units: int
    places: int
    because: str


def place(machine: Machine, count: int, wanted: PlacementPolicy, cpus: Optional[int] = None) -> Placement:
    """Where a pool goes on `count` exclusive CPUs: the set `cpus`, or None while the kubelet has not chosen them.

    Then the count is the most that the static CPU manager can make of an empty node: it takes whole cores first (with
    distribute-cpus-across-cores a CPU of each), fills one NUMA node before the next, or with
    distribute-cpus-across-numa spreads what one can't hold (pkg/kubelet/cm/cpumanager/cpu_assignment.go).
    A larger `count` never gives fewer threads.
    """
    if cpus is None:
        kinds = kinds_of(machine, _assignable(machine), wanted)
        return max((_expected(machine, count, kind, wanted) for kind in kinds), key=lambda result: result.threads)
    pool = of_core_type(machine, cpus & machine.online or cpus, wanted)
    units = one_cpu_each(machine, pool, wanted)
    total = cpuset.count(units)
    largest, share = 0, 0
    if len(machine.numa_nodes) > 1:
        _, share, largest = max(_shares(machine, pool, units, wanted))
    if _is_cut(share, total, wanted):
        return Placement(largest, share, total, units, in_words(machine, share, wanted, largest, "NUMA node"))
    total = max(1, total)
    if share in (0, total) and wanted.numa == "auto":
        # Several sockets may be told as one NUMA node (node interleaving, or a node without memory).
        share, socket = _largest_socket(machine, units)
        if _is_cut(share, total, wanted):
            inside = pool & socket
            return Placement(inside, share, total, units, in_words(machine, share, wanted, inside, "socket"))
    return Placement(pool, total, total, units, in_words(machine, total, wanted, pool))


def _shares(
    machine: Machine, pool: int, units: int, wanted: PlacementPolicy
) -> List[Tuple[Tuple[int, bool, int, int], int, int]]:
    """For each NUMA node what it is preferred by, the pool's units on it, and the pool's CPUs on it."""
    gpu_nodes = _gpu_nodes(machine, wanted)
    result = []
    for node in machine.numa_nodes:
        share, inside = cpuset.count(units & node.cpus), pool & node.cpus
        result.append(((share, node.id in gpu_nodes, cpuset.count(inside), -node.id), share, inside))
    return result


def _largest_socket(machine: Machine, units: int) -> Tuple[int, int]:
    """How many of the units are on the socket that has the most of them, and that socket."""
    return max(((cpuset.count(units & socket.cpus), socket.cpus) for socket in machine.sockets), default=(0, 0))


def _gpu_nodes(machine: Machine, wanted: PlacementPolicy) -> Tuple[int, ...]:
    return tuple(gpu.numa_node for gpu in machine.gpus if gpu.numa_node is not None) if wanted.gpu else ()


def _is_cut(share: int, total: int, wanted: PlacementPolicy) -> bool:
    """Whether the rest of the pool's units are left idle for one NUMA node that holds `share` of the total."""
    return wanted.numa != "any" and 0 < share < total and (wanted.numa == "single" or 4 * share >= 3 * total)


def _expected(machine: Machine, count: int, pool: int, wanted: PlacementPolicy) -> Placement:
    """The most that `count` CPUs of these can hold; see `place`."""
    units = one_cpu_each(machine, pool, wanted)
    alone = wanted.all_threads or _has_option(machine, "distribute-cpus-across-cores")
    total = max(1, min(count, cpuset.count(units)) if alone else _packed(machine, count, pool, wanted))
    # A NUMA node is filled before the next is begun; without a larger one, all units are on it.
    share = min(total, max((cpuset.count(units & node.cpus) for node in machine.numa_nodes), default=total))
    spread = wanted.numa == "auto" and _has_option(machine, "distribute-cpus-across-numa")
    if not spread and _is_cut(share, total, wanted):
        return Placement(None, share, total, units, in_words(machine, share, wanted, pool, "NUMA node"))
    if share == total and wanted.numa == "auto":
        share = _largest_socket(machine, units)[0]
        if _is_cut(share, total, wanted):
            return Placement(None, share, total, units, in_words(machine, share, wanted, pool, "socket"))
    return Placement(None, total, total, units, in_words(machine, total, wanted, pool))


def _packed(machine: Machine, count: int, pool: int, wanted: PlacementPolicy) -> int:
    """How many cores `count` CPUs take: whole ones first, then what is left of cores with a reserved thread."""
    broken = 0
    for core in machine.cores:
        if core & ~pool:
            broken |= core & pool
    whole = pool & ~broken
    taken = _filled(machine, count, whole, wanted)
    return taken + _filled(machine, count - cpuset.count(whole), broken, wanted)


def _filled(machine: Machine, count: int, pool: int, wanted: PlacementPolicy) -> int:
    """How many cores `count` CPUs of these take, those with the fewest CPUs before others."""
    units = one_cpu_each(machine, pool, wanted)
    cores, rest = cpuset.count(units), pool & ~units
    depth = 1
    taken = 0
    # Cores with at least `depth` CPUs in the pool, one level of siblings after the other.
    while count > 0 and cores > 0:
        deeper_units = one_cpu_each(machine, rest, wanted) if rest else 0
        deeper = cpuset.count(deeper_units)
        exactly = min(cores - deeper, -(-count // depth))
        taken += exactly
        count -= exactly * depth
        cores, rest = deeper, rest & ~deeper_units
        depth += 1
    return taken


def _assignable(machine: Machine) -> int:
    """The CPUs that the kubelet may give away: all but the reserved ones (isolated ones are given away too)."""
    return machine.online & ~(machine.kubelet.reserved_cpus or 0) or machine.online or 1


def _has_option(machine: Machine, name: str) -> bool:
    return any(option == name and value == "true" for option, value in machine.kubelet.cpu_manager_policy_options)


# --- kinds of core --------------------------------------------------------------------------------------------------


def of_core_type(machine: Machine, cpus: int, wanted: PlacementPolicy) -> int:
    """The CPUs of the wanted kind; one pool never spans two kinds of a hybrid machine unless asked to.

    auto: the fastest kind there is, on Arm all kinds but the slowest; but a slower kind with more than twice as many
    cores (OpenVINO's threshold, cpu_map_scheduling.cpp). All of `cpus` where the wanted kind is not among them.
    """
    kinds = kinds_of(machine, cpus, wanted)
    best = kinds[0]
    if wanted.core_type == "auto" and len(kinds) > 1:
        sizes = [cores_within(machine, kind) for kind in kinds]
        if max(sizes) > 2 * sizes[0]:
            return kinds[sizes.index(max(sizes))]
    return best


def kinds_of(machine: Machine, cpus: int, wanted: PlacementPolicy) -> List[int]:
    """What one pool may consist of: sets within `cpus`, the preferred one first; auto may choose any of them."""
    if wanted.core_type == "any" or len(machine.core_types) < 2:
        return [cpus]
    by_speed = sorted(machine.core_types, key=speed)
    slowest = slow_kinds(by_speed) if wanted.core_type == "auto" else None
    if slowest is not None:
        slow = 0
        for kind in by_speed[:slowest]:
            slow |= kind.cpus
        kinds = [cpus & ~slow, cpus & slow]
    else:
        kinds = [kind.cpus & cpus for kind in by_speed]
        if wanted.core_type != "efficient":
            kinds.reverse()
    kinds = [kind for kind in kinds if kind] or [cpus]
    return kinds if wanted.core_type == "auto" else kinds[:1]


def speed(kind: CoreType) -> Tuple[int, int, bool]:
    """What orders kinds of core: the kernel's capacity where told, else the frequency, else P before E."""
    return kind.capacity or 0, kind.max_frequency_mhz or 0, kind.name == "p-core"


def slow_kinds(by_speed: Sequence[CoreType]) -> Optional[int]:
    """How many of the kinds, the slowest first, are of the slowest class; None where the kernel tells no capacity."""
    if not by_speed or by_speed[0].capacity is None:
        return None
    classes = capacity_classes(kind.capacity or 0 for kind in by_speed)
    return sum(classes[kind.capacity or 0] == classes[by_speed[0].capacity] for kind in by_speed)


def one_cpu_each(machine: Machine, cpus: int, wanted: PlacementPolicy) -> int:
    """The lowest CPU of each core within the set, or with `all_threads` all of the set: one CPU for each thread."""
    if wanted.all_threads:
        return cpus
    result, rest = 0, cpus
    for core in machine.cores:
        inside = core & rest
        if inside:
            result |= inside & -inside
            rest ^= inside
            if not rest:
                break
    # CPUs that belong to no known core count as one each.
    return result | rest


def in_words(machine: Machine, threads: int, wanted: PlacementPolicy, pool: int, cut_to: str = "") -> str:
    """E.g. "6 physical cores of one type on one NUMA node", for threads that are in the set `pool`."""
    words = "CPU" if wanted.all_threads else "physical core"
    words = f"{threads} {words}{'s' * (threads != 1)}"
    if wanted.core_type != "any" and len(machine.core_types) > 1:
        taken = [kind for kind in machine.core_types if kind.cpus & pool]
        if len(taken) < 2:
            words += " of one type"
        elif len(taken) < len(machine.core_types):
            slowest = min(machine.core_types, key=speed)
            words += " of the slower types" if slowest in taken else " of the faster types"
    return f"{words} on one {cut_to}" if cut_to else words


# --- which CPU for which thread -------------------------------------------------------------------------------------


def cores_in_order(machine: Machine, cpus: int, *, gpu: bool = False) -> List[int]:
    """The cores within the set, each as the CPUs of it that the set holds.

    Sorted by (NUMA node, most of the set first; L3 domain, most of the set first; lowest CPU). Of NUMA nodes that
    hold as many, those with a GPU come first where `gpu`, then lower ids.
    """
    gpu_nodes = _gpu_nodes(machine, PlacementPolicy(gpu=gpu))
    by_lowest: Dict[int, int] = {}
    left, rest = 0, cpus
    for core in machine.cores:
        inside = core & rest
        if inside:
            low = inside & -inside
            by_lowest[low] = inside
            left |= low
            rest ^= inside
            if not rest:
                break
    left |= rest
    numa = _ranked([(node.id not in gpu_nodes, node.id, node.cpus) for node in machine.numa_nodes], cpus)
    l3 = _ranked([(False, domain.id, domain.cpus) for domain in machine.l3_domains], cpus)
    result = []
    for node in numa:
        inside = left & node
        left ^= inside
        for domain in l3:
            if not inside:
                break
            part = inside & domain
            inside ^= part
            while part:
                low = part & -part
                result.append(by_lowest.get(low, low))
                part ^= low
    return result


def _ranked(groups: Sequence[Tuple[bool, int, int]], cpus: int) -> List[int]:
    """The groups that hold any of the CPUs, most of them first, and last all CPUs for those that are in none."""
    sizes = [(-cpuset.count(mask & cpus), behind, number, mask) for behind, number, mask in groups]
    return [*(mask for size, _, _, mask in sorted(sizes) if size), cpus]


def pool_units(machine: Machine, cpus: int, threads: int, *, gpu: bool = False) -> Tuple[int, ...]:
    """Where each of `threads` threads has its place in the set `cpus`, the caller first: a core, or one CPU of it.

    () where there are more threads than CPUs.
    """
    if threads > cpuset.count(cpus):
        return ()
    cores = cores_in_order(machine, cpus, gpu=gpu)
    if threads > len(cores):
        # All threads of a core are wanted: first one CPU of each core, then their siblings.
        siblings = [cpuset.ids(core) for core in cores]
        depth = max(map(len, siblings))
        cores = [1 << core[n] for n in range(depth) for core in siblings if len(core) > n]
    return tuple(cores[:threads])


def memory_node(machine: Machine, places: Sequence[int]) -> Optional[int]:
    """The NUMA node that holds all of a pool's places, so its memory belongs there; None: several, or not known."""
    together = 0
    for cpus in places:
        together |= cpus
    return next((node.id for node in machine.numa_nodes if together and not together & ~node.cpus), None)


def pin(
    machine: Machine, cpus: int, threads: int, affinity: str, wanted: PlacementPolicy, *, siblings: bool = True
) -> Tuple[int, ...]:
    """One CPU set for each of the threads - 1 workers of a pool on the exclusive set `cpus`; see `affinity_groups`.

    Without `siblings` a worker may use only one CPU of each core.
    """
    pool = pool_for(machine, cpus, threads, wanted)
    if not siblings:
        pool = one_cpu_each(machine, pool, wanted._replace(all_threads=False))
        if cpuset.count(pool) < threads:
            return ()
    return affinity_groups(machine, pool, threads, affinity, gpu=wanted.gpu)


def pool_for(machine: Machine, cpus: int, threads: int, wanted: PlacementPolicy) -> int:
    """The CPUs for a pool of so many threads on the exclusive set `cpus`.

    A count of the policy's or of the code's own may be more than was placed. It goes to the first that has room, a
    core for each where that is wanted and can be: the placement's CPUs, those without the cut to one NUMA node, all.
    """
    uncut = of_core_type(machine, cpus & machine.online or cpus, wanted)
    pools = [place(machine, cpuset.count(cpus), wanted, cpus).cpus or uncut, uncut]
    with_units = [pool for pool in pools if cpuset.count(one_cpu_each(machine, pool, wanted)) >= threads]
    with_cpus = [pool for pool in pools if cpuset.count(pool) >= threads]
    return [*with_units, *with_cpus, cpus][0]


def affinity_groups(machine: Machine, cpus: int, threads: int, affinity: str, *, gpu: bool = False) -> Tuple[int, ...]:
    """One CPU set for each of the threads - 1 workers of a pool that runs in the set `cpus` of a `Placement`.

    The caller is never pinned. "numa": each worker may use all of the set's CPUs on the NUMA node it belongs
    to. "core": each has a core; the first core is left to the caller. () when nothing sensible can be said:
    fewer than two threads, "none", or more threads than CPUs.
    """
    if threads < 2 or affinity == "none":
        return ()
    return groups_of(machine, cpus, pool_units(machine, cpus, threads, gpu=gpu), affinity)


def groups_of(machine: Machine, cpus: int, units: Tuple[int, ...], affinity: str) -> Tuple[int, ...]:
    """As `affinity_groups`, for a pool's units that are known."""
    workers = units[1:]
    if affinity == "core":
        return workers
    isolated = machine.isolated
    balanced = cpus & ~isolated
    result = []
    node = share = 0
    for unit in workers:
        if unit & isolated:
            # The scheduler balances no threads between isolated CPUs (kernel-parameters.txt, isolcpus): each its own.
            result.append(unit)
            continue
        if not unit & node:
            node = next((one.cpus for one in machine.numa_nodes if one.cpus & unit), 0)
            share = node & balanced or balanced
        result.append(share)
    return tuple(result)
