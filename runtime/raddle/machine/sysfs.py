"""Reads a machine from sysfs and procfs: what the kernel says, restricted to what can be true.

The kernel's sibling sets are the facts; its ids are labels that repeat, are -1 or are missing, so
CPUs are grouped by sets and the ids only name the groups. A file that can't be used costs one fact
and is recorded as a `Problem`; a file that isn't there is simply an absent fact. Paths follow
Documentation/ABI/stable/sysfs-devices-system-cpu and Documentation/admin-guide/cputopology.rst.
"""

from __future__ import annotations

import os
from typing import Iterable

from raddle import errors, files
from raddle.cpus import cpuset
from raddle.cpus.topology import Cache, Group, Machine, NUMANode
from raddle.machine import coretypes, cpuinfo, memory, numa, pci
from raddle.machine.tree import Directory, Problems

CPU_DIRECTORY = "sys/devices/system/cpu"

# What the same set is called: a list or a mask, by its name since Linux 5.2 or the older one.
_CORE_FILES = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
_PACKAGE_FILES = ("package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")
_DIE_FILES = ("die_cpus_list", "die_cpus")
_CACHE_FILES = ("shared_cpu_list", "shared_cpu_map")

# The counters of a large machine's interrupts are in it too.
_STAT_LIMIT_BYTES = 4 * 1024 * 1024

_X86 = ("x86_64", "i686")


def read_machine(root: str = "/", details: bool = True) -> Machine:
    """The machine whose /sys and /proc lie below `root`. Never raises: what could not be read is in `problems`.

    Groups hold online CPUs only, sorted by their lowest CPU; `numa_nodes` are sorted by id, so that
    distances line up. Where the kernel numbers sockets or L3 domains with -1, twice or not at all,
    they are numbered in order. `architecture` is this process's own where root is "/", else what the
    files tell, else "". Without sysfs the CPUs are those of /proc/cpuinfo or /proc/stat. Nothing is decided by
    `details`, caches and kinds of memory, whose files are as many as all others.
    """
    root = os.fspath(root)
    problems = Problems()
    with Directory(root, CPU_DIRECTORY, problems) as cpus, Directory(root, numa.NODE_DIRECTORY, problems) as nodes:
        listed = cpus.numbered("cpu")
        online, offline = _cpus_present(cpus, listed)
        cores = _alone(online) or _groups(cpus, _CORE_FILES, online, online & listed)
        listing = cpuinfo.Listing() if cores else cpuinfo.read_listing(root)
        online = online or listing.online or _online_by_stat(root)
        described = online & listed
        numa_nodes = numa.read(nodes, online)
        cores = cores or sorted(filter(None, (core & online for core in listing.cores)), key=cpuset.lowest)
        cores = cores or _cores_by_number(cpus, online, described, numa_nodes)
        # One CPU of each core speaks for its siblings where they can't differ.
        units = [*cores, *(1 << cpu for cpu in cpuset.ids(described & ~sum(cores)))]
        speakers = [cpuset.lowest(unit) for unit in units]
        processor = cpuinfo.read_processor(root, problems)
        sockets = _sockets(cpus, online, described, numa_nodes if processor.architecture in _X86 else ())
        sockets = sockets or _in_order(filter(None, (socket & online for socket in listing.sockets)))
        silent_l3_is_private = processor.architecture in ("ia64", "")
        machine = Machine(
            online=online,
            cores=tuple(cores),
            offline=offline & ~online,
            isolated=(cpus.cpus("isolated") or 0) & (online | offline),
            sockets=sockets,
            dies=_dies(cpus, online, described, sockets),
            numa_nodes=memory.read(root, nodes, numa_nodes, problems) if details else numa_nodes,
            l3_domains=_l3_domains(cpus, online, units, cores if silent_l3_is_private else []),
            core_types=coretypes.read(root, cpus, online, speakers, processor.architecture, problems),
            gpus=pci.read_gpus(root, [node.id for node in numa_nodes], problems),
            architecture=processor.architecture,
            model=processor.model,
            boot_id=_boot_id(root, problems),
            caches=_caches(cpus, online, units) if details else (),
        )
    return machine._replace(problems=problems.all())


