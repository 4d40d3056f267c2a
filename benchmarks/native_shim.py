"""What the native shim costs: `python -m native_shim` (from benchmarks/). Needs gcc, onnxruntime and onnx; no cluster.

Sessions: one program makes them through ONNX Runtime's real function table, with the plan's values set by its own code,
and through the shim's, taking turns within a process. Each figure is the difference of two medians, with the A/A
difference beside it. A run costs nothing by construction: its function in the shim's table is the real one, which is
checked. What the library adds to the start of a process is measured by `door_start`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import onnxruntime

from native import build
from report import BUDGET_HEADINGS, Budget, machine, markdown_table, options, publish
from shim import identity_model

SESSION_BUDGET_US = 50.0
CALLER = Path(__file__).with_name("native_caller.c")


def library() -> Path:
    """The libonnxruntime of the installed wheel. Raises FileNotFoundError where the wheel has none."""
    for path in sorted((Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so.1*")):
        return path
    raise FileNotFoundError("this onnxruntime wheel carries no libonnxruntime.so")


def difference(without: Sequence[float], again: Sequence[float], with_shim: Sequence[float]) -> tuple[float, float]:
    """(median with minus median without, A/A: how far the medians of two series without lie apart)."""
    both = statistics.median([*without, *again])
    return statistics.median(with_shim) - both, abs(statistics.median(without) - statistics.median(again))


def sessions(folder: Path, shim: Path, rounds: int, threads: int) -> Budget:
    """What the shim adds to a session with so many threads, in microseconds."""
    program = folder / "native_caller"
    subprocess.run(["gcc", "-O2", f"-I{build.SOURCES}", "-o", program, CALLER, "-ldl"], check=True)
    plan = f"v=1;intra_op={threads};inter_op=1;spinning=never;execution_mode=sequential;existing_values=respect"
    environ = {**os.environ, "LD_PRELOAD": str(shim), "RADDLE_PLAN": plan, "RADDLE_LOG": "0"}
    model = identity_model(folder / "identity.onnx")
    command = [str(program), str(library()), str(model), str(rounds), str(threads)]
    lines = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.splitlines()
    if lines.pop() != "run real":
        raise RuntimeError("a run does not go to the real function")
    columns = zip(*([int(word) / 1000 for word in line.split()] for line in lines), strict=True)
    added, noise = difference(*columns)
    plural = "" if threads == 1 else "s"
    what = f"a session with {threads} thread{plural} (A/A {noise:.1f})"
    return Budget(what=what, value=added, allowed=SESSION_BUDGET_US, unit="µs")


def main() -> None:
    """Runs the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=1000, help="sessions of each kind (default 1000)")
    arguments = parser.parse_args()
    shim = build.library("x86_64")
    with tempfile.TemporaryDirectory() as folder:
        budgets = [sessions(Path(folder), shim, arguments.rounds, threads) for threads in (1, 2)]
    text = (
        f"### The native shim\n\n`python -m native_shim`, from benchmarks/. {machine()}\n\n"
        f"onnxruntime {onnxruntime.__version__}, {arguments.rounds} sessions of each kind. The library has "
        f"{shim.stat().st_size} bytes. A run goes to the real function.\n\n"
        + markdown_table(BUDGET_HEADINGS, [budget.cells() for budget in budgets])
    )
    publish("native", text, write=arguments.write)


if __name__ == "__main__":
    main()
