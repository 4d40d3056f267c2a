"""Surfaces of machines and models that we don't have, from a model of a pool: `python -m tuning simulate` writes them.

A run has a serial part (Amdahl) and operators, after each of which the pool meets: cheaper where threads spin, dearer
the more there are and across NUMA nodes. Threads beyond the cores share them by SMT. Spinning takes CPU time, and CPU
time beyond a limit is throttled for the rest of a CFS period.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from report import folded_json
from tuning.surface import FOLDER, QUANTILES

_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
# As the surface names them -> microseconds.
_SPINS = {"never": 0.0, "50": 50.0, "200": 200.0, "1000": 1000.0, "always": math.inf}
_PERIOD_MS = 100.0
_DRAWN = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Physical cores and what they share; `exclusive_cpus` are the container's own."""

    cores: int
    threads_per_core: int = 1
    numa_nodes: int = 1
    l3_domains: int = 1
    exclusive_cpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One run on one thread takes `run_ms`; `serial` is the part that stays one thread's; `operators` meet after each.

    `gap_us` is how long a worker waits for its next operator; `jitter` the standard deviation of a run.
    """

    run_ms: float
    serial: float
    operators: int
    gap_us: float = 60.0
    jitter: float = 0.04
    rare: float = 0.01
    rare_ms: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One surface: where, what and under which load. `factors`: path -> value -> (times, CPU)."""

    about: str
    machine: Machine
    model: Model
    limit_cpus: float | None = None
    objective: str = "Latency"
    rate: float | None = None
    p99_ms: float | None = None
    can: tuple[str, ...] = ("instances", "ioBinding")
    allocators: tuple[str, ...] = ("Mimalloc",)
    factors: dict[str, dict[Any, tuple[float, float]]] = field(default_factory=dict)


