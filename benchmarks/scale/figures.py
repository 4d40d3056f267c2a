"""What is measured, as values: starts, changes, processes at rest; and how a process is measured."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from cluster.local_raddle import Process
from scale.calls import Call

LEADER: Final = "raddle_controller_leader"
READY_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of a process, until /readyz answers 200. `cpu_s` is its CPU time till then."""

    ready_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of the cluster, until every status is right. `cpu_s` is the controller's."""

    right_s: float
    cpu_s: float
    writes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """A process while nothing happens: memory in MB, CPU in percent of a core, bytes where they can be counted."""

    settled_mb: float
    cpu_percent: float
    received_bytes: int | None


@dataclass(slots=True, kw_only=True)
class Results:
    """Everything that was measured, in the order of the report."""

    without_values: int = 0
    fill_s: dict[str, float] = field(default_factory=dict)
    webhook_starts: list[Start] = field(default_factory=list)
    first_start: Start | None = None
    first_right_s: float = 0.0
    starts: list[Start] = field(default_factory=list)
    changes: dict[str, list[Change]] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)
    idle: dict[str, Idle] = field(default_factory=dict)
    idle_s: float = 0.0
    calls: Counter[Call] = field(default_factory=Counter)
    load: list[float] = field(default_factory=list)
    total_s: float = 0.0


async def started(process: Process, *, leads: bool = False) -> Start:
    """Start a process and wait until it is ready. Raises DevclusterError with its log when it is not in time.

    `leads`: a controller that is ready to take over is ready too; what is meant here is one at work.
    """
    start_s = time.monotonic()
    process.start()

    def is_at_work() -> bool:
        return process.is_ready() and (not leads or (process.metric(LEADER) == 1 and process.is_ready()))

    await asyncio.to_thread(process.wait, is_at_work, "the process is ready", READY_S)
    return Start(ready_s=time.monotonic() - start_s, cpu_s=cpu_s(process))


def cpu_s(process: Process) -> float:
    """CPU time of a process so far, all threads."""
    times = psutil.Process(process.pid).cpu_times()
    return times.user + times.system


def peak_mb(process: Process) -> float:
    """The most resident memory that a process has had since its start."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024 / 1e6


def settled_mb(process: Process) -> float:
    """The resident memory of a process now."""
    return psutil.Process(process.pid).memory_info().rss / 1e6


def load() -> float:
    """How many tasks of the whole machine want a CPU: the load average of the last minute."""
    return os.getloadavg()[0]


class Watch:
    """A stopwatch for a process' CPU time."""

    def __init__(self, process: Process, writes: Callable[[], int]) -> None:
        self._process = process
        self._writes = writes
        self._cpu_s = cpu_s(process)
        self._before = writes()
        self.start_s = time.monotonic()

    def change(self, right_s: float) -> Change:
        """What has been spent since the start."""
        spent_s = cpu_s(self._process) - self._cpu_s
        return Change(right_s=right_s, cpu_s=spent_s, writes=self._writes() - self._before)
