"""From limits to numbers: `plan(machine, budget, policy)`, the one pure function of the product.

The same inputs give the same plan in the webhook, in the container, in a test and in a terminal. At pod
CREATE the machine is unknown (None) and the values are *safe values*, valid on any node; at binding the
machine is known but not which CPUs; in the container all is known. Each value carries `because`.

`capacity` says how many threads fit, `placement` where they go, `layout` how many instances would; here is what is
made of it.
"""

from __future__ import annotations

from math import ceil, floor, inf
from typing import Dict, NamedTuple, Optional, Tuple

from raddle import env
from raddle.cpus import cpuset
from raddle.cpus.placement import PlacementPolicy, groups_of, memory_node, one_cpu_each, pool_for, pool_units
from raddle.cpus.topology import Machine
from raddle.planning import load as model
from raddle.planning.capacity import (
    MAX_QUOTA_CPUS,
    Budget,
    CPUCapacity,
    bounded,
    capacity_for,
    placement_policy,
    places_by_kind,
)
from raddle.planning.layout import MAX_OTHERS, Layout, cache_domains, layout
from raddle.planning.policy import OBSERVED, Policy

__all__ = ["BOUNDED_SPIN_US", "MAX_QUOTA_CPUS", "Budget", "Plan", "plan"]

# A worker that finds no work looks for more this long before it sleeps, where spinning is bounded.
BOUNDED_SPIN_US = 50
# Threads that a known load may have on a limit below them, which is CPU time and not parallelism.
MOST_OVER_LIMIT = 4
NOTHING_OBSERVED = "no load observed yet"
WOULD_GAIN = "a model above ~7 ms gains from load.runTime"
# ORT's workers spin where no shim is in the process; without a limit this many still serve one request at a time.
UNCONTROLLED_SPIN_THREADS = 4


class Plan(NamedTuple):
    """The settings of one container.

    intra_op, omp, blas   thread counts; None: set nothing (NoCPUBound, or the family isn't chosen).
    other_blas            MKL's and BLIS's count, which is OpenBLAS's; None as above.
    intra_op_without_shim what is right in a process that no shim reaches, where nothing stops ORT's threads spinning.
    inter_op              ORT's second pool; None: the pod spec's own count stays.
    execution_mode        sequential or parallel.
    spinning              never, bounded (for spin_duration_us microseconds) or always.
    exclusive_spinning    what `spinning` becomes where the CPUs turn out to be the exclusive ones; None: the same.
    over_quota            the count may be above the limit's CPUs, which is CPU time and not parallelism.
    expected              what the model says of these settings under the load that the policy states; None: none is.
    affinity              none, numa or core: how workers are pinned to CPUs once the CPUs are known to be exclusive.
    exclusive_cpus        how many exclusive CPUs the container is expected to have; 0: shared CPUs.
    budget_cpus           CPUs that the plan counts with; None: unknown.
    cap                   threads that all streams together may use; None: unknown.
    streams               workers x sessions (x concurrent runs for Throughput) that share `cap`.
    workers               processes that the plan reckons with.
    concurrent_runs       callers that run at the same time in one process.
    torch_inter_op        torch's inter-op pool; None: torch isn't chosen.
    global_intra_op       size of the one intra-op pool that all sessions of a process share; None: each has its own.
    gpu                   the container has a GPU.
    peak_runnable         threads that can be runnable at once, by family.
    cpus                  the exclusive CPUs chosen for the pool; None: not known, or shared.
    affinity_groups       one CPU set for each worker of the pool; (): not pinned, or the CPUs are not known.
    memory_numa_node      the NUMA node that holds all of the pool, so its memory belongs there; None: not known.
    layout                advice for Throughput: instances x threads that fill the CPUs; None: nothing to say.
    safe                  True: made without knowing the node.
    because               value's name -> the input that decided it.
    """

    intra_op: Optional[int]
    intra_op_without_shim: Optional[int]
    inter_op: Optional[int]
    execution_mode: str
    spinning: str
    spin_duration_us: int
    exclusive_spinning: Optional[str]
    over_quota: bool
    expected: Optional[model.Expected]
    omp: Optional[int]
    blas: Optional[int]
    other_blas: Optional[int]
    affinity: str
    exclusive_cpus: int
    budget_cpus: Optional[float]
    cap: Optional[int]
    streams: int
    workers: int
    concurrent_runs: int
    torch_inter_op: Optional[int]
    global_intra_op: Optional[int]
    gpu: bool
    peak_runnable: Dict[str, int]
    cpus: Optional[int]
    affinity_groups: Tuple[int, ...]
    memory_numa_node: Optional[int]
    layout: Optional[Layout]
    safe: bool
    because: Dict[str, str]


