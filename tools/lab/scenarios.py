"""Containers on the lab's machines, and what an expert would have ONNX Runtime do in each: the lab's specification.

Nothing here is computed by Raddle. What the planner says is compared with this, and what the kernel says of real
threads too.

In a shape's numbering a core's threads are side by side: CPUs 0-1 are the first core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PYTHON, NATIVE = "python", "native"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the kubelet writes into the container's cgroup: cpuset.cpus, and cpu.max (None: max)."""

    cpuset: str
    quota_cpus: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One session: threads of its pool with the caller, where each worker may run, in order.

    `spinning`: what a worker without work does: never, bounded or always looks for more before it sleeps.
    `memory`: the NUMA nodes that what the session has allocated must be on; () where nothing decides that.
    """

    threads: int
    workers: tuple[str, ...] = ()
    spinning: str
    memory: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A container on a machine, and each session that it makes: the first, and one after each change of its limits.

    `program` is guest/app.py or guest/app.c, whose limits can't change.
    """

    name: str
    shape: str
    why: str
    resources: Mapping[str, Any]
    sessions: tuple[tuple[Limits, Expected], ...]
    program: str = PYTHON
    policy: Mapping[str, Any] = field(default_factory=dict)
    reserved: str = ""

    @property
    def qos(self) -> str:
        """The pod's quality of service, as the kubelet's cgroups are named."""
        limits, requests = self.resources.get("limits", {}), self.resources.get("requests")
        if {"cpu", "memory"} <= set(limits) and requests in (None, limits):
            return "guaranteed"
        return "burstable"


def _whole(cpus: int) -> dict[str, Any]:
    """A Guaranteed container that asks for whole CPUs."""
    return {"limits": {"cpu": str(cpus), "memory": "1Gi"}}


def _limit(cpus: str) -> dict[str, Any]:
    return {"limits": {"cpu": cpus}, "requests": {"cpu": "1"}}


def _exclusive(cpuset: str, threads: int, *workers: str, memory: tuple[int, ...] = ()) -> tuple[Limits, Expected]:
    """A worker that spins on a CPU that nobody else has takes nothing from anybody."""
    spinning = "always" if threads > 1 else "never"
    return Limits(cpuset=cpuset), Expected(threads=threads, workers=workers, spinning=spinning, memory=memory)


def _shared(cpuset: str, quota_cpus: float | None, threads: int) -> tuple[Limits, Expected]:
    """Nobody pins a thread of a container that shares its CPUs: each may run where the container may."""
    limits = Limits(cpuset=cpuset, quota_cpus=quota_cpus)
    spinning = "bounded" if threads > 1 else "never"
    return limits, Expected(threads=threads, workers=(cpuset,) * (threads - 1), spinning=spinning)


# Two NUMA nodes of four cores, CPUs 0-7 and 8-15, and one of memory only. Larger machines show no more, and stock ONNX
# Runtime has a thread for each of their cores, which all spin on the host's few.
MAIN = "2s3n-8c16t-memory"
_MAIN_SHARED = "2-15"

