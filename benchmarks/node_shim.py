"""What the native library costs a Node.js process: `python -m node_shim` (from benchmarks/). Needs node, npm and onnx.

Start-up: `node -e 0` without, with the library preloaded, and without again, in turns: CPU time of the process (user
and system), which others on the machine disturb less, and time until it ended. Differences are taken within a turn, and
their median is shown, beside that of the two without (A/A). Sessions: of processes with the library and without, in
turns, with the same pool; differences of two medians, with the A/A difference (two halves of the runs without) beside
them.
"""

from __future__ import annotations

import json
import operator
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from raddle import delivery, env
from report import BUDGET_HEADINGS, Budget, added, machine, markdown_table, options, publish, spread
from runtimes import nodejs
from shim import identity_model

HERE = Path(__file__).parent
PLAN = "v=1;intra=2;inter=1;spin=never;mode=sequential;aff=none;excl=0;streams=1;workers=1;existing=respect"
START_BUDGET_MS = 3.0


def start(environ: dict[str, str]) -> tuple[float, float]:
    """(CPU milliseconds, milliseconds until it ended) of one Node.js process that does nothing."""
    began = time.perf_counter()
    child = subprocess.Popen(["node", "-e", "0"], env=environ)
    _, status, usage = os.wait4(child.pid, 0)
    passed = time.perf_counter() - began
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, "node")
    return (usage.ru_utime + usage.ru_stime) * 1000, passed * 1000


def starts(preload: str, repetitions: int) -> tuple[list[list[str]], Budget]:
    """A table's lines, and the budget's: medians of the differences within a turn of three starts."""
    stock = {**os.environ, env.PLAN: PLAN}
    ways = (stock, {**stock, "LD_PRELOAD": preload}, stock)
    turns = [[start(environ) for environ in ways] for _ in range(repetitions)]
    lines, more = [], []
    for at, what in enumerate(("CPU time", "until it ended")):
        without, shim, again = ([turn[way][at] for turn in turns] for way in range(3))
        more.append(statistics.median(map(operator.sub, shim, without)))
        noise = abs(statistics.median(map(operator.sub, again, without)))
        lines.append([what, spread(without), spread(shim), f"{more[-1]:.2f} ms", f"{noise:.2f} ms"])
    # On a machine with other work the time until it ended says more about that work.
    what = f"the start of a process that makes no session, CPU time (A/A {lines[0][-1]})"
    return lines, Budget(what=what, value=more[0], allowed=START_BUDGET_MS, unit="ms")


def sessions(folder: Path, preload: str, model: Path, repetitions: int, count: int) -> list[list[str]]:
    """A table's lines for the first session of a process and for later ones."""
    environ = {**os.environ, "RADDLE_LOG": "0"}
    ways = {"without": environ, "with": {**environ, env.PLAN: PLAN, "LD_PRELOAD": preload}}
    first: dict[str, list[float]] = {"without": [], "with": []}
    later: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(repetitions):
        for way, variables in ways.items():
            found = _child(folder, model, count, variables)
            first[way].append(found["first"])
            later[way].extend(found["later"])
    return [
        [what, *map(spread, values.values()), *(f"{one:.2f} ms" for one in added(values["without"], values["with"]))]
        for what, values in (("the first session of a process", first), ("a later session", later))
    ]


def _child(folder: Path, model: Path, count: int, environ: dict[str, str]) -> dict[str, Any]:
    command = ["node", str(HERE / "node_child.cjs"), str(model), str(count)]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Runs the benchmark."""
    parser = options(__doc__)
    parser.add_argument("--starts", type=int, default=60, help="starts of each kind, at least 2 (default 60)")
    parser.add_argument(
        "--processes", type=int, default=12, help="processes that make sessions, of each kind (default 12)"
    )
    parser.add_argument("--sessions", type=int, default=100, help="sessions in each of them (default 100)")
    arguments = parser.parse_args()
    folder_of_packages = nodejs.package(f"onnxruntime-node@{nodejs.NEWEST}").parent
    with tempfile.TemporaryDirectory() as folder:
        mount = Path(folder) / "mount"
        delivery.write(str(mount))
        preload = str(mount / Path(delivery.LIBRARY).relative_to(delivery.MOUNT_PATH))
        model = identity_model(Path(folder) / "identity.onnx")
        lines, budget = starts(preload, arguments.starts)
        lines += sessions(folder_of_packages, preload, model, arguments.processes, arguments.sessions)
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    text = (
        "### Node.js with the native library\n\n`python -m node_shim`, from benchmarks/. "
        f"Node.js {version}, onnxruntime-node {nodejs.NEWEST}. {machine()}\n\nMedians and ranges in milliseconds:\n\n"
        + markdown_table(["what", "without", "with", "difference", "A/A"], lines)
        + "\n"
        + markdown_table(BUDGET_HEADINGS, [budget.cells()])
    )
    publish("node-shim", text, write=arguments.write)


if __name__ == "__main__":
    main()
