"""From limits to numbers: `plan(machine, budget, policy)`, the one pure function of the product.

The same inputs give the same plan in the webhook, in the container, in a test and in a terminal. At pod
CREATE the machine is unknown (None) and the values are *safe values*, right on any node; at binding the
machine is known but not which CPUs; in the container all is known. Each value carries `because`.
"""

from __future__ import annotations

from math import ceil, floor
from typing import Dict, List, NamedTuple, Optional, Tuple

from raddle import cpuset, env
from raddle.policy import Policy
from raddle.topology import Machine, cores_within

# A worker that finds no work looks for more this long before it sleeps, where the request rate is unknown.
BOUNDED_SPIN_US = 200
# A NUMA node that holds this share of an exclusive set is worth leaving the rest idle for.
NUMA_SHARE = 0.75
# Without a shim ORT's workers spin; where no limit throttles them, this many still serve one request at a time.
UNCONTROLLED_SPIN_THREADS = 4
# A quota above this is written by nobody who means it; the kubelet itself stops far below.
MAX_QUOTA_CPUS = 65536.0


class Budget(NamedTuple):
    """What one container may use, as far as it is known where the plan is made.

    quota_cpus       CPU limit in CPUs, fractional; None: no limit. A pod-level limit is already divided.
    request_cpus     CPU request in CPUs; None: none.
    whole_cpus       the integer CPU count if the pod is Guaranteed and asks for whole CPUs itself, else 0.
    cpus             the CPUs that the container may use; None: not known yet (before the container runs).
    workers          processes that share the container's CPUs.
    gpu              the container has a GPU.
    shim             a shim will be in the process, so spinning can be controlled.
    smallest_cores   physical cores of the smallest node known to Raddle; None: no node is known.
    because          where the limit comes from, in words.
    """

    quota_cpus: Optional[float] = None
    request_cpus: Optional[float] = None
    whole_cpus: int = 0
    cpus: Optional[int] = None
    workers: int = 1
    gpu: bool = False
    shim: bool = True
    smallest_cores: Optional[int] = None
    because: str = "no CPU limit"


class Plan(NamedTuple):
    """The settings of one container.

    intra_op, omp, blas   thread counts; None: set nothing (NoCPUBound, or the family isn't chosen).
    inter_op, mode        ORT's second pool (None: the pod spec's own count stays); `mode` is sequential or parallel.
    spinning, spin_us     never, bounded (for spin_us microseconds) or always.
    affinity              none, numa or core: how workers are tied to CPUs once the CPUs are known to be exclusive.
    exclusive_cpus        how many exclusive CPUs the container is expected to have; 0: shared CPUs.
    budget_cpus           CPUs that the plan counts with; None: unknown.
    cap                   threads that all streams together may use; None: unknown.
    streams               workers x sessions (x concurrent runs for Throughput) that share `cap`.
    workers               processes that the plan reckons with.
    runs                  callers that run at the same time in one process.
    torch_inter_op        torch's inter-op pool; None: torch isn't chosen.
    global_intra_op       size of the one intra-op pool that all sessions of a process share; None: each has its own.
    gpu                   the container has a GPU.
    peak_runnable         threads that can be runnable at once, by family.
    cpus                  the CPUs chosen for the pool; None: not known or not tied.
    safe                  True: made without knowing the node.
    because               value's name -> the input that decided it.
    """

    intra_op: Optional[int]
    inter_op: Optional[int]
    mode: str
    spinning: str
    spin_us: int
    omp: Optional[int]
    blas: Optional[int]
    affinity: str
    exclusive_cpus: int
    budget_cpus: Optional[float]
    cap: Optional[int]
    streams: int
    workers: int
    runs: int
    torch_inter_op: Optional[int]
    global_intra_op: Optional[int]
    gpu: bool
    peak_runnable: Dict[str, int]
    cpus: Optional[int]
    safe: bool
    because: Dict[str, str]


class _Cap(NamedTuple):
    """How many threads fit: `kind` is exclusive, quota or unlimited; `threads` None when nothing bounds them."""

    kind: str
    threads: Optional[int]
    budget_cpus: Optional[float]
    because: str
    cpus: Optional[int] = None


