"""What was measured of a model, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raddle_operator.analysis.graph import Node
from raddle_operator.analysis.node_times import NodeTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTime:
    """Of so many runs with one count of threads, in milliseconds."""

    fastest_ms: float
    median_ms: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Resident memory of a process with one thread: what loading the model added, and what a run adds at its peak.

    `arena_bytes` is what ONNX Runtime says that its arena held, weights included; None where it does not say.
    """

    loaded_bytes: int
    running_bytes: int
    arena_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Run times and profiles by count of threads, ascending.

    `nodes` and `kinds` are the graph as ONNX Runtime runs it, after its optimizations. `version` is ONNX Runtime's.
    """

    version: str
    nodes: tuple[Node, ...]
    kinds: Mapping[str, int]
    runs: Mapping[int, RunTime]
    profiles: Mapping[int, NodeTimes]
    memory: Memory