def plan(machine: Optional[Machine], budget: Budget, policy: Policy) -> Plan:
    """The plan of one container; see the module. Never raises: absurd numbers are bounded first."""
    budget = bounded(budget)
    because: Dict[str, str] = {}
    capacity = capacity_for(machine, budget, policy)
    streams = _streams(budget, policy, because)
    load = _load(capacity, streams, budget, policy)
    chosen = _by_load(load, machine, capacity, budget, policy)
    harmless = _harmless_spinning(machine, capacity, streams, budget)
    intra_op, without_shim = _intra_op(capacity, streams, harmless, chosen, budget, policy, because)
    parallel = policy.execution_mode == "Parallel"
    inter_op = _inter_op(parallel, policy, because)
    omp, blas, other_blas = _openmp_and_blas(capacity, streams, intra_op, budget, policy, because)
    peak = _peak_runnable(budget, policy, intra_op, omp, inter_op if parallel else 1)
    spinning = _spinning(capacity, streams, peak, chosen, budget, policy, because)
    spin_duration_us = BOUNDED_SPIN_US if spinning == "bounded" else 0
    exclusive_spinning = _exclusive_spinning(capacity, spinning, policy, because)
    affinity = _affinity(capacity, streams, intra_op, policy, because)
    cpus = _pool(machine, capacity, intra_op, budget, policy)
    groups, memory = _places(machine, cpus, intra_op, affinity, budget)
    expected = _expected(load, capacity, intra_op, exclusive_spinning or spinning, spin_duration_us)
    if expected is not None:
        because["expected"] = "a model of spec.load, not measured"
    return Plan(
        intra_op=intra_op,
        intra_op_without_shim=without_shim,
        inter_op=inter_op,
        execution_mode="parallel" if parallel else "sequential",
        spinning=spinning,
        spin_duration_us=spin_duration_us,
        exclusive_spinning=exclusive_spinning,
        over_quota=_is_over(capacity, chosen),
        expected=expected,
        omp=omp,
        blas=blas,
        other_blas=other_blas,
        affinity=affinity,
        exclusive_cpus=budget.whole_cpus if capacity.kind == "exclusive" else 0,
        budget_cpus=capacity.budget_cpus,
        cap=capacity.threads,
        streams=streams,
        workers=budget.workers,
        concurrent_runs=policy.concurrent_runs,
        torch_inter_op=inter_op if "torch" in policy.runtimes and intra_op is not None else None,
        global_intra_op=_global_intra_op(capacity, intra_op, budget, policy, because),
        gpu=budget.gpu,
        peak_runnable=peak,
        cpus=cpus,
        affinity_groups=groups,
        memory_numa_node=memory,
        layout=_layout(machine, capacity, budget, policy, because),
        safe=machine is None,
        because=because,
    )


def _streams(budget: Budget, policy: Policy, because: Dict[str, str]) -> int:
    workers = budget.workers
    if policy.objective == "Throughput":
        streams = workers * max(policy.sessions, policy.concurrent_runs)
    else:
        streams = workers * policy.sessions
    # RADDLE_PLAN's bound; so many streams leave one thread each in any case.
    streams = min(streams, env.MAX_STREAMS)
    if streams > 1:
        because["streams"] = f"{workers} workers x {streams // workers} at a time"
    return streams


