"""Where each CPU of a machine is drawn: boxes within boxes, cores in the innermost.

`picture` is pure and nests whatever the machine has: levels with fewer groups lie outside (so an L3 that spans NUMA
nodes and a NUMA node that spans sockets both come out right), a level that does not divide a box only adds its name
to it, and CPUs that are in no group of a level get a box of their own. Each online CPU is in exactly one cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from raddle.cpus import cpuset
from raddle.cpus.topology import CoreType, Group, Machine, NUMANode, cores_within, threads_per_core
from raddle_operator.cli.picture.flow import unbroken
from raddle_operator.cli.picture.model import (
    ISOLATED,
    SHARED,
    SYMBOLS,
    Box,
    Cell,
    Core,
    Marks,
    Picture,
    State,
    amount,
    legend,
    plural,
    printable,
    size,
)

_L2, _L3 = 2, 3

# NUMANode.memory_kind in words.
_KINDS: Final = {"persistent": "persistent memory", "cxl": "CXL memory", "special-purpose": "special-purpose memory"}

# Offline CPUs get cells up to here; some kernels name thousands that can't exist.
MAX_OFFLINE_CELLS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """A group with its name, what else its title says, and lines of its own."""

    name: str
    cpus: int
    also: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """One way to group CPUs. `rest` names the CPUs that are in none of the groups."""

    kind: str
    rest: str
    groups: tuple[_Named, ...]


def picture(machine: Machine, marks: Marks | None = None) -> Picture:
    """What is to be drawn of a machine, with `marks` for a container."""
    marks = marks or Marks()
    nest = _BoxLayout(machine, marks)
    whole = nest.box(machine.online, _levels(machine))
    inside = whole.boxes if not whole.names else (whole,)
    boxes = (*inside, *nest.memory(), *nest.offline(), *marks.boxes)
    return Picture(
        title=printable(machine.model) or "unknown model",
        subtitle=counted(machine),
        facts=(*_facts(machine), *marks.facts),
        boxes=boxes,
        distances=_distances(machine),
        legend=legend(boxes),
    )


def counted(machine: Machine) -> str:
    """How many there are of each part, in one line."""
    parts = [
        plural(len(machine.sockets), "socket") if machine.sockets else "",
        plural(len(machine.numa_nodes), "NUMA node") if machine.numa_nodes else "",
        plural(len(machine.l3_domains), "L3 domain") if machine.l3_domains else "",
        plural(len(machine.cores), "core") if machine.cores else "",
        plural(cpuset.count(machine.online), "CPU"),
    ]
    return ", ".join(part for part in parts if part)


# --- nesting --------------------------------------------------------------------------------------------------------


def _levels(machine: Machine) -> list[_Level]:
    """The levels from the outermost to the innermost."""
    # Where a die is a whole socket it says nothing.
    dies = machine.dies if {die.cpus for die in machine.dies} - {socket.cpus for socket in machine.sockets} else ()
    nodes = tuple(
        _Named(name=f"NUMA node {node.id}", cpus=node.cpus, also=_memory_of(node), notes=_notes(machine, node))
        for node in machine.numa_nodes
    )
    levels = [
        _Level(kind="socket", rest="no socket", groups=_named("socket", machine.sockets)),
        _Level(kind="numa", rest="no NUMA node", groups=nodes),
        _Level(kind="die", rest="no die", groups=_named("die", dies)),
        _Level(kind="l3", rest="no L3", groups=tuple(_l3(machine))),
    ]
    # Stable: the canonical order decides between equals.
    levels.sort(key=lambda level: sum(1 for group in level.groups if group.cpus))
    if len(machine.core_types) > 1:
        kinds = tuple(
            _Named(name=printable(kind.name), cpus=kind.cpus, also=_speed(kind)) for kind in machine.core_types
        )
        levels.append(_Level(kind="type", rest="other cores", groups=kinds))
    levels.append(_Level(kind="l2", rest="L2 for each core", groups=tuple(_shared_l2(machine))))
    return levels


def _l3(machine: Machine) -> Iterator[_Named]:
    sizes = {cpus: cache.size_kib for cache in machine.caches if cache.level == _L3 for cpus in cache.groups}
    for group in machine.l3_domains:
        known = sizes.get(group.cpus)
        yield _Named(name=f"L3 {group.id}", cpus=group.cpus, also=(size(known),) if known else ())


def _shared_l2(machine: Machine) -> Iterator[_Named]:
    """Yields each level-2 cache that several cores share: a module of E-cores, a tile."""
    for cache in machine.caches:
        for cpus in cache.groups:
            if cache.level == _L2 and cores_within(machine, cpus) > 1:
                yield _Named(name="L2", cpus=cpus, also=(size(cache.size_kib),) if cache.size_kib else ())


def _slower(machine: Machine) -> int:
    """The CPUs of all core types but the fastest."""
    kinds = sorted(machine.core_types, key=lambda kind: (kind.capacity or 0, kind.max_frequency_mhz or 0))
    slower = 0
    for kind in kinds[:-1]:
        slower |= kind.cpus
    return slower


def _named(noun: str, groups: Sequence[Group]) -> tuple[_Named, ...]:
    return tuple(_Named(name=f"{noun} {group.id}", cpus=group.cpus) for group in groups)


def _memory_of(node: NUMANode) -> tuple[str, ...]:
    known = amount(node.memory_mib) if node.memory_mib is not None else ""
    return tuple(filter(None, (known, _KINDS.get(node.memory_kind, ""))))


def _speed(kind: CoreType) -> tuple[str, ...]:
    return (f"{kind.max_frequency_mhz} MHz",) if kind.max_frequency_mhz else ()


def _notes(machine: Machine, node: NUMANode) -> tuple[str, ...]:
    """What is told of a node besides its amount of memory."""
    # All in one tier says nothing.
    ranked = len({other.memory_tier for other in machine.numa_nodes}) > 1
    told = [
        f"{round(node.read_mb_s / 1000, 1):g} GB/s" if node.read_mb_s else "",
        f"{node.read_ns} ns" if node.read_ns else "",
        f"memory tier {node.memory_tier}" if ranked and node.memory_tier is not None else "",
    ]
    line = unbroken(list(filter(None, told)))
    return (*((line,) if line else ()), *_gpus(machine, node))


def _gpus(machine: Machine, node: NUMANode) -> tuple[str, ...]:
    return tuple(f"GPU {printable(gpu.address)}" for gpu in machine.gpus if gpu.numa_node == node.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Title:
    kind: str = ""
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class _BoxLayout:
    """Divides a set of CPUs level by level. Notes of a group that lies in several boxes are in the first."""

    def __init__(self, machine: Machine, marks: Marks) -> None:
        self._machine = machine
        self._marks = marks
        self._noted: set[str] = set()
        self._slow = _slower(machine)
        self._nodes = _by_id(machine)
        self._memory = [node for node in self._nodes if not node.cpus]

    def box(self, cpus: int, levels: Sequence[_Level], title: _Title | None = None) -> Box:
        """The box of these CPUs, divided by the levels; without names where the first level divides it."""
        title = title or _Title()
        for place, level in enumerate(levels):
            inside = [group for group in level.groups if group.cpus & cpus]
            if not inside:
                continue
            if not cpus & ~inside[0].cpus:
                if level.kind == "numa" and title.names and any(self._near(node) == cpus for node in self._memory):
                    return self._with_memory(cpus, levels[place:], title)
                title = self._titled(level, inside[0], cpus, title)
                continue
            boxes = tuple(self._divided(cpus, inside, level, levels[place + 1 :]))
            # Beside NUMA nodes, never in one.
            if title.names and any(one.kind == "numa" for one in levels[place:]):
                boxes += tuple(self._nearest_within(cpus))
            return Box(kind=title.kind or "cpus", names=title.names, notes=title.notes, boxes=boxes)
        cores = tuple(self._cores(cpus))
        return Box(kind=title.kind or "cpus", names=title.names or ("CPUs",), notes=title.notes, cores=cores)

    def _divided(self, cpus: int, inside: Sequence[_Named], level: _Level, inner: Sequence[_Level]) -> Iterator[Box]:
        for group in inside:
            # Groups of one kind do not overlap; should they do so anyway, a CPU is drawn once.
            part = group.cpus & cpus
            if part:
                yield self.box(part, inner, self._titled(level, group, part, _Title()))
                cpus &= ~part
        if cpus:
            yield self.box(cpus, inner, _Title(kind=level.kind, names=(level.rest,)))

    def _with_memory(self, cpus: int, levels: Sequence[_Level], title: _Title) -> Box:
        """The box around a node and the memory without CPUs that is nearest to it."""
        boxes = (self.box(cpus, levels), *self._nearest_within(cpus))
        return Box(kind=title.kind, names=title.names, notes=title.notes, boxes=boxes)

    def _nearest_within(self, cpus: int) -> Iterator[Box]:
        """Yields once the memory whose nearest CPUs are all among these."""
        for node in list(self._memory):
            near = self._near(node)
            if near and not near & ~cpus:
                self._memory.remove(node)
                yield self._memory_box(node, told=near == cpus)

    def _titled(self, level: _Level, group: _Named, part: int, title: _Title) -> _Title:
        """The title with a group's name added, and with its notes where it comes first."""
        name = group.name if part == group.cpus else f"{group.name} (part)"
        notes = () if group.name in self._noted else group.notes
        self._noted.add(group.name)
        return _Title(
            kind=title.kind or level.kind,
            names=(*title.names, name, *group.also),
            notes=(*title.notes, *notes),
        )

    def _cores(self, cpus: int) -> list[Core]:
        result, rest = [], cpus
        for core in self._machine.cores:
            if core & rest:
                result.append(core & rest)
                rest &= ~core
        result.extend(1 << cpu for cpu in cpuset.ids(rest))
        return [
            tuple(self._cell(cpu) for cpu in cpuset.ids(core)) for core in sorted(result, key=lambda core: core & -core)
        ]

    def _cell(self, cpu: int) -> Cell:
        bit = 1 << cpu
        cell = self._marks.ran.get(cpu)
        if cell is None:
            state, sign = self._state(bit)
            cell = Cell(cpu=cpu, state=state, sign=sign)
        isolated = bool(bit & self._machine.isolated)
        sign = cell.sign + SHARED[0] * cell.shared + ISOLATED[0] * isolated
        return replace(cell, sign=sign, isolated=isolated, slow=bool(bit & self._slow))

    def _state(self, bit: int) -> tuple[State, str]:
        marks = self._marks
        pinned = cpuset.of([number for number, cpus in enumerate(marks.workers, 1) if cpus & bit])
        if pinned:
            return State.WORKER, f"w{cpuset.format_list(pinned)}"
        reserved = self._machine.kubelet.reserved_cpus or 0
        for state, cpus in (
            (State.POOL, marks.pool),
            (State.CALLER, marks.caller),
            (State.IDLE, marks.idle),
            (State.RESERVED, reserved),
            (State.OUTSIDE, marks.outside),
        ):
            if cpus & bit:
                return state, SYMBOLS[state][0]
        return State.FREE, ""

    def memory(self) -> Iterator[Box]:
        """Yields a box for each NUMA node of memory only that is in no other box."""
        for node in self._memory:
            yield self._memory_box(node, told=False)

    def _nearest(self, node: NUMANode) -> tuple[int, ...]:
        """The nodes with CPUs that are nearest to memory: all that tie."""
        known = {other.id: far for far, other in zip(node.distances, self._nodes, strict=False) if other.cpus}
        return node.initiators or tuple(number for number, far in known.items() if far == min(known.values()))

    def _near(self, node: NUMANode) -> int:
        nearest = self._nearest(node)
        cpus = 0
        for other in self._nodes:
            cpus |= other.cpus if other.id in nearest else 0
        return cpus

    def _memory_box(self, node: NUMANode, *, told: bool) -> Box:
        """The box of a NUMA node of memory only; `told`: where it is drawn tells what it is nearest to."""
        note, nearest = "memory only, no CPUs", self._nearest(node)
        if nearest and not told:
            are = "is node" if len(nearest) == 1 else "are nodes"
            note += f"; nearest {are} {cpuset.format_list(cpuset.of(nearest))}"
            fars = sorted(far for far, other in zip(node.distances, self._nodes, strict=False) if other.id in nearest)
            note += f" (distance {' to '.join(map(str, dict.fromkeys((fars[0], fars[-1]))))})" if fars else ""
        notes = (note, *_notes(self._machine, node))
        return Box(kind="memory", names=(f"NUMA node {node.id}", *_memory_of(node)), notes=notes)

    def offline(self) -> Iterator[Box]:
        """Yields the box of the offline CPUs, if there are any."""
        offline = self._machine.offline
        if not offline:
            return
        count = cpuset.count(offline)
        if count > MAX_OFFLINE_CELLS:
            yield Box(kind="offline", names=(f"offline, {count} CPUs",), notes=(cpuset.format_list(offline),))
            return
        sign = SYMBOLS[State.OFFLINE][0]
        cells = tuple((Cell(cpu=cpu, state=State.OFFLINE, sign=sign),) for cpu in cpuset.ids(offline))
        yield Box(kind="offline", names=("offline",), cores=cells)


