"""One run: a fresh server with one variant's environment in one cell's conditions, under load for a few seconds.

The load and the counters are those of `raddle tune`: counters are read when the load begins and when it has ended, so
start-up, model loading and warm-up are not in any figure.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import socket
import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from load import models, neighbour, serving
from raddle import env
from raddle_operator.local import quota
from raddle_tuner.trials import conditions, runner_load
from raddle_tuner.trials.conditions import Interference, Reading
from raddle_tuner.trials.load import Caller, LoadError, LoadResult, LoadSpec

_START_TIMEOUT_S = 120.0  # importing numpy and ONNX Runtime within a tenth of a CPU is slow
_WARM_UP_S = 0.3
# When requests come: evenly, by chance, or so many at once into a queue that empties until the next ones come.
REGULAR, POISSON, BURSTS = ARRIVALS = ("regular", "Poisson", "bursts")
BURST = 8


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
    """The conditions. `limit_cpus` None: no quota. `requests_per_s` None: closed loop.

    `share_percent` says, where it is known, how much that rate is of what the quota can serve with one thread.
    `runtime` is one of serving.RUNTIMES. `neighbour`: another container keeps one CPU busy. So many `callers` run the
    one session at once. `arrivals` is one of ARRIVALS. So many `containers` serve at the same time, each at this rate;
    `exclusive`: each on as many CPUs as its limit that no other one has, which is then a whole number.
    """

    model: str
    limit_cpus: float | None
    requests_per_s: float | None
    share_percent: int | None = None
    duration_s: float = 3.0
    runtime: str = "onnxruntime"
    neighbour: bool = False
    callers: int = 1
    arrivals: str = REGULAR
    containers: int = 1
    exclusive: bool = False

    @property
    def title(self) -> str:
        """For people: model, limit, rate, callers, and what else is unusual."""
        limit = "no limit" if self.limit_cpus is None else f"limit {self.limit_cpus:g}"
        rate = "closed loop" if self.requests_per_s is None else f"{self.requests_per_s:.4g}/s"
        rate += "" if self.share_percent is None else f" ({self.share_percent} %)"
        parts = [
            f"{self.containers} × " * (self.containers > 1) + f"{self.runtime}, " * (self.runtime != "onnxruntime"),
            f"{self.model}, {limit}, {rate}, {self.callers} caller" + "s" * (self.callers > 1),
            f", {self.arrivals}" * (self.arrivals != REGULAR) + ", exclusive CPUs" * self.exclusive,
            ", a busy neighbour" * self.neighbour,
        ]
        return "".join(parts)


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
    """Start the servers, offer the load to all of them at once, stop them.

    Raises quota.UnavailableError or ServerError.
    """
    with contextlib.ExitStack() as stack:
        beside = stack.enter_context(neighbour.busy()) if cell.neighbour else None
        servers = [_started(cell, variant, number, stack) for number in range(cell.containers)]
        results, meanwhile, neighbour_s = _under_load(cell, servers, beside)
        errors = sum(one.stderr().count("pthread_setaffinity_np failed") for one in servers)
    used, limited, ready = meanwhile.usage, cell.limit_cpus is not None, [one.ready for one in servers]
    return Run(
        latencies_ms=tuple(sorted(itertools.chain.from_iterable(one.latencies_ms for one in results))),
        missed=sum(one.missed for one in results),
        cpu_s=used.cpu_s,
        cpu_percent=100 * used.cpu_s / meanwhile.seconds / (cell.limit_cpus or 1.0) / cell.containers,
        periods=used.periods if limited else None,
        throttled_periods=used.throttled_periods if limited else None,
        throttled_s=used.throttled_s if limited else None,
        steal_percent=meanwhile.steal_percent,
        others_percent=meanwhile.others_percent,
        neighbour_cpu_s=neighbour_s,
        pool_threads=max(one["pool_threads"] for one in ready),
        affinity_errors=errors,
        raddle=all(one["raddle"] for one in ready),
        version=ready[0]["version"],
    )


@dataclass(frozen=True, slots=True)
class _Server:
    """A server that is ready: its process and group, its folder, and what it says of itself."""

    process: subprocess.Popen[str]
    group: quota.Group | None
    folder: Path
    ready: dict[str, Any]

    def stderr(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace")

    def usage(self) -> quota.Usage:
        if self.group is not None:
            return self.group.usage()
        times = psutil.Process(self.process.pid).cpu_times()
        return quota.Usage(cpu_s=times.user + times.system)


def _started(cell: Cell, variant: Variant, number: int, stack: contextlib.ExitStack) -> _Server:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raddle-load-")))
    argv = serving.command(cell.runtime, models.ALL[cell.model], folder / "socket", variant.threads, variant.spin)
    if cell.exclusive:
        width = int(cell.limit_cpus or 1)
        own = sorted(os.sched_getaffinity(0))[number * width : (number + 1) * width]
        argv = ["taskset", "--cpu-list", ",".join(map(str, own)), *argv]
    group = _group(cell, stack)
    if group is not None:
        argv = group.command(argv)
    return stack.enter_context(_serving(argv, variant, group, folder))


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
    while len(runs) < attempts and not (runs and runs[-1].disturbed_percent <= conditions.QUIET_PERCENT):
        runs.append(run(cell, variant))
    return replace(min(runs, key=lambda one: one.disturbed_percent), attempts=len(runs))


def service_time_s(model: str, runtime: str) -> float:
    """What one request costs here with one thread and no limit: the median of three closed loops of a second.

    Three, since processes of one program differ by a fifth, and the rates of all cells are made of this.
    """
    alone = Variant(name="one thread", env={env.OMP: "1", env.OPENBLAS: "1"}, threads=1)
    cell = Cell(model=model, runtime=runtime, limit_cpus=None, requests_per_s=None, duration_s=1.0)
    return statistics.median(quiet_run(cell, alone, attempts=5).p50_ms for _ in range(3)) / 1000


@contextlib.contextmanager
def _serving(argv: Sequence[str], variant: Variant, group: quota.Group | None, folder: Path) -> Iterator[_Server]:
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
            yield _Server(process, group, folder, _ready(process, folder))
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


def _under_load(
    cell: Cell, servers: Sequence[_Server], beside: quota.Group | None
) -> tuple[list[LoadResult], Interference, float]:
    """What each server's callers saw, what the machine did meanwhile, and the neighbour's CPU seconds.

    Raises ServerError.
    """
    offers = [
        LoadSpec(
            rate=cell.requests_per_s,
            seconds=cell.duration_s,
            warm_up_s=_WARM_UP_S,
            # Requests of one container come by another chance than those of the next.
            seed=number if cell.arrivals == POISSON else None,
            burst=BURST if cell.arrivals == BURSTS else 1,
        )
        for number in range(len(servers))
    ]
    with contextlib.ExitStack() as stack:
        try:
            callers = [_caller(one, cell.callers, stack) for one in servers]
            # All warm up at the same time, so that all loads begin within milliseconds.
            together = stack.enter_context(ThreadPoolExecutor(len(callers)))
            at_end = list(together.map(lambda one, offer: stack.enter_context(one.offered(offer)), callers, offers))
            before, beside_before = _counted(servers, beside)
            results = [seen() for seen in at_end]
            after, beside_after = _counted(servers, beside)
        except (LoadError, OSError) as error:
            raise ServerError(f"{error}: {''.join(one.stderr() for one in servers)[-2000:]}") from None
    neighbour_s = beside_after.since(beside_before).cpu_s
    known_s = neighbour_s + sum(one.cpu_s for one in results)
    return results, conditions.between(before, after, known_s), neighbour_s


def _caller(server: _Server, connections: int, stack: contextlib.ExitStack) -> Caller:
    """The process that asks this server, over so many connections."""
    links = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in range(connections)]
    for link in links:
        link.connect(str(server.folder / "socket"))
    numbers = [link.fileno() for link in links]
    caller = Caller(runner_load.__name__, list(map(str, numbers)), links=numbers)
    stack.callback(caller.close)
    return caller


def _counted(servers: Sequence[_Server], beside: quota.Group | None) -> tuple[Reading, quota.Usage]:
    """The machine with what the servers have used until now, and what the neighbour has."""
    used = [one.usage() for one in servers]
    total = quota.Usage(
        cpu_s=sum(one.cpu_s for one in used),
        periods=sum(one.periods for one in used),
        throttled_periods=sum(one.throttled_periods for one in used),
        throttled_s=sum(one.throttled_s for one in used),
    )
    return conditions.read(total), quota.Usage() if beside is None else beside.usage()


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Nearest rank: the smallest value that at least `percent` % of the ascending values do not exceed."""
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]
