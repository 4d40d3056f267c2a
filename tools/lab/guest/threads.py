"""This process's threads by /proc: which there are, where they may run, and which burn CPU time.

Applications in containers read themselves with it, on any Python 3.11 or later.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

IDLE_SECONDS = 0.5
SETTLE_SECONDS = 20


def threads() -> set[int]:
    """The ids of this process's threads."""
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


def allowed(process: str) -> str:
    """Where a thread may run, below /proc."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list"))


def settle(pool: Iterable[int]) -> None:
    """Wait until every worker has run: it ties itself to its CPUs before it looks for work, not before birth."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while any(switches(task) == 0 for task in pool) and time.monotonic() < deadline:
        time.sleep(0.01)


def switches(task: int) -> int:
    """How often a thread has left a CPU."""
    try:
        lines = Path(f"/proc/self/task/{task}/status").read_text().splitlines()
    except OSError:
        # It has ended.
        return 1
    return sum(int(line.split()[1]) for line in lines if "voluntary_ctxt_switches" in line)


def still_running(pool: Iterable[int]) -> int:
    """How many workers burn CPU time after the answer."""

    def ticks(task: int) -> int:
        try:
            fields = Path(f"/proc/self/task/{task}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            # It has ended.
            return 0
        return int(fields[11]) + int(fields[12])

    before = {task: ticks(task) for task in pool}
    time.sleep(IDLE_SECONDS)
    return sum(ticks(task) > before[task] for task in pool)