# --- what is no CPU -------------------------------------------------------------------------------------------------


def _by_id(machine: Machine) -> list[NUMANode]:
    """The NUMA nodes in the order of their distances."""
    return sorted(machine.numa_nodes, key=lambda node: node.id)


def _distances(machine: Machine) -> tuple[tuple[int, tuple[int, ...]], ...]:
    nodes = _by_id(machine)
    if len(nodes) < 2 or any(len(node.distances) != len(nodes) for node in nodes):
        return ()
    return tuple((node.id, node.distances) for node in nodes)


def _facts(machine: Machine) -> Iterator[tuple[str, str]]:
    listed = cpuset.format_list
    yield "architecture", machine.architecture or "unknown"
    cpus = f"{listed(machine.online)} online"
    cpus += f"; {listed(machine.offline)} offline" if machine.offline else ""
    cpus += f"; {listed(machine.isolated)} isolated" if machine.isolated else ""
    yield "CPUs", cpus
    if machine.caches:
        told = (
            f"{len(cache.groups)} L{cache.level}{f' of {size(cache.size_kib)}' if cache.size_kib else ''}"
            for cache in machine.caches
        )
        yield "caches", ", ".join(told)
    threads = threads_per_core(machine)
    yield "cores", f"{len(machine.cores)}, {plural(threads, 'thread')} each{' at most' * (threads > 1)}"
    if len(machine.core_types) > 1:
        for kind in machine.core_types:
            capacity = f", capacity {kind.capacity}" if kind.capacity else ""
            yield (
                "core type",
                f"{', '.join((printable(kind.name), *_speed(kind)))}{capacity}: CPUs {listed(kind.cpus) or 'none'}",
            )
    kubelet = machine.kubelet
    if kubelet.cpu_manager_policy != "unknown" or kubelet.reserved_cpus:
        reserved = f", CPUs {listed(kubelet.reserved_cpus)} reserved" if kubelet.reserved_cpus else ""
        yield "kubelet", f"CPU manager {kubelet.cpu_manager_policy}{reserved}"
    known = {node.id for node in machine.numa_nodes}
    for gpu in machine.gpus:
        if gpu.numa_node not in known:
            yield "GPU", f"{printable(gpu.address)}, NUMA node unknown"
