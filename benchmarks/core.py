"""How long planning and reading a machine take: `python -m core`.

Sizes from two CPUs to 1024: `plan()` with parsing excluded, reading a made-up /sys tree with everything in it. The
agent's memory and its CPU time while nothing changes are measured on a local API server.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

import machines
from devcluster import Cluster
from localraddle import LocalRaddle
from raddle import sysfs
from raddle.planner import Budget, plan
from raddle.policy import Policy
from raddle.topology import Machine
from report import BUDGET_HEADINGS, markdown_table, spread, write_section
from report import Budget as Line
from report import machine as this_machine

REPETITIONS = 15
IDLE_SECONDS = 20.0
# CPUs -> sockets, NUMA nodes, L3 domains, cores
SHAPES = {2: (1, 1, 1, 1), 64: (2, 2, 4, 32), 256: (2, 4, 16, 128), 512: (2, 8, 32, 256), 1024: (4, 16, 64, 512)}


def _repeated(call: Callable[[], object], calls: int) -> list[float]:
    """Seconds a call, once per repetition."""
    figures = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        figures.append((time.perf_counter() - start) / calls)
    return figures


def planning_and_reading() -> tuple[list[list[str]], list[Line]]:
    """Rows of a table (CPUs, plan in µs with a limit and without, reading in ms), and the budgets."""
    rows, budgets = [], []
    for cpus, (sockets, numa_nodes, l3_domains, cores) in SHAPES.items():
        shape = machines.synthesize(sockets=sockets, numa_nodes=numa_nodes, l3_domains=l3_domains, cores=cores)
        with tempfile.TemporaryDirectory() as folder:
            root = machines.unpack(machines.pack(shape, ""), Path(folder))
            machine = sysfs.read_machine(str(root))
            reading = [seconds * 1e3 for seconds in _repeated(lambda root=root: sysfs.read_machine(str(root)), 1)]  # type: ignore[misc]
        limited, open_ended = (_plan_us(machine, budget) for budget in (Budget(quota_cpus=4), Budget()))
        rows.append([str(cpus), spread(limited), spread(open_ended), spread(reading)])
        if cpus == 64:
            budgets.append(_budget("plan(), 2 NUMA nodes, 64 CPUs", limited, 50, "µs"))
        if cpus == 512:
            budgets.append(_budget("plan(), 512 CPUs", limited, 300, "µs"))
        if cpus == 256:
            budgets.append(_budget("reading a 256-CPU tree", reading, 30, "ms"))
    return rows, budgets


def _plan_us(machine: Machine, budget: Budget) -> list[float]:
    return [seconds * 1e6 for seconds in _repeated(lambda: plan(machine, budget, Policy()), 300)]


def _budget(what: str, figures: list[float], allowed: float, unit: str) -> Line:
    return Line(what=what, value=statistics.median(figures), allowed=allowed, unit=unit)


def agent() -> list[Line]:
    """The agent's resident memory once it has published, and its CPU share while nothing changes."""
    with Cluster() as cluster, LocalRaddle(cluster, start=()) as raddle:
        raddle.register_machine("this-machine", "/", publish=False)
        process = raddle.start_agent("this-machine")
        path = "/apis/raddle.dev/v1alpha1/nodecputopologies"
        process.wait(lambda: bool(cluster.client.get(path)["items"]), "the agent has published")
        running = psutil.Process(process.pid)
        before = running.cpu_times()
        time.sleep(IDLE_SECONDS)
        after = running.cpu_times()
        busy = after.user + after.system - before.user - before.system
        resident = running.memory_info().rss / 2**20
    # The kernel counts CPU time in hundredths of a second: less than one of them is none.
    share = round(busy / IDLE_SECONDS * 100, 3)
    return [
        Line(what="agent, resident memory", value=resident, allowed=30, unit="MiB"),
        Line(what=f"agent, CPU over {IDLE_SECONDS:.0f} s idle", value=share, allowed=0.1, unit="% of a core"),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    arguments = parser.parse_args()
    rows, budgets = planning_and_reading()
    budgets += agent()
    text = (
        "### Planning, reading, the agent\n\n`python -m core`, from benchmarks/. "
        f"{this_machine()}. Median of {REPETITIONS} repetitions, range in brackets.\n\n"
        + markdown_table(["CPUs", "plan, limit 4 (µs)", "plan, no limit (µs)", "read /sys (ms)"], rows)
        + "\n"
        + markdown_table(BUDGET_HEADINGS, [budget.cells() for budget in budgets])
    )
    print(text)
    if arguments.write:
        write_section("core", text)


if __name__ == "__main__":
    main()
