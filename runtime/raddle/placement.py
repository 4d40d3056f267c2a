"""Which CPUs a pool's threads go to, once the container's exclusive CPUs are known."""

from __future__ import annotations

from typing import List, Tuple

from raddle import cpuset
from raddle.topology import Machine


def cores_in_order(machine: Machine, cpus: int) -> List[int]:
    """The cores within the set, each as the CPUs of it that the set holds.

    Sorted by (NUMA node, most of the set first; L3 domain, most of the set first; lowest CPU).
    """
    numa = _ranks([(node.id, node.cpus) for node in machine.numa_nodes], cpus)
    l3 = _ranks([(domain.id, domain.cpus) for domain in machine.l3_domains], cpus)
    known = 0
    found = []
    for core in machine.cores:
        if core & cpus:
            found.append(core & cpus)
            known |= core
    found.extend(1 << cpu for cpu in cpuset.ids(cpus & ~known))
    return sorted(found, key=lambda core: (_rank(numa, core), _rank(l3, core), core & -core))


def _ranks(groups: List[Tuple[int, int]], cpus: int) -> List[int]:
    return [g for _, g in sorted(groups, key=lambda group: (-cpuset.count(group[1] & cpus), group[0]))]


def _rank(groups: List[int], core: int) -> int:
    for rank, group in enumerate(groups):
        if group & core:
            return rank
    return len(groups)


def affinity_groups(machine: Machine, cpus: int, threads: int, affinity: str) -> Tuple[int, ...]:
    """One CPU set for each of the threads - 1 workers of a pool that runs in the exclusive set `cpus`.

    The caller is never pinned. "numa": each worker may use all of the set's CPUs on the NUMA node it belongs
    to. "core": each has a core; the first core is left to the caller. () when nothing sensible can be said:
    fewer than two threads, "none", or more threads than CPUs.
    """
    if threads < 2 or affinity == "none" or threads > cpuset.count(cpus):
        return ()
    cores = cores_in_order(machine, cpus)
    if threads > len(cores):
        # All threads of a core are wanted: first one CPU of each core, then their siblings.
        depth = max(cpuset.count(core) for core in cores)
        cores = [1 << cpuset.ids(core)[n] for n in range(depth) for core in cores if cpuset.count(core) > n]
    if affinity == "core":
        return tuple(cores[1:threads])
    return tuple(_numa_share(machine, cpus, core) for core in cores[1:threads])


def _numa_share(machine: Machine, cpus: int, core: int) -> int:
    for node in machine.numa_nodes:
        if node.cpus & core:
            return node.cpus & cpus
    return cpus
