"""One run: a fresh server with one variant's environment in one cell's conditions, under load for a few seconds.

The counters (cgroup, /proc/stat) are read when the generator says that it starts and when it has ended, so start-up,
model loading and warm-up are not in any figure.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from load import generator, models, neighbour, serving
from raddle import env
from raddle_operator.local import quota

_START_TIMEOUT_S = 120.0  # importing numpy and ONNX Runtime within a tenth of a CPU is slow
_WARM_UP_S = 0.3
QUIET_PERCENT = 10.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class ServerError(Exception):
    """The measured process did not come up or broke off; the message has the end of its stderr."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What differs between two servers. `env` is the whole environment of the process, nothing is inherited.

    `threads` and `spin` (never, always, or microseconds) are what a user of ONNX Runtime sets in the code; None: none.
    """

    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    threads: int | None = None
    spin: str | None = None

    def alike(self, other: Variant) -> bool:
        """Whether the two differ in name only."""
        return replace(self, name=other.name) == other


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The conditions. `limit_cpus` None: no quota. `rate` in requests/s, None: closed loop.

    `share_percent` says, where it is known, how much that rate is of what the quota can serve with one thread.
    `runtime` is one of serving.RUNTIMES. `neighbour`: another container keeps one CPU busy.
    """

    model: str
    limit_cpus: float | None
    rate: float | None
    share_percent: int | None = None
    duration_s: float = 3.0
    runtime: str = "onnxruntime"
    neighbour: bool = False

    @property
    def title(self) -> str:
        """For people: model, limit, rate, one caller, and the neighbour if there is one."""
        limit = "no limit" if self.limit_cpus is None else f"limit {self.limit_cpus:g}"
        rate = "closed loop" if self.rate is None else f"{self.rate:.4g}/s"
        rate += "" if self.share_percent is None else f" ({self.share_percent} %)"
        beside = ", a busy neighbour" if self.neighbour else ""
        runtime = "" if self.runtime == "onnxruntime" else f"{self.runtime}, "
        return f"{runtime}{self.model}, {limit}, {rate}, 1 caller{beside}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run showed. Latencies in milliseconds, ascending; shares in percent; None where it can't be known here.

    `cpu_percent` is CPU time of the quota (of one CPU without a quota). `throttled_periods` is out of `periods`.
    `steal_percent` and `others_percent` are of the whole machine: time taken by the hypervisor, and by processes that
    are neither the server, the generator nor the neighbour. `pool_threads` is the intra-op pool, the caller included.
    `attempts` is how many runs were made to get a quiet one.
    """

    latencies_ms: tuple[float, ...]
    missed: int
    cpu_s: float
    cpu_percent: float
    periods: int | None
    throttled_periods: int | None
    throttled_s: float | None
    steal_percent: float
    others_percent: float
    neighbour_cpu_s: float
    pool_threads: int
    affinity_errors: int
    raddle: bool
    version: str
    attempts: int = 1

    @property
    def p50_ms(self) -> float:
        """The median latency."""
        return percentile(self.latencies_ms, 50)

    @property
    def p99_ms(self) -> float:
        """The 99th percentile; with less than 100 requests the highest."""
        return percentile(self.latencies_ms, 99)

    @property
    def served(self) -> int:
        """Requests that were answered."""
        return len(self.latencies_ms) - self.missed

    @property
    def cpu_ms_per_request(self) -> float:
        """CPU time of the server for each request that was answered."""
        return 1000 * self.cpu_s / max(1, self.served)

    @property
    def throttled_percent(self) -> float | None:
        """Share of CFS periods in which the server was throttled."""
        if self.periods is None or self.throttled_periods is None:
            return None
        return 100.0 * self.throttled_periods / max(1, self.periods)

    @property
    def disturbed_percent(self) -> float:
        """Share of the machine that went to others while this ran."""
        return self.steal_percent + self.others_percent


def run(cell: Cell, variant: Variant) -> Run:
    """Start the server, offer the load, stop the server.

    Raises quota.UnavailableError or ServerError.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raddle-load-")))
        group = _group(cell, stack)
        beside = stack.enter_context(neighbour.busy()) if cell.neighbour else None
        process, ready = stack.enter_context(_serving(cell, variant, group, folder))
        load, busy = _under_load(cell, process, group, beside, folder)
        errors = (folder / "stderr").read_text(errors="replace").count("pthread_setaffinity_np failed")
    return _figures(cell, load, busy, {**ready, "affinity_errors": errors, "limited": cell.limit_cpus is not None})


def _group(cell: Cell, stack: contextlib.ExitStack) -> quota.Group | None:
    """A group with the cell's quota; without one a group is only better (its weight), so it may be missing.

    Beside a neighbour it has the weight of a pod that requests what its limit is, else the most that there is.
    """
    try:
        requested = cell.limit_cpus if cell.neighbour else None
        return stack.enter_context(quota.limited(cell.limit_cpus, requested_cpus=requested))
    except quota.UnavailableError:
        if cell.limit_cpus is not None:
            raise
        return None


def quiet_run(cell: Cell, variant: Variant, attempts: int) -> Run:
    """The first run in which the rest of the machine was quiet, or the quietest of so many attempts.

    What is looked at is only what other processes and the hypervisor did, never how the server fared.
    """
    runs: list[Run] = []
    while len(runs) < attempts and not (runs and runs[-1].disturbed_percent <= QUIET_PERCENT):
        runs.append(run(cell, variant))
    return replace(min(runs, key=lambda one: one.disturbed_percent), attempts=len(runs))


