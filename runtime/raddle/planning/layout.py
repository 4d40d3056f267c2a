"""Advice for Throughput: how many instances of how many threads fill the CPUs, and why.

An instance is a process, or a session of its own: one model, one pool. About four cores each serve most models best
(OpenVINO's cpu_streams_calculation.cpp takes 4, 5 or 3; the IPEX launcher's latency mode 4), and none should reach
across two L3 domains.
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

from raddle.cpus import cpuset
from raddle.cpus.topology import Machine

# Cores that an instance may have, the preferred number first.
CORES_EACH = (4, 3, 2)
# More of the cores than this are not left idle for the sake of an even division.
MOST_IDLE = 0.25
# Other kinds of core that are told of.
MAX_OTHERS = 3


class Layout(NamedTuple):
    """`workers` instances with `threads` threads each; `others` are (workers, threads) on other kinds of core."""

    workers: int
    threads: int
    because: str
    others: Tuple[Tuple[int, int], ...] = ()


def layout(cores: int, domains: Sequence[int] = (), what: str = "") -> Layout:
    """How to divide `cores`; `domains` are the cores that share a cache (`what`), () where that is not known.

    Of four, three and two cores an instance the one that leaves the fewest idle, the larger where two leave as many;
    one where no domain holds two, or too many would be idle. Fewer cores than the domains hold lie where they fit best.
    """
    parts = [*domains, cores - sum(domains)] if sum(domains) < cores else list(domains)
    workers = {each: min(cores // each, sum(part // each for part in parts)) for each in CORES_EACH}
    threads = min(CORES_EACH, key=lambda each: (cores - workers[each] * each, -each))
    idle = cores - workers[threads] * threads
    if idle > MOST_IDLE * cores:
        threads, idle = 1, 0
    words = f"{threads} core{'s' * (threads != 1)} per instance"
    if max(parts, default=0) < cores and what:
        words += f", none spans two {what}"
    if idle:
        words += f"; {idle} of {cores} cores idle"
    return Layout(workers.get(threads, max(1, cores)), threads, words)


def cache_domains(machine: Machine, places: int) -> Tuple[List[int], str]:
    """How many of the places (one CPU per core) share each L3 domain, else each NUMA node, and what those are called.

    An L3 domain that is wider than a NUMA node is divided: an instance keeps to one memory.
    """
    nodes = [node.cpus for node in machine.numa_nodes if node.cpus]
    parts = [part for domain in machine.l3_domains for part in _divided(domain.cpus, nodes)]
    for what, groups in (("L3 domains", parts), ("NUMA nodes", nodes)):
        sizes = [size for size in (cpuset.count(places & group) for group in groups) if size]
        if sizes:
            return sizes, what
    return [], ""


def _divided(domain: int, nodes: List[int]) -> List[int]:
    for node in nodes:
        if domain & node:
            return [domain] if not domain & ~node else [domain & other for other in nodes if domain & other]
    return [domain]
