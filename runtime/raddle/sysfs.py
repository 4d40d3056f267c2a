"""Reads a machine from sysfs and procfs: what the kernel says, restricted to what can be true.

The kernel's sibling sets are the facts; its ids are labels that repeat, are -1 or are missing, so
CPUs are grouped by sets and the ids only name the groups. A file that can't be used costs one fact
and is recorded as a `Problem`; a file that isn't there is simply an absent fact. Paths follow
Documentation/ABI/stable/sysfs-devices-system-cpu and Documentation/admin-guide/cputopology.rst.
"""

from __future__ import annotations

import os

from raddle import coretypes, cpuset, files, pci
from raddle.topology import Group, Machine, NUMANode
from raddle.tree import Directory, Problems, lowest

CPU_DIRECTORY = "sys/devices/system/cpu"
NODE_DIRECTORY = "sys/devices/system/node"

# What the same set is called: a list or a mask, by its name since Linux 5.2 or the older one.
_CORE_FILES = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
_PACKAGE_FILES = ("package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")
_DIE_FILES = ("die_cpus_list", "die_cpus")
_CACHE_FILES = ("shared_cpu_list", "shared_cpu_map")
_NUMA_FILES = ("cpulist", "cpumap")

_MODEL_LENGTH = 128


def read_machine(root: str = "/") -> Machine:
    """The machine whose /sys and /proc lie below `root`. Never raises: what could not be read is in `problems`.

    Groups hold online CPUs only, sorted by their lowest CPU; `numa_nodes` are sorted by id, so that
    distances line up. Where the kernel numbers sockets or L3 domains with -1, twice or not at all,
    they are numbered in order. `architecture` is this process's own where root is "/", else what
    cpuinfo shows, else "".
    """
    root = os.fspath(root)
    problems = Problems()
    with Directory(root, CPU_DIRECTORY, problems) as cpus, Directory(root, NODE_DIRECTORY, problems) as nodes:
        online, offline = _cpus_present(cpus, root)
        cores = _groups(cpus, _CORE_FILES, online)
        # One CPU of each core speaks for its siblings where they can't differ.
        speakers = [lowest(core) for core in cores] + cpuset.ids(online & ~sum(cores))
        model, architecture = _processor(root, problems)
        sockets = _sockets(cpus, online)
        numa_nodes = _numa_nodes(nodes, online)
        machine = Machine(
            online=online,
            cores=tuple(cores),
            offline=offline,
            isolated=(cpus.cpus("isolated") or 0) & (online | offline),
            sockets=sockets,
            dies=_dies(cpus, online, sockets),
            numa_nodes=numa_nodes,
            l3_domains=_l3_domains(cpus, online, speakers),
            core_types=coretypes.read(root, cpus, online, speakers, architecture, problems),
            gpus=pci.read_gpus(root, [node.id for node in numa_nodes], problems),
            architecture=architecture,
            model=model,
            boot_id=_boot_id(root, problems),
        )
    return machine._replace(problems=problems.all())


def _cpus_present(cpus: Directory, root: str) -> tuple[int, int]:
    """(online, offline), where offline is present but not online.

    The kernel's own `offline` also names ids that the machine can never have: 16-1023 on a POWER7 of 16 CPUs.
    """
    listed = cpus.numbered("cpu")
    present = cpus.cpus("present")
    if not present:
        present = (cpus.cpus("possible") or 0) & listed or listed
    online = cpus.cpus("online")
    if not online:
        online = _online_by_directories(cpus, present or listed) or _online_by_stat(root)
    return online, present & ~online


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
        text = files.read_text(os.path.join(root, "proc/stat"), to_end=True)
    except (OSError, ValueError):
        return 0
    for line in text.splitlines():
        number = line.split(" ", 1)[0][3:]
        if line.startswith("cpu") and number.isdigit() and len(number) <= 5:
            online |= 1 << int(number)
    return online & ((1 << cpuset.MAX_CPUS) - 1)


def _groups(cpus: Directory, names: tuple[str, ...], online: int) -> list[int]:
    """The sets in which the topology files of these names place the online CPUs."""
    claims = {}
    for cpu in cpuset.ids(online):
        mask = cpus.first_cpus(f"cpu{cpu}/topology", names)
        if mask:
            claims[cpu] = mask & online | 1 << cpu
    return _partition(claims, online, cpus, names[0])


def _partition(claims: dict[int, int], online: int, cpus: Directory, what: str) -> list[int]:
    """Disjoint sets, sorted by lowest CPU, from what each CPU says about its siblings.

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
            cpus.problem(f"cpu{cpu}", f"{what} says {said}, its siblings do not agree; used {used}")
        groups.append(group)
        rest &= ~group
    return sorted(groups, key=lowest)


def _numbered(groups: list[int], numbers: list[int | None]) -> tuple[Group, ...]:
    """Groups under the kernel's numbers where these tell the groups apart, else numbered in order."""
    known = [number for number in numbers if number is not None]
    if len(known) == len(groups) == len(set(known)):
        return tuple(Group(number, group) for number, group in zip(known, groups))
    return tuple(Group(index, group) for index, group in enumerate(groups))


def _sockets(cpus: Directory, online: int) -> tuple[Group, ...]:
    groups = _groups(cpus, _PACKAGE_FILES, online)
    if groups:
        return _numbered(groups, [cpus.number(f"cpu{lowest(group)}/topology/physical_package_id") for group in groups])
    # No set in any spelling (a stripped tree): a package id is unique in the machine wherever it is not negative.
    by_id: dict[int, int] = {}
    for cpu in cpuset.ids(online):
        number = cpus.number(f"cpu{cpu}/topology/physical_package_id")
        if number is not None:
            by_id[number] = by_id.get(number, 0) | 1 << cpu
    return tuple(Group(number, mask) for number, mask in sorted(by_id.items(), key=lambda item: lowest(item[1])))