def _cpus_present(cpus: Directory, listed: int) -> tuple[int, int]:
    """(online, offline), where offline is present but not online; `listed` are the CPUs with a directory.

    The kernel's own `offline` also names ids that the machine can never have: 16-1023 on a POWER7 of 16 CPUs.
    """
    present = cpus.some_cpus("present")
    possible = cpus.some_cpus("possible")
    known = present or possible & listed or listed
    online = cpus.some_cpus("online")
    strange = online & ~(present | possible | listed) if present | possible else 0
    if strange and strange != online:
        cpus.problem("online", f"CPUs {cpuset.format_list(strange)[:64]} are not there")
        online &= ~strange
    online = online or _online_by_directories(cpus, known or listed)
    return online, known & ~online


def _alone(online: int) -> list[int]:
    """A single CPU is a core of its own, also where a kernel without SMP support does not say so."""
    return [online] if online and not online & (online - 1) else []


def _online_by_directories(cpus: Directory, present: int) -> int:
    """For a tree without an `online` file: an offline CPU has no topology directory, or says so itself."""
    not_online = cpus.cpus("offline") or 0
    online = with_topology = 0
    for cpu in cpuset.ids(present & ~not_online):
        if cpus.text(f"cpu{cpu}/online") == "0":
            continue
        online |= 1 << cpu
        if cpus.names(f"cpu{cpu}/topology"):
            with_topology |= 1 << cpu
    return with_topology or online


def _online_by_stat(root: str) -> int:
    """The CPUs that /proc/stat counts for: it shows online CPUs only."""
    online = 0
    try:
        text = files.read_text(os.path.join(root, "proc/stat"), to_end=True, limit_bytes=_STAT_LIMIT_BYTES)
    except (OSError, ValueError) as error:
        errors.let_through(error)
        return 0
    for line in text.splitlines():
        number = line.split(" ", 1)[0][3:]
        if line.startswith("cpu") and number.isdigit() and len(number) <= 5:
            online |= 1 << int(number)
    return online & ((1 << cpuset.MAX_CPUS) - 1)


def _groups(cpus: Directory, names: tuple[str, ...], online: int, described: int) -> list[int]:
    """The sets in which the topology files of these names, which the `described` CPUs have, place the online CPUs."""
    claims = {}
    paths = {}
    for cpu in cpuset.ids(described):
        result = cpus.first_cpus(f"cpu{cpu}/topology", names)
        if result:
            claims[cpu] = result[0] & online | 1 << cpu
            paths[cpu] = result[1]
    return _partition(claims, paths, online, cpus)


def _package(cpus: Directory, cpu: int) -> int | None:
    """The number of its socket; None where it is negative, or was so before x86 kernels made 16 bits of it."""
    number = cpus.number(f"cpu{cpu}/topology/physical_package_id")
    return number if number != 0xFFFF else None


def _cores_by_number(cpus: Directory, online: int, described: int, numa_nodes: tuple[NUMANode, ...]) -> list[int]:
    """The cores of a stripped tree, which has no set of siblings in any spelling.

    Numbers repeat: from socket to socket, from die to die. So the CPUs of a core have one number, one socket, one NUMA
    node and one level-1 cache; where both socket and cache are unknown, nothing is told.
    """
    cores: dict[tuple[int | None, ...], int] = {}
    for cpu in cpuset.ids(described):
        number = cpus.number(f"cpu{cpu}/topology/core_id")
        package = _package(cpus, cpu)
        result = cpus.first_cpus(f"cpu{cpu}/cache/index0", _CACHE_FILES)
        level1 = result[0] & online if result else None
        if number is None or (package is None and level1 is None):
            return []
        node = next((node.id for node in numa_nodes if node.cpus >> cpu & 1), None)
        key = (package, node, level1, number)
        cores[key] = cores.get(key, 0) | 1 << cpu
    return sorted(cores.values(), key=cpuset.lowest)


