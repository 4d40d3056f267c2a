"""An application in a container: one session of default options, and a line of JSON on what the kernel says of it.

    app.py MODEL

{"cpus": CPUs at the start, "threads": 1 + workers, "caller": CPUs, "workers": [CPUs, ...], "spinning": workers,
"quota_cpus": number or null, "load": {"cpu_ms" (a request's), "throttled_percent" (of the periods in which there was
work, null without a quota)}}, CPUs as kernel lists. Then it answers a request now and then until it is stopped.
E2E_LOAD=0 leaves the load away: {}.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from vm.guest.session import CGROUPS, allowed, quota_cpus, session

RUNS = 5
PAUSE_SECONDS = 2.0
# Less than half of what the smallest container can do: what is burnt between requests is waste.
LOAD_RATE_PER_S = 200
LOAD_SECONDS = 3.0
# Where it can't keep up.
LATEST = 2 * LOAD_SECONDS


def main() -> None:
    """Look, say, and stay."""
    stop = threading.Event()
    # The first process of a container is not ended by a signal that it has no handler for.
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    cpus = allowed("self")
    answer, observed = session(sys.argv[1], RUNS)
    result = {
        "cpus": cpus,
        **observed,
        "quota_cpus": quota_cpus(),
        "load": load(answer) if os.environ.get("E2E_LOAD") != "0" else {},
    }
    print(json.dumps(result), flush=True)
    while not stop.wait(PAUSE_SECONDS):
        answer()


def load(answer: Callable[[], object]) -> dict[str, Any]:
    """What requests at an even rate cost, by this process's CPU time and its control group's throttling.

    One that comes late makes the next ones wait, as callers do who don't know of each other.
    """
    requests = 0
    before, start, cpu_s = periods(), time.monotonic(), time.process_time()
    while (due := start + requests / LOAD_RATE_PER_S) < start + LOAD_SECONDS and time.monotonic() < start + LATEST:
        time.sleep(max(0.0, due - time.monotonic()))
        answer()
        requests += 1
    cpu_s = time.process_time() - cpu_s
    elapsed, throttled = (after - earlier for after, earlier in zip(periods(), before, strict=True))
    return {"cpu_ms": 1000 * cpu_s / requests, "throttled_percent": 100 * throttled / elapsed if elapsed else None}


def periods() -> tuple[int, int]:
    """How many of the quota's periods there were, and in how many the container was stopped; 0 for ever without one."""
    stat = CGROUPS / "cpu.stat"
    if not (CGROUPS / "cpu.max").exists():
        stat = CGROUPS / "cpu" / "cpu.stat"
    counts = dict(line.split() for line in stat.read_text().splitlines())
    return int(counts.get("nr_periods", 0)), int(counts.get("nr_throttled", 0))


if __name__ == "__main__":
    main()
