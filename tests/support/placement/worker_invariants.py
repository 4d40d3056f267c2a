"""What holds for the workers of every pool on known CPUs: their sets, their order, their memory."""

from __future__ import annotations

from collections.abc import Iterator

from raddle.adapters.onnxruntime.affinity import affinity_text
from raddle.cpus import cpuset
from raddle.cpus.placement import pin
from raddle.cpus.topology import Machine
from raddle.planning.capacity import placement_policy
from raddle.planning.planner import Budget, Plan
from raddle.planning.policy import Policy


def faults(made: Plan, machine: Machine) -> Iterator[str]:
    """What is wrong with the workers of this plan."""
    cpus, groups, threads = made.cpus or 0, made.affinity_groups, made.intra_op or 1
    tied = made.affinity != "none" and threads <= cpuset.count(cpus)
    if len(groups) != (threads - 1 if tied else 0):
        yield f"{len(groups)} groups for {threads} threads, affinity {made.affinity}"
    if any(not group or group & ~cpus for group in groups):
        yield "a group outside the pool's CPUs"
    if made.affinity == "core":
        yield from _by_core(made, machine)
    if made.affinity == "numa":
        yield from _by_numa_node(made, machine)
    yield from _memory(made, machine)
    yield from _written(groups)


def _by_core(made: Plan, machine: Machine) -> Iterator[str]:
    cpus, groups, threads = made.cpus or 0, made.affinity_groups, made.intra_op or 1
    used = [core for core in machine.cores if core & cpus]
    # Cores that the machine doesn't tell of are CPUs.
    whole = len(used) + cpuset.count(cpus & ~union(used))
    taken = 0
    for group in groups:
        if group & taken:
            yield "two workers on one CPU"
        taken |= group
    cores = [core for core in used for group in groups if group & core]
    if threads <= whole and len(set(cores)) != len(cores):
        yield "siblings used while a whole core is free"
    if groups and threads <= whole and not cpus & ~union([core for core in used if core & taken]) & ~taken:
        yield "no core is left to the caller"


def _by_numa_node(made: Plan, machine: Machine) -> Iterator[str]:
    cpus, groups = made.cpus or 0, made.affinity_groups
    nodes = [node for node in machine.numa_nodes if node.cpus]
    for group in set(groups):
        touched = [node.id for node in nodes if node.cpus & group]
        if len(touched) > 1 and cpuset.count(group) < cpuset.count(cpus & ~machine.isolated):
            yield f"a worker across NUMA nodes {touched}"


def _memory(made: Plan, machine: Machine) -> Iterator[str]:
    cpus = made.cpus or 0
    inside = [node.id for node in machine.numa_nodes if cpus and not cpus & ~node.cpus]
    if inside and made.memory_numa_node not in inside:
        yield f"memory node {made.memory_numa_node}, all CPUs are on {inside[0]}"
    if made.memory_numa_node is not None:
        near = next((node.cpus for node in machine.numa_nodes if node.id == made.memory_numa_node), 0)
        if not near & cpus or any(not group & near for group in made.affinity_groups):
            yield f"memory node {made.memory_numa_node} is not the workers'"


def other_counts(machine: Machine, budget: Budget, policy: Policy) -> Iterator[str]:
    """In the container a count may be the code's own: its workers' sets are right all the same."""
    cpus, wanted = budget.cpus or 0, placement_policy(policy, gpu=budget.gpu)
    size = cpuset.count(cpus)
    for threads in {1, 2, size // 2, size, size + 1}:
        for siblings in (True, False):
            groups = pin(machine, cpus, threads, "numa", wanted, siblings=siblings)
            if len(groups) not in {0, threads - 1} or any(not group or group & ~cpus for group in groups):
                yield f"{len(groups)} groups for {threads} threads on {cpuset.format_list(cpus)}"
            if not siblings and any(places(machine, group, Policy()) < cpuset.count(group) for group in set(groups)):
                yield "siblings in a group that should have none"


def _written(groups: tuple[int, ...]) -> Iterator[str]:
    """ONNX Runtime takes the text, and reads the same groups from it."""
    text = affinity_text(groups)
    if text:
        read = []
        for part in text.split(";"):
            first, dash, last = part.partition("-")
            ids = range(int(first), int(last) + 1) if dash else [int(cpu) for cpu in part.split(",")]
            read.append(cpuset.of([cpu - 1 for cpu in ids]))
        if tuple(read) != groups:
            yield f"the affinity text {text} is not the groups"


def places(machine: Machine, cpus: int, policy: Policy) -> int:
    """How many threads have a core each among these CPUs, or a CPU each for AllThreads."""
    if policy.smt == "AllThreads":
        return cpuset.count(cpus)
    touched = [core for core in machine.cores if core & cpus]
    return len(touched) + cpuset.count(cpus & ~union(touched))


def union(masks: list[int]) -> int:
    """All CPUs that are in one of them."""
    found = 0
    for mask in masks:
        found |= mask
    return found
