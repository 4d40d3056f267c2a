"""The plan against what the container really has: `resolve(fields, facts)` is pure, `read_facts` reads.

A plan was made at admission or at binding. In the process the cpuset, the quota and the sibling workers can be
seen, so counts are clamped here, always downwards, and affinity is allowed only where the CPUs turn out to be the
exclusive ones that the plan expects. Only there the pool is placed, on the machine that the plan tells of (`places`).
"""

from __future__ import annotations

import os
import time
from math import ceil, floor
from typing import TYPE_CHECKING, Any, Mapping

from raddle import cgroup, cpuset, errors, record

if TYPE_CHECKING:
    from raddle.placement import Placement

# Sibling processes and threads of the parent that are looked at.
MAX_SIBLINGS = 1024
MAX_PARENT_THREADS = 4096
# A worker that started after this one may not have come to its runtime before this age.
STARTING_S = 10
# What the base name of a runtime's mapped library contains.
ONNXRUNTIME = b"onnxruntime"
TORCH = b"libtorch"


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


class Effective:
    """A plan's values for one process; None means: leave it alone. `because` says what decided, value by value.

    `cap` is the number of threads that fit one session's share, None where neither quota nor cpuset is known.
    `exclusive` is True when the CPUs are the exclusive ones that the plan expects and nobody shares them.
    `global_intra` is the size of the one pool of all sessions of this process, None where each has its own.
    `spin` is what the planned counts come to; `spinning` says it of the counts that a session really has.
    """

    __slots__ = (
        "because",
        "cap",
        "cpus_room",
        "cpus_where",
        "crowded",
        "endless",
        "exclusive",
        "global_intra",
        "inter",
        "intra",
        "runs",
        "spin",
        "spin_us",
    )

    def __init__(self) -> None:
        self.intra: int | None = None
        self.inter: int | None = None
        self.global_intra: int | None = None
        self.spin: str | None = None
        self.spin_us = 0
        self.cap: int | None = None
        self.exclusive = False
        self.because: dict[str, str] = {}
        # What decides about bounded spinning: callers of one session, CPUs for their threads, other workers, and
        # whether it need not end on CPUs that nobody else has.
        self.runs = 1
        self.cpus_room: int | None = None
        self.cpus_where = ""
        self.crowded = False
        self.endless = False

    def spinning(self, intra: int | None, inter: int | None, *, parallel: bool) -> tuple[str, str]:
        """What pools of these counts do that are planned to spin for a time, and why where that is not it.

        Threads of one session that want a CPU at once are its callers, and its pools' workers.
        """
        runnable = self.runs + (intra or 1) - 1 + ((inter or 1) - 1 if parallel else 0)
        if self.crowded or (self.cpus_room is not None and runnable > self.cpus_room):
            return "never", "planned bounded, stopped: " + self.cpus_where
        return ("always" if self.endless else "bounded"), ""


# Bounded spinning without a number, as planner.BOUNDED_SPIN_US.
DEFAULT_SPIN_US = 50