def _load(capacity: CPUCapacity, streams: int, budget: Budget, policy: Policy) -> Optional[model.Load]:
    """The load that the policy states, where the model holds."""
    if policy.run_time_us is None or not _model_holds(capacity, streams, budget, policy):
        return None
    run_time_s = policy.run_time_us / 1e6
    if policy.request_rate is None:
        return model.usual(run_time_s, _limit_of(capacity))
    return model.Load(run_time_s, policy.request_rate)


def _model_holds(capacity: CPUCapacity, streams: int, budget: Budget, policy: Policy) -> bool:
    """Whether the model speaks of such a container: one request at a time, for Latency."""
    alone = streams * policy.concurrent_runs == 1 and policy.execution_mode != "Parallel"
    return alone and policy.objective == "Latency" and capacity.threads is not None and not budget.gpu and budget.shim


def _limit_of(capacity: CPUCapacity) -> Optional[float]:
    return capacity.budget_cpus if capacity.kind == "quota" else None


def _by_load(
    load: Optional[model.Load], machine: Optional[Machine], capacity: CPUCapacity, budget: Budget, policy: Policy
) -> Optional[model.Setting]:
    """The pool that the model expects most of; None where no load is stated or the policy names the count itself."""
    if load is None or capacity.threads is None or policy.intra_op is not None:
        return None
    most = capacity.threads
    if capacity.kind == "quota":
        most = max(most, min(MOST_OVER_LIMIT, _cores(machine, capacity, budget, policy)))
    if policy.min_intra_op > most:
        return None
    return model.best(
        load,
        limit_cpus=_limit_of(capacity),
        most_threads=min(most, policy.max_intra_op),
        spins_s=_spins_s(capacity, policy),
        least_threads=policy.min_intra_op,
        own_cpus=capacity.kind == "exclusive",
    )


def _cores(machine: Optional[Machine], capacity: CPUCapacity, budget: Budget, policy: Policy) -> int:
    """Cores that a container's threads may run on, whatever its limit; 0: not known."""
    if machine is None:
        return budget.smallest_cores or 0
    nodes = [cpuset.count(capacity.places & node.cpus) for node in machine.numa_nodes]
    if policy.numa == "SingleNUMANode" and any(nodes):
        return max(nodes)
    return cpuset.count(capacity.places)


def _spins_s(capacity: CPUCapacity, policy: Policy) -> Tuple[float, ...]:
    """The spin limits that the policy leaves open."""
    bounded_s = BOUNDED_SPIN_US / 1e6
    auto = (inf,) if capacity.kind == "exclusive" else (0.0, bounded_s)
    return {"Never": (0.0,), "Bounded": (bounded_s,), "Always": (inf,)}.get(policy.spinning, auto)


def _is_over(capacity: CPUCapacity, chosen: Optional[model.Setting]) -> bool:
    return chosen is not None and capacity.kind == "quota" and chosen.threads > ceil(capacity.budget_cpus or 0)


def _expected(
    load: Optional[model.Load], capacity: CPUCapacity, intra_op: Optional[int], spinning: str, spin_us: int
) -> Optional[model.Expected]:
    if load is None or intra_op is None:
        return None
    spin_s = inf if spinning == "always" else spin_us / 1e6
    setting = model.Setting(intra_op, spin_s if intra_op > 1 else 0.0)
    return model.expected(load, setting, _limit_of(capacity), own_cpus=capacity.kind == "exclusive")