def _dies(cpus: Directory, online: int, sockets: tuple[Group, ...]) -> tuple[Group, ...]:
    """Dies keep the kernel's ids, which count from 0 in each socket; a negative id means that there are none."""
    if not sockets or cpus.number(f"cpu{lowest(online)}/topology/die_id") is None:
        return ()
    groups = _groups(cpus, _DIE_FILES, online)
    dies: list[Group] = []
    for socket in sockets:
        inside = [group & socket.cpus for group in groups if group & socket.cpus]
        numbers = [cpus.number(f"cpu{lowest(group)}/topology/die_id") for group in inside]
        dies.extend(_numbered(inside, numbers))
    return tuple(sorted(dies, key=lambda die: die.cpus & -die.cpus))


def _numa_nodes(nodes: Directory, online: int) -> tuple[NUMANode, ...]:
    ids = cpuset.ids(nodes.numbered("node"))
    found = []
    rest = online
    for node in ids:
        directory = f"node{node}"
        mask = None
        for name in _NUMA_FILES:
            mask = nodes.cpus(f"{directory}/{name}")
            if mask is not None:
                break
        if mask is None:
            continue
        mask &= online
        if mask & ~rest:
            nodes.problem(directory, f"CPUs {cpuset.format_list(mask & ~rest)[:64]} are in a lower node too")
            mask &= rest
        rest &= ~mask
        found.append(NUMANode(node, mask, _memory_mib(nodes, directory), _distances(nodes, directory, len(ids))))
    return tuple(found)


def _memory_mib(nodes: Directory, directory: str) -> int | None:
    """MemTotal of a line such as "Node 0 MemTotal:  16772456 kB"."""
    for line in (nodes.text(directory + "/meminfo") or "").splitlines():
        words = line.split()
        if len(words) == 5 and words[2] == "MemTotal:" and words[3].isdigit() and len(words[3]) < 16:
            return int(words[3]) // 1024
    return None


def _distances(nodes: Directory, directory: str, count: int) -> tuple[int, ...]:
    words = (nodes.text(directory + "/distance") or "").split()
    if not words:
        return ()
    if len(words) != count or not all(word.isdigit() and len(word) < 6 for word in words):
        nodes.problem(directory + "/distance", "{!r} is not {} distances".format(" ".join(words)[:64], count))
        return ()
    return tuple(int(word) for word in words)


def _l3_domains(cpus: Directory, online: int, speakers: list[int]) -> tuple[Group, ...]:
    """One domain per set of CPUs that share a cache of level 3."""
    claims = {}
    paths: dict[int, str] = {}
    guess = "index3"
    for cpu in speakers:
        index = _l3_index(cpus, cpu, guess)
        if index is None:
            continue
        guess = index
        path = f"cpu{cpu}/cache/{index}"
        mask = cpus.first_cpus(path, _CACHE_FILES)
        if mask:
            claims[cpu] = mask & online | 1 << cpu
            paths[cpu] = path
    groups = _partition(claims, online, cpus, "shared_cpu_list of its L3 cache")
    # Each set was formed around its first speaker, so it has one.
    own = [next(paths[cpu] for cpu in cpuset.ids(group) if cpu in paths) for group in groups]
    return _numbered(groups, [cpus.number(path + "/id") for path in own])


def _l3_index(cpus: Directory, cpu: int, guess: str) -> str | None:
    """The name of the cpu's cache directory of level 3: usually the same as its neighbour's."""
    directory = f"cpu{cpu}/cache"
    if cpus.text(f"{directory}/{guess}/level") == "3":
        return guess
    for name in sorted(cpus.names(directory)):
        if name.startswith("index") and name != guess and cpus.text(f"{directory}/{name}/level") == "3":
            return name
    return None


def _processor(root: str, problems: Problems) -> tuple[str, str]:
    """(model, architecture) of the first CPU in cpuinfo. Which keys there are is each architecture's own affair."""
    path = "proc/cpuinfo"
    try:
        text = files.read_head(os.path.join(root, path))
    except OSError as error:
        problems.add_error(path, error)
        text = ""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            facts.setdefault(key.strip(), " ".join(value.split()))
    return _model(facts), os.uname().machine if os.path.normpath(root) == "/" else _architecture(facts)


def _model(facts: dict[str, str]) -> str:
    if "CPU part" in facts:
        model = "implementer {} part {}".format(facts.get("CPU implementer", "?"), facts["CPU part"])
    elif facts.get("vendor_id") == "IBM/S390":
        machine = facts.get("processor 0", "").rpartition("machine = ")[2]
        model = f"IBM/S390 machine {machine}" if machine else "IBM/S390"
    else:
        model = facts.get("model name") or facts.get("cpu") or ""
    return "".join(char for char in model if char.isprintable())[:_MODEL_LENGTH]


def _architecture(facts: dict[str, str]) -> str:
    """As `uname -m` prints it; "" where cpuinfo does not tell (POWER hides its byte order)."""
    if "CPU implementer" in facts:
        return "aarch64" if facts.get("CPU architecture") in ("8", "AArch64") else ""
    if facts.get("vendor_id") == "IBM/S390":
        return "s390x"
    if "flags" in facts:
        return "x86_64" if "lm" in facts["flags"].split() else "i686"
    if facts.get("isa", "").startswith("rv64"):
        return "riscv64"
    return ""


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
