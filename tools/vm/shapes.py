"""The machines that can be booted, by name.

A shape is regular, as QEMU's machines are: `sockets` of `dies` (each with an L3 of its own) of `cores` of `threads`.
CPUs are numbered along that nesting, so a core's threads are side by side.

    get("2s4n-8c16t").cpus      16
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# APIC ids have 8 bits without x2APIC, which QEMU does not emulate; 255 addresses all CPUs.
HIGHEST_APIC_ID = 254
LOCAL_DISTANCE = 10
SMALLEST_MEMORY_MIB = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class NUMANode:
    """A memory node: the dies whose CPUs it has, as (socket, die); none for a node of memory only."""

    dies: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One machine.

    dies, cores, threads  of each socket, die and core; each die has an L3.
    numa_nodes            () is a machine without NUMA: its kernel shows one memory node.
    distances             one row a NUMA node; () leaves the kernel's 10 and 20.
    offline               CPUs that are taken offline once Linux runs.
    isolated              CPUs of the kernel's isolcpus=.
    shows                 what the machine is good for, in a few words.
    slim                  keep in a recording only what a reader of topology needs: many CPUs make long files.
    """

    shows: str
    sockets: int = 1
    dies: int = 1
    cores: int
    threads: int = 1
    numa_nodes: tuple[NUMANode, ...] = ()
    distances: tuple[tuple[int, ...], ...] = ()
    offline: tuple[int, ...] = ()
    isolated: tuple[int, ...] = ()
    slim: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for a machine that QEMU would refuse or that would not be what it says."""
        if self.highest_apic_id > HIGHEST_APIC_ID:
            raise ValueError(
                f"sockets x dies x cores x threads: {self.sockets} x {self.dies} x {self.cores} x {self.threads} ends "
                f"at APIC id {self.highest_apic_id}; {HIGHEST_APIC_ID} is the highest (each level is padded to a "
                "power of two)"
            )
        self._check_nodes()
        for name in ("offline", "isolated"):
            if any(not 0 < cpu < self.cpus for cpu in getattr(self, name)):
                raise ValueError(f"{name}: got {getattr(self, name)}, only CPUs 1 to {self.cpus - 1} can be")

    def _check_nodes(self) -> None:
        given = [die for node in self.numa_nodes for die in node.dies]
        every = [(socket, die) for socket in range(self.sockets) for die in range(self.dies)]
        if self.numa_nodes and sorted(given) != every:
            raise ValueError(f"numa_nodes: got the dies {given}, expected each of {every} once")
        size = len(self.numa_nodes)
        if self.distances and (len(self.distances) != size or any(len(row) != size for row in self.distances)):
            raise ValueError(f"distances: got {self.distances}, expected {size} rows of {size}")

    @property
    def cpus(self) -> int:
        """Logical CPUs, offline ones included."""
        return self.sockets * self.dies * self.cores * self.threads

    @property
    def highest_apic_id(self) -> int:
        """The last CPU's APIC id: each level takes whole bits."""
        result, shift = 0, 0
        for size in (self.threads, self.cores, self.dies, self.sockets):
            result |= (size - 1) << shift
            shift += (size - 1).bit_length()
        return result

    def cpus_of_die(self, socket: int, die: int) -> range:
        """The CPUs of one die."""
        size = self.cores * self.threads
        first = (socket * self.dies + die) * size
        return range(first, first + size)

    def cpus_of_node(self, node: int) -> tuple[int, ...]:
        """The CPUs of a NUMA node, () for one of memory only."""
        if not self.numa_nodes and node == 0:
            return tuple(range(self.cpus))
        return tuple(cpu for die in self.numa_nodes[node].dies for cpu in self.cpus_of_die(*die))


def _a_node_each(sockets: int, dies: int = 1) -> tuple[NUMANode, ...]:
    return tuple(NUMANode(dies=((socket, die),)) for socket in range(sockets) for die in range(dies))


