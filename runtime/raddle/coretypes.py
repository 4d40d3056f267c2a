"""Which kinds of core a machine has, by the kernel's own word where it gives one.

x86: the PMUs cpu_core and cpu_atom list P- and E-cores (Linux 5.13). Arm and RISC-V: cpu_capacity.
An x86 tree without any PMU still shows two kinds of core when their level-1 caches differ in size:
silicon, unlike frequency, which favoured cores and Speed Select vary within one kind.
"""

from __future__ import annotations

import os

from raddle import cpuset, files
from raddle.topology import CoreType
from raddle.tree import Directory, Problems

# More capacities than this are a calibration of single cores, not kinds of core.
MAX_TYPES = 16

# perf's PMUs of a hybrid x86 machine and the core type of each (arch/x86/events/intel/core.c).
_HYBRID_PMUS = (("cpu_core", "p-core"), ("cpu_atom", "e-core"), ("cpu_lowpower", "e-core"))


def read(
    root: str, cpus: Directory, online: int, speakers: list[int], architecture: str, problems: Problems
) -> tuple[CoreType, ...]:
    """The core types of the online CPUs, sorted by their lowest CPU; one "standard" where nothing tells them apart.

    `speakers` holds one CPU of each core, `architecture` is as `uname -m` prints it. Capacity types are
    named capacity-N; cores of one capacity but different design are different types, capacity-N and
    capacity-N-0xPART.
    """
    if not online:
        return ()
    frequencies = _frequencies_mhz(cpus, speakers)
    capacities = _capacities(cpus, online)
    types = _by_pmu(root, online, problems)
    if not types and architecture in ("x86_64", "i686"):
        if not os.path.isdir(os.path.join(root, "sys/devices/cpu")):
            types = _by_level1_caches(cpus, online, frequencies)
    elif not types and len(set(capacities.values())) > 1:
        types = _by_capacity(root, cpus, capacities)
    if not 1 < len(types) <= MAX_TYPES:
        types = [("standard", online)]
    found = [CoreType(name, mask, _highest(frequencies, mask), _highest(capacities, mask)) for name, mask in types]
    return tuple(sorted(found, key=lambda kind: kind.cpus & -kind.cpus))


def _highest(values: dict[int, int], mask: int) -> int | None:
    return max((value for cpu, value in values.items() if mask >> cpu & 1), default=None)


def _frequencies_mhz(cpus: Directory, speakers: list[int]) -> dict[int, int]:
    """CPU -> its highest frequency, one CPU of each core; empty where the machine has no cpufreq."""
    found: dict[int, int] = {}
    for cpu in speakers:
        khz = cpus.number(f"cpu{cpu}/cpufreq/cpuinfo_max_freq")
        if khz:
            found[cpu] = khz // 1000
        elif not found:
            break
    return found


def _capacities(cpus: Directory, online: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for cpu in cpuset.ids(online):
        capacity = cpus.number(f"cpu{cpu}/cpu_capacity")
        if capacity is not None:
            found[cpu] = capacity
        elif not found:
            break
    return found


def _by_capacity(root: str, cpus: Directory, capacities: dict[int, int]) -> list[tuple[str, int]]:
    parts = _parts(root, cpus, list(capacities))
    kinds: dict[tuple[int, str], int] = {}
    for cpu, capacity in capacities.items():
        key = (capacity, parts.get(cpu, ""))
        kinds[key] = kinds.get(key, 0) | 1 << cpu
    named = []
    taken = set()
    for (capacity, part), mask in kinds.items():
        name = f"capacity-{capacity}"
        if name in taken:
            name += "-" + (part or "0x0")
        taken.add(name)
        named.append((name, mask))
    return named


def _parts(root: str, cpus: Directory, wanted: list[int]) -> dict[int, str]:
    """CPU -> the part number that its designer gave the core: bits 4 to 15 of MIDR_EL1, or cpuinfo's "CPU part"."""
    found: dict[int, str] = {}
    for cpu in wanted:
        text = cpus.text(f"cpu{cpu}/regs/identification/midr_el1")
        if text is None:
            return _parts_by_cpuinfo(root)
        try:
            found[cpu] = f"0x{int(text, 16) >> 4 & 0xFFF:03x}"
        except ValueError:
            return {}
    return found


def _parts_by_cpuinfo(root: str) -> dict[int, str]:
    found: dict[int, str] = {}
    try:
        text = files.read_text(os.path.join(root, "proc/cpuinfo"), to_end=True)
    except (OSError, ValueError):
        return found
    cpu = -1
    for line in text.splitlines():
        key, _, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if key == "processor":
            cpu = int(value) if value.isascii() and value.isdigit() and len(value) < 6 else -1
        elif key == "CPU part" and cpu >= 0:
            found[cpu] = value[:8]
    return found


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