SCENARIOS = (
    Scenario(
        name="one-node",
        shape=MAIN,
        why="all cores of one NUMA node: a thread each, each within the node",
        resources=_whole(8),
        sessions=(_exclusive("8-15", 4, "8-15", "8-15", "8-15", memory=(1,)),),
    ),
    Scenario(
        name="per-core",
        shape=MAIN,
        why="as one-node, asked for PerCore: the first core is left to the caller",
        resources=_whole(8),
        policy={"placement": {"affinity": "PerCore"}},
        sessions=(_exclusive("8-15", 4, "10-11", "12-13", "14-15", memory=(1,)),),
    ),
    Scenario(
        name="3-to-1",
        shape=MAIN,
        why="three cores on one NUMA node and one on another: the one is left idle",
        resources=_whole(8),
        sessions=(_exclusive("2-9", 3, "2-7", "2-7", memory=(0,)),),
    ),
    Scenario(
        name="1-to-1",
        shape=MAIN,
        why="two cores on each of two NUMA nodes: all four, each worker on its own node",
        resources=_whole(8),
        sessions=(_exclusive("4-11", 4, "4-7", "8-11", "8-11", memory=(0, 1)),),
    ),
    Scenario(
        name="1-to-1-single",
        shape=MAIN,
        why="as 1-to-1, asked for SingleNUMANode: half of the CPUs are left idle",
        resources=_whole(8),
        policy={"placement": {"numa": "SingleNUMANode"}},
        sessions=(_exclusive("4-11", 2, "4-7", memory=(0,)),),
    ),
    Scenario(
        name="half-cores",
        shape=MAIN,
        why="four CPUs on three cores: never more threads than the node's plan said",
        resources=_whole(4),
        sessions=(_exclusive("9-11,13", 2, "9-11,13", memory=(1,)),),
    ),
    Scenario(
        name="all-threads",
        shape=MAIN,
        why="asked for AllThreads: one thread per CPU",
        resources=_whole(4),
        policy={"placement": {"smt": "AllThreads"}},
        sessions=(_exclusive("12-15", 4, "12-15", "12-15", "12-15", memory=(1,)),),
    ),
    Scenario(
        name="quota-2",
        shape=MAIN,
        why="a limit of 2 on shared CPUs: two threads, wherever the container may run",
        resources=_limit("2"),
        reserved="0-1",
        sessions=(_shared(_MAIN_SHARED, 2, 2),),
    ),
    Scenario(
        name="quota-1.5",
        shape=MAIN,
        why="a limit of 1.5 for Latency: rounded up",
        resources=_limit("1500m"),
        reserved="0-1",
        sessions=(_shared(_MAIN_SHARED, 1.5, 2),),
    ),
    Scenario(
        name="quota-1.5-throughput",
        shape=MAIN,
        why="a limit of 1.5 for Throughput: rounded down",
        resources=_limit("1500m"),
        policy={"objective": "Throughput"},
        reserved="0-1",
        sessions=(_shared(_MAIN_SHARED, 1.5, 1),),
    ),
    Scenario(
        name="no-limit",
        shape=MAIN,
        why="no limit on shared CPUs: the cores of one NUMA node",
        resources={"requests": {"cpu": "1"}},
        reserved="0-1",
        sessions=(_shared(_MAIN_SHARED, None, 4),),
    ),
    Scenario(
        name="resized",
        shape=MAIN,
        why="limit and shared CPUs shrink, then grow: later sessions follow, never above the plan",
        resources=_limit("4"),
        reserved="0-1",
        sessions=(
            _shared(_MAIN_SHARED, 4, 4),
            _shared("2-7,12-15", 2, 2),
            _shared(_MAIN_SHARED, 8, 4),
        ),
    ),
    Scenario(
        name="native-one-node",
        shape=MAIN,
        why="as one-node, in a C program linked to libonnxruntime",
        program=NATIVE,
        resources=_whole(8),
        sessions=(_exclusive("8-15", 4, "8-15", "8-15", "8-15", memory=(1,)),),
    ),
    Scenario(
        name="native-3-to-1",
        shape=MAIN,
        why="as 3-to-1, in a C program linked to libonnxruntime",
        program=NATIVE,
        resources=_whole(8),
        sessions=(_exclusive("2-9", 3, "2-7", "2-7", memory=(0,)),),
    ),
    Scenario(
        name="native-quota-2",
        shape=MAIN,
        why="as quota-2, in a C program linked to libonnxruntime",
        program=NATIVE,
        resources=_limit("2"),
        reserved="0-1",
        sessions=(_shared(_MAIN_SHARED, 2, 2),),
    ),
    Scenario(
        name="l3-order",
        shape="1s2n4l3-8c16t",
        why="one core of an L3 domain, both of the next: the fuller domain is taken first",
        resources=_whole(6),
        policy={"placement": {"affinity": "PerCore"}},
        sessions=(_exclusive("2-7", 3, "6-7", "2-3", memory=(0,)),),
    ),
    Scenario(
        name="two-of-four",
        shape="2s4n-8c16t",
        why="two of four NUMA nodes, on different sockets: all cores, each worker on its own node",
        resources=_whole(8),
        sessions=(_exclusive("4-11", 4, "4-7", "8-11", "8-11", memory=(1, 2)),),
    ),
    Scenario(
        name="offline",
        shape="1s8c16t-offline",
        why="two CPUs on two cores, one of them with its other thread offline",
        resources=_whole(3),
        sessions=(_exclusive("4,6-7", 2, "4,6-7", memory=(0,)),),
    ),
    Scenario(
        name="isolated",
        shape="1s8c16t-offline",
        why="no limit: isolated CPUs are not counted, half a core is one",
        resources={"requests": {"cpu": "1"}},
        sessions=(_shared("0-4,6-13", None, 6),),
    ),
    Scenario(
        name="no-smt",
        shape="2s8c8t",
        why="3-to-1 where a CPU is a core",
        resources=_whole(4),
        sessions=(_exclusive("1-4", 3, "1-3", "1-3", memory=(0,)),),
    ),
    Scenario(
        name="one-cpu",
        shape="1s1c1t",
        why="one CPU: no worker at all",
        resources=_whole(1),
        sessions=(_exclusive("0", 1, memory=(0,)),),
    ),
)


def alike(scenario: Scenario) -> str:
    """The first scenario with the same limits: without Raddle, the two can't be told apart."""
    limits = [limits for limits, _ in scenario.sessions]
    return next(
        one.name
        for one in on(scenario.shape)
        if (one.qos, one.program) == (scenario.qos, scenario.program)
        and [limits for limits, _ in one.sessions] == limits
    )


def on(shape: str) -> tuple[Scenario, ...]:
    """The scenarios of a shape, () for one that has none."""
    return tuple(scenario for scenario in SCENARIOS if scenario.shape == shape)
