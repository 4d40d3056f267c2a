"""What was measured of a model, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from raddle_tuner.analysis.graph import Node
from raddle_tuner.analysis.node_times import NodeTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTime:
    """Of so many runs with one count of threads, in milliseconds: the fastest of each round, the median of all."""

    rounds_ms: tuple[float, ...]
    median_ms: float
    count: int

    @property
    def ms(self) -> float:
        """What a run takes where nothing disturbs it: the median of the rounds."""
        return median(self.rounds_ms)


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
    """Run times and the rounds' profiles by count of threads, ascending.

    `nodes` and `kinds` are the graph as ONNX Runtime runs it, after its optimizations. `version` is ONNX Runtime's.
    """

    version: str
    nodes: tuple[Node, ...]
    kinds: Mapping[str, int]
    runs: Mapping[int, RunTime]
    profiles: Mapping[int, tuple[NodeTimes, ...]]
    memory: Memory