def _distances(size: int, within_socket: int, across: int, dies: int) -> tuple[tuple[int, ...], ...]:
    """A row a NUMA node, where each socket has `dies` nodes."""

    def between(one: int, other: int) -> int:
        if one == other:
            return LOCAL_DISTANCE
        return within_socket if one // dies == other // dies else across

    return tuple(tuple(between(one, other) for other in range(size)) for one in range(size))


def _ring(size: int, neighbour: int, further: int) -> tuple[tuple[int, ...], ...]:
    """Distances of a ring: each node has two neighbours."""

    def between(one: int, other: int) -> int:
        steps = min((one - other) % size, (other - one) % size)
        return (LOCAL_DISTANCE, neighbour)[steps] if steps < 2 else further

    return tuple(tuple(between(one, other) for other in range(size)) for one in range(size))


SHAPES: Mapping[str, Shape] = {
    "1s1c1t": Shape(shows="one CPU", cores=1),
    "1s2c2t": Shape(shows="two CPUs, as the smallest cloud machines have them, no SMT", cores=2),
    "1s2n4l3-8c16t": Shape(
        shows="one socket, two NUMA nodes, four dies with an L3 each, 8 cores with SMT",
        dies=4,
        cores=2,
        threads=2,
        numa_nodes=(NUMANode(dies=((0, 0), (0, 1))), NUMANode(dies=((0, 2), (0, 3)))),
        distances=((10, 12), (12, 10)),
    ),
    "1s8c16t-offline": Shape(
        shows="offline CPUs (half a core, and a whole core) and isolated ones",
        cores=8,
        threads=2,
        offline=(5, 14, 15),
        isolated=(2, 3),
    ),
    "2s16c32t": Shape(
        shows="two sockets, a NUMA node and an L3 each, 16 cores with SMT, siblings numbered side by side",
        sockets=2,
        cores=8,
        threads=2,
        numa_nodes=_a_node_each(2),
        distances=((10, 21), (21, 10)),
    ),
    "2s8c8t": Shape(
        shows="two sockets, a NUMA node and an L3 each, no SMT",
        sockets=2,
        cores=4,
        numa_nodes=_a_node_each(2),
        distances=((10, 21), (21, 10)),
    ),
    "2s3n-8c16t-memory": Shape(
        shows="two sockets and a third NUMA node that has memory only",
        sockets=2,
        cores=4,
        threads=2,
        numa_nodes=(*_a_node_each(2), NUMANode()),
        distances=((10, 21, 17), (21, 10, 28), (17, 28, 10)),
    ),
    "2s4n-8c16t": Shape(
        shows="two sockets of two dies, each die a NUMA node with an L3, SMT",
        sockets=2,
        dies=2,
        cores=2,
        threads=2,
        numa_nodes=_a_node_each(2, 2),
        distances=_distances(4, 12, 21, 2),
    ),
    "2s4n-16c32t": Shape(
        shows="as 2s4n-8c16t with four cores in each NUMA node",
        sockets=2,
        dies=2,
        cores=4,
        threads=2,
        numa_nodes=_a_node_each(2, 2),
        distances=_distances(4, 12, 21, 2),
    ),
    "4s4n-8c16t-ring": Shape(
        shows="four sockets in a ring: the opposite one is further away",
        sockets=4,
        cores=2,
        threads=2,
        numa_nodes=_a_node_each(4),
        distances=_ring(4, 21, 31),
    ),
    "2s4n-120c240t": Shape(
        shows="240 CPUs: two sockets of two dies, each die a NUMA node with an L3, SMT",
        sockets=2,
        dies=2,
        cores=30,
        threads=2,
        numa_nodes=_a_node_each(2, 2),
        distances=_distances(4, 12, 21, 2),
        slim=True,
    ),
}


def get(name: str) -> Shape:
    """The shape of this name. Raises KeyError, with the names that there are."""
    if name not in SHAPES:
        raise KeyError(f"no shape {name!r}; there are {', '.join(sorted(SHAPES))}")
    return SHAPES[name]