def plan(machine: Optional[Machine], budget: Budget, policy: Policy) -> Plan:
    """The plan of one container; see the module. Never raises: absurd numbers are bounded first."""
    budget = _bounded(budget)
    because: Dict[str, str] = {}
    cap = _cap(machine, budget, policy)
    streams = _streams(budget, policy, because)
    intra_op = _intra_op(machine, cap, streams, budget, policy, because)
    parallel = policy.execution_mode == "Parallel"
    inter_op = _inter_op(cap, parallel, policy, because)
    peak = _peak_runnable(budget, policy, intra_op, inter_op if parallel else 1)
    spinning = _spinning(cap, streams, peak, budget, policy, because)
    omp, blas = _openmp_and_blas(cap, intra_op, policy, because)
    affinity = _affinity(cap, streams, intra_op, policy, because)
    if machine is not None and machine.source:
        because["intraOp"] = f"{because['intraOp']}; {machine.source}"
    return Plan(
        intra_op=intra_op,
        inter_op=inter_op,
        mode="parallel" if parallel else "sequential",
        spinning=spinning,
        spin_us=BOUNDED_SPIN_US if spinning == "bounded" else 0,
        omp=omp,
        blas=blas,
        affinity=affinity,
        exclusive_cpus=budget.whole_cpus if cap.kind == "exclusive" else 0,
        budget_cpus=cap.budget_cpus,
        cap=cap.threads,
        streams=streams,
        workers=budget.workers,
        runs=policy.concurrent_runs,
        torch_inter_op=inter_op if "torch" in policy.runtimes and intra_op is not None else None,
        global_intra_op=_global_intra_op(cap, intra_op, budget, policy, because),
        gpu=budget.gpu,
        peak_runnable=peak,
        cpus=cap.cpus,
        safe=machine is None,
        because=because,
    )


def _bounded(budget: Budget) -> Budget:
    def within(cpus: Optional[float]) -> Optional[float]:
        # NaN compares false with everything, so it ends as None like a negative number does.
        return min(cpus, MAX_QUOTA_CPUS) if cpus is not None and cpus > 0 else None

    return budget._replace(
        quota_cpus=within(budget.quota_cpus),
        request_cpus=within(budget.request_cpus),
        whole_cpus=min(budget.whole_cpus, env.MAX_EXCLUSIVE_CPUS),
        workers=min(max(1, budget.workers), env.MAX_STREAMS),
        cpus=budget.cpus or None,
    )


def is_exclusive(machine: Optional[Machine], budget: Budget) -> bool:
    """True when the container has CPUs to itself.

    A cpuset alone never says so: on a node with the static CPU manager every shared container has one too.
    """
    if machine is None or budget.whole_cpus < 1 or machine.kubelet.cpu_manager_policy != "static":
        return False
    return budget.cpus is None or cpuset.count(budget.cpus) == budget.whole_cpus


# --- how many threads fit -------------------------------------------------------------------------------------------


def _cap(machine: Optional[Machine], budget: Budget, policy: Policy) -> _Cap:
    if machine is not None and is_exclusive(machine, budget):
        return _exclusive_cap(machine, budget, policy)
    quota, source = _quota(budget, policy)
    if quota is None:
        return _unlimited_cap(machine, budget, policy)
    latency = policy.objective == "Latency"
    rule = "rounded up for Latency" if latency else "rounded down for Throughput"
    threads = max(1, ceil(quota) if latency else floor(quota))
    because = source if quota == threads else f"{source}, {rule}" if quota > 1 else source + ", below one CPU"
    if machine is not None:
        room, where = _shared_room(machine, budget, policy)
        if room < threads:
            threads, because = room, f"{source}; {where}"
    return _Cap("quota", threads, quota, because)


def _quota(budget: Budget, policy: Policy) -> Tuple[Optional[float], str]:
    """The CPUs that bound the container, and why; None when only the node does."""
    quota, request = budget.quota_cpus, budget.request_cpus
    if policy.budget_source == "Node":
        quota = None
    elif policy.budget_source == "Request" and request is not None and (quota is None or request < quota):
        return request, f"requests.cpu {request:g} (budget.source Request)"
    if budget.cpus is not None:
        size = cpuset.count(budget.cpus)
        # A quota of at least as many CPUs as there are in the cpuset never throttles.
        if quota is not None and quota >= size:
            return float(size), f"cpuset of {size} CPUs, narrower than {budget.because}"
    return quota, budget.because


