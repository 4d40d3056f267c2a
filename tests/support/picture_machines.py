"""Regular machines as values, for tests of pictures: reading a tree of 1024 CPUs takes seconds on a busy machine."""

from __future__ import annotations

from functools import cache

from raddle.cpus import cpuset
from raddle.cpus.topology import Group, Machine, NUMANode

# CPUs -> (sockets, NUMA nodes, L3 domains, cores, threads of a core)
SIZES = {
    2: (1, 1, 1, 2, 1),
    16: (1, 1, 2, 8, 2),
    32: (2, 2, 2, 16, 2),
    256: (2, 8, 16, 128, 2),
    1024: (4, 4, 64, 512, 2),
}


@cache
def regular(cpus):
    """The machine of SIZES with so many CPUs, numbered as on most servers: first one thread of each core."""
    sockets, numa_nodes, l3_domains, cores, threads = SIZES[cpus]

    def share(parts):
        size = cores // parts
        return [
            cpuset.of([core + thread * cores for thread in range(threads) for core in range(first, first + size)])
            for first in range(0, cores, size)
        ]

    distances = [tuple(10 if a == b else 32 for b in range(numa_nodes)) for a in range(numa_nodes)]
    return Machine(
        online=cpuset.of(list(range(cpus))),
        cores=tuple(share(cores)),
        sockets=tuple(Group(*pair) for pair in enumerate(share(sockets))),
        numa_nodes=tuple(NUMANode(n, mask, 257664, distances[n]) for n, mask in enumerate(share(numa_nodes))),
        l3_domains=tuple(Group(*pair) for pair in enumerate(share(l3_domains))),
        architecture="x86_64",
        model="Synthetic",
    )
