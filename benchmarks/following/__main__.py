"""What it costs to follow objects, by our own informer and by each of kopf's ways: `python -m following`.

python -m following        # from benchmarks/; --write for docs/benchmarks.md
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

import canned
import report
from following import ways

PODS, NODES, SOME = 10_000, 1_000, 1_000
RUNS = 3
INDEXED = (500, 1_000, 2_000)
CASES = [
    ("informer", "pods", PODS),
    ("kopf.on.event", "pods", PODS),
    *(("kopf.index", "pods", count) for count in INDEXED),
    ("informer", "nodes", NODES),
    ("kopf.on.event", "nodes", NODES),
    ("kopf.on.create", "pods", SOME),
    ("kopf.daemon", "pods", SOME),
]


def measure(way: str, kind: str, count: int) -> dict[str, float]:
    """One run of one way on a fresh server, in a process of its own."""
    with canned.server("following.server", kind, str(count)) as (port, config):
        following = [sys.executable, "-m", "following.ways", way, kind, str(count), str(port), str(config)]
        done = subprocess.run(following, check=True, stdout=subprocess.PIPE, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def section() -> str:
    """The section of docs/benchmarks.md."""
    result: dict[tuple[str, str, int], list[dict[str, float]]] = {case: [] for case in CASES}
    for _ in range(RUNS):  # interleaved, so that what else the machine does meets all alike
        for case in CASES:
            result[case].append(measure(*case))
            print(*case, result[case][-1], file=sys.stderr, flush=True)
    rows = [
        [
            f"`{way}`" if way.startswith("kopf") else "our informer",
            f"{count} {kind}",
            report.spread([run["cpu_s"] for run in runs]),
            report.spread([run["memory_mb"] for run in runs]),
            f"{statistics.median(run['writes'] for run in runs):.0f}" if way in ways.WRITING else "0",
        ]
        for (way, kind, count), runs in result.items()
    ]
    headings = ("what follows them", "objects", "CPU s", "memory MB", "of them written to")
    return f"""## Following objects: our informer and kopf's handlers

`python -m following`, from benchmarks/. {report.machine()}.
A server of canned answers lists objects that never change: pods of 6 kB, nodes of 10 kB. CPU time and the most memory,
both above those of the start, until a process of its own knows all of them; median of {RUNS}, range in brackets.
kopf has the controller's settings, but for its diff base where handlers need it.

{report.markdown_table(headings, rows)}"""


def main() -> None:
    """Measure and print."""
    arguments = report.options(__doc__).parse_args()
    report.publish("following", section(), write=arguments.write)


if __name__ == "__main__":
    main()
