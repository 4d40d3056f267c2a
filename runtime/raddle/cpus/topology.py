"""What a machine is made of, as values.

Words, used the same everywhere: *cpu* is a logical CPU as Linux numbers it, *core* a physical
core, *numa_node* a memory node; *node* always means a Kubernetes node. A set of CPUs is an int
bitmask (see `cpuset`). Everything here is a fact that was read; an unknown fact is empty or None,
never a guess.
"""

from __future__ import annotations

from typing import Dict, Iterable, NamedTuple, Optional, Tuple

from raddle.cpus import cpuset


class Group(NamedTuple):
    """CPUs that share something: `id` is the kernel's number for it (socket, die, L3), `cpus` the set."""

    id: int
    cpus: int


class NUMANode(NamedTuple):
    """A memory node. `cpus` may be empty; `memory_mib` is None where unknown; `distances` is by ascending node id.

    `initiators` are the nodes whose CPUs reach this memory best, () where firmware does not say (HMAT).
    `memory_kind` is persistent, cxl or special-purpose where memory was added from such a device, else "";
    `memory_tier` is the kernel's, lower is faster; `read_mb_s` and `read_ns` are the firmware's, from the nearest CPUs.
    """

    id: int
    cpus: int
    memory_mib: Optional[int] = None
    distances: Tuple[int, ...] = ()
    initiators: Tuple[int, ...] = ()
    memory_kind: str = ""
    memory_tier: Optional[int] = None
    read_mb_s: Optional[int] = None
    read_ns: Optional[int] = None


class CoreType(NamedTuple):
    """CPUs of one kind on a hybrid machine. `name` is standard, p-core, e-core or, on Arm, e.g. capacity-1024.

    `max_frequency_mhz` and `capacity` (kernel's cpu_capacity, 1024 = the fastest) are None where not told; `model`
    is the name of an Arm core (Cortex-A510), else "".
    """

    name: str
    cpus: int
    max_frequency_mhz: Optional[int] = None
    capacity: Optional[int] = None
    model: str = ""


class Cache(NamedTuple):
    """The caches of one level from 2 up and of one size, None where that is not told: the CPUs that share each."""

    level: int
    groups: Tuple[int, ...]
    size_kib: Optional[int] = None


class GPU(NamedTuple):
    """A GPU on the PCI bus. `address` is the kernel's name for it (0000:3b:00.0), `numa_node` None where unknown."""

    address: str
    numa_node: Optional[int] = None


class Kubelet(NamedTuple):
    """How the node's kubelet hands out CPUs. "unknown" and None mean exactly that.

    `source` says who told the policies and options (document.KUBELET_SOURCES); "" where they are unknown.
    """

    cpu_manager_policy: str = "unknown"
    cpu_manager_policy_options: Tuple[Tuple[str, str], ...] = ()
    topology_manager_policy: str = "unknown"
    reserved_cpus: Optional[int] = None
    topology_manager_scope: str = "unknown"
    topology_manager_policy_options: Tuple[Tuple[str, str], ...] = ()
    source: str = ""


class Problem(NamedTuple):
    """A file that could not be used: its path below the root, and why."""

    path: str
    reason: str


class Machine(NamedTuple):
    """One machine. Groups hold online CPUs only and are sorted by their lowest CPU; `cores` are sibling sets.

    `sockets`, `dies`, `numa_nodes`, `l3_domains` and `core_types` may be empty where the kernel does not say;
    `gpus`, sorted by address, is empty where there are none or the PCI bus can't be seen.
    `caches` are sorted by level and lowest CPU; empty where they were not asked for.
    """

    online: int
    cores: Tuple[int, ...]
    offline: int = 0
    isolated: int = 0
    sockets: Tuple[Group, ...] = ()
    dies: Tuple[Group, ...] = ()
    numa_nodes: Tuple[NUMANode, ...] = ()
    l3_domains: Tuple[Group, ...] = ()
    core_types: Tuple[CoreType, ...] = ()
    gpus: Tuple[GPU, ...] = ()
    architecture: str = ""
    model: str = ""
    boot_id: str = ""
    kubelet: Kubelet = Kubelet()
    problems: Tuple[Problem, ...] = ()
    caches: Tuple[Cache, ...] = ()


def capacity_classes(capacities: Iterable[int]) -> Dict[int, int]:
    """Each capacity -> the highest of its class: those of at least seven eighths of that, from the highest down.

    Firmware rates single cores of one design a few percent apart (718 and 731, 997 and 1024). A cut at the largest gap
    instead would divide such cores where there are no others (997 and 1024), and make two speeds of three (280, 855 and
    1024 of a recorded machine with A510, A710, A715 and X3, whose kinds are the same by both rules).
    """
    classes: Dict[int, int] = {}
    highest = 0
    for capacity in sorted(set(capacities), reverse=True):
        if 8 * capacity < 7 * highest or not highest:
            highest = capacity
        classes[capacity] = highest
    return classes


def cores_within(machine: Machine, cpus: int) -> int:
    """How many physical cores have at least one CPU in the set. CPUs that belong to no known core count as one each."""
    result = 0
    rest = cpus
    for core in machine.cores:
        if core & rest:
            result += 1
            rest &= ~core
    return result + cpuset.count(rest)


def threads_per_core(machine: Machine) -> int:
    """The largest number of online CPUs that share a core; 1 where no core is known."""
    return max((cpuset.count(core) for core in machine.cores), default=1)
