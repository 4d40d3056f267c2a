"""Random machines for property tests; each is possible: groups partition some of the online CPUs.

The strategies draw from the generators that the fuzzer has (support.placement): `machines` of 1 to 1024 CPUs,
`described_machines` with all that a document holds, `containers` with what containers there have and ask for,
`small_machines` that pods are bound to. `of_size` is one regular machine, for pictures: reading a tree of 1024 CPUs
takes seconds on a busy machine.
"""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from assembling import regular
from raddle.cpus.topology import NUMANode
from support.placement import random_budgets, random_machines


def decisive(machine):
    """The machine without what nothing is decided by: a NodeCPUTopology holds no more."""
    nodes = tuple(NUMANode(*node[:4]) for node in machine.numa_nodes)
    return machine._replace(numa_nodes=nodes, problems=(), caches=())


def machines(most=1024):
    return st.randoms(use_true_random=False).map(lambda rng: random_machines.machine(rng, most))


def described_machines():
    return st.randoms(use_true_random=False).map(random_machines.described)


def small_machines():
    return st.randoms(use_true_random=False).map(random_machines.node)


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
