"""Random machines of 1 to 1024 CPUs, their parts nested in any way, with what real machines have of oddities.

Everything comes from one `random.Random`, so a seed is a machine: the fuzzer prints it and hypothesis draws it.
"""

from __future__ import annotations

from random import Random

from assembling import Labels, assemble, blocks, numbered, regular
from raddle.cpus import cpuset
from raddle.cpus.topology import GPU, Cache, CoreType, Kubelet, Machine, NUMANode, Problem

MAX_CPUS = 1024
_OPTIONS = (
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "distribute-cpus-across-cores",
    "align-by-socket",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
)


def machine(rng: Random, most: int = MAX_CPUS) -> Machine:
    """A machine of at most `most` CPUs; small ones are as likely as large ones."""
    cores = _renumbered(rng, _cores(rng, most))
    count = len(cores)
    cpus = [cpu for core in cores for cpu in core]
    offline = _some(rng, cpus[1:]) if rng.random() < 0.3 else set()
    kinds, core_types = _kinds(rng, cores)
    sockets = _labels(rng, count, 8)
    numa_nodes = _labels(rng, count, 16)
    isolated = _some(rng, cpus) - offline if rng.random() < 0.2 else set()
    found = assemble(
        cores,
        sockets=sockets,
        dies=_labels(rng, count, 16),
        numa_nodes=numa_nodes,
        l3_domains=_labels(rng, count, 64),
        core_types=core_types,
        kinds=kinds,
        offline=offline,
        empty_numa_nodes=range(100, 100 + rng.randrange(4)) if rng.random() < 0.2 else (),
        isolated=cpuset.of(isolated),
        gpus=_gpus(rng, [label for label in numa_nodes if label is not None]),
        kubelet=_kubelet(rng, cpus),
    )
    # Where the kernel tells nothing of cores, each CPU is one.
    return found._replace(cores=()) if rng.random() < 0.03 else found


def described(rng: Random, most: int = 24) -> Machine:
    """A machine with all that a document of it can hold, for what reads and writes machines."""
    found = machine(rng, most)
    with_cpus = tuple(node.id for node in found.numa_nodes if node.cpus)
    distances = tuple(range(10, 10 + len(found.numa_nodes))) if rng.random() < 0.5 else ()
    nodes = [
        NUMANode(
            node.id,
            node.cpus,
            _number(rng),
            distances,
            () if node.cpus else with_cpus[:2],
            "" if node.cpus else rng.choice(("", "persistent", "cxl", "special-purpose")),
            *(_number(rng) for _ in range(3)),
        )
        for node in found.numa_nodes
    ]
    kubelet = found.kubelet._replace(
        cpu_manager_policy_options=tuple(sorted(found.kubelet.cpu_manager_policy_options)),
        topology_manager_scope=rng.choice(("unknown", "container", "pod")),
        topology_manager_policy_options=tuple(
            sorted({_words(rng): _words(rng) for _ in range(rng.randrange(3))}.items())
        ),
        source=rng.choice(("", "Configz", "Proxy")),
    )
    return found._replace(
        cores=found.cores or tuple(1 << cpu for cpu in cpuset.ids(found.online)),
        numa_nodes=tuple(nodes),
        architecture=rng.choice(("", "x86_64", "aarch64")),
        model=_words(rng),
        boot_id=rng.choice(("", "5f0c1f4e-0000-4000-8000-000000000000")),
        kubelet=kubelet,
        caches=tuple(Cache(level, found.cores, _number(rng)) for level in (2, 3) if found.cores and rng.random() < 0.5),
        problems=tuple(Problem(_words(rng), _words(rng)) for _ in range(rng.randrange(3))),
    )


def node(rng: Random) -> Machine:
    """A node that pods are bound to: one or two NUMA nodes, with or without the static CPU manager."""
    return regular(
        rng.randint(1, 32),
        rng.choice((1, 2)),
        numa_nodes=rng.choice((1, 2)),
        l3_domains=0,
        kubelet=rng.choice((Kubelet(), Kubelet("static"), Kubelet("none"))),
        architecture=rng.choice(("", "x86_64", "aarch64")),
        boot_id="b",
    )


def _number(rng: Random) -> int | None:
    return rng.choice((None, rng.randint(1, 10000)))


