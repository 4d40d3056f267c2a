"""What the process and its cgroup have used so far: totals since each began, so that two readings make a rate.

The cgroup is the one that bounds the container's CPUs (`cgroup.ResourceLimits.quota_path`). Files: cgroup-v2.rst
(cpu.stat, cpu.pressure), cgroup-v1/cpuacct.rst, accounting/psi.rst.
"""

from __future__ import annotations

import time

from raddle import files

# cpu.stat's line -> the name here, and what it is divided by.
_CPU_STAT = {
    "usage_usec": ("cpuUs", 1),
    "nr_periods": ("periods", 1),
    "nr_throttled": ("throttledPeriods", 1),
    "throttled_usec": ("throttledUs", 1),
    "throttled_time": ("throttledUs", 1000),
}


# Read again after this long: it costs more than what else a session records. (The clock of a process adds up its
# threads' times, which takes 70 us while those of a pool come and go.)
AGE_S = 1.0

# (cgroup, when it was read, what it said)
_last: tuple[str | None, float, dict[str, int]] = ("", 0.0, {})


def read(cgroup_path: str | None, *, recent: bool = True) -> dict[str, int]:
    """The totals now, with `recent` up to AGE_S old; what can't be read is absent.

    processCpuUs                             CPU time of this process
    cpuUs                                    CPU time of the cgroup
    periods, throttledPeriods, throttledUs   its quota periods, those in which it was stopped, and for how long
    pressureUs                               time in which a task of it waited for a CPU (version 2 only)
    tasks                                    threads of this process

    Never raises.
    """
    global _last  # noqa: PLW0603  # a cache of one
    path, read_at, known = _last
    now = time.monotonic()
    if not recent or path != cgroup_path or now - read_at > AGE_S:
        known = _read(cgroup_path)
        _last = (cgroup_path, now, known)
    return known


def _read(cgroup_path: str | None) -> dict[str, int]:
    found = {"processCpuUs": time.process_time_ns() // 1000}
    count = files.tasks()
    if count is not None:
        found["tasks"] = count
    if cgroup_path is not None:
        found.update(_of_cgroup(cgroup_path))
    return found


def _of_cgroup(path: str) -> dict[str, int]:
    found = {}
    for line in files.text_or_nothing(path + "/cpu.stat").splitlines():
        key, _, value = line.partition(" ")
        if key in _CPU_STAT and value.isdigit():
            name, divisor = _CPU_STAT[key]
            found[name] = int(value) // divisor
    if "cpuUs" not in found:
        used_ns = files.text_or_nothing(path + "/cpuacct.usage").strip()
        if used_ns.isdigit():
            found["cpuUs"] = int(used_ns) // 1000
    some = files.text_or_nothing(path + "/cpu.pressure").partition("\n")[0].rpartition("total=")
    if some[0].startswith("some ") and some[2].isdigit():
        found["pressureUs"] = int(some[2])
    return found
