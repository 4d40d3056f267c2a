"""What holds for this process now: its CPUs, its quota, the workers beside it; `read_facts` never raises."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Mapping

from raddle import CPUS, errors, files, log
from raddle.cpus import cpuset
from raddle.process import cgroup, siblings

if TYPE_CHECKING:
    from raddle.cpus.placement import Placement

# Where somebody says which CPUs are the container's own: DRA's CPU driver in variables, nri-plugins in a file.
_CLAIM = "DRA_CPUSET_"
_RESOURCES = "/.nri-resource-policy/resources.sh"
_OWN = ("EXCLUSIVE_CPUS=", "ISOLATED_CPUS=")
# Of all that one of them says.
_MAX_OWN_TEXT = 4096
# What has an OpenMP library bind threads to CPUs, unless the value has one of these words.
_BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
_NO_BINDING = ("false", "none", "disabled")


class Facts:
    """What holds for this process now.

    cpus          the CPUs that it may run on (`read_cpus`), None where that can't be read.
    bound         the calling thread may run on some of them only, and so may the threads that it starts.
    owner         who says that these CPUs are the container's own, in words (`owner_of`); "": nobody.
    quota_cpus    CFS quota of the tightest visible cgroup in CPUs, None: none.
    workers_seen  processes like this one with the same parent, this one counted; at least 1. Where they are more than
                  planned, only those that have the runtime, and at least as many as planned.
    first_worker  this process is the oldest of those by number.
    throttled     (nr_periods, nr_throttled, throttled_us) of the cgroup so far, None where it can't be read.
    cgroup_path   that cgroup's folder, None where there is none to see.
    placed        where a pool goes on the CPUs (`place`); None where they are not the container's own, or the plan
                  doesn't know them.
    controller    what `refresh` reads the cgroup's facts from, None where it can't.
    """

    __slots__ = (
        "bound",
        "cgroup_path",
        "controller",
        "cpus",
        "first_worker",
        "owner",
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
        owner: str = "",
    ) -> None:
        self.cpus = cpus
        self.bound = False
        self.owner = owner
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
        same.controller, same.owner, same.bound = self.controller, self.owner, self.bound
        return same


def place(fields: Mapping[str, Any], cpus: int | None, owner: str = "") -> Placement | None:
    """Where a pool goes on these CPUs, where they are the container's own and the plan knows them, else None.

    They are where they are as many as the plan expects to be exclusive, or have an `owner` (`owner_of`).
    """
    if not cpus or (fields.get("exclusive_cpus", 0) != cpuset.count(cpus) and not owner):
        return None
    try:
        # Imported here: only an exclusive container needs it.
        from raddle.cpus import places  # noqa: PLC0415

        return places.placed(fields, cpus)
    except Exception as error:
        log.failed("exclusive CPUs are only counted", error)
        return None


def read_facts(fields: Mapping[str, Any] | None = None, library: tuple[bytes, ...] = ()) -> Facts:
    """The facts of this process; `fields` are the plan's whose pools are to be placed.

    `library` (libraries.name_starts) is what the name of a file that a worker has mapped begins with; without it all
    processes like this one are counted.
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
    facts.placed = place(fields, facts.cpus, facts.owner) if fields else None
    return facts


def refresh(facts: Facts) -> None:
    """Reads the CPUs and the cgroup's facts again, which a resize in place changes; the workers stay as they were.

    Never raises: what can't be read is None.
    """
    facts.cpus, facts.bound = read_cpus()
    facts.owner = _read_owner(facts.cpus) if facts.cpus else ""
    result = cgroup.ResourceLimits()
    try:
        if facts.controller is not None:
            result = facts.controller.read()
    except Exception as error:
        errors.let_through(error)
    facts.quota_cpus, facts.cgroup_path = result.quota_cpus, result.quota_path
    facts.throttled = None
    if result.nr_periods is not None and result.nr_throttled is not None and result.throttled_us is not None:
        facts.throttled = (result.nr_periods, result.nr_throttled, result.throttled_us)


def read_cpus() -> tuple[int | None, bool]:
    """(the CPUs that the process may run on, None where that can't be read; whether the calling thread has fewer).

    They are those of its threads together, for one that binds itself binds no other. Under OpenMP's own variables they
    are also those of the process's start: there OpenMP binds each thread that calls it, and the first one as soon as it
    is loaded.
    """
    try:
        own = os.sched_getaffinity(0)
    except (AttributeError, OSError) as error:
        errors.let_through(error)
        return None, False
    every = set(own)
    try:
        if not every >= CPUS:
            for thread in os.listdir("/proc/self/task"):
                every |= _cpus_of(int(thread))
        if not every >= CPUS and openmp_binds(os.environ):
            every |= _still_allowed(CPUS, own)
    except Exception as error:
        # No /proc, or a sandbox; and another thread may change the environment meanwhile.
        errors.let_through(error)
    return cpuset.of(every), len(own) < len(every)


def openmp_binds(environ: Mapping[str, str]) -> bool:
    """Whether an OpenMP library binds threads to CPUs in this environment."""
    binds = False
    for name in _BINDING:
        value = environ.get(name, "").lower()
        is_off = any(word in value for word in _NO_BINDING)
        if is_off and name == _BINDING[0]:
            return False
        binds = binds or (value != "" and not is_off)
    return binds


def _cpus_of(thread: int) -> set[int]:
    try:
        return os.sched_getaffinity(thread)
    except OSError as error:
        # It has ended.
        errors.let_through(error)
        return set()


def _still_allowed(cpus: frozenset[int], own: set[int]) -> set[int]:
    """Those of the CPUs that the cgroup's cpuset has now: what the kernel lets the calling thread have for a moment."""
    os.sched_setaffinity(0, cpus)
    try:
        return os.sched_getaffinity(0)
    finally:
        os.sched_setaffinity(0, own)


def owner_of(cpus: int, environ: Mapping[str, str], resources: str) -> str:
    """Who says that exactly these CPUs are the container's own, in words; "" where nobody does.

    What is said is of the container's start, and its CPUs may be others by now: only those that the process really
    has are believed to be its own. `resources` is the text of nri-plugins' file.
    """
    if _make_up(cpus, [environ[name] for name in environ if name.startswith(_CLAIM)]):
        return "DRA CPU claim"
    lines = [line.split('"') for line in resources.split("\n")]
    own = [line[1] if len(line) == 3 and not line[2] else "malformed" for line in lines if line[0] in _OWN]
    return "nri-plugins" if _make_up(cpus, own) else ""


def _make_up(cpus: int, lists: list[str]) -> bool:
    """Whether the CPU lists name these CPUs together, and no others."""
    if sum(map(len, lists)) > _MAX_OWN_TEXT or not all(map(str.isascii, lists)):
        return False
    named = 0
    try:
        for text in lists:
            named |= cpuset.parse_list(text)
    except ValueError as error:
        errors.let_through(error)
        return False
    return named == cpus


def _read_owner(cpus: int) -> str:
    try:
        return owner_of(cpus, os.environ, files.text_or_nothing(_RESOURCES, True, _MAX_OWN_TEXT))
    except Exception as error:
        # Another thread may change the environment meanwhile.
        errors.let_through(error)
        return ""
