"""The machines of the placement table: kinds that people run inference on, each with what makes it worth a section.

They are values, made by hand after vendors' manuals and `lscpu -e` of such machines; nothing is read from this one.
"""

from __future__ import annotations

from dataclasses import dataclass

from raddle.cpus import cpuset
from raddle.cpus.topology import GPU, CoreType, Kubelet, Machine
from specification.assembling import assemble, numbered, regular

STATIC = Kubelet(cpu_manager_policy="static")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A machine with a title and what a reader should know about it."""

    title: str
    about: str
    machine: Machine


def _hybrid() -> Machine:
    """Six P-cores with two threads each, CPUs 0 to 11, then eight E-cores."""
    cores = [*numbered(6, 2, adjacent=True), *([cpu] for cpu in range(12, 20))]
    kinds = {0: CoreType("p-core", 0, 4700), 1: CoreType("e-core", 0, 3500)}
    one = [0] * len(cores)
    return assemble(
        cores,
        sockets=one,
        numa_nodes=one,
        l3_domains=one,
        core_types=[0] * 6 + [1] * 8,
        kinds=kinds,
        architecture="x86_64",
        kubelet=STATIC,
    )


def _dynamiq() -> Machine:
    """Three small cores 0 to 2, two and two middle ones 3 to 6, one large one 7."""
    capacities = {0: 325, 1: 828, 2: 870, 3: 1024}
    kinds = {label: CoreType(f"capacity-{capacity}", 0, None, capacity) for label, capacity in capacities.items()}
    one = [0] * 8
    return assemble(
        numbered(8, 1),
        sockets=one,
        numa_nodes=one,
        core_types=[0, 0, 0, 1, 1, 2, 2, 3],
        kinds=kinds,
        architecture="aarch64",
        kubelet=STATIC,
    )


def _power9() -> Machine:
    """Two sockets of 16 cores with four threads; an L3 for two cores; nodes 0 and 8, and the GPUs' memory."""
    socket = [core // 16 for core in range(32)]
    return assemble(
        numbered(32, 4, adjacent=True),
        sockets=[label * 8 for label in socket],
        numa_nodes=[label * 8 for label in socket],
        l3_domains=[core // 2 for core in range(32)],
        empty_numa_nodes=(252, 253, 254, 255),
        architecture="ppc64le",
        kubelet=STATIC,
    )


def _isolated() -> Machine:
    """Sixteen cores with two threads; the upper eight taken from the scheduler, the first left to the system."""
    return regular(
        16,
        2,
        architecture="x86_64",
        isolated=cpuset.parse_list("8-15,24-31"),
        kubelet=STATIC._replace(reserved_cpus=cpuset.parse_list("0,16")),
    )


def _half_cores() -> Machine:
    """Sixteen cores with two threads, of which the second threads of the upper eight are offline."""
    return assemble(
        numbered(16, 2),
        sockets=[0] * 16,
        numa_nodes=[0] * 16,
        l3_domains=[0] * 16,
        offline=range(24, 32),
        architecture="x86_64",
        kubelet=STATIC,
    )


def _x86(cores: int, threads: int = 2, **shape: int | bool) -> Machine:
    return regular(cores, threads, architecture="x86_64", kubelet=STATIC, **shape)  # type: ignore[arg-type]


def _arm(cores: int, **shape: int) -> Machine:
    return regular(cores, 1, architecture="aarch64", kubelet=STATIC, **shape)  # type: ignore[arg-type]


MACHINES: dict[str, Named] = {
    "single": Named(
        title="A single CPU",
        about="The smallest virtual machine.",
        machine=_x86(1, 1),
    ),
    "laptop": Named(
        title="Laptop, 2 cores with 2 threads",
        about="Siblings are 0,2 and 1,3.",
        machine=_x86(2),
    ),
    "cloud-4": Named(
        title="Virtual machine of 4 vCPUs, which are 2 cores with 2 threads",
        about="A vCPU is a thread; siblings are 0,1 and 2,3.",
        machine=_x86(2, adjacent=True),
    ),
    "bare": Named(
        title="Virtual machine of 8 vCPUs without NUMA and cache information",
        about="What a sandbox shows: CPUs, each a core of its own, and nothing else.",
        machine=_x86(8, 1, sockets=0, numa_nodes=0, l3_domains=0),
    ),
    "epyc-64": Named(
        title="AMD EPYC, 1 socket, 64 cores with 2 threads, NPS1",
        about="One NUMA node; eight L3 domains of eight cores: 0-7,64-71, then 8-15,72-79, and so on.",
        machine=_x86(64, l3_domains=8),
    ),
    "epyc-2s-nps4": Named(
        title="AMD EPYC, 2 sockets, 128 cores with 2 threads, NPS4",
        about="Eight NUMA nodes of 16 cores; each has two L3 domains. Node 0 is 0-15,128-143.",
        machine=_x86(128, sockets=2, numa_nodes=8, l3_domains=16),
    ),
    "icelake-2s": Named(
        title="Intel Ice Lake, 2 sockets, 64 cores with 2 threads",
        about="A NUMA node and an L3 domain a socket: 0-31,64-95 and 32-63,96-127.",
        machine=_x86(64, sockets=2, numa_nodes=2, l3_domains=2),
    ),
    "sapphire-rapids-snc4": Named(
        title="Intel Sapphire Rapids, 2 sockets, 112 cores with 2 threads, SNC4",
        about="Eight NUMA nodes of 14 cores inside two L3 domains of 56: here the cache is wider than the memory node.",
        machine=_x86(112, sockets=2, numa_nodes=8, l3_domains=2),
    ),
    "gpu-2s": Named(
        title="GPU server, 2 sockets, 48 cores with 2 threads, the GPU on NUMA node 1",
        about="Numbered in turn: node 0 has the even CPUs, node 1 the odd ones; siblings are 0,48 and 1,49.",
        machine=_x86(48, sockets=2, numa_nodes=2, l3_domains=2, interleaved=True)._replace(
            gpus=(GPU("0000:b1:00.0", 1),)
        ),
    ),
    "graviton-64": Named(
        title="AWS Graviton, 64 cores without SMT",
        about="One NUMA node, one L3.",
        machine=_arm(64),
    ),
    "altra-2s": Named(
        title="Ampere Altra, 2 sockets, 160 cores without SMT",
        about="A NUMA node a socket; the kernel tells of no L3.",
        machine=_arm(160, sockets=2, numa_nodes=2, l3_domains=0),
    ),
    "arm-clusters": Named(
        title="Arm board of 16 cores whose clusters are numbered as packages",
        about="Four packages of four cores, one memory, no L3: here a package is no socket.",
        machine=_arm(16, sockets=4, l3_domains=0),
    ),
    "dynamiq": Named(
        title="Arm DynamIQ, 3 small, 2 and 2 middle cores and 1 large one",
        about="CPUs 0-2, 3-4, 5-6 and 7; the kernel's capacities are 325, 828, 870 and 1024.",
        machine=_dynamiq(),
    ),
    "hybrid-6p8e": Named(
        title="Intel hybrid, 6 P-cores with 2 threads and 8 E-cores",
        about="P-cores are CPUs 0-11, siblings next to each other; E-cores are 12-19.",
        machine=_hybrid(),
    ),
    "power9": Named(
        title="POWER9, 2 sockets, 32 cores with 4 threads",
        about="NUMA nodes 0 and 8, and 252 to 255, which are the GPUs' memory and have no CPU. Core 0 is 0-3.",
        machine=_power9(),
    ),
    "power10": Named(
        title="POWER10, 12 cores with 8 threads",
        about="One NUMA node, an L3 for each core. Core 0 is 0-7.",
        machine=regular(12, 8, l3_domains=12, adjacent=True, architecture="ppc64le", kubelet=STATIC),
    ),
    "knl": Named(
        title="Intel Knights Landing, 64 cores with 4 threads, SNC4, flat memory",
        about="NUMA nodes 0 to 3 have 16 cores each, 4 to 7 are high-bandwidth memory without CPUs; there is no L3.",
        machine=_x86(64, 4, numa_nodes=4, l3_domains=0)._replace(
            numa_nodes=regular(64, 4, numa_nodes=4).numa_nodes + assemble([], empty_numa_nodes=(4, 5, 6, 7)).numa_nodes
        ),
    ),
    "isolated": Named(
        title="16 cores with 2 threads, `isolcpus=8-15,24-31`, CPUs 0 and 16 reserved",
        about="The static CPU manager is told `reservedSystemCPUs: 0,16`.",
        machine=_isolated(),
    ),
    "half-cores": Named(
        title="16 cores with 2 threads, the siblings of 8 of them offline",
        about="CPUs 0-7 have siblings 16-23; 8-15 have none.",
        machine=_half_cores(),
    ),
    "cpus-1024": Named(
        title="8 sockets, 512 cores with 2 threads: 1024 CPUs",
        about="Eight NUMA nodes of 64 cores, 64 L3 domains of eight cores.",
        machine=_x86(512, sockets=8, numa_nodes=8, l3_domains=64),
    ),
}
