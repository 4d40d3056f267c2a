"""How long planning, placing, reading a machine and handing it over take, and the agent's footprint: `python -m core`.

Sizes from two CPUs to 1024: reading a made-up /sys tree with everything in it; `plan()`, parsing excluded, under a
limit, without one, and for exclusive CPUs whose numbers are known; writing the machine into the plan, which a node's
later pods reuse; what the first session costs more on such CPUs (the plan's machine read, pool placed, affinity
written; later ones like it reuse the text), and the placing alone. All kinds take turns; beside each figure is its A/A
difference, how far the medians of two halves of its repetitions lie apart. The agent's memory and its CPU time while
nothing changes are measured on a local API server.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

import machines
from cluster import Cluster
from cluster.local_raddle import LocalRaddle
from raddle.adapters.onnxruntime.affinity import affinity_text
from raddle.cpus import cpuset, machine_part
from raddle.cpus.placement import PlacementPolicy, pin, place
from raddle.cpus.topology import Kubelet, Machine
from raddle.machine import sysfs
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import Policy
from report import BUDGET_HEADINGS, apart, markdown_table, options, publish, short, spread
from report import Budget as Line
from report import machine as this_machine

REPETITIONS = 16
IDLE_SECONDS = 20.0
# CPUs -> sockets, NUMA nodes, L3 domains, cores
SHAPES = {2: (1, 1, 1, 1), 64: (2, 2, 4, 32), 256: (2, 4, 16, 128), 512: (2, 8, 32, 256), 1024: (4, 16, 64, 512)}
PLANS = ("plan, limit 4", "plan, no limit", "plan, exclusive")
# What is measured -> its unit and how often it is called for one figure.
MEASURES = {
    **dict.fromkeys(PLANS, ("µs", 100)),
    "hand over": ("µs", 20),
    "read /sys": ("ms", 1),
    "first exclusive session": ("µs", 20),
    "placing alone": ("µs", 20),
}
_PER_SECOND = {"µs": 1e6, "ms": 1e3}


def planning_and_reading() -> tuple[list[list[str]], list[Line]]:
    """Rows of a table (a size each, a column for each of MEASURES), and the budgets."""
    rows, budgets = [], []
    for cpus, (sockets, numa_nodes, l3_domains, cores) in SHAPES.items():
        shape = machines.synthesize(sockets=sockets, numa_nodes=numa_nodes, l3_domains=l3_domains, cores=cores)
        with tempfile.TemporaryDirectory() as folder:
            root = machines.write(shape, Path(folder))
            figures = _measured(_calls(str(root)))
        rows.append([str(cpus), *(f"{spread(item)}; {short(apart(item))}" for item in figures.values())])
        if cpus in {64, 512}:
            what, allowed = ("plan(), 2 NUMA nodes, 64 CPUs", 50) if cpus == 64 else ("plan(), 512 CPUs", 300)
            slowest = max((figures[name] for name in PLANS), key=statistics.median)
            budgets.append(_budget(what + ", the slowest of three", slowest, allowed, "µs"))
        if cpus == 256:
            budgets.append(_budget("reading a 256-CPU tree", figures["read /sys"], 30, "ms"))
    return rows, budgets


def _calls(root: str) -> dict[str, Callable[[], object]]:
    """What MEASURES names, for the machine below `root`."""
    machine = sysfs.read_machine(root)._replace(kubelet=Kubelet(cpu_manager_policy="static"))
    cpus = _half(machine)
    whole = cpuset.count(cpus)
    exclusive = Budget(whole_cpus=whole, cpus=cpus)
    fields = next(machine_part.fields_of(machine, gpu=False))

    def hand_over() -> object:
        machine_part.written.cache_clear()
        return next(machine_part.fields_of(machine, gpu=False))

    def session(known: Machine | None) -> str:
        on, wanted = known or machine_part.machine_of(fields, cpus) or machine, PlacementPolicy()
        placed = place(on, whole, wanted, cpus)
        # As adapters.onnxruntime.affinity: a CPU of each core where the whole text is too long.
        groups = pin(on, cpus, placed.threads, "numa", wanted)
        return affinity_text(groups) or affinity_text(pin(on, cpus, placed.threads, "numa", wanted, siblings=False))

    return {
        "plan, limit 4": lambda: plan(machine, Budget(quota_cpus=4), Policy()),
        "plan, no limit": lambda: plan(machine, Budget(), Policy()),
        "plan, exclusive": lambda: plan(machine, exclusive, Policy()),
        "hand over": hand_over,
        "read /sys": lambda: sysfs.read_machine(root),
        "first exclusive session": lambda: session(None),
        "placing alone": lambda: session(machine),
    }


def _half(machine: Machine) -> int:
    """Half of the machine's cores with all their threads, or its only one."""
    result = 0
    for core in machine.cores[: max(1, len(machine.cores) // 2)]:
        result |= core
    return result


def _measured(calls: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """A figure a repetition for each of MEASURES, in its unit; they take turns."""
    figures: dict[str, list[float]] = {name: [] for name in MEASURES}
    for _ in range(REPETITIONS):
        for name, (unit, times) in MEASURES.items():
            call = calls[name]
            start = time.perf_counter()
            for _ in range(times):
                call()
            figures[name].append((time.perf_counter() - start) / times * _PER_SECOND[unit])
    return figures


def _budget(what: str, figures: list[float], allowed: float, unit: str) -> Line:
    return Line(
        what=f"{what} (A/A {short(apart(figures))})", value=statistics.median(figures), allowed=allowed, unit=unit
    )


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
    arguments = options(__doc__).parse_args()
    rows, budgets = planning_and_reading()
    budgets += agent()
    text = (
        "### Planning, reading, the agent\n\n`python -m core`, from benchmarks/. "
        f"{this_machine()}. Median of {REPETITIONS} repetitions, range in brackets, A/A difference after it. The first "
        "session on exclusive CPUs, half of the machine: what reading the plan's machine, placing and the affinity "
        "text add to it.\n\n"
        + markdown_table(["CPUs", *(f"{name} ({unit})" for name, (unit, _) in MEASURES.items())], rows)
        + "\n"
        + markdown_table(BUDGET_HEADINGS, [budget.cells() for budget in budgets])
    )
    publish("core", text, write=arguments.write)


if __name__ == "__main__":
    main()
