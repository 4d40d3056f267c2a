"""What is tried on the cluster beside pods' threads: a check is a function that returns figures and what is wrong."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster import Cluster
from cluster.progress import Progress
from e2e.errors import FAILURES
from e2e.pods import Runner
from e2e.scenarios import HOST

HEADINGS = ("CHECK", "SECONDS", "AS EXPECTED", "FIGURES")
WIDTH = 120
UNBROKEN = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """The cluster with Raddle on it."""

    cluster: Cluster
    progress: Progress
    runner: Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Name -> figure as text; `wrong` is what is not as it must be, in sentences. `skipped`: why nothing was tried."""

    figures: Mapping[str, str] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    skipped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing to try, on these nodes. FAILURES of `run` say what is wrong too."""

    name: str
    why: str
    run: Callable[[Lab], Result]
    nodes: tuple[str, ...] = (HOST,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a check, and how long it took. `tries`: how often it was run."""

    name: str
    result: Result
    seconds: float
    tries: int = 1


def run(check: Check, lab: Lab) -> Outcome:
    """Try it."""
    lab.progress.say(f"{check.name}: {check.why}")
    start = time.monotonic()
    try:
        result = check.run(lab)
    except FAILURES as error:
        result = Result(wrong=(str(error),))
    return Outcome(name=check.name, result=result, seconds=time.monotonic() - start)


def table(outcomes: Sequence[Outcome]) -> str:
    """A row per check, its figures beneath each other where one line is too short, and what is wrong."""
    rows = [HEADINGS[:3], *((one.name, f"{one.seconds:.0f}", _word(one)) for one in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    starts = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + "  " for row in rows]
    lines = [starts[0] + HEADINGS[3]]
    for start, one in zip(starts[1:], outcomes, strict=True):
        figures = _wrapped(one.result, max(40, WIDTH - len(start)))
        lines.append((start + figures[0]).rstrip())
        lines += [" " * len(start) + more for more in figures[1:]]
        lines += [f"! {text}" for text in one.result.wrong]
    return "\n".join(lines)


def _wrapped(result: Result, width: int) -> list[str]:
    """What is to be said of it in lines; no figure is parted from its name."""
    if result.skipped:
        return textwrap.wrap(result.skipped, width)
    figures = ", ".join(f"{name} {figure}".replace(" ", UNBROKEN) for name, figure in result.figures.items())
    return [line.replace(UNBROKEN, " ") for line in textwrap.wrap(figures, width)] or [""]


def _word(one: Outcome) -> str:
    word = "skipped" if one.result.skipped else "NO" if one.result.wrong else "yes"
    return word + (f" (try {one.tries})" if one.tries > 1 else "")