def _unlimited_cap(machine: Optional[Machine], budget: Budget, policy: Policy) -> _Cap:
    if policy.budget_source == "Limit":
        return _Cap("unlimited", None, None, "budget.source is Limit and there is no limit")
    if machine is None:
        if budget.smallest_cores is None:
            return _Cap("unlimited", None, None, "no CPU limit, and no node is known")
        cores = max(1, budget.smallest_cores)
        return _Cap("unlimited", cores, float(cores), f"no CPU limit; {cores} cores on the smallest node")
    room, where = _shared_room(machine, budget, policy)
    return _Cap("unlimited", room, float(room), "no CPU limit; " + where)


def _shared_room(machine: Machine, budget: Budget, policy: Policy) -> Tuple[int, str]:
    """Threads that the CPUs a shared container may run on can hold, and in words."""
    cpus = usable_cpus(machine, policy, budget.cpus)
    words = _units(machine, policy)
    total = _threads_on(machine, cpus, policy)
    one_numa_node = policy.numa == "SingleNUMANode" or (policy.numa == "Auto" and policy.objective == "Latency")
    if one_numa_node and policy.budget_source != "Node" and len(machine.numa_nodes) > 1:
        largest = max(_threads_on(machine, node.cpus & cpus, policy) for node in machine.numa_nodes)
        if 0 < largest < total:
            return largest, f"{largest} {words} on one NUMA node"
    total = max(1, total)
    return total, f"{total} {words} on the node"


def usable_cpus(machine: Machine, policy: Policy, within: Optional[int] = None) -> int:
    """The CPUs that the kernel may run a shared container on: online, not isolated, not reserved, of the wanted type.

    `within` narrows to the container's own CPUs (then the kernel has already left the others out).
    """
    if within is not None:
        cpus = within & machine.online
    else:
        cpus = machine.online & ~machine.isolated
        if machine.kubelet.cpu_manager_policy == "static" and machine.kubelet.reserved_cpus:
            cpus = cpus & ~machine.kubelet.reserved_cpus or cpus
    return _of_core_type(machine, cpus, policy) or cpus or within or 1


def _of_core_type(machine: Machine, cpus: int, policy: Policy) -> int:
    """The CPUs of the wanted kind; one pool never spans both kinds of a hybrid machine unless asked to."""
    if policy.core_type == "Any" or len(machine.core_types) < 2:
        return cpus
    # Fastest first: the kernel's capacity where told, else the frequency, else P before E.
    by_speed = sorted(machine.core_types, key=lambda t: (t.capacity or 0, t.max_frequency_mhz or 0, t.name == "p-core"))
    if policy.core_type == "Efficient":
        order = by_speed
    elif policy.core_type == "Performance" or machine.core_types[0].capacity is None:
        order = by_speed[::-1]
    else:
        # Arm clusters come in many small kinds: take all but the slowest.
        slowest = by_speed[0].cpus
        return cpus & ~slowest or cpus
    for core_type in order:
        if core_type.cpus & cpus:
            return core_type.cpus & cpus
    return cpus


def _threads_on(machine: Machine, cpus: int, policy: Policy) -> int:
    return cpuset.count(cpus) if policy.smt == "AllThreads" else cores_within(machine, cpus)


def _units(machine: Machine, policy: Policy) -> str:
    hybrid = len(machine.core_types) > 1 and policy.core_type != "Any"
    if policy.smt == "AllThreads":
        return "CPUs of one core type" if hybrid else "CPUs"
    return "physical cores of one type" if hybrid else "physical cores"


