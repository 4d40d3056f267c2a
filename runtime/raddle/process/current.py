"""What holds for this process now: its CPUs, its quota, the workers beside it; `read_facts` never raises."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Mapping

from raddle import errors, log
from raddle.cpus import cpuset
from raddle.process import cgroup, siblings

if TYPE_CHECKING:
    from raddle.cpus.placement import Placement


class Facts:
    """What holds for this process now.

    cpus          the CPUs that it may run on (sched_getaffinity; within the cpuset), None where that can't be read.
    quota_cpus    CFS quota of the tightest visible cgroup in CPUs, None: none.
    workers_seen  processes like this one with the same parent, this one counted; at least 1. Where they are more than
                  planned, only those that have the runtime, and at least as many as planned.
    first_worker  this process is the oldest of those by number.
    throttled     (nr_periods, nr_throttled, throttled_us) of the cgroup so far, None where it can't be read.
    cgroup_path   that cgroup's folder, None where there is none to see.
    placed        where a pool goes on the CPUs (`place`); None where they are not the plan's exclusive ones, or it
                  doesn't know them.
    controller    what `refresh` reads the cgroup's facts from, None where it can't.
    """

    __slots__ = (
        "cgroup_path",
        "controller",
        "cpus",
        "first_worker",
        "placed",
        "quota_cpus",
        "throttled",
        "workers_seen",
    )

    def __init__(
        self,
        cpus: int | None,
        quota_cpus: float | None = None,
        workers_seen: int = 1,
        *,
        first_worker: bool = True,
        throttled: tuple[int, int, int] | None = None,
        cgroup_path: str | None = None,
        placed: Placement | None = None,
    ) -> None:
        self.cpus = cpus
        self.quota_cpus = quota_cpus
        self.workers_seen = workers_seen
        self.first_worker = first_worker
        self.throttled = throttled
        self.cgroup_path = cgroup_path
        self.placed = placed
        self.controller: cgroup.CPUController | None = None

    def copy(self) -> Facts:
        """The same facts, to be refreshed by one thread while others use these."""
        same = Facts(self.cpus, self.quota_cpus, self.workers_seen, first_worker=self.first_worker)
        same.throttled, same.cgroup_path, same.placed = self.throttled, self.cgroup_path, self.placed
        same.controller = self.controller
        return same


def place(fields: Mapping[str, Any], cpus: int | None) -> Placement | None:
    """Where a pool goes on these CPUs, where they are the exclusive ones that the plan expects and knows, else None."""
    if not cpus or fields.get("excl", 0) != cpuset.count(cpus):
        return None
    try:
        # Imported here: only an exclusive container needs it.
        from raddle.cpus import places  # noqa: PLC0415

        return places.placed(fields, cpus)
    except Exception as error:
        log.failed("exclusive CPUs are only counted", error)
        return None


def read_facts(fields: Mapping[str, Any] | None = None, library: bytes = b"") -> Facts:
    """The facts of this process; `fields` are the plan's whose pools are to be placed.

    `library` (siblings.ONNXRUNTIME, siblings.TORCH) is what a worker has mapped; without it all processes like this
    one are counted.
    Never raises: what can't be read is None, and that no quota can be is said.
    """
    facts = Facts(None)
    try:
        facts.controller = cgroup.CPUController()
    except Exception as error:
        errors.let_through(error)
    refresh(facts)
    if facts.cgroup_path is None:
        log.announce("facts", "no cgroup can be read below /proc and /sys: counts are not cut to a quota")
    try:
        workers, planned = siblings.same_program(), (fields or {}).get("workers", 1)
        if library and len(workers) > planned:
            workers = siblings.serving(workers, library)
            facts.workers_seen = max(planned, len(workers))
        else:
            facts.workers_seen = max(1, len(workers))
        facts.first_worker = min(workers, default=0) in (0, os.getpid())
    except (OSError, ValueError) as error:
        errors.let_through(error)
    facts.placed = place(fields, facts.cpus) if fields else None
    return facts


def refresh(facts: Facts) -> None:
    """Reads the CPUs and the cgroup's facts again, which a resize in place changes; the workers stay as they were.

    Never raises: what can't be read is None.
    """
    facts.cpus = read_cpus()
    found = cgroup.ResourceLimits()
    try:
        if facts.controller is not None:
            found = facts.controller.read()
    except Exception as error:
        errors.let_through(error)
    facts.quota_cpus, facts.cgroup_path = found.quota_cpus, found.quota_path
    facts.throttled = None
    if found.nr_periods is not None and found.nr_throttled is not None and found.throttled_us is not None:
        facts.throttled = (found.nr_periods, found.nr_throttled, found.throttled_us)


def read_cpus() -> int | None:
    """The CPUs that the calling thread may run on, and its future threads with it; None where that can't be read."""
    try:
        return cpuset.of(os.sched_getaffinity(0))
    except (AttributeError, OSError) as error:
        errors.let_through(error)
        return None