_USUAL: dict[str, dict[Any, tuple[float, float]]] = {
    "onnxruntime.graphOptimizationLevel": {"Basic": (1.12, 1.12), "Extended": (1.03, 1.03), "All": (1.0, 1.0)},
    "onnxruntime.cpuMemArena": {False: (1.08, 1.1)},
    "onnxruntime.memPattern": {False: (1.02, 1.02)},
    "allocator": {"Mimalloc": (0.99, 0.99)},
    "program.ioBinding": {True: (0.995, 0.99)},
}
SITES = {
    "small-5ms-limit2": Site(
        about="a 5 ms model, limit 2 on 4 cores, 50/s",
        machine=Machine(cores=4, threads_per_core=2),
        model=Model(run_ms=5.0, serial=0.12, operators=60),
        limit_cpus=2.0,
        rate=50.0,
        factors=_USUAL,
    ),
    "small-copies-limit4": Site(
        about="a 4 ms model of large inputs, limit 4 on 16 cores, 100/s; IO binding pays",
        machine=Machine(cores=16, threads_per_core=2),
        model=Model(run_ms=4.0, serial=0.3, operators=40),
        limit_cpus=4.0,
        rate=100.0,
        factors=_USUAL | {"program.ioBinding": {True: (0.86, 0.85)}, "allocator": {"Mimalloc": (0.96, 0.96)}},
    ),
    "tiny-operators-limit8": Site(
        about="a 12 ms model of 900 small operators, limit 8 on 32 cores, 30/s",
        machine=Machine(cores=32, threads_per_core=2, l3_domains=4),
        model=Model(run_ms=12.0, serial=0.2, operators=900, gap_us=20.0),
        limit_cpus=8.0,
        rate=30.0,
        factors=_USUAL,
    ),
    "large-limit16": Site(
        about="a 180 ms model, limit 16 on 64 cores, 8/s",
        machine=Machine(cores=64, threads_per_core=2, numa_nodes=2, l3_domains=8),
        model=Model(run_ms=180.0, serial=0.03, operators=250),
        limit_cpus=16.0,
        rate=8.0,
        factors=_USUAL,
    ),
    "large-64-cores": Site(
        about="a 300 ms model without a limit on 64 cores, two NUMA nodes, 10/s",
        machine=Machine(cores=64, threads_per_core=2, numa_nodes=2, l3_domains=8),
        model=Model(run_ms=300.0, serial=0.02, operators=300, gap_us=120.0),
        rate=10.0,
        can=("ioBinding",),
        factors=_USUAL,
    ),
    "medium-128-cores": Site(
        about="a 60 ms model without a limit on 128 cores, four NUMA nodes, 20/s",
        machine=Machine(cores=128, threads_per_core=2, numa_nodes=4, l3_domains=16),
        model=Model(run_ms=60.0, serial=0.06, operators=200),
        rate=20.0,
        can=("ioBinding",),
        factors=_USUAL,
    ),
    "exclusive-8": Site(
        about="a 40 ms model on 8 CPUs of its own of 32 cores, 20/s",
        machine=Machine(cores=32, threads_per_core=2, numa_nodes=2, l3_domains=4, exclusive_cpus=8),
        model=Model(run_ms=40.0, serial=0.05, operators=180),
        limit_cpus=8.0,
        rate=20.0,
        factors=_USUAL
        | {
            "placement.smt": {"AllThreads": (0.97, 1.2)},
            "placement.affinity": {"PerCore": (0.98, 1.0), "Never": (1.06, 1.04)},
            "placement.numa": {"Any": (1.02, 1.0)},
        },
    ),
    "throughput-limit16": Site(
        about="a 20 ms model, limit 16 on 64 cores: most requests a second, p99 below 90 ms",
        machine=Machine(cores=64, threads_per_core=2, numa_nodes=2, l3_domains=8),
        model=Model(run_ms=20.0, serial=0.15, operators=120),
        limit_cpus=16.0,
        objective="Throughput",
        p99_ms=90.0,
        factors=_USUAL,
    ),
    "cost-limit4": Site(
        about="an 8 ms model, limit 4 on 16 cores, 40/s: least CPU a request, p99 below 20 ms",
        machine=Machine(cores=16, threads_per_core=2),
        model=Model(run_ms=8.0, serial=0.1, operators=100),
        limit_cpus=4.0,
        objective="Cost",
        rate=40.0,
        p99_ms=20.0,
        factors=_USUAL,
    ),
    "nothing-to-gain-limit1": Site(
        about="a 5 ms model that is all serial, limit 1 on 4 cores, 60/s",
        machine=Machine(cores=4),
        model=Model(run_ms=5.0, serial=1.0, operators=1),
        limit_cpus=1.0,
        rate=60.0,
        can=(),
        allocators=(),
        factors={path: values for path, values in _USUAL.items() if path.startswith("onnxruntime.")},
    ),
}


def write(sites: Mapping[str, Site], folder: Path = FOLDER) -> None:
    """The sites' surfaces, the same each time."""
    for name, site in sites.items():
        (folder / f"{name}.json").write_text(folded_json(document(site)) + "\n")


def document(site: Site) -> dict[str, Any]:
    """What a surface's file has."""
    names = ("cores", "threads_per_core", "numa_nodes", "l3_domains", "exclusive_cpus")
    return {
        "about": site.about,
        "queued": True,
        "machine": {name: getattr(site.machine, name) for name in names},
        "limit_cpus": site.limit_cpus,
        "objective": site.objective,
        "rate": site.rate,
        "p99_ms": site.p99_ms,
        "onnxruntime": [1, 29],
        "allocators": list(site.allocators),
        "can": list(site.can),
        "factors": {
            path: {json.dumps(value): list(pair) for value, pair in values.items()}
            for path, values in site.factors.items()
        },
        "shapes": list(_shapes(site)),
    }