def resolve(fields: Mapping[str, Any], facts: Facts) -> Effective:
    """What the plan's fields (env.decode) come to for these facts."""
    found = Effective()
    size = cpuset.count(facts.cpus) if facts.cpus else None
    room, where = cpus_room, cpus_where = _room(fields, facts, size, f"cpuset of {size}")
    if facts.placed is not None:
        # Threads that want a CPU are counted against CPUs; those of a pool against what it is placed on.
        room, where = _room(fields, facts, facts.placed.threads, facts.placed.because)
    workers, streams = fields.get("workers", 1), fields.get("streams", 1)
    crowded = facts.workers_seen > workers
    if crowded:
        streams = facts.workers_seen * max(1, streams // workers)
        workers = facts.workers_seen
        where += f", shared by {workers} workers"
        cpus_where += f", shared by {workers} workers"
    share = None if room is None else max(1, room // workers)
    found.cap = None if room is None else max(1, room // streams)
    least = fields.get("min", 1)
    found.intra = _clamped("intra", fields.get("intra"), found.cap, least, where, found.because)
    found.inter = _clamped("inter", fields.get("inter"), found.cap, fields.get("min_inter", 1), where, found.because)
    if fields.get("global"):
        planned = fields.get("global_intra", fields.get("intra"))
        found.global_intra = _clamped("global_intra", planned, share, least, where, found.because)
    found.exclusive = 0 < fields.get("excl", 0) == size and streams == 1
    found.runs, found.cpus_room, found.cpus_where = fields.get("runs", 1), cpus_room, cpus_where
    found.crowded, found.endless = crowded, found.exclusive and bool(fields.get("excl_always"))
    found.spin = fields.get("spin")
    if found.spin == "bounded":
        found.spin, why = found.spinning(found.intra, found.inter, parallel=fields.get("mode") == "parallel")
        if why:
            found.because["spin"] = why
        if found.spin == "bounded":
            found.spin_us = fields.get("spin_us", DEFAULT_SPIN_US)
    return found


def _room(fields: Mapping[str, Any], facts: Facts, size: int | None, words: str) -> tuple[int | None, str]:
    """The smaller of the quota and `size` (None: not known), and in words which of the two it is."""
    quota = facts.quota_cpus
    # More threads than the quota were planned for one process that serves one request at a time.
    over_quota = fields.get("over_quota") and facts.workers_seen <= fields.get("workers", 1)
    if quota is None or over_quota or (size is not None and quota >= size):
        return size, words
    threads = max(1, floor(quota) if fields.get("floor") else ceil(quota))
    return threads, f"quota {quota:g}"


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


def place(fields: Mapping[str, Any], cpus: int | None) -> Placement | None:
    """Where a pool goes on these CPUs, where they are the exclusive ones that the plan expects and knows, else None."""
    if not cpus or fields.get("excl", 0) != cpuset.count(cpus):
        return None
    try:
        # Imported here: only an exclusive container needs it.
        from raddle.adapters import places  # noqa: PLC0415

        return places.placed(fields, cpus)
    except Exception as error:
        record.failed("exclusive CPUs are only counted", error)
        return None


def read_facts(fields: Mapping[str, Any] | None = None, library: bytes = b"") -> Facts:
    """The facts of this process; `fields` are the plan's whose pools are to be placed.

    `library` (ONNXRUNTIME, TORCH) is what a worker has mapped; without it all processes like this one are counted.
    Never raises: what can't be read is None, and that no quota can be is said.
    """
    facts = Facts(None)
    try:
        facts.controller = cgroup.CPUController()
    except Exception as error:
        errors.let_through(error)
    refresh(facts)
    if facts.cgroup_path is None:
        record.announce("facts", "no cgroup can be read below /proc and /sys: counts are not cut to a quota")
    try:
        workers, planned = _siblings(), (fields or {}).get("workers", 1)
        if library and len(workers) > planned:
            workers = _serving(workers, library)
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
    found = cgroup.Allotment()
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


def _siblings() -> list[int]:
    """Ids of the parent's children that run the same command line, digits aside, this process among them.

    Digits are left out because a pool numbers its workers' pipes and sockets. Empty where the kernel does not list
    children (/proc/<pid>/task/<tid>/children, CONFIG_PROC_CHILDREN). Raises OSError where it hides the parent.
    """
    parent = os.getppid()
    if parent == 0:
        return [os.getpid()]
    mine = _command_line("self")
    found: list[int] = []
    # A child is listed by the thread that made it; each thread and each child may end meanwhile.
    for thread in os.listdir(f"/proc/{parent}/task")[:MAX_PARENT_THREADS]:
        try:
            for child in _read(f"/proc/{parent}/task/{thread}/children").split():
                if len(found) < MAX_SIBLINGS and _runs(child.decode(), mine):
                    found.append(int(child))
        except OSError as error:  # noqa: PERF203  # as above
            errors.let_through(error)
    return found


def _runs(pid: str, command_line: bytes) -> bool:
    try:
        return _command_line(pid) == command_line
    except OSError as error:
        errors.let_through(error)
        return False


def _serving(siblings: list[int], library: bytes) -> list[int]:
    """Those that have mapped the library, or may be about to: they started after this one, and only seconds ago.

    One that started before this one has had the time: its maps tell. What can't be read for lack of rights counts.
    """
    me = os.getpid()
    started, now = _start_s(me), time.clock_gettime(time.CLOCK_BOOTTIME)
    found = []
    for sibling in siblings:
        try:
            if sibling != me and not _has_mapped(sibling, library):
                theirs = _start_s(sibling)
                if (theirs, sibling) < (started, me) or now - theirs > STARTING_S:
                    continue
        except PermissionError as error:
            errors.let_through(error)
        except OSError as error:
            errors.let_through(error)
            continue
        found.append(sibling)
    return found


def _start_s(pid: int) -> float:
    """When the process was started, in seconds of the clock BOOTTIME: proc(5), /proc/<pid>/stat, field 22."""
    # The program's name, in brackets, may hold anything.
    return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def _has_mapped(pid: int, library: bytes) -> bool:
    """Whether a file whose base name contains this is mapped in the process."""
    file = os.open(f"/proc/{pid}/maps", os.O_RDONLY | os.O_CLOEXEC)
    try:
        rest = b""
        while True:
            chunk = os.read(file, 65536)
            lines = (rest + chunk).split(b"\n")
            if any(library in line.rpartition(b"/")[2] for line in lines):
                return True
            if not chunk:
                return False
            rest = lines[-1]
    finally:
        os.close(file)


def _command_line(pid: str) -> bytes:
    return _read(f"/proc/{pid}/cmdline").translate(None, b"0123456789")


def _read(path: str) -> bytes:
    # open() would build a buffered reader and ask for the file's size first: three times the cost.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The kernel gives a page at a time.
        return b"".join(iter(lambda: os.read(file, 65536), b""))
    finally:
        os.close(file)
