"""Counts that code copies from the machine, as os.cpu_count() has them: more threads than the container may use.

A count in the code is the code's choice. One that is above the container's CPUs, and is what this machine counts, was
chosen for another machine, or none: threads beyond the limit only wait for it. Imported only for a count in the code.
"""

from __future__ import annotations

import os

from raddle import CPUS, errors, files
from raddle.cpus import cpuset
from raddle.process.resolution import Effective

_counts: frozenset[int] = frozenset()


def is_copied(count: object, wanted: Effective) -> bool:
    """Whether the code's count is above what the process may use, and is one that code reads off this machine."""
    global _counts  # noqa: PLW0603  # CPUs come online seldom
    if not isinstance(count, int) or wanted.cpu_capacity is None or count <= wanted.cpu_capacity:
        return False
    if not _counts:
        _counts = of_machine(os.sysconf("SC_NPROCESSORS_ONLN"), len(CPUS), _threads_per_core())
    return count in _counts


def of_machine(online: int, allowed: int, threads_per_core: int) -> frozenset[int]:
    """All CPUs, those that the process may run on, and the cores of either; one less; half of the CPUs. Pure."""
    wholes = {cpus // per for cpus in (online, allowed) for per in (1, threads_per_core)}
    return frozenset(wholes | {whole - 1 for whole in wholes} | {online // 2, allowed // 2})


def copied(count: int) -> str:
    """Why the plan's count is taken."""
    return f"{count} in the code is this machine's count"


def _threads_per_core() -> int:
    path = f"/sys/devices/system/cpu/cpu{min(CPUS, default=0)}/topology/thread_siblings_list"
    try:
        return max(1, cpuset.count(cpuset.parse_list(files.text_or_nothing(path))))
    except ValueError as error:
        errors.let_through(error)
        return 1
