"""What a picture is made of, as values: boxes within boxes, cores in the innermost, a state for each CPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum, unique
from typing import Final


@unique
class State(StrEnum):
    """What a CPU is to whom the picture is for; the value names the style in both renderers."""

    FREE = "free"
    OUTSIDE = "outside"
    RESERVED = "reserved"
    OFFLINE = "offline"
    IDLE = "idle"
    CALLER = "caller"
    WORKER = "worker"
    POOL = "pool"
    QUIET = "quiet"
    USED = "used"
    BUSY = "busy"


SYMBOLS: Final[Mapping[State, tuple[str, str]]] = {
    State.CALLER: ("c", "left to the caller's thread"),
    State.WORKER: ("w1", "worker 1 is bound to it; w2-3: workers 2 and 3"),
    State.POOL: ("*", "any thread of the pool"),
    State.IDLE: ("_", "the container's own, left idle"),
    State.OUTSIDE: ("-", "outside the CPU set"),
    State.RESERVED: ("r", "reserved for the system"),
    State.OFFLINE: ("x", "offline"),
    State.QUIET: ("<30", "percent of its time in use, estimated"),
    State.USED: ("<70", "percent of its time in use, estimated"),
    State.BUSY: ("70+", "percent of its time in use, estimated"),
}
"""The sign of each state but FREE, and what the legend says of it, in the legend's order."""
ISOLATED: Final = ("i", "isolated from the scheduler")
SHARED: Final = ("!", "threads of several containers ran on its core")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One CPU: its number (None: not known yet), its state, the sign beside the number ("" for none).

    `slow`: of a core type that is not the machine's fastest. `shared`: threads of several containers ran on its core.
    `said` is what else a reader is told of it.
    """

    cpu: int | None
    state: State = State.FREE
    sign: str = ""
    isolated: bool = False
    slow: bool = False
    shared: bool = False
    said: str = ""


Core = tuple[Cell, ...]
"""The threads of one core, ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A group of CPUs. `names` are its title's parts, `notes` lines inside; it holds boxes or cores, not both.

    `kind` is socket, numa, die, l3, l2, type, cpus (no group is known), memory (no CPUs), offline or pool. `alike` is
    how many boxes of the machine it stands for: 1, but where `detail` made one of several.
    """

    kind: str
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    boxes: tuple[Box, ...] = ()
    cores: tuple[Core, ...] = ()
    alike: int = 1

    def cells(self) -> Iterator[Cell]:
        """Yields every cell in the box and the boxes in it, in the order in which they are drawn."""
        for core in self.cores:
            yield from core
        for box in self.boxes:
            yield from box.cells()


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Who uses the CPUs: sets of CPUs that are drawn in another state than free.

    `outside` not for the container; `idle` its own, unused; `pool` for any of its threads; `caller` left to the
    calling thread; `workers` one set for each worker that is pinned to CPUs, which may be the same for several. `ran`
    are the CPUs on which something was seen to run, as they are drawn.
    `facts` are lines above the picture. `boxes` are drawn below the machine, for what is known to run there but not on
    which CPUs.
    """

    outside: int = 0
    idle: int = 0
    pool: int = 0
    caller: int = 0
    workers: tuple[int, ...] = ()
    ran: Mapping[int, Cell] = field(default_factory=dict)
    facts: tuple[tuple[str, str], ...] = ()
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """All that is drawn: `facts` are (name, text) lines, `legend` (sign, text, style) of the signs that occur.

    `distances` are (NUMA node, its distances to the nodes in this order), () where there is nothing to compare.
    """

    title: str
    subtitle: str
    facts: tuple[tuple[str, str], ...]
    boxes: tuple[Box, ...]
    distances: tuple[tuple[int, tuple[int, ...]], ...] = ()
    legend: tuple[tuple[str, str, str], ...] = ()


def legend(boxes: Sequence[Box]) -> tuple[tuple[str, str, str], ...]:
    """(sign, what it means, style) for each sign in the boxes."""
    cells = [cell for box in boxes for cell in box.cells()]
    states = {cell.state for cell in cells}
    result = [(sign, text, str(state)) for state, (sign, text) in SYMBOLS.items() if state in states]
    if any(cell.isolated for cell in cells):
        result.append((*ISOLATED, "isolated"))
    if any(cell.shared for cell in cells):
        result.append((*SHARED, "shared"))
    return tuple(result)


def printable(text: str) -> str:
    """The text as one line that can't steer a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 core", "2 cores"."""
    return f"{count} {noun}{'s' * (count != 1)}"


def size(cache_kib: int) -> str:
    """The size of a cache as its maker says it: 1280 KiB, 24 MiB."""
    return f"{cache_kib} KiB" if cache_kib % 1024 else f"{cache_kib // 1024} MiB"


def amount(memory_mib: int) -> str:
    """An amount of memory as people say it."""
    if memory_mib < 1024:
        return f"{memory_mib} MiB"
    return f"{memory_mib / 1024:.1f}".removesuffix(".0") + " GiB"
