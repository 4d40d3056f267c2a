"""Reads what a process may use of its machine: CPU quota, CPU set and memory of its cgroups, version 1 and 2.

A limit of any ancestor holds, so the tightest one that can be seen counts. A container usually sees
its own cgroup only, as the root of the mount; what lies above is out of sight and absent here.
Files: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/{cpusets,memory}.rst, scheduler/sched-bwc.rst;
proc_pid_cgroup(5) and proc_pid_mountinfo(5) for the paths.

Imports nothing but `os` and two small modules: the shim reads this in users' processes.
"""

from __future__ import annotations

import os

from raddle import cpuset, files

# v1 says "no limit" with LONG_MAX rounded down to a page; anything this large limits nothing.
_NO_MEMORY_LIMIT_BYTES = 1 << 60

# A host may have thousands of mounts.
_MOUNTINFO_LIMIT_BYTES = 4 * 1024 * 1024


class Allotment:
    """What a process may use; a fact that could not be read, or a limit that is not set, is None.

    quota_cpus           CPU time per time, of the tightest visible cgroup: 1.5 is one and a half CPUs
    quota_path           that cgroup's directory; of the process's own one where no quota is set
    period_us, burst_us  of the same cgroup; burst is spare quota that it may save up
    cpuset               CPUs that the cgroup may use, as a set
    inherited            CPUs that the process's affinity mask allows, as a set
    memory_limit_bytes   the lowest visible limit
    shares, weight       the process's own cgroup's cpu.shares (v1) or cpu.weight (v2)
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
            raise TypeError("Allotment has no " + ", ".join(sorted(facts)))

    def __repr__(self) -> str:
        known = [f"{name}={value!r}" for name, value in self._values() if value is not None]
        return "Allotment({})".format(", ".join(known))

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if isinstance(other, Allotment) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._values()))

    def _values(self) -> list[tuple[str, object]]:
        return [(name, getattr(self, name)) for name in self.__slots__]


def read_allotment(root: str = "/", pid: int | str = "self") -> Allotment:
    """What process `pid` may use, by the /proc and the cgroup mounts below `root`. Never raises."""
    root = os.fspath(root)
    process = os.path.join(root, "proc", str(pid))
    own = parse_own_cgroups(_text(os.path.join(process, "cgroup")))
    mounts = parse_mounts(_text(os.path.join(process, "mountinfo"), _MOUNTINFO_LIMIT_BYTES))
    facts: dict[str, float | str | None] = {"inherited": _inherited(os.path.join(process, "status"))}
    for controller, read in (("cpu", _cpu_facts), ("cpuset", _cpuset_facts), ("memory", _memory_facts)):
        version, directories = _directories(root, controller, own, mounts)
        if directories:
            facts.update(read(version, directories))
    return Allotment(**facts)


def usable_cpus(allotment: Allotment, online: int = 0) -> tuple[int | None, float | None]:
    """(the CPUs that the process can run on, as a set; the quota in CPUs that binds there).

    The set is cpuset and affinity, within `online` where that is given; None where nothing is known.
    Where the kernel's answers contradict each other (the cpuset changed between two reads) the
    process's own affinity counts. The quota is None where there is none, or where that many CPUs
    could not use it up.
    """
    usable = online
    for mask in (allotment.inherited, allotment.cpuset):
        if mask:
            usable = (usable & mask or usable) if usable else mask
    quota_cpus = allotment.quota_cpus
    if quota_cpus is not None and usable and quota_cpus >= cpuset.count(usable):
        quota_cpus = None
    return usable or None, quota_cpus


def parse_own_cgroups(text: str) -> dict[str, str]:
    """Controller -> the process's path in its hierarchy, from /proc/PID/cgroup; "" is the v2 hierarchy."""
    own: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                own[controller] = parts[2]
    return own


def parse_mounts(text: str) -> list[tuple[str, str, str]]:
    """(controller, root within the hierarchy, mount point) of each cgroup mount, from /proc/PID/mountinfo.

    A v1 mount appears once per controller; the v2 mount's controller is "".
    """
    mounts: list[tuple[str, str, str]] = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if not dash or len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = kind[2].split(",") if kind[0] == "cgroup" else [""]
        mounts.extend((controller, _unescape(fields[3]), _unescape(fields[4])) for controller in controllers)
    return mounts


