"""Reads what a process may use of its machine: CPU quota, CPU set and memory of its cgroups, version 1 and 2.

A limit of any ancestor holds, so the tightest one that can be seen counts; what lies above is out of sight and absent
here. Which directories those are is cgroupfs's business.
Files: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/{cpusets,memory}.rst, scheduler/sched-bwc.rst.

Imports nothing but `os` and three small modules: the shim reads this in users' processes.
"""

from __future__ import annotations

import os

from raddle import errors, files
from raddle.cpus import cpuset
from raddle.process import cgroupfs

# v1 says "no limit" with LONG_MAX rounded down to a page; anything this large limits nothing.
_NO_MEMORY_LIMIT_BYTES = 1 << 60


class ResourceLimits:
    """What a process may use; a fact that could not be read, or a limit that is not set, is None.

    quota_cpus           CPU time per time, of the tightest visible cgroup: 1.5 is one and a half CPUs
    quota_path           that cgroup's directory; of the process's own one where no quota is set, None where that one is
                         out of sight: an ancestor's statistics are of others too
    period_us, burst_us  of the same cgroup; burst is spare quota that it may save up for a busy moment. It is part of
                         no budget: what it adds was left unused before, so it raises no rate that can be kept up
    cpuset               CPUs that the cgroup may use, as a set
    inherited            CPUs that the process's affinity mask allows, as a set
    memory_limit_bytes   the lowest visible limit
    shares, weight       cpu.shares (v1) or cpu.weight (v2) of the nearest cgroup that has one; neither limits anything
    nr_periods, nr_throttled, throttled_us   totals of the cgroup at quota_path since it was made
    """

    __slots__ = (
        "burst_us",
        "cpuset",
        "inherited",
        "memory_limit_bytes",
        "nr_periods",
        "nr_throttled",
        "period_us",
        "quota_cpus",
        "quota_path",
        "shares",
        "throttled_us",
        "weight",
    )

    quota_cpus: float | None
    quota_path: str | None
    period_us: int | None
    burst_us: int | None
    cpuset: int | None
    inherited: int | None
    memory_limit_bytes: int | None
    shares: int | None
    weight: int | None
    nr_periods: int | None
    nr_throttled: int | None
    throttled_us: int | None

    def __init__(self, **facts: float | str | None) -> None:
        for name in self.__slots__:
            setattr(self, name, facts.pop(name, None))
        if facts:
            raise TypeError("ResourceLimits has no " + ", ".join(sorted(facts)))

    def __repr__(self) -> str:
        known = [f"{name}={value!r}" for name, value in self._values() if value is not None]
        return "ResourceLimits({})".format(", ".join(known))

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, ResourceLimits) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._values()))

    def _values(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in self.__slots__]


def read_limits(root: str = "/", pid: int | str = "self") -> ResourceLimits:
    """What process `pid` may use, by the /proc and the cgroup mounts below `root`; of "self": the calling thread.

    Never raises.
    """
    root = os.fspath(root)
    process = cgroupfs.process_folder(root, pid)
    view = cgroupfs.View(root, process)
    facts = _inherited(cgroupfs.read(process + "/status"))
    cpu = view.directories("cpu")
    facts.update(_quota_facts(*cpu))
    facts.update(_weight_facts(*cpu[:2]))
    facts.update(_cpuset_facts(*view.directories("cpuset")[:2]))
    facts.update(_memory_facts(*view.directories("memory")[:2]))
    return ResourceLimits(**facts)


class CPUController:
    """What the cpu controller says of the calling thread: for each session that is created.

    The cgroups are looked for once; `read` follows what is written to them, as a resize in place does.
    """

    __slots__ = ("_found",)

    def __init__(self, root: str = "/", pid: int | str = "self") -> None:
        root = os.fspath(root)
        self._found = cgroupfs.View(root, cgroupfs.process_folder(root, pid)).directories("cpu")

    def read(self) -> ResourceLimits:
        """Of `read_limits` the quota and its statistics, as they are now. Never raises."""
        return ResourceLimits(**_quota_facts(*self._found))


def usable_cpus(limits: ResourceLimits, online: int = 0) -> tuple[int | None, float | None]:
    """(the CPUs that the process can run on, as a set; the quota in CPUs that binds there).

    The set is cpuset and affinity, within `online` where that is given; None where nothing is known.
    Where these contradict each other (the cpuset changed between two reads, lxcfs numbers the CPUs
    that are online again) the process's own affinity counts. The quota is None where there is none,
    or where that many CPUs could not use it up.
    """
    usable = 0
    for mask in (limits.inherited, limits.cpuset, online):
        if mask:
            usable = (usable & mask or usable) if usable else mask
    quota_cpus = limits.quota_cpus
    if quota_cpus is not None and usable and quota_cpus >= cpuset.count(usable):
        quota_cpus = None
    return usable or None, quota_cpus


