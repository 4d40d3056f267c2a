"""Which kinds of core a machine has, by the kernel's own word where it gives one.

x86: the PMUs cpu_core and cpu_atom list P- and E-cores (Linux 5.13). Arm and RISC-V: cpu_capacity, and on Arm which
core it is (MIDR_EL1, or cpuinfo), as older kernels tell no capacity and cores of one capacity may differ.
An x86 tree without any PMU still shows two kinds of core when their level-1 caches differ in size:
silicon, unlike frequency, which favoured cores and Speed Select vary within one kind.
"""

from __future__ import annotations

import os

from raddle.cpus import cpuset
from raddle.cpus.topology import CoreType, capacity_classes
from raddle.machine import armcores, cpuinfo
from raddle.machine.cpuinfo import Core
from raddle.machine.tree import Directory, Problems

# More than this are no kinds of core.
MAX_TYPES = 16

# perf's PMUs of a hybrid x86 machine and the core type of each (arch/x86/events/intel/core.c).
_HYBRID_PMUS = (("cpu_core", "p-core"), ("cpu_atom", "e-core"), ("cpu_lowpower", "e-core"))


def read(
    root: str, cpus: Directory, online: int, speakers: list[int], architecture: str, problems: Problems
) -> tuple[CoreType, ...]:
    """The core types of the online CPUs, sorted by their lowest CPU; one "standard" where nothing tells them apart.

    `speakers` holds one CPU of each core, `architecture` is as `uname -m` prints it. Types told apart by capacity
    are named capacity-N, by the highest; near capacities are one (`capacity_classes`). Cores of near capacity but
    different design are different types, where need be capacity-N-0xPART; without capacities, designs are
    part-0xPART. `model` is the name of an Arm core.
    """
    if not online:
        return ()
    frequencies = _frequencies_mhz(cpus, speakers)
    capacities = _capacities(cpus, online)
    arm = architecture.startswith(("aarch64", "arm"))
    arm_cores = _arm_cores(root, cpus, online) if arm else {}
    types = _by_pmu(root, online, problems)
    if not types and architecture in ("x86_64", "i686"):
        if not os.path.isdir(os.path.join(root, "sys/devices/cpu")):
            types = _by_level1_caches(cpus, online, frequencies)
    elif not types:
        types = _by_design(online, capacities, arm_cores)
    if not 1 < len(types) <= MAX_TYPES:
        types = [("standard", online)]
    result = [
        CoreType(name, mask, _highest(frequencies, mask), _highest(capacities, mask), _model(arm_cores, mask))
        for name, mask in types
    ]
    return tuple(sorted(result, key=lambda kind: kind.cpus & -kind.cpus))


def _highest(values: dict[int, int], mask: int) -> int | None:
    return max((value for cpu, value in values.items() if mask >> cpu & 1), default=None)


def _frequencies_mhz(cpus: Directory, speakers: list[int]) -> dict[int, int]:
    """CPU -> its highest frequency, one CPU of each core; empty where the machine has no cpufreq."""
    result: dict[int, int] = {}
    for cpu in speakers:
        khz = cpus.number(f"cpu{cpu}/cpufreq/cpuinfo_max_freq")
        if khz:
            result[cpu] = khz // 1000
        elif not result:
            break
    return result


def _capacities(cpus: Directory, online: int) -> dict[int, int]:
    result: dict[int, int] = {}
    for cpu in cpuset.ids(online):
        capacity = cpus.number(f"cpu{cpu}/cpu_capacity")
        if capacity is not None:
            result[cpu] = capacity
        elif not result:
            break
    return result


def _by_design(online: int, capacities: dict[int, int], arm_cores: dict[int, Core]) -> list[tuple[str, int]]:
    """CPUs of near capacity and one design. What is not known is no kind: a design counts where every CPU tells it."""
    classes = capacity_classes(capacities.values())
    designs = arm_cores if cpuset.of(set(arm_cores)) & online == online else {}
    kinds: dict[tuple[int, Core | None], int] = {}
    for cpu in cpuset.ids(online):
        if cpu in capacities or not capacities:
            key = (classes[capacities[cpu]] if capacities else 0, designs.get(cpu))
            kinds[key] = kinds.get(key, 0) | 1 << cpu
    named = []
    taken = set()
    for (_, core), mask in kinds.items():
        part = f"0x{core.part:03x}" if core else "0x0"
        name = f"capacity-{_highest(capacities, mask)}" if capacities else f"part-{part}"
        if capacities and name in taken:
            name += f"-{part}"
        if name in taken:
            # Two designers gave their cores the same number.
            return []
        taken.add(name)
        named.append((name, mask))
    return named


def _arm_cores(root: str, cpus: Directory, online: int) -> dict[int, Core]:
    """CPU -> who designed it and which core it is: bits 24 to 31 and 4 to 15 of MIDR_EL1, else what cpuinfo says."""
    result: dict[int, Core] = {}
    for cpu in cpuset.ids(online):
        path = f"cpu{cpu}/regs/identification/midr_el1"
        text = cpus.text(path)
        if text is None:
            if not result:
                return cpuinfo.arm_cores(root)
            continue
        try:
            register = int(text, 16)
        except ValueError:
            cpus.problem(path, f"{text[:64]!r} is not a register's value")
            continue
        result[cpu] = Core(register >> 24 & 0xFF, register >> 4 & 0xFFF)
    return result


def _model(arm_cores: dict[int, Core], mask: int) -> str:
    """The name of the cores in the set, where they all have the same."""
    cores = {core for cpu, core in arm_cores.items() if mask >> cpu & 1}
    return armcores.name(*cores.pop()) if len(cores) == 1 else ""


def _by_pmu(root: str, online: int, problems: Problems) -> list[tuple[str, int]]:
    masks: dict[str, int] = {}
    for pmu, name in _HYBRID_PMUS:
        with Directory(root, "sys/devices/" + pmu, problems) as directory:
            mask = (directory.cpus("cpus") or 0) & online
        if mask:
            masks[name] = masks.get(name, 0) | mask
    taken = 0
    kinds = []
    for name, mask in masks.items():
        if mask & ~taken:
            kinds.append((name, mask & ~taken))
        taken |= mask
    return kinds


def _by_level1_caches(cpus: Directory, online: int, frequencies: dict[int, int]) -> list[tuple[str, int]]:
    """Two kinds when the cores have exactly two shapes of level-1 caches, the faster ones being the P-cores.

    Read only where frequencies differ, so that an ordinary machine pays nothing for it.
    """
    if len(set(frequencies.values())) < 2:
        return []
    masks: dict[tuple[str | None, ...], int] = {}
    fastest: dict[tuple[str | None, ...], int] = {}
    for cpu, mhz in frequencies.items():
        shape = tuple(cpus.text(f"cpu{cpu}/cache/index{index}/size") for index in (0, 1))
        siblings = cpus.cpus(f"cpu{cpu}/topology/thread_siblings_list") or 0
        masks[shape] = masks.get(shape, 0) | (siblings & online) | 1 << cpu
        fastest[shape] = max(fastest.get(shape, 0), mhz)
    if len(masks) != 2 or len(set(fastest.values())) != 2 or any(None in shape for shape in masks):
        return []
    slow, fast = sorted(masks, key=lambda shape: fastest[shape])
    if masks[slow] & masks[fast] or masks[slow] | masks[fast] != online:
        return []
    return [("p-core", masks[fast]), ("e-core", masks[slow])]
