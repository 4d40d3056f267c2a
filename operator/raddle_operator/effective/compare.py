"""A node's report with what was planned beside it, and what is not as planned: its cause, and what to do.

It errs on the side of silence. What is told of is known from who has set it (the shim's word), or does harm: threads
that only sleep, or that share CPUs without waiting for them, are nobody's concern.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import ceil
from typing import Final, NamedTuple

from raddle.cpus import cpuset
from raddle.cpus.topology import Machine
from raddle.libraries import LIBRARIES
from raddle.planning import families
from raddle_operator.effective.planned import ContainerPlan
from raddle_operator.objects.nodereport import Cause, Container, Finding, NodeReport, Pool, Process, Session

MOST_FINDINGS: Final = 8
"""Of one container: at most one for each cause, and one more of SharedCores."""
MOST_CHARACTERS: Final = 400
_NAME_CHARACTERS: Final = 40
# Of its sessions a shim tells; of other runtimes it sets counts and says nothing.
_TOLD_OF: Final = "onnxruntime"
_FAMILIES: Final = {one.runtime: one.family for one in LIBRARIES}
# Threads that a server has beside its pools: the main one, its event loop, garbage collection.
_SLACK: Final = 2
# A part of a CPU, or of the limit where that is less, that a pool has to use to be called busy.
_BUSY: Final = 0.1
# Throttled periods, or waits for a CPU as a part of the CPU time: below it threads do not stand in each other's way.
_HARM: Final = 0.05
# Threads that want so much of a CPU, running or waiting for it, wait this part of what they ran and never change it are
# bound to it, or might as well be. Where others are on it too they may get very little.
_WANTED_CPUS: Final = 0.5
_LONG_WAIT: Final = 0.2

Key = tuple[str, str]
"""(the pod's UID, the container's name)."""


def compared(
    report: NodeReport,
    planned: Mapping[Key, ContainerPlan],
    first_cpusets: Mapping[Key, str],
    machine: Machine | None = None,
) -> NodeReport:
    """The report with planned and effective threads and findings, the worst first. Never raises.

    `first_cpusets` are those that the containers had when they were first seen. Without the `machine` nothing can be
    said of cores that are shared, nor of a count that is the host's.
    """
    plans = [planned.get((one.uid, one.name)) for one in report.containers]
    shared = _shared_cores(report.containers, plans, machine) if machine is not None else {}
    containers = []
    for place, (one, plan) in enumerate(zip(report.containers, plans, strict=True)):
        if plan is None:
            containers.append(one)
            continue
        first = first_cpusets.get((one.uid, one.name))
        result = [*_of_container(one, plan, first, machine), *shared.get(place, ())]
        containers.append(
            replace(
                one,
                policy=one.policy or plan.policy,
                planned_threads=plan.threads,
                effective_threads=_effective(one),
                findings=tuple(finding for _, finding in sorted(result, key=_worst_first)[:MOST_FINDINGS]),
            )
        )
    return replace(report, containers=tuple(containers))


class _Weighted(NamedTuple):
    """A finding and how bad it is: how many times too many threads, less than 1 for what costs nothing yet."""

    weight: float
    finding: Finding


# Of two that weigh the same.
_ORDER: Final = tuple(Cause)


def _worst_first(result: _Weighted) -> tuple[float, int, str]:
    return -result.weight, _ORDER.index(result.finding.cause), result.finding.detail


def _weighted(weight: float, cause: Cause, detail: str, fix: str) -> _Weighted:
    return _Weighted(weight, Finding(cause=cause, detail=detail[:MOST_CHARACTERS], fix=fix[:MOST_CHARACTERS]))


# --- what is in effect ------------------------------------------------------------------------------------------------


def _effective(container: Container) -> int | None:
    """The shim's word for the largest session, else the threads of the busiest pool; None where neither is known."""
    said = [one.threads for one in _sessions(container.processes) if one.threads is not None]
    if said:
        return max(said)
    ran = [pool for process in container.processes for pool in process.pools if pool.ran]
    return max(ran, key=lambda pool: (pool.used_cpus, pool.ran)).ran if ran else None


def _sessions(processes: Iterable[Process]) -> list[Session]:
    return [session for process in processes for session in process.sessions or ()]


# --- one container ----------------------------------------------------------------------------------------------------


