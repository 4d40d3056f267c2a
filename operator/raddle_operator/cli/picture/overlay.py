"""Who runs where on a machine: from a plan, or from what a process may use.

All functions are pure and give the `Marks` of a picture. A plan is placed by the functions that the container itself
uses. Which CPUs a container gets is up to the kubelet: until they are known a plan is drawn as a pool of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from raddle import env
from raddle.cpus import cpuset, placement
from raddle.cpus.topology import Machine
from raddle.planning import planner
from raddle.planning.planner import Budget, Plan
from raddle.planning.policy import Policy
from raddle.planning.wire import RecordedPlan
from raddle_operator.cli.picture.model import SYMBOLS, Box, Cell, Marks, State, plural, printable

# Cells of a pool whose CPUs are not known; more are only counted.
MAX_POOL_CELLS: Final = 64
MAX_WORKER_LINES: Final = 4


class OverlayError(ValueError):
    """A plan that can't be drawn on this machine; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """How a pool uses CPUs: `cpus` are all of its container's, `pool` those that its threads may use.

    `groups` are one set for each worker that is pinned to CPUs, `caller` the CPUs that they leave to the caller.
    """

    cpus: int
    pool: int
    groups: tuple[int, ...] = ()
    caller: int = 0


def allowed(machine: Machine, usable: int | None, quota_cpus: float | None) -> Marks:
    """The marks of a process that may use these CPUs (None: not known), with a quota (None: none)."""
    # A container's file system may renumber the CPUs (lxcfs): then none that it may use is online by name.
    parts = [] if usable is None else [f"CPUs {cpuset.format_list(usable & machine.online or usable)}"]
    parts += [] if quota_cpus is None else [f"quota {quota_cpus:g} CPUs"]
    outside = 0 if usable is None else machine.online & ~usable
    return Marks(outside=outside, facts=(("may use", ", ".join(parts)),) if parts else ())


def assumed(count: int) -> RecordedPlan:
    """The plan of a container with so many exclusive CPUs and a policy that leaves all to Raddle."""
    cpus = float(count)
    budget = Budget(quota_cpus=cpus, request_cpus=cpus, whole_cpus=count, because=f"limit of {count} CPUs")
    return RecordedPlan(budget, Policy(), None, "", {}, {})


def planned(machine: Machine, container: str, recorded: RecordedPlan, exclusive: int | None = None) -> Marks:
    """The marks of a container's plan, on the CPUs `exclusive` if the kubelet gives it these for itself.

    Raises OverlayError where it would not, and for CPUs that are not online.
    """
    if exclusive is None:
        return _unplaced(container, recorded.values, recorded.because)
    online = cpuset.format_list(machine.online)
    if not exclusive:
        raise OverlayError(f"--exclusive names no CPU; there are {online}")
    if exclusive & ~machine.online:
        raise OverlayError(f"CPUs {cpuset.format_list(exclusive & ~machine.online)} are not online; there are {online}")
    whole, count = recorded.budget.whole_cpus, cpuset.count(exclusive)
    if whole != count:
        asks = f"asks for {whole} CPUs for itself" if whole else "is not Guaranteed with whole CPUs, so it shares them"
        raise OverlayError(f"container {container} {asks}; {count} are given")
    machine = machine._replace(kubelet=machine.kubelet._replace(cpu_manager_policy="static"))
    plan = planner.plan(machine, recorded.budget._replace(cpus=exclusive), recorded.policy)
    return _placed(machine, container, plan, exclusive)


def _placed(machine: Machine, container: str, plan: Plan, exclusive: int) -> Marks:
    pool, count, groups = plan.cpus or exclusive, plan.intra_op or 1, plan.affinity_groups
    places = placement.pool_units(machine, pool, count, gpu=plan.gpu) if groups else ()
    use = _Use(cpus=exclusive, pool=pool, groups=groups, caller=places[0] if places else 0)
    facts = [
        ("container", f"{printable(container)}: {plural(count, 'thread')}, affinity {plan.affinity}"),
        ("because", plan.because.get("intraOp", "")),
        ("its CPUs", cpuset.format_list(exclusive)),
        *_workers(groups),
    ]
    if plan.memory_numa_node is not None and len(machine.numa_nodes) > 1:
        facts.append(("memory", f"NUMA node {plan.memory_numa_node} holds the whole pool"))
    if plan.layout is not None:
        kinds = ((plan.layout.workers, plan.layout.threads), *plan.layout.others)
        advice = " and ".join(
            f"{plural(workers, 'worker')} of {plural(threads, 'thread')}" for workers, threads in kinds
        )
        facts.append(("advice", f"{advice}: {plan.because.get('layout', '')}"))
    return _marks(machine, use, facts)


def _marks(machine: Machine, use: _Use, facts: Sequence[tuple[str, str]]) -> Marks:
    pinned = 0
    for group in use.groups:
        pinned |= group
    # Where all may use the same CPUs it is the pool that does, with the caller.
    alike = len(set(use.groups)) == 1 and (len(use.groups) > 1 or bool(use.caller & pinned))
    workers = () if alike else use.groups
    pool = 0 if workers else pinned or use.pool
    caller = use.caller & ~(pinned | pool)
    return Marks(
        outside=machine.online & ~use.cpus,
        idle=use.cpus & ~(pinned | pool | caller),
        pool=pool,
        caller=caller,
        workers=workers,
        facts=tuple((name, text) for name, text in facts if text),
    )


def _workers(groups: Sequence[int]) -> list[tuple[str, str]]:
    """A line for each set of CPUs that workers are pinned to; none where the picture says it better."""
    lines = list(_each_set(groups))
    return lines if len(lines) <= MAX_WORKER_LINES else []


def _each_set(groups: Sequence[int]) -> Iterator[tuple[str, str]]:
    start = 0
    for place, group in enumerate(groups, 1):
        if place == len(groups) or groups[place] != group:
            number = f"worker {place}" if start == place - 1 else f"workers {start + 1}-{place}"
            yield number, f"CPUs {cpuset.format_list(group)}"
            start = place


def _unplaced(container: str, values: Mapping[str, Any], because: Mapping[str, str]) -> Marks:
    """The marks of a plan whose CPUs nobody knows yet: its threads in a box of their own."""
    count, exclusive = _count(values.get("intraOp")), _count(values.get("exclusiveCPUs"))
    name = f"container {printable(container)}"
    facts = [("because", printable(str(because.get("intraOp", ""))))]
    if not count:
        box = Box(kind="pool", names=(name, "no count is set"), notes=tuple(text for _, text in facts if text))
        return Marks(boxes=(box,))
    pinned = exclusive and values.get("affinity") in {"numa", "core"}
    where = (
        f"on {exclusive} exclusive CPUs; the kubelet chooses them, their numbers are known only in the container"
        if exclusive
        else "on shared CPUs; the kernel places the threads"
    )
    notes = tuple(text for text in (where, facts[0][1]) if text)
    names = (name, plural(count, "thread"))
    if count > MAX_POOL_CELLS:
        return Marks(boxes=(Box(kind="pool", names=names, notes=notes),))
    states = [State.CALLER, *[State.WORKER] * (count - 1)] if pinned and count > 1 else [State.POOL] * count
    cells = tuple((Cell(cpu=None, state=state, sign=_sign(state, number)),) for number, state in enumerate(states))
    return Marks(boxes=(Box(kind="pool", names=names, notes=notes, cores=cells),))


def _sign(state: State, number: int) -> str:
    return f"w{number}" if state is State.WORKER else SYMBOLS[state][0]


def _count(value: Any) -> int:
    """A count of untrusted JSON, 0 for anything that is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= env.MAX_THREADS else 0
