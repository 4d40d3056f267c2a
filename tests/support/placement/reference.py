"""Where a pool goes on known exclusive CPUs, read off the rules word for word with sets: slow, and nobody's fast path.

It shares no code with raddle.cpus.placement, so that a fault in one is seen against the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from raddle.cpus import cpuset
from raddle.cpus.topology import Machine
from raddle.planning.policy import Policy

CPUs = frozenset[int]


def slowest(capacities: Iterable[int | None]) -> set[int]:
    """Return the capacities of the slowest kind; one below seven eighths of a kind's highest begins the next kind."""
    kind: list[int] = []
    for capacity in sorted((one or 0 for one in capacities), reverse=True):
        if kind and capacity < kind[0] * 7 / 8:
            kind = []
        kind.append(capacity)
    return set(kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The CPUs that a pool may use, how many threads have room there, and its cores in order."""

    cpus: CPUs
    threads: int
    cores: tuple[CPUs, ...]


class Picture:
    """A machine as sets of CPU numbers."""

    def __init__(self, machine: Machine) -> None:
        """Read once a machine: the sets are used for many containers on it."""
        self.sockets = [as_set(socket.cpus) for socket in machine.sockets]
        self.isolated = as_set(machine.isolated)
        self.cores = [as_set(core) for core in machine.cores]
        self.nodes = {node.id: as_set(node.cpus) for node in machine.numa_nodes}
        self.l3_domains = [(domain.id, as_set(domain.cpus)) for domain in machine.l3_domains]
        self.kinds = [(as_set(kind.cpus), kind) for kind in machine.core_types]
        self.gpu_nodes = {gpu.numa_node for gpu in machine.gpus if gpu.numa_node is not None}

    def pool(self, cpus: CPUs, policy: Policy, *, gpu: bool, threads: int = 1) -> Pool:
        """Where the pool of a container goes that has these CPUs to itself.

        A policy may name more `threads` than have room there: then it is the first set with room for them, by the
        same rules without the cut to one NUMA node, and at last all that there is.
        """
        uncut = chosen = self.of_one_kind(cpus, policy)
        node = self.node_to_keep_to(chosen, policy, gpu=gpu)
        if node is not None:
            chosen &= self.nodes[node]
        elif policy.numa == "Auto":
            chosen = self.on_one_socket(chosen, policy)
        room = self.room(chosen, policy)
        if threads > room:
            sets = [found for found in (chosen, uncut) if self.room(found, policy) >= threads]
            sets += [found for found in (chosen, uncut) if len(found) >= threads]
            chosen = [*sets, cpus][0]
        return Pool(cpus=chosen, threads=room, cores=tuple(self.in_order(chosen, gpu=gpu)))

    def room(self, cpus: CPUs, policy: Policy) -> int:
        """How many threads have a core each, or a CPU each for AllThreads."""
        return len(cpus) if policy.smt == "AllThreads" else len(self.parts(cpus))

    def of_one_kind(self, cpus: CPUs, policy: Policy) -> CPUs:
        """The rules one-type and all-but-slowest."""
        if policy.core_type == "Any" or len(self.kinds) < 2:
            return cpus
        by_speed = sorted(
            self.kinds,
            key=lambda item: (item[1].capacity or 0, item[1].max_frequency_mhz or 0, item[1].name == "p-core"),
        )
        if policy.core_type == "Auto" and by_speed[0][1].capacity is not None:
            capacities = slowest([kind.capacity for _, kind in by_speed])
            slow = frozenset[int]().union(*(mine for mine, kind in by_speed if kind.capacity in capacities))
            candidates = [cpus - slow, cpus & slow]
        else:
            candidates = [cpus & mine for mine, _ in by_speed]
            if policy.core_type != "Efficient":
                candidates.reverse()
        candidates = [found for found in candidates if found]
        if not candidates:
            return cpus
        first = candidates[0]
        if policy.core_type == "Auto":
            most = max(candidates, key=lambda found: len(self.parts(found)))
            if len(self.parts(most)) > 2 * len(self.parts(first)):
                return most
        return first

    def parts(self, cpus: CPUs) -> list[CPUs]:
        """The set core by core; a CPU that belongs to no known core is one of its own."""
        found = [core & cpus for core in self.cores if core & cpus]
        known = frozenset[int]().union(*found)
        return found + [frozenset({cpu}) for cpu in sorted(cpus - known)]

    def node_to_keep_to(self, cpus: CPUs, policy: Policy, *, gpu: bool) -> int | None:
        """The rule three-quarters, with the tie of gpu-node."""
        if policy.numa == "Any" or len(self.nodes) < 2:
            return None
        # One CPU of each thread's place: the lowest of a core, or every CPU.
        places = cpus if policy.smt == "AllThreads" else frozenset(min(part) for part in self.parts(cpus))

        def preference(node: int) -> tuple[int, bool, int, int]:
            inside = self.nodes[node]
            return len(places & inside), gpu and node in self.gpu_nodes, len(cpus & inside), -node

        best = max(self.nodes, key=preference)
        share = len(places & self.nodes[best])
        if share in {0, len(places)}:
            return None
        return best if policy.numa == "SingleNUMANode" or share / len(places) >= 0.75 else None

    def on_one_socket(self, cpus: CPUs, policy: Policy) -> CPUs:
        """The rule three-quarters for sockets that are told as one NUMA node, or of which none is told."""
        places = cpus if policy.smt == "AllThreads" else frozenset(min(part) for part in self.parts(cpus))
        if len(self.nodes) > 1 and any(0 < len(places & node) < len(places) for node in self.nodes.values()):
            return cpus
        large = (socket for socket in self.sockets if len(places & socket) >= 0.75 * len(places))
        return next((cpus & socket for socket in large if places - socket), cpus)

    def in_order(self, cpus: CPUs, *, gpu: bool) -> list[CPUs]:
        """The cores within the set by the rule order."""

        def first_numa(core: CPUs) -> tuple[int, bool, int] | tuple[int]:
            ranks = [
                (-len(mine & cpus), not (gpu and node in self.gpu_nodes), node)
                for node, mine in self.nodes.items()
                if mine & core
            ]
            return min(ranks, default=(1,))

        def first_l3(core: CPUs) -> tuple[int, int] | tuple[int]:
            return min(((-len(mine & cpus), label) for label, mine in self.l3_domains if mine & core), default=(1,))

        return sorted(self.parts(cpus), key=lambda core: (first_numa(core), first_l3(core), min(core)))

    def first_threads_first(self, cores: tuple[CPUs, ...]) -> tuple[CPUs, ...]:
        """Each CPU by itself: one of each core, then the second ones."""
        siblings = [sorted(core) for core in cores]
        deepest = max(map(len, siblings), default=0)
        return tuple(frozenset({core[depth]}) for depth in range(deepest) for core in siblings if depth < len(core))

    def groups(self, pool: Pool, threads: int, affinity: str) -> tuple[CPUs, ...]:
        """The rules tied and isolated; none where the pool has no place for so many threads."""
        # A core each as long as there is one.
        places = pool.cores if threads <= len(pool.cores) else self.first_threads_first(pool.cores)
        if threads < 2 or affinity == "none" or threads > len(places):
            return ()
        workers = places[1:threads]
        return tuple(workers if affinity == "core" else (self.near(place, pool.cpus) for place in workers))

    def near(self, place: CPUs, cpus: CPUs) -> CPUs:
        """What a worker may use that is not tied to a core."""
        if place & self.isolated:
            return place
        balanced = cpus - self.isolated
        return next((mine & balanced for mine in self.nodes.values() if mine & place), balanced)


def as_set(mask: int) -> CPUs:
    """The CPU numbers of a mask."""
    return frozenset(cpuset.ids(mask))
