"""What the Python shim costs: `python -m shim` (from benchmarks/). No cluster; needs onnxruntime and onnx.

Sessions: the same constructor with and without the wrapper, taking turns in one process; the first session and the
import, in fresh processes. Runs: one session's run method, counted and not, in turns. Telling the node's agent: CPU
time of a minute's datagrams. What the shim adds to the start of a process is measured by `door_start`.
Each figure is the difference of two medians, with the A/A difference (two halves of the runs without) beside it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import onnx_models
from raddle import delivery, env
from report import BUDGET_HEADINGS, Budget, added, machine, markdown_table, options, publish

PLAN = (
    "v=1;intra_op=2;inter_op=1;spinning=never;execution_mode=sequential;affinity=none;exclusive_cpus=0;streams=1;"
    "workers=1;existing_values=respect"
)
SESSION_BUDGET_MS = 0.2
FIRST_SESSION_BUDGET_MS = 1.0
RUN_BUDGET_US = 1.0
TELL_BUDGET_PERCENT = 0.1


def sessions(repetitions: int) -> list[Budget]:
    """What the wrapper adds to a session in milliseconds, and observing runs to each in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "mount"
        delivery.write(str(tree))
        model = identity_model(Path(folder) / "identity.onnx")
        base = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "RADDLE_LOG": "0"}
        shim = {**base, "PYTHONPATH": str(tree / "python"), env.PLAN: PLAN}
        later = _child("later", model, shim, repetitions)
        runs = _child("runs", model, shim, repetitions)
        telling = _child("tell", model, shim, repetitions)
        first: dict[str, dict[str, list[float]]] = {"base": {}, "shim": {}}
        for _ in range(max(5, repetitions // 10)):
            for name, environ in (("base", base), ("shim", shim)):
                kind = "first-planned" if name == "shim" else "first"
                for what, value in _child(kind, model, environ, 1).items():
                    first[name].setdefault(what, []).append(value)
    result = []
    for what, allowed in (("default options", SESSION_BUDGET_MS), ("the code's options", SESSION_BUDGET_MS)):
        more, noise = added(later[what + ", without"], later[what + ", with"])
        result.append(Budget(what=f"a session of {what} (A/A {noise:.3f})", value=more, allowed=allowed, unit="ms"))
    more, noise = added(first["base"]["session"], first["shim"]["session"])
    allowed = SESSION_BUDGET_MS + FIRST_SESSION_BUDGET_MS
    result.append(Budget(what=f"the first session (A/A {noise:.3f})", value=more, allowed=allowed, unit="ms"))
    more, noise = added(runs["without"], runs["with"])
    what = f"a run with observe: Runs (A/A {noise:.2f})"
    result.append(Budget(what=what, value=more, allowed=RUN_BUDGET_US, unit="us"))
    for number, shares in (("one session", telling["one"]), ("256 sessions", telling["all"])):
        what, share = f"telling the agent of {number} with observe: Runs", statistics.median(shares)
        result.append(Budget(what=what, value=share, allowed=TELL_BUDGET_PERCENT, unit="% of a CPU"))
    more, noise = added(first["base"]["import"], first["shim"]["import"])
    whole = statistics.median(first["base"]["import"])
    print(f"import onnxruntime: {more:.1f} ms more (A/A {noise:.1f}) than {whole:.0f} ms; no budget\n")
    return result


def _child(what: str, model: Path, environ: dict[str, str], repetitions: int) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__).with_name("shim_child.py")), what, str(model), str(repetitions)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def identity_model(path: Path) -> Path:
    """The path, with a model of one node written to it."""
    return onnx_models.write(path, "identity (float[1] x) => (float[1] y) { y = Identity(x) }")


def main() -> None:
    """Runs the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--repetitions", type=int, default=400, help="sessions of each kind (default 400)")
    arguments = parser.parse_args()
    budgets = sessions(arguments.repetitions)
    text = f"### The Python shim\n\n`python -m shim`, from benchmarks/. {machine()}\n\n" + markdown_table(
        BUDGET_HEADINGS, [budget.cells() for budget in budgets]
    )
    publish("shim", text, write=arguments.write)


if __name__ == "__main__":
    main()
