"""A graph of nodes with weights: how wide it is, its critical path, how many threads side by side can shorten it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

# Threads are useful up to the count from which more shorten the graph by less than this share.
_CLOSE: Final = 0.05
# Running nodes side by side is worth a trial from this gain on, at best.
WORTH: Final = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node. `needs` are the indices of the nodes that must have ended before, each less than its own."""

    name: str
    kind: str
    needs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes and their weights: milliseconds, or 1 for each where `timed` is false. `path` is the critical path."""

    nodes: tuple[Node, ...]
    weights: tuple[float, ...]
    timed: bool
    path: tuple[int, ...]

    @property
    def work(self) -> float:
        """What one thread takes for all of it."""
        return sum(self.weights)

    @property
    def length(self) -> float:
        """What it takes with as many threads as wanted: the weight of the critical path."""
        return sum(self.weights[index] for index in self.path)

    @property
    def width(self) -> float:
        """Work by length: how many nodes run side by side on average, at best. 1 for a chain and for an empty graph."""
        return self.work / self.length if self.length else 1.0


def graph(nodes: Sequence[Node], weights: Sequence[float] | None = None) -> Graph:
    """The graph of these nodes with their times in milliseconds, or with 1 for each."""
    known = tuple(weights) if weights is not None else (1.0,) * len(nodes)
    return Graph(nodes=tuple(nodes), weights=known, timed=weights is not None, path=_path(nodes, known))


def starts(nodes: Sequence[Node], weights: Sequence[float]) -> list[float]:
    """When each node can start at the earliest."""
    result: list[float] = []
    for node in nodes:
        result.append(max((result[need] + weights[need] for need in node.needs), default=0.0))
    return result


def _path(nodes: Sequence[Node], weights: Sequence[float]) -> tuple[int, ...]:
    """The indices of a heaviest path, from the first node to the last."""
    ends = [start + weight for start, weight in zip(starts(nodes, weights), weights, strict=True)]
    path: list[int] = []
    before: Sequence[int] = range(len(nodes))
    while before:
        path.append(max(before, key=lambda index: (ends[index], -index)))
        before = nodes[path[-1]].needs
    return tuple(reversed(path))


def length_with(nodes: Sequence[Node], weights: Sequence[float], threads: int) -> float:
    """What the graph takes with so many threads, each for one node at a time: those with most behind them first.

    List scheduling by the longest remaining path; Graham (1969) bounds it to twice the optimum.
    """
    behind = [0.0] * len(nodes)
    after: list[list[int]] = [[] for _ in nodes]
    for index in reversed(range(len(nodes))):
        behind[index] += weights[index]
        for need in nodes[index].needs:
            after[need].append(index)
            behind[need] = max(behind[need], behind[index])
    waiting = [len(set(node.needs)) for node in nodes]
    ready = [(-behind[index], index) for index, count in enumerate(waiting) if not count]
    ready.sort()
    running: list[tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < threads:
            _, index = heappop(ready)
            heappush(running, (now + weights[index], index))
        now, ended = heappop(running)
        for index in dict.fromkeys(after[ended]):
            waiting[index] -= 1
            if not waiting[index]:
                heappush(ready, (-behind[index], index))
    return now


def useful_threads(given: Graph) -> int:
    """The fewest threads side by side with which the graph takes at most 5 % more than its critical path."""
    enough = given.length * (1 + _CLOSE)
    most = _most_at_once(given)
    counts = range(1, most + 1)
    # One more thread may lengthen a schedule by a little (Graham's anomalies); the search sees a step all the same.
    result = bisect_left(counts, True, key=lambda count: length_with(given.nodes, given.weights, count) <= enough)
    return min(result + 1, max(1, most))


def max_inter_op(given: Graph) -> int:
    """As many, 1 where nodes side by side are not worth a trial."""
    return useful_threads(given) if given.width >= WORTH else 1


def _most_at_once(given: Graph) -> int:
    """How many nodes run at the same time at most, where each starts as early as it can."""
    begun = starts(given.nodes, given.weights)
    changes = [
        change
        for start, weight in zip(begun, given.weights, strict=True)
        if weight > 0
        for change in ((start, 1), (start + weight, -1))
    ]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return max(1, most)
