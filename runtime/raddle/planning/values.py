"""What a plan comes to in one environment variable: pure functions of a plan and its policy.

The rows of `families` and `templates` name them. None: the variable is not set now.
"""

from __future__ import annotations

from typing import Callable, Dict, Union

from raddle import env
from raddle.planning.families import BLOCKTIME_MS, JAVA_CPUS, LIBUV_THREADS, NUMEXPR_MOST
from raddle.planning.planner import Plan
from raddle.planning.policy import Policy


def processors(plan: Plan, policy: Policy) -> int | None:
    """CPUs of one process: the container's, divided by its workers."""
    if plan.cap is None:
        return compute(plan, policy)
    return _within(plan.cap // plan.workers)


def compute(plan: Plan, policy: Policy) -> int | None:
    """Threads of one compute pool: as intraOp, also where the pod spec keeps ONNX Runtime's own count."""
    if plan.intra_op is not None:
        return plan.intra_op
    if policy.intra_op is not None:
        return policy.intra_op
    if plan.cap is None:
        return None
    return _within(min(max(plan.cap // plan.streams, policy.min_intra_op), policy.max_intra_op))


def _within(count: int) -> int:
    return min(max(1, count), env.MAX_THREADS)


def workers(plan: Plan, _policy: Policy) -> int:
    """Processes that share the container's CPUs."""
    return plan.workers


def openmp(plan: Plan, policy: Policy) -> int | None:
    """Threads of an OpenMP team: as OMP_NUM_THREADS."""
    return compute(plan, policy) if plan.omp is None else plan.omp


def spins(plan: Plan, _policy: Policy) -> int:
    """Whether idle threads may spin: 1 or 0."""
    return int(plan.spinning != "never")


def blas(plan: Plan, policy: Policy) -> int | None:
    """Threads of a BLAS beside the runtimes."""
    return compute(plan, policy) if plan.other_blas is None else plan.other_blas


def mkl(plan: Plan, policy: Policy) -> int | None:
    """As OpenBLAS's; but torch takes its own pool's size from MKL's, so beside torch never below OMP_NUM_THREADS."""
    count = blas(plan, policy)
    if count is None or "torch" not in policy.runtimes:
        return count
    return max(count, plan.omp or count)


def libuv(plan: Plan, policy: Policy) -> int | None:
    """Threads of Node.js's pool, never fewer than it has by itself."""
    count = processors(plan, policy)
    return None if count is None else _within(max(LIBUV_THREADS, count, policy.concurrent_runs))


def numexpr(plan: Plan, policy: Policy) -> int | None:
    """Threads of numexpr, as OpenMP's up to the most that it takes."""
    threads = compute(plan, policy) if plan.omp is None else plan.omp
    return None if threads is None else min(threads, NUMEXPR_MOST)


def wait_policy(_plan: Plan, policy: Policy) -> str | None:
    """The word of OMP_WAIT_POLICY."""
    return {"Never": "PASSIVE", "Always": "ACTIVE"}.get(policy.spinning)


def blocktime_ms(_plan: Plan, policy: Policy) -> int | None:
    """Milliseconds that an OpenMP team spins after a region."""
    return {"Never": 0, "Always": None}.get(policy.spinning, BLOCKTIME_MS)


def inter_op(plan: Plan, policy: Policy) -> int | None:
    """Threads that run operators side by side."""
    return plan.inter_op or policy.inter_op or 1


def java_processors(plan: Plan, policy: Policy) -> str | None:
    """Java's option with the CPUs of one process."""
    count = processors(plan, policy)
    return None if count is None else f"{JAVA_CPUS}{count}"


_Function = Callable[[Plan, Policy], Union[int, str, None]]
_FUNCTIONS: Dict[str, _Function] = {
    "blas": blas,
    "blocktime_ms": blocktime_ms,
    "compute": compute,
    "inter_op": inter_op,
    "java_processors": java_processors,
    "libuv": libuv,
    "mkl": mkl,
    "numexpr": numexpr,
    "openmp": openmp,
    "processors": processors,
    "spins": spins,
    "wait_policy": wait_policy,
    "workers": workers,
}


def computed(value: str, plan: Plan, policy: Policy) -> int | str | None:
    """The value that a row names: of a function of this module, or the whole number itself."""
    function = _FUNCTIONS.get(value)
    return value if function is None else function(plan, policy)
