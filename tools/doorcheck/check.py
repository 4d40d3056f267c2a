"""Starts each program in both surroundings and counts what was not the same."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from doorcheck.programs import Program
from doorcheck.surroundings import Outcome

_COMMON: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
}
GOVERNED: Final = {
    **_COMMON,
    "RADDLE_PLAN": "v=1;intra_op=2;intra_op_without_shim=1;inter_op=1;spinning=bounded;spin_duration_us=50;"
    "omp=1;blas=1;existing_values=respect",
    "RADDLE_LITERALS": "OMP_NUM_THREADS=1;OPENBLAS_NUM_THREADS=1",
    "ORT_INTRA_OP_NUM_THREADS": "1",
    "ORT_INTER_OP_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # What loads a runtime would print its settings: torchrun does, whatever it is asked.
    "RADDLE_LOG": "0",
}
# How a program is started -> (its environment, whether its descriptors are looked at).
WAYS: Final = {
    "with a plan, watched": (GOVERNED, True),
    "with a plan": (GOVERNED, False),
    "without a plan, watched": (_COMMON, True),
    "with an empty environment": ({}, False),
}
# Slower programs are started in one way with the same arguments, and once.
_QUICK_S: Final = 0.1
# So often has the program without the door to do the same before it is said that the door makes the difference.
_AGAIN: Final = 10
LATE = "does not end by itself"
VARIES = "does another thing each time"
DIFFERENT = "different"


class Starts(Protocol):
    """What starts programs."""

    def start(self, command: list[str], environ: dict[str, str], *, watched: bool, seconds: float) -> Outcome:
        """What the program did."""
        ...


@dataclass(frozen=True, slots=True)
class Case:
    """One way to start one program."""

    program: Program
    arguments: tuple[str, ...]
    way: str

    @property
    def command(self) -> tuple[str, ...]:
        """The program's arguments, itself included."""
        return (self.program.path, *self.arguments)

    def run(self, starts: Starts, seconds: float) -> Outcome:
        """What it does there."""
        environ, watched = WAYS[self.way]
        return starts.start(list(self.command), dict(environ), watched=watched, seconds=seconds)

    def __str__(self) -> str:
        return f"{' '.join(self.command)} ({self.way})"


@dataclass(slots=True)
class Results:
    """What came of it: by kind of program, and the lines about those that were left out or were different."""

    cases: dict[str, set[Case]] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)
    left_out: dict[str, list[Case]] = field(default_factory=lambda: {LATE: [], VARIES: []})
    different: list[str] = field(default_factory=list)

    @property
    def started(self) -> int:
        """How often a program was started behind the door and compared."""
        return sum(self.starts.values())

    def add(self, other: Results) -> None:
        """Takes over what another check found in other cases."""
        for kind, cases in other.cases.items():
            self.cases.setdefault(kind, set()).update(cases)
        self.starts += other.starts
        for reason, left in other.left_out.items():
            self.left_out[reason] += left
        self.different += other.different


def cases(programs: Iterable[Program], seed: int) -> list[Case]:
    """Every way to start each of them, in an order that the seed decides."""
    result = [Case(program, arguments, way) for program in programs for arguments in program.arguments for way in WAYS]
    random.Random(seed).shuffle(result)
    return result


class Check:
    """Compares cases, each with what it does without the door."""

    def __init__(self, stock: Starts, door: Starts, seconds: float, say: Callable[[str], None]) -> None:
        self.results = Results()
        self._stock, self._door, self._seconds, self._say = stock, door, seconds, say
        self._known: list[tuple[Case, Outcome]] = []
        self._slow: set[tuple[str, ...]] = set()

    def run(self, wanted: list[Case], starts: int) -> Results:
        """Starts the cases behind the door, over and over until that many starts were made."""
        result = self.results
        for case in wanted:
            if result.started < starts and case.command not in self._slow:
                self._meet(case)
        while result.started < starts and self._known:
            left = starts - result.started
            self._known = [
                (case, first)
                for number, (case, first) in enumerate(self._known)
                if number >= left or self._compare(case, first)
            ]
        return result

    def _meet(self, case: Case) -> None:
        """Asks what it does without the door, and compares once."""
        begun = time.monotonic()
        first = case.run(self._stock, self._seconds)
        if time.monotonic() - begun > _QUICK_S:
            self._slow.add(case.command)
        if first.status is None:
            self.results.left_out[LATE].append(case)
        elif self._compare(case, first) and case.command not in self._slow:
            self._known.append((case, first))

    def _compare(self, case: Case, first: Outcome) -> bool:
        """Starts it behind the door once; whether it did as without."""
        result, longest = self.results, 5 * self._seconds
        there = case.run(self._door, longest)
        if not there.same(first) and any(not case.run(self._stock, longest).same(first) for _ in range(_AGAIN)):
            result.left_out[VARIES].append(case)
            return False
        result.starts[case.program.kind] += 1
        result.cases.setdefault(case.program.kind, set()).add(case)
        if result.started % 1000 == 0:
            self._say(f"{result.started} starts, {len(result.different)} different")
        if not there.same(first):
            result.different.append(f"{case}: {_difference(first, there)}")
            self._say(f"{DIFFERENT}: {result.different[-1]}")
            return False
        return True


def _difference(stock: Outcome, door: Outcome) -> str:
    names = ("status", "output", "errors", "descriptors")
    apart = [name for name, one, two in zip(names, stock.compared(), door.compared(), strict=True) if one != two]
    shown = [f"status {stock.status} -> {door.status}"] if "status" in apart else []
    for name, one, two in zip(("output", "errors"), stock.heads, door.heads, strict=True):
        if name in apart:
            at = next((i for i, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), len(one))
            shown.append(f"{name} {one[max(0, at - 40) : at + 80]!r} -> {two[max(0, at - 40) : at + 80]!r}")
    if "descriptors" in apart:
        shown.append(f"descriptors {stock.descriptors} -> {door.descriptors}")
    return "; ".join(shown)