def _words(rng: Random) -> str:
    return "".join(rng.choices("abcdefghij 0123456789()@.-", k=rng.randrange(40)))


def _cores(rng: Random, most: int) -> list[list[int]]:
    """How many cores with how many threads; numbered as a kernel does."""
    threads = rng.choice((1, 1, 2, 2, 2, 4, 8, rng.randint(1, 8)))
    largest = max(1, most // threads)
    count = min(largest, int(2 ** rng.uniform(0, largest.bit_length())))
    return numbered(max(1, count), min(threads, most), adjacent=rng.random() < 0.4)


def _renumbered(rng: Random, cores: list[list[int]]) -> list[list[int]]:
    """Now and then with holes in the numbers, shuffled ones, or cores with fewer threads than others."""
    if rng.random() < 0.15:
        cores = [core[: rng.randint(1, len(core))] for core in cores]
    cpus = sorted(cpu for core in cores for cpu in core)
    new = list(cpus)
    if rng.random() < 0.2:
        new = sorted(rng.sample(range(MAX_CPUS), len(cpus)))
    if rng.random() < 0.1:
        rng.shuffle(new)
    number = dict(zip(cpus, new, strict=True))
    return [[number[cpu] for cpu in core] for core in cores]


def _labels(rng: Random, cores: int, most: int) -> Labels:
    """What each core belongs to: blocks, in turn, scattered, or not told, for all or for some."""
    parts = min(cores, int(2 ** rng.uniform(0, most.bit_length())))
    way = rng.random()
    if way < 0.12:
        return [None] * cores
    if way < 0.75:
        found = blocks(cores, parts)
    elif way < 0.85:
        found = [core % parts for core in range(cores)]
    else:
        found = [rng.randrange(parts) for _ in range(cores)]
    if rng.random() < 0.05:
        found = [None if rng.random() < 0.2 else label for label in found]
    if rng.random() < 0.2:
        found = [None if label is None else label * 8 for label in found]
    return found


def _kinds(rng: Random, cores: list[list[int]]) -> tuple[dict[int, CoreType], Labels]:
    """One kind of core, or P and E, or up to four capacities."""
    count = len(cores)
    way = rng.random()
    if way < 0.6 or count < 2:
        return ({0: CoreType("standard", 0)}, [0] * count) if way < 0.5 else ({}, [])
    if way < 0.8:
        frequencies = (5000, 3800) if rng.random() < 0.7 else (None, None)
        kinds = {0: CoreType("p-core", 0, frequencies[0]), 1: CoreType("e-core", 0, frequencies[1])}
        large = rng.randrange(1, count)
        return kinds, [0 if core < large else 1 for core in range(count)]
    many = min(count, rng.randint(2, 4))
    # Two kinds of one capacity differ in design.
    capacities = [1024, *rng.choices((1024, 870, 828, 512, 325), k=many - 1)]
    kinds = {n: CoreType(f"capacity-{capacity}-{n}", 0, None, capacity) for n, capacity in enumerate(capacities)}
    return kinds, blocks(count, many)


def _gpus(rng: Random, nodes: list[int]) -> tuple[GPU, ...]:
    if rng.random() < 0.6:
        return ()
    places = [*nodes, None]
    return tuple(GPU(f"0000:{bus:02x}:00.0", rng.choice(places)) for bus in range(rng.randint(1, 3)))


def _kubelet(rng: Random, cpus: list[int]) -> Kubelet:
    options = tuple((name, rng.choice(("true", "false"))) for name in _OPTIONS if rng.random() < 0.15)
    return Kubelet(
        cpu_manager_policy=rng.choice(("static", "static", "static", "none", "unknown")),
        cpu_manager_policy_options=options,
        topology_manager_policy=rng.choice(("unknown", "none", "best-effort", "restricted", "single-numa-node")),
        reserved_cpus=rng.choice((None, 0, cpuset.of(_some(rng, cpus)))),
    )


def _some(rng: Random, cpus: list[int]) -> set[int]:
    """Some of them: few, or a half, or nearly all."""
    if not cpus:
        return set()
    return set(rng.sample(cpus, int(len(cpus) * rng.choice((0.05, 0.2, 0.5, 0.5, 0.9)))))
