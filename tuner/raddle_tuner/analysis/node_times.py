"""ONNX Runtime's own profile (`enable_profiling`): what each node and each kind of node took in a run.

The file is a list of Chrome trace events, each written when it ended, times in microseconds. Nodes have category `Node`
and `op_name` in their `args`, also those inside of Loop, If and Scan, which come before the node that holds them; a run
ends with `model_run` of category `Session`. `mem_arena_held` in `args` is there since 1.31.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

Event = Mapping[str, Any]

# What holds graphs of its own; its time contains that of the nodes inside.
HOLDS_NODES: Final = frozenset({"If", "Loop", "Scan"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimes:
    """What the nodes took in milliseconds, each where it was fastest: what disturbs a run disturbs some of its nodes.

    Runs that don't do the same steps (a loop that goes round more often) can't be compared by node: then it is the
    fastest run alone. `nodes` are (kind, time with all that is inside) of the nodes of the graph, in the order in which
    they ran. `kinds` is the time of each kind alone, without that of the nodes inside. `arena_bytes` is the most that
    ONNX Runtime's arena held, None where it doesn't tell.
    """

    nodes: tuple[tuple[str, float], ...]
    kinds: Mapping[str, float]
    arena_bytes: int | None


def of_rounds(rounds: Sequence[NodeTimes]) -> NodeTimes:
    """The median of each node and of each kind; where the rounds did not do the same steps, the fastest round alone."""
    first = min(rounds, key=lambda one: sum(one.kinds.values()))
    if len({tuple(kind for kind, _ in one.nodes) for one in rounds}) > 1:
        return first
    columns = zip(*(one.nodes for one in rounds), strict=True)
    return NodeTimes(
        nodes=tuple((column[0][0], median(time for _, time in column)) for column in columns),
        kinds={kind: median(one.kinds.get(kind, 0.0) for one in rounds) for kind in first.kinds},
        arena_bytes=first.arena_bytes,
    )


@dataclass(slots=True)
class _Step:
    """A node that ran. `own_us` is without the nodes inside; `inside`: it was inside of another itself."""

    kind: str
    start_us: int
    whole_us: int
    own_us: int
    inside: bool = False


def read(events: Sequence[Event], warm_up: int = 1) -> NodeTimes | None:
    """The times in a profile without its first runs; None where there are no others."""
    runs = list(_runs(events))[warm_up:]
    if not runs:
        return None
    steps = [_steps(run) for run in runs]
    if len({tuple((step.kind, step.inside) for step in run) for run in steps}) > 1:
        steps = [min(steps, key=lambda run: sum(step.own_us for step in run))]
    nodes: list[tuple[str, float]] = []
    kinds: dict[str, float] = {}
    for column in zip(*steps, strict=True):
        kind = column[0].kind
        kinds[kind] = kinds.get(kind, 0.0) + min(step.own_us for step in column) / 1000
        if not column[0].inside:
            nodes.append((kind, min(step.whole_us for step in column) / 1000))
    held = [int(event["args"]["mem_arena_held"]) for run in runs for event in run if "mem_arena_held" in event["args"]]
    return NodeTimes(nodes=tuple(nodes), kinds=kinds, arena_bytes=max(held, default=None))


def _runs(events: Sequence[Event]) -> Iterator[list[Event]]:
    """Yields the nodes' events of each whole run."""
    run: list[Event] = []
    for event in events:
        if event.get("cat") == "Node" and "op_name" in event.get("args", {}):
            run.append(event)
        elif event.get("cat") == "Session" and event.get("name") == "model_run":
            yield run
            run = []


def _steps(run: Sequence[Event]) -> list[_Step]:
    steps: list[_Step] = []
    outer: list[_Step] = []
    for event in run:
        kind, start, whole = event["args"]["op_name"], int(event["ts"]), int(event["dur"])
        step = _Step(kind, start, whole, own_us=whole)
        # What began after it and ended before it ran inside.
        while kind in HOLDS_NODES and outer and outer[-1].start_us > start:
            within = outer.pop()
            within.inside = True
            step.own_us = max(0, step.own_us - within.whole_us)
        steps.append(step)
        outer.append(step)
    return steps
