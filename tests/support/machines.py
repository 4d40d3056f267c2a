"""Machines as values, random ones for property tests; each is possible: groups partition some of the online CPUs.

`random_machines` draws every field of a small machine freely, for what reads and writes machines. `machines` draws
machines as they are built, of 1 to 1024 CPUs, and `containers` what containers there have and ask for; the
fuzzer draws from the same generators (support.placement). `small_machines` are nodes that pods are bound to.
`of_size` is one regular machine, for pictures: reading a tree of 1024 CPUs takes seconds on a busy machine.
"""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from assembling import regular
from raddle.cpus import cpuset
from raddle.cpus.topology import Cache, CoreType, Group, Kubelet, Machine, NUMANode, Problem
from support.placement import random_budgets
from support.placement.random_machines import machine

WORDS = st.text("abcdefghij 0123456789()@.-", max_size=40)


@st.composite
def partitions(draw, cpus, *, empty=False):
    """Disjoint sets of these CPUs, sorted by their lowest; some CPUs may be in none."""
    places = draw(st.lists(st.integers(0, 5), min_size=len(cpus), max_size=len(cpus)))
    masks = [cpuset.of([cpu for cpu, at in zip(cpus, places, strict=True) if at == place]) for place in range(1, 6)]
    masks = sorted((mask for mask in masks if mask), key=lambda mask: mask & -mask)
    return [*masks, 0] if empty and draw(st.booleans()) else masks


def numbered(masks, ids):
    return [Group(number, mask) for number, mask in zip(ids, masks, strict=True)]


@st.composite
def random_machines(draw):
    """A Machine whose parts agree with each other, as `read_machine` promises."""
    cpus = draw(st.lists(st.integers(0, 300), min_size=1, max_size=24, unique=True).map(sorted))
    others = draw(st.sets(st.integers(0, 300), max_size=6)) - set(cpus)

    def groups():
        masks = draw(partitions(cpus))
        ids = draw(st.lists(st.integers(0, 9999), min_size=len(masks), max_size=len(masks), unique=True))
        return tuple(numbered(masks, ids))

    nodes = draw(partitions(cpus, empty=True))
    node_ids = sorted(draw(st.sets(st.integers(0, 500), min_size=len(nodes), max_size=len(nodes))))
    distances = draw(st.booleans())
    sockets = groups()
    dies = []
    for socket in sockets:
        inside = draw(partitions(cpuset.ids(socket.cpus)))
        dies += numbered(inside, range(len(inside)))
    names = ["p-core", "e-core", "capacity-1", "capacity-2", "capacity-2-0xd4d"]
    number = st.none() | st.integers(1, 10000)
    return Machine(
        online=cpuset.of(cpus),
        cores=tuple(draw(partitions(cpus))),
        offline=cpuset.of(others),
        isolated=cpuset.of(draw(st.sets(st.sampled_from(cpus)))),
        sockets=sockets,
        dies=tuple(sorted(dies, key=lambda die: die.cpus & -die.cpus)),
        numa_nodes=tuple(
            NUMANode(
                node,
                mask,
                draw(number),
                tuple(range(10, 10 + len(nodes))) if distances else (),
                () if mask else tuple(other for other, cpus in zip(node_ids, nodes, strict=True) if cpus)[:2],
                "" if mask else draw(st.sampled_from(["", "persistent", "cxl", "special-purpose"])),
                draw(number),
                draw(number),
                draw(number),
            )
            for node, mask in zip(node_ids, nodes, strict=True)
        ),
        l3_domains=groups(),
        core_types=tuple(
            CoreType(name, mask, draw(number), draw(number))
            for name, mask in zip(names, draw(partitions(cpus)), strict=False)
        ),
        architecture=draw(st.sampled_from(["", "x86_64", "aarch64"])),
        model=draw(WORDS),
        boot_id=draw(st.sampled_from(["", "5f0c1f4e-0000-4000-8000-000000000000"])),
        kubelet=draw(
            st.builds(
                Kubelet,
                cpu_manager_policy=st.sampled_from(["unknown", "none", "static"]),
                cpu_manager_policy_options=st.dictionaries(WORDS, WORDS, max_size=3).map(
                    lambda options: tuple(sorted(options.items()))
                ),
                topology_manager_policy=st.sampled_from(["unknown", "none", "best-effort", "restricted"]),
                reserved_cpus=st.none() | st.integers(0, 255),
                topology_manager_scope=st.sampled_from(["unknown", "container", "pod"]),
                topology_manager_policy_options=st.dictionaries(WORDS, WORDS, max_size=3).map(
                    lambda options: tuple(sorted(options.items()))
                ),
                source=st.sampled_from(["", "Configz", "Proxy"]),
            )
        ),
        caches=tuple(Cache(level, tuple(masks), draw(number)) for level in (2, 3) if (masks := draw(partitions(cpus)))),
        problems=tuple(draw(st.lists(st.builds(Problem, WORDS, WORDS), max_size=3))),
    )


def decisive(machine):
    """The machine without what nothing is decided by: a NodeCPUTopology holds no more."""
    nodes = tuple(NUMANode(*node[:4]) for node in machine.numa_nodes)
    return machine._replace(numa_nodes=nodes, problems=(), caches=())


def machines(most=1024):
    return st.randoms(use_true_random=False).map(lambda rng: machine(rng, most))


def policies():
    return st.randoms(use_true_random=False).map(random_budgets.policy)


def absurd_budgets():
    return st.randoms(use_true_random=False).map(random_budgets.absurd)


@st.composite
def containers(draw, most=1024):
    """A machine, a container's budget on it, and its policy."""
    on = draw(machines(most))
    rng = draw(st.randoms(use_true_random=False))
    return on, random_budgets.budget(rng, on), random_budgets.policy(rng)


@st.composite
def wider_containers(draw, most=1024):
    """A machine, two budgets of one class on it, the second the wider, and a policy."""
    on = draw(machines(most))
    rng = draw(st.randoms(use_true_random=False))
    return on, random_budgets.pair(rng, on), random_budgets.policy(rng)


@st.composite
def small_machines(draw):
    """One or two NUMA nodes, one or two threads per core, with or without the static CPU manager."""
    return regular(
        draw(st.integers(1, 32)),
        draw(st.sampled_from((1, 2))),
        numa_nodes=draw(st.sampled_from((1, 2))),
        l3_domains=0,
        kubelet=draw(st.sampled_from((Kubelet(), Kubelet(cpu_manager_policy="static"), Kubelet("none")))),
        architecture=draw(st.sampled_from(("", "x86_64", "aarch64"))),
    )


# CPUs -> (sockets, NUMA nodes, L3 domains, cores, threads of a core)
SIZES = {
    2: (1, 1, 1, 2, 1),
    16: (1, 1, 2, 8, 2),
    32: (2, 2, 2, 16, 2),
    256: (2, 8, 16, 128, 2),
    1024: (4, 4, 64, 512, 2),
}


@cache
def of_size(cpus):
    """The machine of SIZES with so many CPUs, numbered as on most servers: first one thread of each core."""
    sockets, nodes, l3_domains, cores, threads = SIZES[cpus]
    parts = {"sockets": sockets, "numa_nodes": nodes, "l3_domains": l3_domains}
    made = regular(cores, threads, **parts, architecture="x86_64", model="Synthetic")
    distances = [tuple(10 if a == b else 32 for b in range(nodes)) for a in range(nodes)]
    return made._replace(numa_nodes=tuple(NUMANode(n, mask, 257664, distances[n]) for n, mask, *_ in made.numa_nodes))