def service_time_s(model: str, runtime: str) -> float:
    """What one request costs here with one thread and no limit: the median of three closed loops of a second.

    Three, since processes of one program differ by a fifth, and the rates of all cells are made of this.
    """
    alone = Variant(name="one thread", env={env.OMP: "1", env.OPENBLAS: "1"}, threads=1)
    cell = Cell(model=model, runtime=runtime, limit_cpus=None, rate=None, duration_s=1.0)
    return statistics.median(quiet_run(cell, alone, attempts=5).p50_ms for _ in range(3)) / 1000


@contextlib.contextmanager
def _serving(
    cell: Cell, variant: Variant, group: quota.Group | None, folder: Path
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    argv = serving.command(cell.runtime, models.ALL[cell.model], folder / "socket", variant.threads, variant.spin)
    if group is not None:
        argv = group.command(argv)
    with (folder / "stderr").open("w") as stderr:
        process = subprocess.Popen(
            argv,
            env=dict(variant.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,  # Ctrl-C is for the measuring program, which ends this one in order
        )
    with process:
        try:
            yield process, _ready(process, folder)
        finally:
            process.kill()


def _ready(process: subprocess.Popen[str], folder: Path) -> dict[str, Any]:
    """What the server says of itself once it serves; lines that a library prints before that are passed over."""
    assert process.stdout is not None
    late = threading.Timer(_START_TIMEOUT_S, process.kill)
    late.start()
    try:
        for line in process.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
    finally:
        late.cancel()
    process.wait()
    raise ServerError("the server did not start: " + (folder / "stderr").read_text(errors="replace")[-2000:])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Busy:
    """Machine-wide and server-only CPU seconds at one moment, or between two."""

    at_s: float
    total_s: float
    busy_s: float
    steal_s: float
    server: quota.Usage
    neighbour: quota.Usage


def _under_load(
    cell: Cell, process: subprocess.Popen[str], group: quota.Group | None, beside: quota.Group | None, folder: Path
) -> tuple[dict[str, Any], _Busy]:
    """The generator's Load document, and what the server and the machine did meanwhile."""
    argv = [sys.executable, generator.__file__, "--socket", str(folder / "socket")]
    argv += ["--duration", str(cell.duration_s), "--warm-up", str(_WARM_UP_S)]
    argv += [] if cell.rate is None else ["--rate", str(cell.rate)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as calling:
        try:
            assert calling.stdout is not None
            calling.stdout.readline()
            before = _busy(process.pid, group, beside)
            lines = calling.stdout.readlines()
            after = _busy(process.pid, group, beside)
        finally:
            calling.kill()
    if not lines:
        raise ServerError("the load generator broke off: " + (folder / "stderr").read_text(errors="replace")[-2000:])
    meanwhile = _Busy(
        at_s=after.at_s - before.at_s,
        total_s=after.total_s - before.total_s,
        busy_s=after.busy_s - before.busy_s,
        steal_s=after.steal_s - before.steal_s,
        server=after.server.since(before.server),
        neighbour=after.neighbour.since(before.neighbour),
    )
    return dict(json.loads(lines[-1])), meanwhile


def _busy(pid: int, group: quota.Group | None, beside: quota.Group | None) -> _Busy:
    # proc(5), /proc/stat: user nice system idle iowait irq softirq steal; guest time is within user.
    spent = [int(word) / _TICKS_PER_S for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle_s, steal_s = spent[3] + spent[4], spent[7]
    if group is not None:
        usage = group.usage()
    else:
        # /proc/PID/stat: utime and stime are fields 14 and 15; the command in field 2 may hold spaces.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        usage = quota.Usage(cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S)
    return _Busy(
        at_s=time.perf_counter(),
        total_s=sum(spent),
        busy_s=sum(spent) - idle_s - steal_s,
        steal_s=steal_s,
        server=usage,
        neighbour=quota.Usage() if beside is None else beside.usage(),
    )


def _figures(cell: Cell, load: dict[str, Any], busy: _Busy, ready: dict[str, Any]) -> Run:
    used = busy.server
    others_s = busy.busy_s - used.cpu_s - busy.neighbour.cpu_s - load["generator_cpu_s"]
    total_s = max(busy.total_s, 1 / _TICKS_PER_S)
    return Run(
        latencies_ms=tuple(sorted(round(1000 * latency_s, 3) for latency_s in load["latencies_s"])),
        missed=load["missed"],
        cpu_s=used.cpu_s,
        cpu_percent=100 * used.cpu_s / busy.at_s / (cell.limit_cpus or 1.0),
        periods=used.periods if ready["limited"] else None,
        throttled_periods=used.throttled_periods if ready["limited"] else None,
        throttled_s=used.throttled_s if ready["limited"] else None,
        steal_percent=100 * busy.steal_s / total_s,
        others_percent=max(0.0, 100 * others_s / total_s),
        neighbour_cpu_s=busy.neighbour.cpu_s,
        pool_threads=ready["pool_threads"],
        affinity_errors=ready["affinity_errors"],
        raddle=ready["raddle"],
        version=ready["version"],
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Nearest rank: the smallest value that at least `percent` % of the ascending values do not exceed."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]