def _unescape(text: str) -> str:
    """Undoes the octal escapes of fs/proc_namespace.c."""
    for escape, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(escape, char)
    return text


def visible_path(own: str, mount_root: str) -> list[str] | None:
    """The process's path below the mount, as names; [] where only the mount's top is known to be above it.

    Both paths are told from the reader's cgroup namespace, so either may climb with "..": a mount made
    outside has a root such as "/..", and a process moved out has a path such as "/../other".
    None: the mount shows another part of the hierarchy.
    """
    names = [name for name in own.split("/") if name]
    above = [name for name in mount_root.split("/") if name]
    if names[: len(above)] == above:
        below = names[len(above) :]
        return below if ".." not in below else None
    if all(name == ".." for name in above):
        # The mount starts above the namespace's root; the names in between can't be known.
        return []
    return None


def _directories(
    root: str, controller: str, own: dict[str, str], mounts: list[tuple[str, str, str]]
) -> tuple[int, list[str]]:
    """The cgroup version that has the controller, and the visible directories from the process's own upwards."""
    version = 1 if controller in own else 2
    hierarchy = controller if version == 1 else ""
    if hierarchy not in own:
        return version, []
    found: list[str] = []
    for name, mount_root, mount_point in mounts:
        if name != hierarchy:
            continue
        below = visible_path(own[hierarchy], mount_root)
        if below is None:
            continue
        directory = os.path.join(root, mount_point.lstrip("/"))
        chain = [directory]
        for part in below:
            directory = directory + "/" + part
            chain.append(directory)
        visible = [one for one in reversed(chain) if os.path.isdir(one)]
        if len(visible) > len(found):
            found = visible
    return version, found


def _cpu_facts(version: int, directories: list[str]) -> dict[str, float | str | None]:
    own = directories[0]
    tightest = None
    for directory in directories:
        quota = _quota(version, directory)
        if quota is not None and (tightest is None or quota[0] < tightest[0]):
            tightest = (*quota, directory)
    facts: dict[str, float | str | None] = {"quota_path": own}
    if tightest is not None:
        quota_cpus, period_us, path = tightest
        burst = _number(path + ("/cpu.cfs_burst_us" if version == 1 else "/cpu.max.burst"))
        facts.update(quota_cpus=quota_cpus, period_us=period_us, quota_path=path, burst_us=burst)
    facts["shares" if version == 1 else "weight"] = _number(own + ("/cpu.shares" if version == 1 else "/cpu.weight"))
    facts.update(parse_cpu_stat(_text("{}/cpu.stat".format(facts["quota_path"]))))
    return facts


def _quota(version: int, directory: str) -> tuple[float, int] | None:
    if version == 2:
        return parse_cpu_max(_text(directory + "/cpu.max"))
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
    for line in text.splitlines():
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
    """The nearest cgroup that has the cpuset controller: on v2 it need not be enabled all the way down."""
    names = ("cpuset.cpus.effective",) if version == 2 else ("cpuset.effective_cpus", "cpuset.cpus")
    for directory in directories:
        for name in names:
            try:
                mask = cpuset.parse_list(_text(directory + "/" + name))
            except ValueError:
                continue
            if mask:
                return {"cpuset": mask}
    return {}


def _memory_facts(version: int, directories: list[str]) -> dict[str, float | str | None]:
    name = "/memory.max" if version == 2 else "/memory.limit_in_bytes"
    limits = [_number(directory + name) for directory in directories]
    known = [limit for limit in limits if limit is not None and limit < _NO_MEMORY_LIMIT_BYTES]
    return {"memory_limit_bytes": min(known)} if known else {}


def _inherited(path: str) -> int | None:
    for line in _text(path).splitlines():
        if line.startswith("Cpus_allowed_list:"):
            try:
                return cpuset.parse_list(line.partition(":")[2]) or None
            except ValueError:
                return None
    return None


def _text(path: str, limit_bytes: int = files.LIMIT_BYTES) -> str:
    """The file's text; "" where it can't be read, which each parser takes for an absent fact."""
    try:
        return files.read_text(path, to_end=True, limit_bytes=limit_bytes)
    except (OSError, ValueError):
        return ""


def _number(path: str) -> int | None:
    text = _text(path).strip()
    return int(text) if _is_number(text) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20
