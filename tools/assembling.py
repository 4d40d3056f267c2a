"""A Machine put together from a list of cores and what each core belongs to.

Sockets, dies, NUMA nodes, L3 domains and core types are labels on cores, so they may nest in any order, cross one
another, or be missing, as on real machines.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from raddle.cpus import cpuset
from raddle.cpus.topology import CoreType, Group, Machine, NUMANode

# One label per core: the kernel's number for what it belongs to, None where the kernel does not say.
Labels = Sequence[int | None]


def assemble(
    cores: Sequence[Sequence[int]],
    *,
    sockets: Labels = (),
    dies: Labels = (),
    numa_nodes: Labels = (),
    l3_domains: Labels = (),
    core_types: Labels = (),
    kinds: Mapping[int, CoreType] | None = None,
    offline: Collection[int] = (),
    empty_numa_nodes: Collection[int] = (),
    **facts: Any,
) -> Machine:
    """The machine whose cores hold these CPUs, thread by thread.

    `core_types` labels index `kinds`. CPUs in `offline` are in `Machine.offline` alone: a core without online CPUs is
    no core, a NUMA node without them stays. `empty_numa_nodes` are nodes of memory only. `facts` are Machine's other
    fields.
    """
    gone = cpuset.of(set(offline))
    masks = [cpuset.of(list(core)) for core in cores]
    online = [mask & ~gone for mask in masks]

    def groups(labels: Labels) -> list[tuple[int, int]]:
        result: dict[int, int] = {}
        for label, mask in zip(labels, online, strict=False):
            if label is not None:
                result[label] = result.get(label, 0) | mask
        return sorted(result.items(), key=lambda item: (item[1] & -item[1], item[0]))

    nodes = sorted([*groups(numa_nodes), *((node, 0) for node in empty_numa_nodes)])
    return Machine(
        online=cpuset.of([cpu for core in cores for cpu in core]) & ~gone,
        offline=cpuset.of([cpu for core in cores for cpu in core]) & gone,
        cores=tuple(sorted((mask for mask in online if mask), key=lambda mask: mask & -mask)),
        sockets=tuple(Group(label, mask) for label, mask in groups(sockets) if mask),
        dies=tuple(Group(label, mask) for label, mask in groups(dies) if mask),
        numa_nodes=tuple(NUMANode(label, mask) for label, mask in nodes),
        l3_domains=tuple(Group(label, mask) for label, mask in groups(l3_domains) if mask),
        core_types=tuple(
            (kinds or {})[label]._replace(cpus=mask) for label, mask in groups(core_types) if mask and kinds
        ),
        **facts,
    )


def blocks(cores: int, parts: int) -> list[int | None]:
    """Labels that put the cores into that many blocks of neighbours; no parts: none is known."""
    return [core * parts // cores if parts else None for core in range(cores)]


def numbered(cores: int, threads: int, *, adjacent: bool = False) -> list[list[int]]:
    """CPU numbers, core by core: all first threads before all second ones, or a core's threads next to each other."""
    if adjacent:
        return [[core * threads + thread for thread in range(threads)] for core in range(cores)]
    return [[core + cores * thread for thread in range(threads)] for core in range(cores)]


def regular(
    cores: int,
    threads: int = 1,
    *,
    sockets: int = 1,
    numa_nodes: int = 1,
    l3_domains: int = 1,
    adjacent: bool = False,
    interleaved: bool = False,
    **facts: Any,
) -> Machine:
    """A machine of equal parts; counts are of the whole machine, 0: the kernel does not say.

    `interleaved` hands neighbouring core numbers to the sockets in turn, and the other levels with them.
    """
    order = sorted(range(cores), key=lambda core: (core % sockets, core)) if interleaved else list(range(cores))

    def labels(parts: int) -> Labels:
        result: list[int | None] = [None] * cores
        for core, label in zip(order, blocks(cores, parts), strict=True):
            result[core] = label
        return result

    return assemble(
        numbered(cores, threads, adjacent=adjacent),
        sockets=labels(sockets),
        numa_nodes=labels(numa_nodes),
        l3_domains=labels(l3_domains),
        **facts,
    )