def _partition(claims: dict[int, int], paths: dict[int, str], online: int, cpus: Directory) -> list[int]:
    """Disjoint sets, sorted by lowest CPU, from what each CPU says about its siblings, and the file that says it.

    Two CPUs are siblings when neither denies it. Where claims contradict each other that is recorded,
    and each CPU still lands in one set only; a CPU that nobody speaks for is in none.
    """
    groups = []
    rest = online
    for cpu, claim in claims.items():
        if not rest >> cpu & 1:
            continue
        group = 1 << cpu
        for other in cpuset.ids(claim & rest & ~group):
            if claims.get(other, claim) >> cpu & 1:
                group |= 1 << other
        if group != claim or any(claims.get(other, claim) != claim for other in cpuset.ids(group)):
            said, used = cpuset.format_list(claim)[:64], cpuset.format_list(group)[:64]
            cpus.problem(paths[cpu], f"says {said}, which contradicts these CPUs' files; using {used}")
        groups.append(group)
        rest &= ~group
    return sorted(groups, key=cpuset.lowest)


def _numbered(groups: list[int], numbers: list[int | None]) -> tuple[Group, ...]:
    """Groups under the kernel's numbers where these tell the groups apart, else numbered in order."""
    known = [number for number in numbers if number is not None]
    if len(known) == len(groups) == len(set(known)):
        return tuple(Group(number, group) for number, group in zip(known, groups))
    return tuple(Group(index, group) for index, group in enumerate(groups))


def _in_order(groups: Iterable[int]) -> tuple[Group, ...]:
    return tuple(Group(index, group) for index, group in enumerate(sorted(groups, key=cpuset.lowest)))


def _sockets(cpus: Directory, online: int, described: int, numa_nodes: tuple[NUMANode, ...]) -> tuple[Group, ...]:
    groups = _alone(online) or _groups(cpus, _PACKAGE_FILES, online, described)
    if groups:
        ids = [_package(cpus, cpuset.lowest(group)) for group in groups]
        return _numbered(*_whole_packages(groups, ids, numa_nodes))
    # No set in any spelling (a stripped tree): a package id is unique in the machine wherever it is not negative.
    by_id: dict[int, int] = {}
    for cpu in cpuset.ids(described):
        number = _package(cpus, cpu)
        if number is not None:
            by_id[number] = by_id.get(number, 0) | 1 << cpu
    return tuple(Group(number, mask) for number, mask in sorted(by_id.items(), key=lambda item: cpuset.lowest(item[1])))


def _whole_packages(
    groups: list[int], ids: list[int | None], numa_nodes: tuple[NUMANode, ...]
) -> tuple[list[int], list[int | None]]:
    """Puts packages together that the kernel had cut at the borders of NUMA nodes: sets of one id, a node each.

    Before Linux 3.18 core_siblings held only the CPUs of one node, which is wrong where a socket has two of them
    (Cluster-on-Die). A number that repeats within a node, or across books, is a number that says nothing.
    """
    whole: dict[tuple[int, int | None], int] = {}
    of_node = {node.cpus for node in numa_nodes if node.cpus}
    for index, (group, number) in enumerate(zip(groups, ids)):
        key = (-1, number) if number is not None and group in of_node else (index, number)
        whole[key] = whole.get(key, 0) | group
    merged = sorted(whole.items(), key=lambda item: cpuset.lowest(item[1]))
    return [group for _, group in merged], [number for (_, number), _ in merged]


def _dies(cpus: Directory, online: int, described: int, sockets: tuple[Group, ...]) -> tuple[Group, ...]:
    """Dies keep the kernel's ids, which count from 0 in each socket; a negative id means that there are none."""
    if not sockets or not described or cpus.number(f"cpu{cpuset.lowest(described)}/topology/die_id") is None:
        return ()
    groups = _groups(cpus, _DIE_FILES, online, described)
    dies: list[Group] = []
    for socket in sockets:
        inside = [group & socket.cpus for group in groups if group & socket.cpus]
        numbers = [cpus.number(f"cpu{cpuset.lowest(group)}/topology/die_id") for group in inside]
        dies.extend(_numbered(inside, numbers))
    return tuple(sorted(dies, key=lambda die: die.cpus & -die.cpus))


