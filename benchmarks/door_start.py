"""What the door adds to the start of a process: `python -m door_start` (from benchmarks/). Needs gcc and unshare.

One small program starts each command where the door is open, another one where it was closed again, in turns, with the
variables of a governed container in both. Times are of the command alone, from before vfork until it has ended, and its
CPU time, which a busy machine disturbs less. A third side has a library without code in the place of ours: what that
costs is the loader's part, and the rest is the constructor. Each figure is the difference of two medians, with the A/A
differences of both sides beside it (how far the medians of two halves lie apart).
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from doorcheck.check import GOVERNED
from doorcheck.surroundings import CLOSE
from raddle import delivery
from raddle_operator.local import door
from report import BUDGET_HEADINGS, Budget, apart, machine, markdown_table, options, publish, spread

TIMER = Path(__file__).with_name("door_timer.c")
OTHER_BUDGET_US = 50.0
# The design's for the shim.
PYTHON_BUDGET_MS = 2.0
RUNTIME_BUDGET_MS = 1.0
# So many processes per side start each command.
BLOCKS = 8
# Where the door is closed again, where an empty library is behind it, where it is open.
WITHOUT, EMPTY, WITH = "without", "empty", "with"


@dataclass(frozen=True, slots=True)
class Start:
    """A command that is started. `share`: how many of the rounds it gets."""

    what: str
    command: tuple[str, ...]
    share: float
    budget: float
    unit: str = "ms"


def starts(folder: Path) -> list[Start]:
    """The commands that this machine has."""
    home = folder / "venv"
    venv.create(home, symlinks=True)
    result = [
        Start("/bin/true", ("/bin/true",), 1, OTHER_BUDGET_US, "µs"),
        Start("sh -c : (a shell probe)", ("/bin/sh", "-c", ":"), 1, OTHER_BUDGET_US, "µs"),
        Start("the system's python3 -c pass", ("/usr/bin/python3", "-c", "pass"), 0.2, PYTHON_BUDGET_MS),
        Start(
            "a virtual environment's python -c pass", (str(home / "bin/python"), "-c", "pass"), 0.2, PYTHON_BUDGET_MS
        ),
        Start("node -e 0", (shutil.which("node") or "", "-e", "0"), 0.1, RUNTIME_BUDGET_MS),
        Start("java -version", (shutil.which("java") or "", "-version"), 0.1, RUNTIME_BUDGET_MS),
    ]
    return [one for one in result if os.access(one.command[0], os.X_OK)]


class Timer:
    """Starts a command as often as it is asked, with the door or without."""

    def __init__(self, program: Path, tree: Path, command: Sequence[str], *, opened: bool) -> None:
        closed = () if opened else ("sh", "-c", CLOSE, "raddle")
        whole = [*door.inside(tree), *closed, "env", "-i", *(f"{name}={value}" for name, value in GOVERNED.items())]
        self._process = subprocess.Popen(
            [*whole, program, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self) -> tuple[float, float]:
        """Milliseconds of one start: until it ended, of CPU time. Raises RuntimeError where it failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("1")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"it failed: {self._process.args!r}")
        taken, used = line.split()
        return int(taken) / 1e6, int(used) / 1e6

    def close(self) -> None:
        """Lets it go."""
        self._process.communicate()


def empty(tree: Path, folder: Path) -> Path:
    """The tree with a library that does nothing."""
    copy = shutil.copytree(tree, folder / EMPTY)
    source = folder / "empty.c"
    source.write_text("")
    library = copy / Path(delivery.LIBRARY).name
    library.unlink()
    subprocess.run(["gcc", "-shared", "-nostdlib", "-Wl,-s", "-o", library, source], check=True)
    return copy


def measured(program: Path, trees: dict[str, Path], start: Start, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Of each side the times of its starts, which took turns: where memory lies is chance, so in several processes."""
    taken: dict[str, list[tuple[float, float]]] = {side: [] for side in trees}
    for _ in range(BLOCKS):
        sides = {side: Timer(program, tree, start.command, opened=side != WITHOUT) for side, tree in trees.items()}
        for timer in sides.values():
            timer()
        for _ in range(max(4, int(rounds * start.share / BLOCKS))):
            for side, timer in sides.items():
                taken[side].append(timer())
        for timer in sides.values():
            timer.close()
    return taken


def added(one: Sequence[float], other: Sequence[float]) -> tuple[float, str]:
    """(what the other side takes more, the A/A differences of both as text)."""
    return statistics.median(other) - statistics.median(one), f"A/A {apart(one):.2g} and {apart(other):.2g}"


def main() -> None:
    """Runs the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=1000, help="starts of the quickest on each side (default 1000)")
    arguments = parser.parse_args()
    problem = door.problem()
    if problem:
        sys.exit(f"no mounts of its own: {problem}")
    rows, budgets = [], []
    with tempfile.TemporaryDirectory() as name:
        folder, tree = Path(name), Path(name) / "tree"
        delivery.write(str(tree))
        trees = {WITHOUT: tree, EMPTY: empty(tree, folder), WITH: tree}
        timer = folder / "timer"
        subprocess.run(["gcc", "-O2", "-o", timer, TIMER], check=True)
        for start in starts(folder):
            taken = measured(timer, trees, start, arguments.rounds)
            factor = 1000 if start.unit == "µs" else 1
            elapsed, cpu = ({side: [pair[i] * factor for pair in taken[side]] for side in taken} for i in (0, 1))
            more, chance = added(cpu[WITHOUT], cpu[WITH])
            budgets.append(Budget(what=f"{start.what} ({chance})", value=more, allowed=start.budget, unit=start.unit))
            own, chance = added(cpu[EMPTY], cpu[WITH])
            later, chance_later = added(elapsed[WITHOUT], elapsed[WITH])
            rows.append(
                [
                    f"{start.what}, {start.unit}",
                    str(len(cpu[WITH])),
                    *(spread(cpu[side]) for side in (WITHOUT, WITH)),
                    f"{own:.3g} ({chance})",
                    *(spread(elapsed[side]) for side in (WITHOUT, WITH)),
                    f"{later:.3g} ({chance_later})",
                ]
            )
    text = (
        f"### The start of a process behind the door\n\n`python -m door_start`, from benchmarks/. {machine()}\n\n"
        "CPU time that the door adds to a process, the loader's part included:\n\n"
        + markdown_table(BUDGET_HEADINGS, [budget.cells() for budget in budgets])
        + "\nCPU time, and time until the process had ended, each with its range:\n\n"
        + markdown_table(
            ("start of", "times", "CPU without", "CPU with", "of it ours", "until ended without", "with", "adds"), rows
        )
    )
    publish("door", text, write=arguments.write)


if __name__ == "__main__":
    main()