def _intra_op(
    capacity: CPUCapacity,
    streams: int,
    harmless: Optional[int],
    chosen: Optional[model.Setting],
    budget: Budget,
    policy: Policy,
    because: Dict[str, str],
) -> Tuple[Optional[int], Optional[int]]:
    """The count that the container is planned with, and the one for its processes that no shim reaches.

    `harmless` is what `_harmless_spinning` says, here and below.
    """
    if policy.intra_op is not None:
        because["intraOp"] = "policy threads.intraOp"
        return policy.intra_op, policy.intra_op
    if capacity.threads is None:
        because["intraOp"] = capacity.because
        return None, None
    threads, why = capacity.threads, capacity.because
    if streams > 1:
        threads = max(1, threads // streams)
        why = f"{why}, shared by {streams} streams"
    result = _clamped(threads, why, policy)
    without_shim = result
    if policy.spinning != "Always" and harmless is not None and harmless < threads:
        without_shim = _clamped(harmless, f"{why}; spinning not controlled", policy)
    # A shim controls spinning, so the count is what the load asks for, else the same as where nothing spins.
    if not budget.shim:
        result = without_shim
    elif chosen is not None:
        result = chosen.threads, f"{capacity.because}; {_in_words(policy)}"
    elif hint := _hint(capacity, result[0], streams, budget, policy):
        result = result[0], f"{result[1]}; {hint}"
    # Where the load asks for fewer, it does so of every process.
    without_shim = min(without_shim, result, key=lambda one: one[0])
    because["intraOp"] = result[1]
    if without_shim[0] != result[0]:
        because["intraOpWithoutShim"] = without_shim[1]
    return result[0], without_shim[0]


def _in_words(policy: Policy) -> str:
    """E.g. "load: runs of 33 ms at 20/s", or "load observed: ..."."""
    rate = "half the rate that one thread can serve" if policy.request_rate is None else f"{policy.request_rate:g}/s"
    said = "observed load" if policy.load_source == OBSERVED else "load"
    return f"{said}: runs of {(policy.run_time_us or 0) / 1000:g} ms at {rate}"


def _hint(capacity: CPUCapacity, threads: int, streams: int, budget: Budget, policy: Policy) -> str:
    """What knowing the load would change; "" where nothing, or it is known."""
    if policy.run_time_us is not None or not _model_holds(capacity, streams, budget, policy):
        return ""
    if policy.load_source == OBSERVED:
        return NOTHING_OBSERVED
    # One thread is the answer only because nothing is known.
    small = capacity.kind == "quota" and (capacity.budget_cpus or 0) <= 1 and threads == 1
    gains = small and _plans_ort(policy) and policy.max_intra_op > 1
    return WOULD_GAIN if gains else ""


def _plans_ort(policy: Policy) -> bool:
    return "onnxruntime" in policy.runtimes


def _clamped(threads: int, why: str, policy: Policy) -> Tuple[int, str]:
    clamped = min(max(threads, policy.min_intra_op), policy.max_intra_op)
    if clamped != threads:
        why = "policy threads.{}".format("minIntraOp" if clamped > threads else "maxIntraOp")
    return clamped, why


def _harmless_spinning(
    machine: Optional[Machine], capacity: CPUCapacity, streams: int, budget: Budget
) -> Optional[int]:
    """Threads of each stream that do little harm while spinning can't be turned off; None on exclusive CPUs: all."""
    if capacity.kind == "exclusive":
        return None
    if capacity.kind == "quota":
        return max(1, (floor(capacity.budget_cpus or 1.0) - 1) // streams)
    wanted = max(UNCONTROLLED_SPIN_THREADS, ceil(budget.request_cpus or 0))
    if machine is not None and machine.numa_nodes:
        cores = one_cpu_each(machine, machine.online, PlacementPolicy())
        wanted = min(wanted, max(1, *(cpuset.count(cores & node.cpus) for node in machine.numa_nodes)))
    return max(1, wanted // streams)


def _inter_op(parallel: bool, policy: Policy, because: Dict[str, str]) -> int:
    if not parallel:
        because["interOp"] = "executionMode Sequential"
        return 1
    if policy.inter_op is not None:
        because["interOp"] = "policy threads.interOp"
        return policy.inter_op
    because["interOp"] = "executionMode Parallel"
    return 1


def _global_intra_op(
    capacity: CPUCapacity, intra_op: Optional[int], budget: Budget, policy: Policy, because: Dict[str, str]
) -> Optional[int]:
    """What the sessions of a process would have had together: they share the pool in place of dividing the CPUs."""
    if not policy.global_thread_pool or intra_op is None:
        return None
    together = intra_op
    if capacity.threads is not None and policy.intra_op is None and policy.sessions > 1:
        together = max(
            intra_op, min(capacity.threads // budget.workers, intra_op * policy.sessions, policy.max_intra_op)
        )
    because["globalIntraOp"] = f"policy onnxruntime.globalThreadPool, for {policy.sessions} session(s) a process"
    return min(together, env.MAX_THREADS)


def _peak_runnable(
    budget: Budget, policy: Policy, intra_op: Optional[int], omp: Optional[int], inter_op: int
) -> Dict[str, int]:
    """Threads that can be runnable at once, by family: ORT's pools add, an OpenMP team is made per calling thread."""
    if intra_op is None:
        return {}
    callers = max(policy.sessions, policy.concurrent_runs)
    ort = callers + policy.sessions * (intra_op - 1 + inter_op - 1)
    # A caller goes on while the pool runs what its script has forked, and each of these threads has a team of its own.
    forked = inter_op if policy.execution_mode == "Parallel" else 0
    team = omp or intra_op
    teams = {"onnxruntime": ort, "openmp": callers * team, "torch": (callers + forked) * team}
    return {family: budget.workers * threads for family, threads in teams.items() if family in policy.runtimes}


def _spinning(
    capacity: CPUCapacity,
    streams: int,
    peak: Dict[str, int],
    chosen: Optional[model.Setting],
    budget: Budget,
    policy: Policy,
    because: Dict[str, str],
) -> str:
    if policy.spinning != "Auto":
        because["spinning"] = "policy threads.spinning"
        return policy.spinning.lower()
    if chosen is not None and chosen.threads > 1:
        because["spinning"] = _in_words(policy)
        return "bounded" if chosen.spin_s else "never"
    runnable = peak.get("onnxruntime", 0)
    if capacity.kind == "quota" and capacity.budget_cpus is not None and capacity.budget_cpus < 1:
        why = "limit below one CPU"
    elif streams > 1:
        why = f"{streams} streams share the CPUs"
    elif capacity.budget_cpus is None:
        why = "CPUs unknown"
    elif runnable > ceil(capacity.budget_cpus):
        why = f"{runnable} runnable threads on {capacity.budget_cpus:g} CPUs"
    elif budget.gpu:
        why = "GPU session"
    elif budget.reclaimed:
        why = "borrowed CPUs, which may be reclaimed"
    else:
        because["spinning"] = f"{runnable} runnable thread{'s' * (runnable != 1)} for {capacity.budget_cpus:g} CPUs"
        return "bounded"
    because["spinning"] = why
    return "never"


def _exclusive_spinning(capacity: CPUCapacity, spinning: str, policy: Policy, because: Dict[str, str]) -> Optional[str]:
    """On CPUs of its own a spinning worker takes nothing from anybody, and a sleeping one is late."""
    if (
        capacity.kind != "exclusive"
        or policy.objective != "Latency"
        or policy.spinning != "Auto"
        or spinning != "bounded"
    ):
        return None
    because["spinning"] += "; always while the CPUs are exclusive"
    return "always"


def _openmp_and_blas(
    capacity: CPUCapacity,
    streams: int,
    intra_op: Optional[int],
    budget: Budget,
    policy: Policy,
    because: Dict[str, str],
) -> Tuple[Optional[int], Optional[int], Optional[int]]:
    """OpenMP's, OpenBLAS's and other BLAS's count.

    With a shim each process has a count of its own, which no framework copies: as many as the CPUs, like libraries that
    read the limit themselves. Fewer would be slower than without Raddle wherever those CPUs are free.

    Without one a variable reaches all, and their threads spin at each barrier, which nothing bounds: a team on CPUs
    which others use too waits for the member that lost its CPU, and burns the time that this one needs. So there are no
    more than can't use the limit up (`intra_op` is that, where no shim is).
    """
    if intra_op is None:
        return None, None, None
    threads, why = intra_op, "same as intraOp"
    if policy.intra_op is None:
        if capacity.threads is not None and (fits := _clamped(capacity.threads, capacity.because, policy))[0] < threads:
            # What the load asks for above the limit is for pools whose spinning a shim bounds.
            threads, why = fits
        if budget.shim and capacity.kind == "quota" and _is_fraction_of(capacity, threads * streams):
            threads, why = _clamped(threads + 1, "the limit rounded up, as libraries that read it do", policy)
        if not budget.shim and "joblib" in policy.runtimes:
            # Each of its processes takes the count that it finds in the environment.
            threads, why = 1, "joblib's processes share the CPUs"
    omp = None
    if "openmp" in policy.runtimes or "torch" in policy.runtimes:
        omp, because["omp"] = threads, why
    if not budget.shim and capacity.kind == "quota" and (_plans_ort(policy) or "torch" in policy.runtimes):
        threads, why = 1, "another pool shares the limit, and its idle threads spin"
    blas = None
    if "blas" in policy.runtimes:
        blas, because["blas"] = threads, why
    return omp, blas, threads if "mkl" in policy.runtimes or "blis" in policy.runtimes else None


def _is_fraction_of(capacity: CPUCapacity, threads: int) -> bool:
    """Whether a fraction of a CPU was left over as the limit was rounded down to these threads."""
    limit_cpus = capacity.budget_cpus
    return limit_cpus is not None and threads == capacity.threads and threads < limit_cpus < threads + 1


def _affinity(
    capacity: CPUCapacity, streams: int, intra_op: Optional[int], policy: Policy, because: Dict[str, str]
) -> str:
    if policy.affinity == "Never":
        because["affinity"] = "policy placement.affinity"
        return "none"
    if capacity.kind != "exclusive":
        because["affinity"] = "CPUs are shared"
        return "none"
    if streams > 1 or intra_op is None or intra_op < 2:
        because["affinity"] = f"{streams} streams" if streams > 1 else "one thread"
        return "none"
    because["affinity"] = "exclusive CPUs"
    return "core" if policy.affinity == "PerCore" else "numa"


def _pool(
    machine: Optional[Machine], capacity: CPUCapacity, intra_op: Optional[int], budget: Budget, policy: Policy
) -> Optional[int]:
    """The CPUs of the pool, as in the container: wider than what was placed where the policy names more threads."""
    if machine is None or capacity.cpus is None or budget.cpus is None or intra_op is None:
        return capacity.cpus
    if intra_op <= (capacity.threads or 0):
        # The answer, at no cost.
        return capacity.cpus
    return pool_for(machine, budget.cpus, intra_op, placement_policy(policy, gpu=budget.gpu))


def _places(
    machine: Optional[Machine], cpus: Optional[int], intra_op: Optional[int], affinity: str, budget: Budget
) -> Tuple[Tuple[int, ...], Optional[int]]:
    """A CPU set for each worker of the pool, and the NUMA node that holds all of the pool."""
    if machine is None or cpus is None or intra_op is None:
        return (), None
    if affinity == "none":
        return (), memory_node(machine, (cpus,))
    units = pool_units(machine, cpus, intra_op, gpu=budget.gpu)
    return groups_of(machine, cpus, units, affinity), memory_node(machine, units or (cpus,))


def _layout(
    machine: Optional[Machine], capacity: CPUCapacity, budget: Budget, policy: Policy, because: Dict[str, str]
) -> Optional[Layout]:
    """How many instances would fill the CPUs; they need not keep to the NUMA node that one pool is cut to."""
    if policy.objective != "Throughput" or capacity.threads is None:
        return None
    if machine is None:
        result = layout(capacity.cores)
        because["layout"] = result.because
        return result
    kinds = places_by_kind(machine, budget, policy, capacity)
    left = capacity.cores
    if len(kinds) > 1:
        left = (
            max(left, floor(capacity.budget_cpus or 0)) if capacity.kind == "quota" else sum(map(cpuset.count, kinds))
        )
    layouts = []
    for places in kinds:
        cores = min(left, cpuset.count(places)) if len(kinds) > 1 else left
        left -= cores
        if cores:
            layouts.append(layout(cores, *cache_domains(machine, places)))
    result, *others = layouts
    because["layout"] = result.because + ", no instance mixes core types" * bool(others)
    return result._replace(others=tuple((one.workers, one.threads) for one in others[:MAX_OTHERS]))