def _exclusive_cap(machine: Machine, budget: Budget, policy: Policy) -> _Cap:
    """All whole cores of the exclusive set, cut to one NUMA node where that holds enough of them."""
    whole = budget.whole_cpus
    source = f"{whole} exclusive CPUs (Guaranteed, static CPU manager)"
    if budget.cpus is None:
        # The kubelet takes whole cores first (cpu_assignment.go), so an odd CPU is half a core.
        per_core = max((cpuset.count(core) for core in machine.cores), default=1)
        threads = whole if policy.smt == "AllThreads" else -(-whole // per_core)
        per_node = [_threads_on(machine, node.cpus, policy) for node in machine.numa_nodes if node.cpus]
        cut = _numa_cut(threads, per_node, policy)
        return _Cap("exclusive", max(1, cut), float(whole), _exclusive_words(source, threads, cut, whole))
    cpus = _of_core_type(machine, budget.cpus, policy) or budget.cpus
    threads = _threads_on(machine, cpus, policy)
    groups = [node.cpus & cpus for node in machine.numa_nodes if node.cpus & cpus]
    cut = _numa_cut(threads, [_threads_on(machine, group, policy) for group in groups], policy)
    if cut < threads:
        cpus = max(groups, key=lambda group: (_threads_on(machine, group, policy), -group))
    return _Cap("exclusive", max(1, cut), float(whole), _exclusive_words(source, threads, cut, whole), cpus)


def _numa_cut(threads: int, per_node: List[int], policy: Policy) -> int:
    largest = max(per_node, default=threads)
    if policy.numa == "Any" or largest >= threads or largest < 1:
        return threads
    return largest if policy.numa == "SingleNUMANode" or largest >= NUMA_SHARE * threads else threads


def _exclusive_words(source: str, threads: int, cut: int, whole: int) -> str:
    words = source if threads == whole else f"{source} on {threads} physical cores"
    return words if cut == threads else f"{words}, cut to the {cut} on one NUMA node"


# --- what is made of it ---------------------------------------------------------------------------------------------


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


def _intra_op(
    machine: Optional[Machine], cap: _Cap, streams: int, budget: Budget, policy: Policy, because: Dict[str, str]
) -> Optional[int]:
    if policy.intra_op is not None:
        because["intraOp"] = "policy threads.intraOp"
        return policy.intra_op
    if cap.threads is None:
        because["intraOp"] = cap.because
        return None
    threads, why = cap.threads, cap.because
    if policy.intra_op_percent is not None:
        threads = max(1, threads * policy.intra_op_percent // 100)
        why = f"{policy.intra_op_percent} % of {cap.threads} ({why})"
    if streams > 1:
        threads = max(1, threads // streams)
        why = f"{why}, shared by {streams} streams"
    if not budget.shim and policy.spinning != "Always" and cap.kind != "exclusive":
        bound = _uncontrolled_bound(machine, cap, budget)
        if bound < threads:
            threads, why = bound, f"{why}; spins, no shim"
    clamped = min(max(threads, policy.min_intra_op), policy.max_intra_op)
    if clamped != threads:
        why = "policy threads.{}".format("minIntraOp" if clamped > threads else "maxIntraOp")
    because["intraOp"] = why
    return clamped


def _uncontrolled_bound(machine: Optional[Machine], cap: _Cap, budget: Budget) -> int:
    """Threads that do little harm while spinning can't be turned off."""
    if cap.kind == "quota":
        return max(1, floor(cap.budget_cpus or 1.0) - 1)
    wanted = max(UNCONTROLLED_SPIN_THREADS, ceil(budget.request_cpus or 0))
    if machine is not None and machine.numa_nodes:
        wanted = min(wanted, max(1, *(cores_within(machine, node.cpus) for node in machine.numa_nodes)))
    return wanted


def _inter_op(cap: _Cap, parallel: bool, policy: Policy, because: Dict[str, str]) -> int:
    if not parallel:
        because["interOp"] = "executionMode Sequential"
        return 1
    if policy.inter_op is not None:
        because["interOp"] = "policy threads.interOp"
        return policy.inter_op
    if policy.inter_op_percent is not None and cap.threads is not None:
        because["interOp"] = f"{policy.inter_op_percent} % of {cap.threads}"
        return min(max(1, cap.threads * policy.inter_op_percent // 100), env.MAX_THREADS)
    because["interOp"] = "Parallel without a count"
    return 1


def _global_intra_op(
    cap: _Cap, intra_op: Optional[int], budget: Budget, policy: Policy, because: Dict[str, str]
) -> Optional[int]:
    """What the sessions of a process would have had together: they share the pool in place of dividing the CPUs."""
    if not policy.global_thread_pool or intra_op is None:
        return None
    together = intra_op
    if cap.threads is not None and policy.intra_op is None and policy.sessions > 1:
        together = max(intra_op, min(cap.threads // budget.workers, intra_op * policy.sessions, policy.max_intra_op))
    because["globalIntraOp"] = f"policy onnxruntime.globalThreadPool, for {policy.sessions} session(s) a process"
    return min(together, env.MAX_THREADS)


def _peak_runnable(budget: Budget, policy: Policy, intra_op: Optional[int], inter_op: int) -> Dict[str, int]:
    """Threads that can be runnable at once, by family: ORT's pools add, an OpenMP team is made per calling thread."""
    if intra_op is None:
        return {}
    callers = max(policy.sessions, policy.concurrent_runs)
    ort = callers + policy.sessions * (intra_op - 1 + inter_op - 1)
    # A caller goes on while the pool runs what its script has forked, and each of these threads has a team of its own.
    forked = inter_op if policy.execution_mode == "Parallel" else 0
    teams = {"onnxruntime": ort, "openmp": callers * intra_op, "torch": (callers + forked) * intra_op}
    return {family: budget.workers * threads for family, threads in teams.items() if family in policy.runtimes}


def _spinning(
    cap: _Cap, streams: int, peak: Dict[str, int], budget: Budget, policy: Policy, because: Dict[str, str]
) -> str:
    if policy.spinning != "Auto":
        because["spinning"] = "policy threads.spinning"
        return policy.spinning.lower()
    runnable = peak.get("onnxruntime", 0)
    if cap.kind == "quota" and cap.budget_cpus is not None and cap.budget_cpus < 1:
        why = "limit below one CPU"
    elif streams > 1:
        why = f"{streams} streams share the CPUs"
    elif cap.budget_cpus is None:
        why = "CPUs unknown"
    elif runnable > ceil(cap.budget_cpus):
        why = f"{runnable} runnable threads on {cap.budget_cpus:g} CPUs"
    elif budget.gpu:
        why = "GPU session"
    else:
        because["spinning"] = f"{runnable} runnable thread{'s' * (runnable != 1)} for {cap.budget_cpus:g} CPUs"
        return "bounded"
    because["spinning"] = why
    return "never"


def _openmp_and_blas(
    cap: _Cap, intra_op: Optional[int], policy: Policy, because: Dict[str, str]
) -> Tuple[Optional[int], Optional[int]]:
    if intra_op is None:
        return None, None
    single = ""
    if cap.kind == "quota" and (cap.budget_cpus or 0) < 1 and policy.intra_op is None:
        single = "limit below one CPU"
    elif "joblib" in policy.runtimes and policy.intra_op is None:
        # Each of its processes takes the count that it finds in the environment.
        single = "joblib's processes share the CPUs"
    omp = None
    if "openmp" in policy.runtimes or "torch" in policy.runtimes:
        omp = 1 if single else intra_op
        because["omp"] = single or "as intraOp"
    blas = None
    if "blas" in policy.runtimes:
        beside = cap.kind == "quota" and ("onnxruntime" in policy.runtimes or "torch" in policy.runtimes)
        blas = 1 if beside or single else intra_op
        because["blas"] = (
            "beside another pool under a limit: its idle threads spin too" if beside else single or "as intraOp"
        )
    return omp, blas


def _affinity(cap: _Cap, streams: int, intra_op: Optional[int], policy: Policy, because: Dict[str, str]) -> str:
    if policy.affinity == "Never":
        because["affinity"] = "policy placement.affinity"
        return "none"
    if cap.kind != "exclusive":
        because["affinity"] = "CPUs are shared"
        return "none"
    if streams > 1 or intra_op is None or intra_op < 2:
        because["affinity"] = f"{streams} streams" if streams > 1 else "one thread"
        return "none"
    because["affinity"] = "exclusive CPUs"
    return "core" if policy.affinity == "PerCore" else "numa"