def _of_container(
    container: Container, plan: ContainerPlan, first_cpuset: str | None, machine: Machine | None
) -> Iterator[_Weighted]:
    told = _code_sets_it(container, plan)
    silent = [one for one in container.processes if _is_silent(one, plan, container, machine)]
    yield from _worst(told)
    yield from _worst(_not_reached(one, plan, container) for one in silent)
    yield from _worst(_skipped(container, plan))
    blamed = {one.pid for one in silent} | {one.pid for one in container.processes if told and one.sessions}
    others = [one for one in container.processes if one.pid not in blamed]
    yield from _worst(
        _other_threads(one, pool, plan, container)
        for one in others
        for pool in one.pools
        if _is_excess(pool, one, plan, container)
    )
    yield from _oversubscribed(container, plan)
    yield from _resized(container, plan)
    yield from _cpuset_changed(container, plan, first_cpuset)


def _worst(result: Iterable[_Weighted]) -> list[_Weighted]:
    """The worst one of a cause; the others would say the same of other processes."""
    return sorted(result, key=_worst_first)[:1]


def _code_sets_it(container: Container, plan: ContainerPlan) -> list[_Weighted]:
    result = []
    for process in container.processes:
        of_code = [one for one in process.sessions or () if one.source == "code" and one.threads is not None]
        for session in of_code:
            wanted = _count_of(session, plan)
            if wanted is None or session.threads is None or session.threads == wanted:
                continue
            alike = sum(1 for one in of_code if (one.runtime, one.threads) == (session.runtime, session.threads))
            in_sessions = f" in {alike} sessions" if alike > 1 else ""
            detail = (
                f"the code sets {_threads(session.threads)} for {_short(session.runtime)}{in_sessions}"
                f" of {_process(process)}, {_planned(wanted)}; {_cpus_text(container)}"
            )
            fix = (
                "the policy already overrides such values: restart the pod"
                if plan.overrides
                else "remove the count from the code, or set existingValues: Override in the policy and restart"
            )
            result.append(_weighted(_times(session.threads, wanted), Cause.CODE_SETS_IT, detail, fix))
    return result


def _skipped(container: Container, plan: ContainerPlan) -> Iterator[_Weighted]:
    """Sessions that a shim has seen and in which the runtime's own count is in effect."""
    for process in container.processes:
        for session in process.sessions or ():
            wanted = _count_of(session, plan)
            if session.source != "default" or session.threads is None or wanted is None or session.threads <= wanted:
                continue
            detail = (
                f"{_short(session.runtime)}'s own count, {_threads(session.threads)}, is in effect in"
                f" {_process(process)}, {_planned(wanted)}; {_cpus_text(container)}"
            )
            fix = f"find out why the shim did not configure it: {_explain(container)}"
            yield _weighted(_times(session.threads, wanted), Cause.NOT_REACHED, detail, fix)


def _count_of(session: Session, plan: ContainerPlan) -> int | None:
    return plan.counts.get(session.runtime, plan.threads if session.runtime == "onnxruntime" else None)


def _is_silent(process: Process, plan: ContainerPlan, container: Container, machine: Machine | None) -> bool:
    """Whether a shim should be in the process, none has spoken, and its threads are more than planned.

    Where its libraries can't be seen only both signs together tell: too many that do harm, and as many as the host has.
    """
    if not process.listened or not _should_speak(process, plan):
        return False
    is_excess = any(_is_excess(pool, process, plan, container) for pool in process.pools)
    # A pool has one thread less than its count, since the caller works too; and others have its name.
    host = cpuset.count(machine.online) if machine is not None else 0
    is_hosts = host - 1 > _most(process, plan) and any(host - 1 <= pool.threads <= 2 * host for pool in process.pools)
    if process.runtimes is None:
        return is_excess and is_hosts
    return _TOLD_OF in process.runtimes and (is_excess or is_hosts)


def _should_speak(process: Process, plan: ContainerPlan) -> bool:
    """Whether no shim was heard of which one should be."""
    return plan.shim and process.sessions is None and _TOLD_OF in plan.runtimes


def _not_reached(process: Process, plan: ContainerPlan, container: Container) -> _Weighted:
    pool = max(process.pools, key=lambda pool: (pool.ran, pool.threads))
    heard = [one for one in container.processes if one.sessions is not None]
    why = (
        f"; the shim reported from {_process(heard[0])}, so this process was started without the container's"
        " environment"
        if heard
        else ""
    )
    which = f", which has {_TOLD_OF}" if process.runtimes else ""
    detail = (
        f"no shim has reported from {_process(process)}{which}: pool {_short(pool.name)} has"
        f" {_threads(pool.threads)}, of which {pool.ran} ran, {_planned(plan.threads)}; {_cpus_text(container)}{why}"
    )
    fix = (
        "start it with the container's environment, and Python without -I, -E or -S"
        if heard
        else f"inspect its processes: {_explain(container, live=True)};"
        " python -I, an empty environment and static binaries do not load the shim"
    )
    return _weighted(_times(max(pool.ran, pool.threads), plan.threads), Cause.NOT_REACHED, detail, fix)


