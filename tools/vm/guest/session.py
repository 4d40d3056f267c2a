"""What the kernel says of a session of ONNX Runtime and of its container, seen from inside the process.

Applications in containers read themselves with it, on any Python 3.11 or later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

IDLE_SECONDS = 0.5
SETTLE_SECONDS = 20
CGROUPS = Path("/sys/fs/cgroup")


def session(model: str, runs: int) -> tuple[Callable[[], object], dict[str, Any]]:
    """A session of default options that has answered a few times: what answers once more, and what its threads are.

    {"threads": 1 + workers, "caller": CPUs, "workers": [CPUs, ...], "spinning": workers}, CPUs as kernel lists.
    """
    import numpy as np
    import onnxruntime as ort

    before = threads()
    made = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    pool = threads() - before
    given = made.get_inputs()[0]
    value = np.zeros(given.shape, np.float32)

    def answer() -> object:
        return made.run(None, {given.name: value})

    for _ in range(runs):
        answer()
    settle(pool)
    spinning = still_running(pool)
    # ONNX Runtime starts threads of other kinds too, which end soon.
    pool &= threads()
    return answer, {
        "threads": 1 + len(pool),
        "caller": allowed("self"),
        "workers": [allowed(f"self/task/{task}") for task in sorted(pool)],
        "spinning": spinning,
    }


def quota_cpus() -> float | None:
    """The container's quota by the kernel, in either version of cgroups; None: none."""
    unified = CGROUPS / "cpu.max"
    if unified.exists():
        quota, period = unified.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    quota_us, period_us = (int((CGROUPS / "cpu" / f"cpu.cfs_{part}_us").read_text()) for part in ("quota", "period"))
    return None if quota_us < 0 else quota_us / period_us


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