def _l3_domains(cpus: Directory, online: int, units: list[int], private_to: list[int]) -> tuple[Group, ...]:
    """One domain per set of CPUs that share a cache of level 3; `units` are the cores, and CPUs of no known core.

    A unit's lowest CPU speaks for those that it names; a core of eight POWER threads has a cache for each half of them.
    Itanium's kernels name a cache without any CPU that shares it: it is the core's own, of those in `private_to`.
    """
    claims = {}
    folders: dict[int, str] = {}
    paths: dict[int, str] = {}
    silent: dict[int, str] = {}
    guess = "index3"
    for unit in units:
        rest = unit
        while rest:
            cpu = cpuset.lowest(rest)
            index = _l3_index(cpus, cpu, guess)
            if index is None:
                break
            guess = index
            folders[cpu] = f"cpu{cpu}/cache/{index}"
            for path in [f"{folders[cpu]}/{name}" for name in _CACHE_FILES]:
                mask = cpus.cpus(path)
                if mask:
                    claims[cpu], paths[cpu] = mask & online | 1 << cpu, path
                    break
                if mask == 0:
                    silent.setdefault(cpu, path)
            rest &= ~claims.get(cpu, rest)
    groups = _partition(claims, paths, online, cpus)
    if not groups:
        groups = [core for core in private_to if any(core >> cpu & 1 for cpu in silent)]
    if claims or not groups:
        for path in silent.values():
            cpus.problem(path, "is empty")
    # Each set was formed around its first speaker, so it has one.
    own = [next(folders[cpu] for cpu in cpuset.ids(group) if cpu in folders) for group in groups]
    return _numbered(groups, [cpus.number(folder + "/id") for folder in own])


def _l3_index(cpus: Directory, cpu: int, guess: str) -> str | None:
    """The name of the cpu's cache directory of level 3: usually the same as its neighbour's."""
    directory = f"cpu{cpu}/cache"
    if cpus.number(f"{directory}/{guess}/level") == 3:
        return guess
    for name in sorted(cpus.names(directory)):
        if name.startswith("index") and name != guess and cpus.number(f"{directory}/{name}/level") == 3:
            return name
    return None


def _caches(cpus: Directory, online: int, units: list[int]) -> tuple[Cache, ...]:
    """The caches of level 2 and up, but those of instructions only; a CPU is in one of each level."""
    result: dict[tuple[int, int | None], list[int]] = {}
    seen: dict[int, int] = {}
    for unit in units:
        rest = unit
        while rest:
            cpu = cpuset.lowest(rest)
            spoken_for = rest
            for name in sorted(cpus.names(f"cpu{cpu}/cache")):
                folder = f"cpu{cpu}/cache/{name}"
                level = cpus.number(folder + "/level") if name.startswith("index") else None
                if level is None or level < 2 or cpus.text(folder + "/type") == "Instruction":
                    continue
                shared = next(filter(None, (cpus.cpus(f"{folder}/{file}") for file in _CACHE_FILES)), unit)
                spoken_for &= shared
                group = (shared & online | 1 << cpu) & ~seen.get(level, 0)
                if group:
                    seen[level] = seen.get(level, 0) | group
                    result.setdefault((level, _size_kib(cpus, folder + "/size")), []).append(group)
            rest &= ~(spoken_for | 1 << cpu)
    caches = [Cache(level, tuple(sorted(groups, key=cpuset.lowest)), size) for (level, size), groups in result.items()]
    return tuple(sorted(caches, key=lambda cache: (cache.level, cpuset.lowest(cache.groups[0]))))


def _size_kib(cpus: Directory, path: str) -> int | None:
    text = cpus.text(path)
    if text is None:
        return None
    if text.endswith("K") and text[:-1].isascii() and text[:-1].isdigit() and len(text) < 10:
        return int(text[:-1]) or None
    cpus.problem(path, f"{text[:64]!r} is not a size")
    return None


def _boot_id(root: str, problems: Problems) -> str:
    path = "proc/sys/kernel/random/boot_id"
    try:
        text = files.read_text(os.path.join(root, path)).strip()
    except (OSError, ValueError) as error:
        problems.add_error(path, error)
        return ""
    if len(text) == 36 and all(char in "0123456789abcdef-" for char in text):
        return text
    problems.add(path, f"{text[:64]!r} is not a boot id")
    return ""
