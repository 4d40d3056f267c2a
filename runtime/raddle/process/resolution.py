"""What a plan comes to in this process: `resolve(fields, facts)`, a pure function.

A plan was made at admission or at binding. In the process the cpuset, the quota and the sibling workers can be
seen, so counts are clamped here, always downwards, and affinity is allowed only where the CPUs turn out to be the
exclusive ones that the plan expects, or somebody says that they are. Only there the pool is placed, on the machine that
the plan tells of (`places`).
"""

from __future__ import annotations

from math import ceil, floor
from typing import TYPE_CHECKING, Any, Mapping

from raddle.cpus import cpuset

if TYPE_CHECKING:
    from raddle.process.current import Facts

# Bounded spinning without a number, as planner.BOUNDED_SPIN_US.
DEFAULT_SPIN_US = 50


class Effective:
    """A plan's values for one process; None means: leave it alone. `because` says what decided, value by value.

    `cap` is the number of threads that fit one session's share, None where neither quota nor cpuset is known.
    `exclusive` is True when the CPUs are the exclusive ones that the plan expects, or somebody says that they are, and
    no other stream shares them.
    `global_intra_op` is the size of the one pool of all sessions of this process, None where each has its own.
    `spinning` is what the planned counts come to; `pools_spin` says it of the counts that a session really has.
    """

    __slots__ = (
        "because",
        "cap",
        "cpu_capacity",
        "cpus_where",
        "endless",
        "exclusive",
        "global_intra_op",
        "inter_op",
        "intra_op",
        "oversubscribed",
        "runs",
        "spin_duration_us",
        "spinning",
    )

    def __init__(self) -> None:
        self.intra_op: int | None = None
        self.inter_op: int | None = None
        self.global_intra_op: int | None = None
        self.spinning: str | None = None
        self.spin_duration_us = 0
        self.cap: int | None = None
        self.exclusive = False
        self.because: dict[str, str] = {}
        # What decides about bounded spinning: callers of one session, CPUs for their threads, other workers, and
        # whether it need not end on CPUs that nobody else has.
        self.runs = 1
        self.cpu_capacity: int | None = None
        self.cpus_where = ""
        self.oversubscribed = False
        self.endless = False

    def above(self, count: int | None) -> str:
        """What a count in the code is above, in words; "" where it is not above what the process may use."""
        if count is None or self.cpu_capacity is None or count <= self.cpu_capacity:
            return ""
        return ", above " + self.cpus_where

    def pools_spin(self, intra_op: int | None, inter_op: int | None, *, parallel: bool) -> tuple[str, str]:
        """What pools of these counts do that are planned to spin for a time, and why where that is not it.

        Threads of one session that want a CPU at once are its callers, and its pools' workers.
        """
        runnable = self.runs + (intra_op or 1) - 1 + ((inter_op or 1) - 1 if parallel else 0)
        if self.oversubscribed or (self.cpu_capacity is not None and runnable > self.cpu_capacity):
            return "never", "planned bounded, turned off: " + self.cpus_where
        return ("always" if self.endless else "bounded"), ""


def resolve(fields: Mapping[str, Any], facts: Facts) -> Effective:
    """What the plan's fields (env.decode) come to for these facts."""
    result = Effective()
    size = cpuset.count(facts.cpus) if facts.cpus else None
    words = f"CPU affinity of {size} ({facts.owner})" if facts.owner else f"CPU affinity of {size}"
    threads, where = cpu_capacity, cpus_where = _capacity(fields, facts, size, words)
    if facts.placed is not None:
        # Threads that want a CPU are counted against CPUs; those of a pool against what it is placed on.
        threads, where = _capacity(fields, facts, facts.placed.threads, facts.placed.because)
    workers, streams = fields.get("workers", 1), fields.get("streams", 1)
    oversubscribed = facts.workers_seen > workers
    if oversubscribed:
        streams = facts.workers_seen * max(1, streams // workers)
        workers = facts.workers_seen
        where += f", shared by {workers} workers"
        cpus_where += f", shared by {workers} workers"
    share = None if threads is None else max(1, threads // workers)
    result.cap = None if threads is None else max(1, threads // streams)
    least = fields.get("min_intra_op", 1)
    result.intra_op = _clamped("intraOp", fields.get("intra_op"), result.cap, least, where, result.because)
    result.inter_op = _clamped(
        "interOp", fields.get("inter_op"), result.cap, fields.get("min_inter_op", 1), where, result.because
    )
    if fields.get("global_thread_pool"):
        planned = fields.get("global_intra_op", fields.get("intra_op"))
        result.global_intra_op = _clamped("globalIntraOp", planned, share, least, where, result.because)
    result.exclusive = (0 < fields.get("exclusive_cpus", 0) == size or facts.owner != "") and streams == 1
    result.runs, result.cpu_capacity, result.cpus_where = fields.get("concurrent_runs", 1), cpu_capacity, cpus_where
    result.oversubscribed = oversubscribed
    result.endless = result.exclusive and fields.get("exclusive_spinning") == "always"
    result.spinning = fields.get("spinning")
    if result.spinning == "bounded":
        result.spinning, why = result.pools_spin(
            result.intra_op, result.inter_op, parallel=fields.get("execution_mode") == "parallel"
        )
        if why:
            result.because["spinning"] = why
        if result.spinning == "bounded":
            result.spin_duration_us = fields.get("spin_duration_us", DEFAULT_SPIN_US)
    return result


def _capacity(fields: Mapping[str, Any], facts: Facts, size: int | None, words: str) -> tuple[int | None, str]:
    """The smaller of the quota and `size` (None: not known), and in words which of the two it is."""
    quota = facts.quota_cpus
    # More threads than the quota were planned for one process that serves one request at a time.
    over_quota = fields.get("over_quota") and facts.workers_seen <= fields.get("workers", 1)
    if quota is None or over_quota or (size is not None and quota >= size):
        return size, words
    return max(1, floor(quota) if fields.get("floor") else ceil(quota)), f"quota {quota:g}"


def _clamped(
    key: str, planned: int | None, cap: int | None, least: int, where: str, because: dict[str, str]
) -> int | None:
    if planned is None or cap is None or planned <= cap:
        return planned
    # Never more than planned: `least` above the plan is a plan that contradicts itself.
    value = max(cap, min(least, planned))
    if value < planned:
        because[key] = f"planned {planned}, cut to {where}"
    return value
