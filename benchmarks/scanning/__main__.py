"""What `raddle scan` costs with 150,000 pods on 5,000 nodes, with what the kubelets measure and without.

python -m scanning        # from benchmarks/; --write for docs/benchmarks.md, --quick for a tenth of everything
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import NamedTuple

import canned
import report

PODS, NODES = 150_000, 5_000
BUDGET_MB = 500


class Run(NamedTuple):
    """One scan: its time, CPU time and most memory, how many rows it had, and of how many CPUs."""

    seconds: float
    cpu_s: float
    memory_mb: float
    rows: int
    saved_cpus: float


def measure(pods: int, nodes: int, *options: str) -> Run:
    """One run of the command in a process of its own, on a fresh server."""
    with canned.server("scanning.server", str(pods), str(nodes)) as (_, config):
        output = config.with_name("scan.json")
        command = [sys.executable, "-c", "from raddle_operator.cli import main; main()", "scan", "-o", "json", *options]
        began_s = time.monotonic()
        with output.open("w") as out:
            process = subprocess.Popen([*command, "--kubeconfig", str(config)], stdout=out)
            _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began_s
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        document = json.loads(output.read_text())
    total = document["total"]
    memory_mb = used.ru_maxrss * 1024 / 1e6
    return Run(seconds, used.ru_utime + used.ru_stime, memory_mb, total["containers"], total["givesBackCpus"])


def section(pods: int, nodes: int) -> str:
    """The section of docs/benchmarks.md."""
    rows = []
    for what, options in (("pods alone", ("--no-usage",)), ("with what the kubelets measure", ())):
        run = measure(pods, nodes, *options)
        print(what, run, file=sys.stderr, flush=True)
        rows.append([what, *map(report.short, (run.seconds, run.cpu_s, run.memory_mb)), str(run.rows)])
    return f"""## Scanning a cluster

`python -m scanning`, from benchmarks/. {report.machine()}.
`raddle scan` of {pods:,} pods of 6 kB on {nodes:,} nodes, 20 pods a workload, three of four with a known runtime; an
API server of canned answers on the same machine. The budget is {BUDGET_MB} MB.

{report.markdown_table(("scan", "s", "CPU s", "most memory MB", "rows"), rows)}"""


def main() -> None:
    """Measure and print."""
    parser = report.options(__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything: shows that it works")
    arguments = parser.parse_args()
    part = 10 if arguments.quick else 1
    report.publish("scanning", section(PODS // part, NODES // part), write=arguments.write)


if __name__ == "__main__":
    main()