def _quota_facts(version: int, directories: list[str], own_seen: bool) -> dict[str, float | str | None]:
    tightest = None
    for directory in directories:
        quota = _quota(version, directory)
        if quota is not None and (tightest is None or quota[0] < tightest[0]):
            tightest = (*quota, directory)
    facts: dict[str, float | str | None] = {}
    if tightest is not None:
        quota_cpus, period_us, path = tightest
        burst = _number(path + ("/cpu.cfs_burst_us" if version == 1 else "/cpu.max.burst"))
        facts.update(quota_cpus=quota_cpus, period_us=period_us, quota_path=path, burst_us=burst)
    elif own_seen:
        facts["quota_path"] = directories[0]
    if "quota_path" in facts:
        facts.update(parse_cpu_stat(files.text_or_nothing("{}/cpu.stat".format(facts["quota_path"]))))
    return facts


def _weight_facts(version: int, directories: list[str]) -> dict[str, float | str | None]:
    fact = "shares" if version == 1 else "weight"
    for directory in directories:
        number = _number(directory + "/cpu." + fact)
        if number is not None:
            return {fact: number}
    return {}


def _quota(version: int, directory: str) -> tuple[float, int] | None:
    if version == 2:
        return parse_cpu_max(files.text_or_nothing(directory + "/cpu.max"))
    quota_us = _number(directory + "/cpu.cfs_quota_us")
    # -1 is "no quota"; most cgroups have none, and then the period is not worth a read.
    if not quota_us:
        return None
    period_us = _number(directory + "/cpu.cfs_period_us")
    return (quota_us / period_us, period_us) if period_us else None


def parse_cpu_max(text: str) -> tuple[float, int] | None:
    """(CPUs, period in microseconds) of "150000 100000"; None for "max 100000" and for anything else."""
    words = text.split()
    if len(words) != 2 or not _is_number(words[0]) or not _is_number(words[1]):
        return None
    quota_us, period_us = int(words[0]), int(words[1])
    return (quota_us / period_us, period_us) if quota_us and period_us else None


def parse_cpu_stat(text: str) -> dict[str, float | str | None]:
    """nr_periods, nr_throttled and throttled_us of a cpu.stat file, as far as it has them."""
    facts: dict[str, float | str | None] = {}
    for line in text.split("\n"):
        key, _, value = line.partition(" ")
        if not _is_number(value):
            continue
        if key == "nr_periods":
            facts["nr_periods"] = int(value)
        elif key == "nr_throttled":
            facts["nr_throttled"] = int(value)
        elif key == "throttled_usec":
            facts["throttled_us"] = int(value)
        elif key == "throttled_time":
            facts["throttled_us"] = int(value) // 1000
    return facts


def _cpuset_facts(version: int, directories: list[str]) -> dict[str, float | str | None]:
    """Of the nearest cgroup that has the cpuset controller: on v2 it need not be enabled all the way down.

    Ancestors further up have no say: what they allow is in it, but for a partition (cpuset.cpus.partition), whose
    CPUs are taken out of theirs.
    """
    # The names without "cpuset." are those of the old cpuset file system, and of the mount option "noprefix".
    v1 = ("cpuset.effective_cpus", "cpuset.cpus", "effective_cpus", "cpus")
    for directory in directories:
        for name in v1 if version == 1 else ("cpuset.cpus.effective",):
            try:
                mask = cpuset.parse_list(files.text_or_nothing(directory + "/" + name))
            except ValueError as error:
                errors.let_through(error)
                continue
            if mask:
                return {"cpuset": mask}
    return {}


def _memory_facts(version: int, directories: list[str]) -> dict[str, float | str | None]:
    name = "/memory.max" if version == 2 else "/memory.limit_in_bytes"
    limits = [_number(directory + name) for directory in directories]
    if version == 1 and directories:
        # The kernel's own answer, which counts ancestors that can't be seen.
        for line in files.text_or_nothing(directories[0] + "/memory.stat").split("\n"):
            key, _, value = line.partition(" ")
            if key == "hierarchical_memory_limit" and _is_number(value):
                limits.append(int(value))
    known = [limit for limit in limits if limit is not None and limit < _NO_MEMORY_LIMIT_BYTES]
    return {"memory_limit_bytes": min(known)} if known else {}


def _inherited(status: str) -> dict[str, float | str | None]:
    """The affinity mask: as a list, and in trees of old kernels only as a mask."""
    for name, parse in (("Cpus_allowed_list:", cpuset.parse_list), ("Cpus_allowed:", cpuset.parse_mask)):
        for line in status.split("\n"):
            if line.startswith(name):
                try:
                    mask = parse(line.partition(":")[2])
                except ValueError as error:
                    errors.let_through(error)
                    continue
                if mask:
                    return {"inherited": mask}
    return {}


def _number(path: str) -> int | None:
    text = files.text_or_nothing(path).strip()
    return int(text) if _is_number(text) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20