def _most(process: Process, plan: ContainerPlan) -> int:
    """More threads of one name than this are not as planned: pools of all sessions, of two families, and a server's."""
    sessions = max(len(process.sessions or ()), plan.streams // plan.workers, 1)
    widest = max([plan.threads or 1, *plan.counts.values()])
    said = sum(one.threads or 0 for one in process.sessions or ())
    return max(2 * widest * sessions, said + widest) + _SLACK


def _is_excess(pool: Pool, process: Process, plan: ContainerPlan, container: Container) -> bool:
    """Whether more threads of a pool ran than planned, at the cost of somebody's time."""
    if plan.threads is None or pool.ran <= _most(process, plan):
        return False
    if pool.used_cpus < _BUSY * min(1.0, container.limit_cpus or 1.0):
        return False
    known = [one for one in (container.throttled_share, _waited(pool)) if one is not None]
    return not known or max(known) >= _HARM


def _waited(pool: Pool) -> float | None:
    """How long a pool waited for a CPU, as a part of its CPU time; None where that is not known."""
    return None if pool.delay_cpus is None or pool.used_cpus <= 0 else pool.delay_cpus / pool.used_cpus


def _other_threads(process: Process, pool: Pool, plan: ContainerPlan, container: Container) -> _Weighted:
    detail = (
        f"{_threads(pool.ran)} of pool {_short(pool.name)} ran in {_process(process)}, {_planned(plan.threads)};"
        f" {_cpus_text(container)}"
    )
    used = [_FAMILIES.get(one, "") for one in process.runtimes or ()]
    unnamed = [one for one in used if one in families.NAMES and one not in plan.runtimes]
    if unnamed:
        fix = f"add {_short(unnamed[0])} to the policy's runtimes, or set its count in the pod spec, and restart"
    elif not plan.shim and process.runtimes:
        fix = f"the plan has no shim, so a count in the code is kept: remove it, or see {_explain(container)}"
    else:
        fix = f"set the size of the pool {_short(pool.name)} in the code or through its variable"
        if _TOLD_OF in used and _should_speak(process, plan):
            fix += f"; if it belongs to {_TOLD_OF}, inspect it: {_explain(container, live=True)}"
    return _weighted(_times(pool.ran, plan.threads), Cause.OTHER_THREADS, detail, fix)


def _oversubscribed(container: Container, plan: ContainerPlan) -> Iterator[_Weighted]:
    """Processes x sessions x threads, where they are more streams than were planned for, far above the CPUs."""
    cpus = _cpus(container)
    sizes = [[one.threads for one in process.sessions or () if one.threads] for process in container.processes]
    sizes = [one for one in sizes if one]
    total, streams = sum(map(sum, sizes)), sum(map(len, sizes))
    if cpus is None or plan.threads is None or streams <= max(plan.streams, 1) or total <= 2 * ceil(cpus):
        return
    product = (
        f"{_plural(len(sizes), 'process', 'processes')} x {_range([len(one) for one in sizes], 'session')}"
        f" x {_range([threads for one in sizes for threads in one], 'thread')}"
    )
    detail = f"{product} = {total} for {_plural_cpus(cpus)}; planned: {plan.streams} x {_threads(plan.threads)}"
    fix = (
        "use fewer processes or sessions, or set them in the policy:"
        f" budget.workersPerContainer {len(sizes)}, budget.sessionsPerWorker {max(map(len, sizes))}"
    )
    yield _weighted(total / max(cpus, 1.0), Cause.OVERSUBSCRIBED, detail, fix)


def _resized(container: Container, plan: ContainerPlan) -> Iterator[_Weighted]:
    now, before = container.limit_cpus, plan.limit_cpus
    if now is None or before is None or abs(now - before) < 0.0005:
        return
    sessions = _sessions(container.processes)
    if now < before and sessions and all(_fits(one, now) for one in sessions):
        return  # the shim has followed
    fix = "restart the pod to plan it again; its threads do not change until then"
    detail = f"planned with a limit of {before:g} CPUs; the limit is now {now:g}"
    yield _weighted(_times(before, now) if now < before else 0.5, Cause.RESIZED, detail, fix)


def _fits(session: Session, limit_cpus: float) -> bool:
    return session.threads is not None and session.source == "plan" and session.threads <= max(1, ceil(limit_cpus))


def _cpuset_changed(container: Container, plan: ContainerPlan, first: str | None) -> Iterator[_Weighted]:
    """CPUs that are no longer those that threads were bound to, or too few for them.

    Shared CPUs change whenever the kubelet gives some of them to another container, and nobody needs to know. A policy
    may ask for more threads than there have ever been CPUs.
    """
    now, before = _mask(container.cpuset), _mask(first)
    if not now:
        return
    cpus, needed, changed = cpuset.count(now), plan.threads or 0, bool(before) and before != now
    if cpus < needed and (changed or not plan.asked) and not _all_fit(container, cpus):
        were = f"; they were {_list(before)}" if changed else ""
        detail = f"{_plural_cpus(cpus)} ({_list(now)}) for {_threads(needed)} that were planned{were}"
        fix = (
            "the policy requires that many: lower threads.intraOp or minIntraOp, and restart the pod"
            if plan.asked
            else "restart the pod to plan it again; sessions created since then have fewer threads"
        )
        yield _weighted(needed / cpus, Cause.CPUSET_CHANGED, detail, fix)
    elif changed and (plan.exclusive_cpus or plan.pinned):
        detail = f"the CPUs are now {_list(now)}; the threads were bound to {_list(before)}"
        yield _weighted(
            1.0, Cause.CPUSET_CHANGED, detail, "restart the pod, or recreate its sessions, to bind the threads again"
        )


def _all_fit(container: Container, cpus: int) -> bool:
    """Whether a shim says that every session has no more threads than there are CPUs."""
    sessions = _sessions(container.processes)
    return bool(sessions) and all(one.threads is not None and one.threads <= cpus for one in sessions)


# --- two containers ---------------------------------------------------------------------------------------------------


def _shared_cores(
    containers: Sequence[Container], plans: Sequence[ContainerPlan | None], machine: Machine
) -> Mapping[int, list[_Weighted]]:
    """For each container, by its place, the worst of what it shares cores with, where that can be helped."""
    pools = _shared_pools(containers, plans, machine)
    homes = {
        place: home
        for place, (one, plan) in enumerate(zip(containers, plans, strict=True))
        if plan is not None and (home := _home(one, plan, machine, pools))
    }
    taken = 0
    for one in containers:
        taken |= _ran_on(one)
    for home in homes.values():
        taken |= home
    free = machine.online & ~taken & ~(machine.kubelet.reserved_cpus or 0) & ~machine.isolated
    if not free:
        return {}
    result: dict[int, list[_Weighted]] = {}
    for (left, left_home), (right, right_home) in combinations(homes.items(), 2):
        common = left_home & right_home
        needs = [_needs(containers[place], plans[place]) for place in (left, right)]
        if not common or sum(needs) <= cpuset.count(left_home | right_home):
            continue
        for mine, other in ((left, right), (right, left)):
            result.setdefault(mine, []).append(_shares(containers[other], common, free, needs))
    return {place: _worst(ones) for place, ones in result.items()}


def _shares(other: Container, common: int, free: int, needs: Sequence[int]) -> _Weighted:
    # How many, not which: they are others in each window, and a sentence that changes is written again.
    detail = (
        f"shares CPUs {_list(common)} with {_short(other.namespace)}/{_short(other.pod)} {_short(other.name)}:"
        f" {sum(needs)} threads of both for {_plural_cpus(cpuset.count(common))},"
        f" while no governed thread ran on {_plural_cpus(cpuset.count(free))}"
    )
    fix = "remove what binds both to these CPUs (in the code, or a cpuset), or request whole CPUs (Guaranteed)"
    return _weighted(sum(needs) / max(1, cpuset.count(common)), Cause.SHARED_CORES, detail, fix)


def _home(container: Container, plan: ContainerPlan, machine: Machine, pools: Collection[int]) -> int:
    """The CPUs that a container is bound to, a proper part of the node's; 0 for one that the kernel may move about."""
    allowed = _mask(container.cpuset) & machine.online or machine.online
    own = allowed != machine.online and (plan.exclusive_cpus > 0 or allowed not in pools)
    if own and cpuset.count(allowed) <= _needs(container, plan):
        return allowed
    if plan.pinned and plan.cpus and plan.cpus & machine.online != machine.online:
        return plan.cpus & allowed
    # Who has been on all CPUs that there are for it may be bound to none of them, and can't go elsewhere.
    ran_on = _bound_to(container)
    return ran_on if ran_on & allowed != allowed else 0


def _shared_pools(
    containers: Sequence[Container], plans: Sequence[ContainerPlan | None], machine: Machine
) -> Collection[int]:
    """The cpusets that are what the kubelet's static policy leaves to all containers without CPUs of their own.

    Where its policy is not known, those that several of these have: nobody else gives two containers just the same.
    """
    shared = Counter(
        _mask(one.cpuset) & machine.online
        for one, plan in zip(containers, plans, strict=True)
        if plan is None or not plan.exclusive_cpus
    )
    least = {"static": 1, "unknown": 2}.get(machine.kubelet.cpu_manager_policy)
    return {mask for mask, count in shared.items() if least is not None and count >= least}


def _bound_to(container: Container) -> int:
    """Where busy threads ran that wait for a CPU and yet never change it: as only bound ones do."""
    result = 0
    for process in container.processes:
        for pool in process.pools:
            waited = _waited(pool) or 0.0
            waits = waited >= _LONG_WAIT and pool.used_cpus * (1 + waited) >= _WANTED_CPUS
            if waits and pool.migrations_hz == 0:
                result |= _places(pool)
    return result


def _needs(container: Container, plan: ContainerPlan | None) -> int:
    """How many CPUs a container's threads would use at once."""
    threads = _effective(container) or (plan.threads if plan is not None else None) or 1
    limit = container.limit_cpus
    return max(1, threads if not limit else min(threads, ceil(limit)))


def _ran_on(container: Container) -> int:
    result = 0
    for process in container.processes:
        for pool in process.pools:
            result |= _places(pool)
    return result


def _places(pool: Pool) -> int:
    return cpuset.of([cpu for cpu, threads in pool.last_cpus.items() if threads and 0 <= cpu < cpuset.MAX_CPUS])


# --- words and numbers ------------------------------------------------------------------------------------------------


def _cpus(container: Container) -> float | None:
    """CPUs that the container may use at once: its limit, and not more than its cpuset has."""
    allowed = _mask(container.cpuset)
    known = [float(cpuset.count(allowed))] if allowed else []
    return min([*known, *(one for one in (container.limit_cpus, container.quota_cpus) if one)], default=None)


def _mask(text: str | None) -> int:
    """The CPUs of a list, 0 where there is none or it can't be read."""
    try:
        return cpuset.parse_list(text or "")
    except ValueError:
        return 0


def _list(mask: int) -> str:
    text = cpuset.format_list(mask)
    return text if len(text) <= _NAME_CHARACTERS else f"{text[:_NAME_CHARACTERS].rpartition(',')[0]}, …"


def _times(result: float, wanted: float | None) -> float:
    return result / max(1.0, wanted or 1.0)


def _cpus_text(container: Container) -> str:
    limit = container.limit_cpus
    return f"limit {_plural_cpus(limit)}" if limit else "no limit"


def _plural_cpus(cpus: float) -> str:
    return "1 CPU" if cpus == 1 else f"{cpus:g} CPUs"


def _planned(threads: int | None) -> str:
    return f"{threads} {'was' if threads == 1 else 'were'} planned"


def _threads(count: int) -> str:
    return _plural(count, "thread")


def _plural(count: int, word: str, words: str = "") -> str:
    return f"{count} {word if count == 1 else words or word + 's'}"


def _range(counts: Sequence[int], word: str) -> str:
    """``8 threads``, or ``1 to 8 threads``."""
    low, high = min(counts), max(counts)
    return _plural(high, word) if low == high else f"{low} to {high} {word}s"


def _process(process: Process) -> str:
    return f"process {process.pid} ({_short(process.command)})"


def _explain(container: Container, *, live: bool = False) -> str:
    flag = " --live" if live else ""
    return f"kubectl raddle explain{flag} -n {container.namespace} pod/{container.pod}"


def _short(text: str) -> str:
    """A name as others chose it, printable and short."""
    shown = "".join(character if character.isprintable() else " " for character in text)
    return shown if len(shown) <= _NAME_CHARACTERS else shown[: _NAME_CHARACTERS - 1] + "…"
