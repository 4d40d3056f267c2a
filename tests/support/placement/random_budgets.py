"""Random budgets and policies for a machine, from one `random.Random`: what containers there may have and ask for."""

from __future__ import annotations

from random import Random
from typing import Any

from raddle.cpus import cpuset
from raddle.cpus.topology import Machine
from raddle.planning.planner import Budget
from raddle.planning.policy import Policy

_CHOICES: dict[str, tuple[Any, ...]] = {
    "objective": ("Latency", "Throughput"),
    "budget_source": ("Auto", "Auto", "Auto", "Limit", "Request", "Node"),
    "sessions": (1, 1, 1, 2, 3, 16),
    "concurrent_runs": (1, 1, 1, 2, 5, 64),
    "numa": ("Auto", "Auto", "SingleNUMANode", "Any"),
    "smt": ("Auto", "Auto", "OneThreadPerCore", "AllThreads"),
    "core_type": ("Auto", "Auto", "Performance", "Efficient", "Any"),
    "affinity": ("Auto", "Auto", "PerCore", "Never"),
    "spinning": ("Auto", "Auto", "Auto", "Always", "Bounded", "Never"),
    "execution_mode": ("Auto", "Auto", "Sequential", "Parallel"),
    "global_thread_pool": (False, False, True),
    "run_time_us": (None, None, 1, 1_700, 33_000, 3600 * 10**6),
    "request_rate": (None, 5e-324, 0.5, 20.0, 1e6),
}


def policy(rng: Random) -> Policy:
    """A policy that `policy.parse` would accept."""
    chosen = {name: rng.choice(values) for name, values in _CHOICES.items() if rng.random() < 0.5}
    if chosen.get("numa") == "SingleNUMANode":
        chosen.pop("budget_source", None)
    if rng.random() < 0.1:
        chosen["min_intra_op"] = rng.randint(1, 8)
    if rng.random() < 0.1:
        chosen["max_intra_op"] = rng.randint(8, 64)
    if rng.random() < 0.05:
        chosen["intra_op"] = 8
    if chosen.get("execution_mode") == "Parallel" and rng.random() < 0.7:
        chosen["inter_op"] = rng.randint(1, 16)
    if rng.random() < 0.1:
        chosen["runtimes"] = rng.choice((("onnxruntime",), ("blas",), ("torch", "openmp"), ("joblib", "blas")))
    return Policy(**chosen)


def budget(rng: Random, machine: Machine) -> Budget:
    """Shared or exclusive CPUs, known or not, with or without a limit."""
    whole, cpus, quota = 0, None, None
    way = rng.random()
    if way < 0.5:
        # Exclusive, where the kubelet's policy is static.
        cpus = cpus_of(rng, machine)
        whole = cpuset.count(cpus)
        cpus = cpus if rng.random() < 0.7 else None
        quota = rng.choice((None, float(whole)))
    else:
        quota = quota_cpus(rng, machine) if rng.random() < 0.75 else None
        if rng.random() < 0.3:
            cpus = cpus_of(rng, machine)
        if rng.random() < 0.2:
            # Guaranteed: the limit is the request.
            whole = rng.randint(1, 16)
            quota = float(whole)
    return Budget(
        quota_cpus=quota,
        request_cpus=quota_cpus(rng, machine) if rng.random() < 0.4 else None,
        whole_cpus=whole,
        cpus=cpus,
        workers=rng.choice((1, 1, 1, 2, 3, 100)),
        gpu=rng.random() < 0.25,
        shim=rng.random() < 0.85,
        smallest_cores=rng.choice((None, 1, 4, 64)),
        because="limits.cpu" if quota is not None else "no CPU limit",
    )


def pair(rng: Random, machine: Machine) -> tuple[Budget, Budget]:
    """Two budgets of one class, alike but for the second being wider: a limit, or exclusive CPUs not known yet."""
    size = cpuset.count(machine.online)
    one = budget(rng, machine)._replace(cpus=None)
    if rng.random() < 0.5:
        low, high = sorted(rng.randint(1, size) for _ in range(2))
        return (
            one._replace(whole_cpus=low, quota_cpus=float(low), request_cpus=None),
            one._replace(whole_cpus=high, quota_cpus=float(high), request_cpus=None),
        )
    small, large = sorted(quota_cpus(rng, machine) for _ in range(2))
    return one._replace(whole_cpus=0, quota_cpus=small), one._replace(whole_cpus=0, quota_cpus=large)


def absurd(rng: Random) -> Budget:
    """Numbers that nobody means, as a hand-made annotation may have them."""
    numbers = (None, 0, -1, 1e-300, 1e-9, 1e308, float("nan"), float("inf"), float("-inf"), 2)
    return Budget(
        quota_cpus=rng.choice(numbers),
        request_cpus=rng.choice(numbers),
        whole_cpus=rng.choice((-1, 0, 1, 2, 10**6)),
        cpus=rng.choice((None, 0, 1, 2**70, rng.getrandbits(80))),
        workers=rng.choice((-5, 0, 1, 10**9)),
        smallest_cores=rng.choice((None, 0, 1, 10**6)),
    )


def quota_cpus(rng: Random, machine: Machine) -> float:
    """A limit in CPUs: small, fractional, or about the machine's size."""
    size = cpuset.count(machine.online)
    return rng.choice((0.1, 0.5, 0.999, 1, 1.5, 2, 4, 8, size / 2, size, size + 2, round(rng.uniform(0.001, size), 3)))


def cpus_of(rng: Random, machine: Machine) -> int:
    """Some of the online CPUs: whole cores, one CPU each, a run of numbers, or scattered; one at least."""
    online = machine.online
    wanted = max(1, int(2 ** rng.uniform(0, cpuset.count(online).bit_length())))
    way = rng.random()
    if way < 0.5 and machine.cores:
        cores = list(machine.cores)
        if rng.random() < 0.3:
            rng.shuffle(cores)
        first = rng.randrange(len(cores))
        found = 0
        for core in cores[first:] + cores[:first]:
            found |= core & -core if way < 0.1 else core
            if cpuset.count(found) >= wanted:
                break
        return found
    ids = cpuset.ids(online)
    if way < 0.8:
        first = rng.randrange(len(ids))
        return cpuset.of((ids[first:] + ids[:first])[:wanted])
    return cpuset.of(rng.sample(ids, min(wanted, len(ids))))
