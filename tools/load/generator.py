"""The load: requests that are due at a fixed rate, timed from when they were due, not from when they were sent.

One caller sends due requests in order, so a request that finds it busy with the one before waits, and its waiting
counts (no coordinated omission). A closed loop has no due times: the next request goes when the last answer is there.
Run as a process of its own, so that nothing else in the measuring program delays it; a request is 8 bytes, so that
making it costs nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import itertools
import json
import os
import socket
import time
from dataclasses import asdict, dataclass

GRACE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What was seen: latencies in seconds in order of completion; requests that were due; those not answered in time.

    A missed request is in `latencies_s` too, with the time that it had waited: leaving it out would flatter.
    """

    latencies_s: list[float]
    due: int
    missed: int
    elapsed_s: float


def offer(path: str, *, rate: float | None, duration_s: float, grace_s: float = GRACE_S) -> Load:
    """Offer load to the server at the Unix socket `path`: `rate` requests a second, or a closed loop for None.

    A request that is unanswered `grace_s` after the end of `duration_s` is missed.
    """
    count = None if rate is None else max(1, round(rate * duration_s))
    latencies: list[float] = []
    unanswered: list[float] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.connect(path)
        gc.disable()
        start_s = time.perf_counter() + 0.05
        end_s = start_s + duration_s
        give_up_s = end_s + grace_s
        for number in itertools.count() if count is None else range(count):
            due_s = max(start_s, time.perf_counter()) if rate is None else start_s + number / rate
            if due_s >= end_s and rate is None:
                break
            _sleep_until(due_s)
            if time.perf_counter() > give_up_s or not _ask(link, number, give_up_s):
                unanswered.append(give_up_s - due_s)
            else:
                latencies.append(time.perf_counter() - due_s)
        elapsed_s = time.perf_counter() - start_s
    return Load(
        latencies_s=latencies + unanswered,
        due=len(latencies) + len(unanswered),
        missed=len(unanswered),
        elapsed_s=elapsed_s,
    )


def _sleep_until(moment_s: float) -> None:
    while (left_s := moment_s - time.perf_counter()) > 0:
        time.sleep(left_s)


def _ask(link: socket.socket, number: int, give_up_s: float) -> bool:
    """Whether the answer came in time. After a late one the link is out of step and answers no more."""
    try:
        link.settimeout(max(0.001, give_up_s - time.perf_counter()))
        link.sendall(number.to_bytes(8, "little"))
        return bool(link.recv(8))
    except OSError:
        return False


def main() -> None:
    """Print one Load as JSON, latencies rounded to the microsecond."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--duration", type=float, required=True)
    parser.add_argument("--warm-up", type=float, default=0.0)
    arguments = parser.parse_args()
    with contextlib.suppress(OSError):
        # Its own wake-ups shall not be counted as the server's latency. Needs root; without it they are.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    if arguments.warm_up:
        offer(arguments.socket, rate=None, duration_s=arguments.warm_up)
        time.sleep(0.2)  # two CFS periods: what the warm-up burned is refilled
    print("start", flush=True)
    load = offer(arguments.socket, rate=arguments.rate, duration_s=arguments.duration)
    # What this process cost belongs to nobody's figures but says how busy the machine was.
    seen = {**asdict(load), "generator_cpu_s": time.process_time()}
    print(json.dumps({**seen, "latencies_s": [round(latency_s, 6) for latency_s in load.latencies_s]}))


if __name__ == "__main__":
    main()
