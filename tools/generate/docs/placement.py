"""Writes docs/explanation/how-threads-are-placed.md: the rules, and the table that the planner is tested against.

tests/raddle/test_placement_table.py checks that the page is current and that the planner does what its rows say.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from specification import limits
from specification.cases import Case
from specification.named import MACHINES
from specification.rules import RULES
from specification.table import CASES

REPOSITORY = Path(__file__).resolve().parents[3]
TARGET = REPOSITORY / "docs" / "explanation" / "how-threads-are-placed.md"

HEADER = """\
<!-- Made by `make generate` (tools/generate/docs/placement.py) from tools/specification: edit those. -->

# How threads are placed

What Raddle sets depends on the machine, on what the container has of it, and on what the policy asks for. This page is
the specification of that: the rules, each with where it comes from, then machine by machine what an expert would set.
Every row is a test (`tests/raddle/test_placement_table.py`). Its numbers were worked out by hand, not by the planner.
[How a number is decided](how-a-number-is-decided.md) has what does not depend on the machine.

## Rules

"""
HOW_TO_READ = """
## How to read the tables

- *container* is what it has: a limit (`500m` is half a CPU), exclusive CPUs whose numbers are not known yet, as
  when the pod is bound to its node, or exclusive CPUs by their numbers, as in the running container. There a plan
  is only ever cut: it has at most as many threads as at binding. The container knows the machine from
  [its plan](../reference/environment.md#the-machine-in-the-plan).
- *policy* is what differs from the defaults, which are Latency, one worker and one session.
- *threads* is the size of the intra-op pool of a session, the caller counted.
- *tied*: `numa` lets each worker use the container's CPUs on its NUMA node, `core` gives it a core. With known CPUs
  the groups follow, one a worker; `0-7 ×3` is three workers with that set. The caller is never tied.
- *memory* is the NUMA node that holds the whole pool, empty where there is none or the CPUs are not known.
- *layout* is the advice for Throughput: instances × threads.
- The rule behind a row is in brackets.

## Machines
"""
LIMITS_AT_A_GLANCE = """
## Limits at a glance

Threads for a container that shares its CPUs and has a limit, Latency / Throughput where they differ. It spins from one
CPU on, for 50 µs at most. The last three limits are the machine's own; brackets hold their CPUs.

"""
HEADINGS = ("container", "policy", "threads", "spinning", "tied", "memory", "layout", "why")
# Policy's field -> its name in a policy's spec, for what the table uses.
SPEC = {
    "objective": "objective",
    "budget_source": "budget.source",
    "sessions": "sessionsPerWorker",
    "concurrent_runs": "concurrentRuns",
    "run_time_us": "load.runTime",
    "numa": "numa",
    "smt": "smt",
    "core_type": "coreType",
    "affinity": "affinity",
}


def render() -> str:
    """The page, as Markdown."""
    text = HEADER
    for rule in RULES:
        text += f"- **{rule.name}**: {rule.text}\n  Sources: {'; '.join(rule.sources)}.\n"
    text += LIMITS_AT_A_GLANCE + _limits() + HOW_TO_READ
    for name, named in MACHINES.items():
        text += f"\n### {named.title}\n\n{named.about}\n\n"
        text += _line(HEADINGS) + _line("---" for _ in HEADINGS)
        text += "".join(_line(_cells(case)) for case in CASES if case.machine == name)
    return text


def _limits() -> str:
    text = _line(["machine", *limits.HEADINGS]) + _line("---" for _ in range(len(limits.HEADINGS) + 1))
    for name, (own, latency, throughput) in limits.LIMITS.items():
        cells = [str(low) if low == high else f"{low} / {high}" for low, high in zip(latency, throughput, strict=True)]
        common = len(limits.COMMON)
        cells[common:] = [f"{cell} ({cpus:g})" for cell, cpus in zip(cells[common:], own, strict=True)]
        text += _line([MACHINES[name].title, *cells])
    return text


def _cells(case: Case) -> list[str]:
    policy = ", ".join(
        value if name == "objective" else f"`{SPEC[name]}: {value}`" for name, value in case.asked().items()
    )
    tied = "" if case.tied == "none" else case.tied
    if case.groups:
        tied += ": " + "; ".join(_counted(case.groups))
    memory = "" if case.memory_node is None else str(case.memory_node)
    why = f"{case.why} ({', '.join(case.rules)})"
    return [case.container.words, policy, str(case.threads), case.spinning, tied, memory, case.layout, why]


def _counted(groups: Iterable[str]) -> list[str]:
    """Equal neighbours as one: ("0-3", "0-3", "4") -> ["0-3 ×2", "4"]."""
    found: list[tuple[str, int]] = []
    for group in groups:
        if found and found[-1][0] == group:
            found[-1] = (group, found[-1][1] + 1)
        else:
            found.append((group, 1))
    return [group if times == 1 else f"{group} ×{times}" for group, times in found]


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"
