"""A node's CPUs with the containers whose threads ran on each last, as marks of the picture of its machine. Pure."""

from __future__ import annotations

import string
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from raddle.cpus import cpuset
from raddle.cpus.topology import Machine
from raddle_operator.cli import running
from raddle_operator.cli.picture.model import Cell, Marks, State, plural, printable
from raddle_operator.objects import nodereport
from raddle_operator.objects.nodereport import Container, Level, NodeReport

_SHOWN: Final = 2
"""Letters in a CPU; of more the first are shown, with a plus."""
_QUIET, _USED = 0.3, 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class CPU:
    """What ran on a CPU: letter -> how many threads were there last. `use` is the share of its time, estimated.

    `shared`: threads of several containers ran on its core.
    """

    threads: Mapping[str, int]
    use: float
    shared: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUOccupancy:
    """A node's containers by letter, the worst first, and the CPUs on which threads of theirs ran."""

    containers: Mapping[str, Container]
    cpus: Mapping[int, CPU]


def occupancy(report: NodeReport, machine: Machine) -> CPUOccupancy:
    """Who ran where. CPUs that the machine does not have online are left out."""
    order = sorted(report.containers, key=lambda one: (one.namespace, one.pod, one.name))
    order.sort(key=running.badness, reverse=True)
    containers = dict(zip(_letters(), order, strict=False))
    threads: defaultdict[int, Counter[str]] = defaultdict(Counter)
    use: defaultdict[int, float] = defaultdict(float)
    for letter, container in containers.items():
        for pool in (pool for process in container.processes for pool in process.pools):
            total = sum(pool.last_cpus.values())
            for cpu, count in pool.last_cpus.items():
                if count and cpu >= 0 and machine.online >> cpu & 1:
                    threads[cpu][letter] += count
                    # Where in the window each of its threads was is not known: the pool's time is split evenly.
                    use[cpu] += pool.used_cpus * count / total
    shared = _shared(machine, threads)
    return CPUOccupancy(
        containers=containers,
        cpus={
            cpu: CPU(threads=dict(sorted(count.items())), use=min(1.0, use[cpu]), shared=bool(shared >> cpu & 1))
            for cpu, count in sorted(threads.items())
        },
    )


def _letters() -> Iterator[str]:
    """A to Z, then A1 to Z1 and so on: read side by side they stay apart."""
    number = 0
    while True:
        yield from (f"{letter}{number or ''}" for letter in string.ascii_uppercase)
        number += 1


def _shared(machine: Machine, threads: Mapping[int, Mapping[str, int]]) -> int:
    """The CPUs that ran something on cores where threads of several containers did."""
    seen = cpuset.of(list(threads))
    loose = seen
    result = 0
    for core in machine.cores:
        loose &= ~core
        if len({letter for cpu in cpuset.ids(core & seen) for letter in threads[cpu]}) > 1:
            result |= core & seen
    return result | cpuset.of([cpu for cpu in cpuset.ids(loose) if len(threads[cpu]) > 1])


def marks(report: NodeReport, result: CPUOccupancy) -> Marks:
    """What is drawn on the machine: a letter for each CPU that ran something, and a line for each container."""
    facts = [("node", f"{printable(report.node)}, in the {report.window_s:g} s to {printable(report.at)}")]
    if report.level is not Level.PROCESSES:
        facts.append(("who ran where", f"is not observed at agent.watch {report.level}; set {Level.PROCESSES}"))
    facts += [(letter, printable(_line(one))) for letter, one in result.containers.items()]
    return Marks(ran={cpu: _cell(cpu, one) for cpu, one in result.cpus.items()}, facts=tuple(facts))


def _line(one: Container) -> str:
    why = "".join(f"; {item.cause}: {item.detail}" for item in one.findings)
    return f"{one.namespace}/{one.pod} {one.name}: {running.sentence(one)}{why}"


def _cell(cpu: int, one: CPU) -> Cell:
    letters = list(one.threads)
    state = State.QUIET if one.use < _QUIET else State.USED if one.use < _USED else State.BUSY
    who = ", ".join(f"{letter} {plural(count, 'thread')}" for letter, count in one.threads.items())
    shared = ", its core is shared by containers" * one.shared
    return Cell(
        cpu=cpu,
        state=state,
        sign="".join(letters[:_SHOWN]) + "+" * (len(letters) > _SHOWN),
        shared=one.shared,
        said=f"{who}, about {one.use:.0%} of its time in use{shared}",
    )


def document(report: NodeReport, result: CPUOccupancy, machine: Machine) -> Mapping[str, Any]:
    """The same for programs."""
    return {
        "node": report.node,
        "level": str(report.level),
        "at": report.at,
        "windowS": report.window_s,
        "containers": [{"letter": letter, **nodereport.as_document(one)} for letter, one in result.containers.items()],
        "cpus": [_cpu(cpu, result.cpus.get(cpu)) for cpu in cpuset.ids(machine.online)],
    }


def _cpu(cpu: int, one: CPU | None) -> Mapping[str, Any]:
    return {
        "cpu": cpu,
        "threads": dict(one.threads) if one is not None else {},
        "use": round(one.use, 3) if one is not None else 0.0,
        "shared": one is not None and one.shared,
    }
