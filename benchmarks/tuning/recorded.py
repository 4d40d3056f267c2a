"""Surfaces of a real machine: every shape that a space has, measured for long by whatever measures for a search.

Settings that are no part of a shape are measured once each beside the plan and become factors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from raddle_operator.tuning import statistics
from raddle_operator.tuning.candidate import Candidate
from raddle_operator.tuning.measured import Ask, Block
from raddle_operator.tuning.objective import Objective
from raddle_operator.tuning.search import Answer
from raddle_operator.tuning.space import INSTANCES, SPIN_US, SPINNING, THREADS, Space
from report import folded_json
from tuning.surface import QUANTILES

Measure = Callable[[Ask], Answer]
_SHAPE = (THREADS, SPINNING, INSTANCES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The machine in the words of a surface's file; `exclusive_cpus` 0: its CPUs are shared."""

    cores: int
    threads_per_core: int
    numa_nodes: int
    l3_domains: int
    exclusive_cpus: int = 0


def record(
    path: Path, about: str, where: Where, space: Space, objective: Objective, measure: Measure, *, seconds: float = 20.0
) -> None:
    """Measures and writes a surface: two blocks of so many seconds for each shape and each other choice."""
    case = space.case
    found = {
        "about": about,
        "queued": False,
        "machine": asdict(where),
        "limit_cpus": case.budget.quota_cpus,
        "objective": str(objective.kind),
        "rate": objective.rate,
        "p99_ms": objective.p99_ms,
        "onnxruntime": list(case.onnxruntime or ()),
        "allocators": list(case.allocators),
        "can": list(case.can),
        "factors": _factors(space, objective, measure, seconds),
        "shapes": list(_shapes(space, objective, measure, seconds)),
    }
    path.write_text(folded_json(found) + "\n")


def _shapes(space: Space, objective: Objective, measure: Measure, seconds: float) -> Iterator[dict[str, Any]]:
    met = set()
    for candidate in _products(space):
        policy, plan = space.case.planned(candidate)
        spins = plan.exclusive_spinning or plan.spinning
        if spins == "bounded":
            spins = dict(policy.config_entries).get(SPIN_US, str(plan.spin_us))
        shape = {"spins": spins, "instances": int(candidate.get(INSTANCES) or 1), "threads": plan.intra_op or 1}
        if tuple(shape.values()) in met:
            continue
        met.add(tuple(shape.values()))
        blocks = [_measured(measure, candidate, rate, seconds) for rate in (objective.rate, None)]
        if None not in blocks:
            opened, closed = (block for block in blocks if block is not None)
            yield {
                **shape,
                "cpu_ms": statistics.cpu_ms_per_request([opened]) or 0.0,
                "closed_cpu_ms": statistics.cpu_ms_per_request([closed]) or 0.0,
                "open_ms": _quantiles(opened),
                "closed_ms": _quantiles(closed),
            }


def _products(space: Space) -> Iterator[Candidate]:
    """All thread counts with all ways to spin, and all instances with all ways to spin."""
    axes = {axis.name: axis for axis in space.axes if axis.name in _SHAPE}
    spinning = axes.get(SPINNING)
    for name in (THREADS, INSTANCES):
        axis = axes.get(name)
        for _, choice in axis.choices if axis else ():
            yield choice
            for _, spins in spinning.choices if spinning else ():
                yield spinning.applied(choice, spins) if spinning else choice


def _factors(space: Space, objective: Objective, measure: Measure, seconds: float) -> dict[str, dict[str, list[float]]]:
    """Path -> value as JSON -> its times and its CPU by the plan's."""
    factors: dict[str, dict[str, list[float]]] = {}
    for axis in space.axes:
        for _, choice in axis.choices if axis.name not in _SHAPE else ():
            one, other = (_measured(measure, each, objective.rate, seconds) for each in (Candidate(), choice))
            if one is None or other is None or len(choice.settings) > 1:
                continue
            times = float(np.median(other.latencies_ms) / np.median(one.latencies_ms))
            cpu = (statistics.cpu_ms_per_request([other]) or 1.0) / (statistics.cpu_ms_per_request([one]) or 1.0)
            ((path, value),) = choice.settings
            factors.setdefault(path, {})[json.dumps(value)] = [round(times, 4), round(cpu, 4)]
    return factors


def _measured(measure: Measure, candidate: Candidate, rate: float | None, seconds: float) -> Block | None:
    block = measure(Ask(candidate=candidate, rate=rate, seconds=seconds, seed=1, phase="record"))
    return block if isinstance(block, Block) and block.latencies_ms else None


def _quantiles(block: Block) -> list[float]:
    return [float(f"{value:.4g}") for value in np.quantile(block.latencies_ms, QUANTILES)]
