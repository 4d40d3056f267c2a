"""An application in a container: one session of default options, and a line of JSON on what the kernel says of it.

    app.py MODEL

{"threads": 1 + workers, "caller": CPUs, "workers": [CPUs, ...], "spinning": workers, "quota_cpus": number or null,
"load": {"requests", "cpu_ms" (a request's), "throttled_percent" (of the periods, null without a quota)}}, CPUs as
kernel lists. Then it answers a request now and then until it is stopped.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

IDLE_SECONDS = 0.5
SETTLE_SECONDS = 20
RUNS = 5
PAUSE_SECONDS = 2.0
# Few requests, as most services have: what is burnt between them is waste.
LOAD_RATE_PER_S = 50
LOAD_SECONDS = 3.0
CGROUPS = Path("/sys/fs/cgroup")


def main() -> None:
    """Look, say, and stay."""
    stop = threading.Event()
    # The first process of a container is not ended by a signal that it has no handler for.
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    import numpy as np
    import onnxruntime as ort

    tasks = threads()
    session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    pool = threads() - tasks
    given = session.get_inputs()[0]
    value = np.zeros(given.shape, np.float32)
    for _ in range(RUNS):
        session.run(None, {given.name: value})
    settle(pool)
    spinning = still_running(pool)
    # ONNX Runtime starts threads of other kinds too, which end soon.
    pool &= threads()
    found = {
        "threads": 1 + len(pool),
        "caller": allowed("self"),
        "workers": [allowed(f"self/task/{task}") for task in sorted(pool)],
        "spinning": spinning,
        "quota_cpus": quota_cpus(),
        "load": load(lambda: session.run(None, {given.name: value})),
    }
    print(json.dumps(found), flush=True)
    while not stop.wait(PAUSE_SECONDS):
        session.run(None, {given.name: value})


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


def load(answer: Callable[[], object]) -> dict[str, Any]:
    """What requests at an even rate cost, by this process's CPU time and its control group's throttling."""
    requests, before, start = 0, periods(), time.monotonic()
    cpu_s = time.process_time()
    while time.monotonic() - start < LOAD_SECONDS:
        answer()
        requests += 1
        time.sleep(max(0.0, start + requests / LOAD_RATE_PER_S - time.monotonic()))
    cpu_s = time.process_time() - cpu_s
    elapsed, throttled = (after - earlier for after, earlier in zip(periods(), before, strict=True))
    return {
        "requests": requests,
        "cpu_ms": 1000 * cpu_s / requests,
        "throttled_percent": 100 * throttled / elapsed if elapsed else None,
    }


def quota_cpus() -> float | None:
    """The container's quota by the kernel, in either version of cgroups; None: none."""
    unified = CGROUPS / "cpu.max"
    if unified.exists():
        quota, period = unified.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    quota_us, period_us = (int((CGROUPS / "cpu" / f"cpu.cfs_{part}_us").read_text()) for part in ("quota", "period"))
    return None if quota_us < 0 else quota_us / period_us


def periods() -> tuple[int, int]:
    """How many of the quota's periods there were, and in how many the container was stopped; 0 for ever without one."""
    stat = CGROUPS / "cpu.stat"
    if not (CGROUPS / "cpu.max").exists():
        stat = CGROUPS / "cpu" / "cpu.stat"
    counts = dict(line.split() for line in stat.read_text().splitlines())
    return int(counts.get("nr_periods", 0)), int(counts.get("nr_throttled", 0))


if __name__ == "__main__":
    main()
