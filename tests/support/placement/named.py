"""The machines of docs/explanation/how-threads-are-placed.md by their headings: kinds that people run inference on.

They are values, made by hand after vendors' manuals and `lscpu -e` of such machines; nothing is read from this one.
"""

from __future__ import annotations

from assembling import assemble, numbered, regular
from raddle.cpus import cpuset
from raddle.cpus.topology import GPU, CoreType, Kubelet, Machine

STATIC = Kubelet(cpu_manager_policy="static")


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


MACHINES: dict[str, Machine] = {
    "A single CPU": _x86(1, 1),
    "Laptop, 2 cores with 2 threads": _x86(2),
    "Virtual machine of 4 vCPUs, which are 2 cores with 2 threads": _x86(2, adjacent=True),
    "Virtual machine of 8 vCPUs without NUMA and cache information": _x86(8, 1, sockets=0, numa_nodes=0, l3_domains=0),
    "AMD EPYC, 1 socket, 64 cores with 2 threads, NPS1": _x86(64, l3_domains=8),
    "AMD EPYC, 2 sockets, 128 cores with 2 threads, NPS4": _x86(128, sockets=2, numa_nodes=8, l3_domains=16),
    "Intel Ice Lake, 2 sockets, 64 cores with 2 threads": _x86(64, sockets=2, numa_nodes=2, l3_domains=2),
    "Intel Sapphire Rapids, 2 sockets, 112 cores with 2 threads, SNC4": _x86(
        112, sockets=2, numa_nodes=8, l3_domains=2
    ),
    "GPU server, 2 sockets, 48 cores with 2 threads, the GPU on NUMA node 1": _x86(
        48, sockets=2, numa_nodes=2, l3_domains=2, interleaved=True
    )._replace(gpus=(GPU("0000:b1:00.0", 1),)),
    "AWS Graviton, 64 cores without SMT": _arm(64),
    "Ampere Altra, 2 sockets, 160 cores without SMT": _arm(160, sockets=2, numa_nodes=2, l3_domains=0),
    "Arm board of 16 cores whose clusters are numbered as packages": _arm(16, sockets=4, l3_domains=0),
    "Arm DynamIQ, 3 small, 2 and 2 middle cores and 1 large one": _dynamiq(),
    "Intel hybrid, 6 P-cores with 2 threads and 8 E-cores": _hybrid(),
    "POWER9, 2 sockets, 32 cores with 4 threads": _power9(),
    "POWER10, 12 cores with 8 threads": regular(
        12, 8, l3_domains=12, adjacent=True, architecture="ppc64le", kubelet=STATIC
    ),
    "Intel Knights Landing, 64 cores with 4 threads, SNC4, flat memory": _x86(
        64, 4, numa_nodes=4, l3_domains=0
    )._replace(
        numa_nodes=regular(64, 4, numa_nodes=4).numa_nodes + assemble([], empty_numa_nodes=(4, 5, 6, 7)).numa_nodes
    ),
    "16 cores with 2 threads, `isolcpus=8-15,24-31`, CPUs 0 and 16 reserved": _isolated(),
    "16 cores with 2 threads, the siblings of 8 of them offline": _half_cores(),
    "8 sockets, 512 cores with 2 threads: 1024 CPUs": _x86(512, sockets=8, numa_nodes=8, l3_domains=64),
}