def drawn(seed: int) -> Site:
    """A site that chance makes: machine, limit, model, rate and what each setting does."""
    rng = np.random.default_rng(seed)

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(math.log(low), math.log(high))))

    cores = int(rng.choice([4, 8, 16, 32, 64, 128]))
    numa_nodes = int(rng.choice([1, 2])) if cores >= 32 else 1
    limit = int(rng.choice([count for count in (2, 3, 4, 6, 8, 16) if count <= cores]))
    kind = rng.choice(["limit", "limit", "exclusive", "none"])
    room = cores if kind == "none" else limit
    machine = Machine(
        cores=cores,
        threads_per_core=2,
        numa_nodes=numa_nodes,
        l3_domains=max(numa_nodes, cores // 8),
        exclusive_cpus=2 * limit if kind == "exclusive" else 0,
    )
    model = Model(
        run_ms=between(3, 30) * room**0.7,
        serial=between(0.01, 0.3),
        operators=int(between(20, 900)),
        gap_us=between(15, 120),
        jitter=between(0.02, 0.07),
        rare=between(0.002, 0.02),
        rare_ms=between(0.3, 2.0),
    )
    run_ms = model.run_ms * (model.serial + (1 - model.serial) / room)
    objective = str(rng.choice(["Latency", "Latency", "Latency", "Cost", "Throughput"]))
    many = bool(rng.random() < 0.6)

    def factor(low: float, high: float) -> tuple[float, float]:
        times = between(low, high)
        return times, times

    factors: dict[str, dict[Any, tuple[float, float]]] = {
        "onnxruntime.graphOptimizationLevel": {"Basic": factor(1.0, 1.2), "Extended": factor(0.99, 1.1)},
        "onnxruntime.cpuMemArena": {False: factor(0.96, 1.12)},
        "onnxruntime.memPattern": {False: factor(0.98, 1.04)},
        "allocator": {"Mimalloc": factor(0.92, 1.03)},
        "program.ioBinding": {True: factor(0.85, 1.0)},
        "placement.smt": {"AllThreads": factor(0.94, 1.1), "OneThreadPerCore": factor(0.97, 1.05)},
        "placement.affinity": {"PerCore": factor(0.95, 1.03), "Never": factor(0.98, 1.08)},
        "placement.numa": {"Any": factor(0.97, 1.05), "SingleNUMANode": factor(0.97, 1.05)},
    }
    return Site(
        about=f"drawn by chance, seed {seed}: a {model.run_ms:.0f} ms model, {kind} {room}, {cores} cores, {objective}",
        machine=machine,
        model=model,
        limit_cpus=None if kind == "none" else float(2 * limit if kind == "exclusive" else limit),
        objective=objective,
        rate=None if objective == "Throughput" else float(f"{between(0.1, 0.4) * 1000 / run_ms:.2g}"),
        can=("instances", "ioBinding") if many else ("ioBinding",),
        factors=factors,
    )


def _shapes(site: Site) -> Iterator[dict[str, Any]]:
    exclusive = site.machine.exclusive_cpus // site.machine.threads_per_core
    room = exclusive or math.ceil(site.limit_cpus or site.machine.cores)
    most = 2 * max(room, site.machine.cores)
    instances = sorted({1, *(2**power for power in range(1, 5) if 2**power <= room), min(room, 16)})
    for count in instances if "instances" in site.can else [1]:
        for spins, spin_us in _SPINS.items():
            for threads in [threads for threads in _COUNTS if threads * count <= (2 * room if count > 1 else most)]:
                rng = np.random.default_rng([threads, count])  # the same chance for each spinning
                yield {
                    "spins": spins,
                    "instances": count,
                    "threads": threads,
                    **_times(site, threads, count, spin_us, rng),
                }


def _times(site: Site, threads: int, instances: int, spin_us: float, rng: np.random.Generator) -> dict[str, Any]:
    rate = site.rate or 0.0
    run_ms = _run_ms(site, threads, spin_us, busy=1)
    within_ms = _spin_within_ms(site.model, threads, spin_us)
    work_ms = site.model.run_ms * (1 + 0.01 * (threads - 1)) + within_ms
    idle_ms = max(0.0, 1000 / rate - run_ms) if rate else 0.0
    cpu_ms = work_ms + (threads - 1) * min(spin_us / 1000, idle_ms)
    runs_ms = _drawn(site.model, run_ms, threads, rng)
    cpus = cpu_ms * rate / 1000
    open_ms = runs_ms + _throttled_ms(site, threads * instances, cpus, work_ms, rng)
    full_ms = _run_ms(site, threads, spin_us, busy=instances)
    limit = site.limit_cpus or math.inf
    full_ms = max(full_ms, instances * work_ms / limit)
    waiting = 1.0 if instances * work_ms / full_ms > 0.9 * limit else 0.0
    closed_ms = _drawn(site.model, full_ms, threads, rng)
    # At its limit a container stands still at the end of its periods: the average stays, some wait.
    stops = waiting * (1 - min(1.0, limit / (threads * instances)))
    closed_ms = closed_ms * (1 - 0.5 * stops) + waiting * (rng.random(_DRAWN) < full_ms * 0.5 / _PERIOD_MS) * (
        _PERIOD_MS * stops * rng.random(_DRAWN)
    )
    return {
        "cpu_ms": round(cpu_ms, 4),
        "closed_cpu_ms": round(work_ms, 4),
        "open_ms": _quantiles(open_ms),
        "closed_ms": _quantiles(closed_ms),
    }


def _run_ms(site: Site, threads: int, spin_us: float, *, busy: int) -> float:
    """A run's duration, `busy` of the instances being busy."""
    machine, model = site.machine, site.model
    cores = site.machine.exclusive_cpus // machine.threads_per_core or machine.cores
    node = max(1, machine.cores // machine.numa_nodes)
    wanted = threads * busy
    fitting = min(wanted, cores)
    # Siblings add a quarter of a core.
    siblings = min(max(0, wanted - cores), cores * (machine.threads_per_core - 1))
    effective = (fitting + 0.25 * siblings) / busy
    across = max(0, math.ceil(threads / node) - 1)
    parallel_ms = model.run_ms * (1 - model.serial) / max(1.0, min(effective, threads)) * (1 + 0.12 * across)
    serial_ms = model.run_ms * model.serial
    slept = math.exp(-spin_us / model.gap_us) if spin_us else 1.0
    waking_us = 6.0 * math.log2(threads) + 0.5 * threads
    meeting_us = 0.6 * math.log2(threads) + 0.06 * threads
    sync_ms = model.operators * ((1 + across) * meeting_us + 0.25 * slept * waking_us) / 1000 if threads > 1 else 0.0
    # Memory's bandwidth is shared.
    return (serial_ms + parallel_ms + sync_ms) * (1 + 0.04 * math.log2(max(1, busy)))


def _spin_within_ms(model: Model, threads: int, spin_us: float) -> float:
    """CPU time that workers spin for while the one thread does its serial part, and between operators."""
    waits_us = min(spin_us, model.gap_us) * model.operators + min(spin_us, 1000 * model.run_ms * model.serial) * 2
    return (threads - 1) * waits_us * 0.4 / 1000


def _drawn(model: Model, run_ms: float, threads: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Durations: the slowest thread decides, and now and then one loses its CPU."""
    jitter = model.jitter * (1 + 0.15 * math.log2(threads))
    drawn = run_ms * np.exp(rng.normal(0, jitter, _DRAWN))
    rare = rng.random(_DRAWN) < min(0.2, model.rare * (1 + 0.2 * math.log2(threads)))
    return np.asarray(drawn + rare * rng.exponential(model.rare_ms, _DRAWN))


def _throttled_ms(
    site: Site, threads: int, cpus: float, work_ms: float, rng: np.random.Generator
) -> np.ndarray[Any, Any]:
    """What requests wait since the limit's CPU time of a period was used up."""
    limit = site.limit_cpus
    if limit is None or site.machine.exclusive_cpus or threads <= limit or not site.rate:
        return np.zeros(_DRAWN)
    runs = site.rate * _PERIOD_MS / 1000
    deviation_ms = work_ms * math.sqrt(runs) + 1e-9
    free = (limit * _PERIOD_MS - cpus * _PERIOD_MS) / deviation_ms
    share = min(1.0, 0.5 * math.erfc(free / math.sqrt(2)) + 0.3 * max(0.0, 1 - (limit * _PERIOD_MS) / (2 * work_ms)))
    longest_ms = _PERIOD_MS * (1 - limit / threads)
    return np.asarray((rng.random(_DRAWN) < share) * rng.random(_DRAWN) * longest_ms)


def _quantiles(drawn: np.ndarray[Any, Any]) -> list[float]:
    # The slowest of all is the chance of how many were drawn.
    shares = [min(share, 0.9995) for share in QUANTILES]
    return [float(f"{value:.4g}") for value in np.quantile(drawn, shares)]
