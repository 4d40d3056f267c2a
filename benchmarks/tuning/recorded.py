"""Surfaces of a real machine: every shape that a space has, measured for long by whatever measures for a search.

Settings that are no part of a shape are measured beside the plan and become factors. What was measured is kept, so that
a recording that is ended goes on where it was.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np

import report
from raddle.cpus.topology import Machine, threads_per_core
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.key import NodeClass
from raddle_operator.results.objective import Kind, Objective
from raddle_tuner.search import statistics
from raddle_tuner.search.blocks import CAPACITY, Block, Failure, MeasurementRequest
from raddle_tuner.search.space import INSTANCES, SPIN_US, SPINNING, THREADS, Space
from raddle_tuner.trials.record import Record, question
from tuning import here
from tuning.surface import FOLDER, QUANTILES

Measure = Callable[[MeasurementRequest], Block | Failure]
# Outside git: models, and blocks of recordings that are not done.
BUILD: Final = Path(__file__).resolve().parents[2] / "build" / "tuning"
_SHAPE = (THREADS, SPINNING, INSTANCES)
_SHAPE_PHASE: Final = "shape"
# All is measured forwards, then backwards, so that a machine that becomes slower favours none.
_ROUNDS: Final = 2
# A setting that is no part of a shape changes little: it is a factor where its interval of so many pairs says so.
_PAIRS: Final = 6
_ERROR: Final = 0.01
# How much of what the plan can serve arrives: queues are there, and do not grow.
LOAD: Final = 0.4
_CAPACITY_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The machine in the words of a surface's file; `exclusive_cpus` 0: its CPUs are shared."""

    cores: int
    threads_per_core: int
    numa_nodes: int
    l3_domains: int
    exclusive_cpus: int = 0

    @classmethod
    def of(cls, machine: Machine) -> Where:
        """The machine as far as a surface's file can tell of it."""
        return cls(
            cores=len(machine.cores),
            threads_per_core=threads_per_core(machine),
            numa_nodes=sum(1 for node in machine.numa_nodes if node.cpus) or 1,
            l3_domains=len(machine.l3_domains) or 1,
        )


class Recording:
    """The answers of a record, and new ones that it is given. `shapes_s` is what the shapes took, starts with them."""

    def __init__(self, kept: Record, measure: Measure) -> None:
        self._kept = kept
        self._measure = measure
        self._answers = dict(kept.answers)
        self.shapes_s = kept.spent_s

    def measure(self, request: MeasurementRequest) -> Block | Failure:
        """The recorded answer, else one that is measured now and recorded. Raises RecordError."""
        if request not in self._answers:
            begun_s = time.monotonic()
            answer = self._measure(request)
            if request.phase == _SHAPE_PHASE:
                self.shapes_s += time.monotonic() - begun_s
            self._kept.add(request, answer, self.shapes_s)
            self._answers[request] = answer
        return self._answers[request]


def record(
    path: Path,
    about: str,
    where: Where,
    space: Space,
    objective: Objective,
    recording: Recording,
    *,
    seconds: float = 10.0,
) -> None:
    """Measures and writes a surface: blocks of so many seconds in all for each shape, and for each other choice."""
    case = space.case
    result = {
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
        "shapes": list(_shapes(space, objective, recording.measure, seconds)),
        "factors": _factors(space, objective, recording.measure, seconds),
        "recorded": {
            "on": NodeClass.of(case.machine).title if case.machine else "",
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "minutes": round(recording.shapes_s / 60, 1),
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.folded_json(result) + "\n")


def _shapes(space: Space, objective: Objective, measure: Measure, seconds: float) -> Iterator[dict[str, Any]]:
    """Yields each shape with what it showed. Those that come to the same (spinning of one thread) are measured once."""
    shapes: dict[tuple[str, int, int], Candidate] = {}
    same: dict[Hashable, Candidate] = {}
    for candidate in _products(space):
        shapes.setdefault(_shape(space, candidate), same.setdefault(space.case.key(candidate), candidate))
    candidates = list(dict.fromkeys(shapes.values()))
    opened = _measured(measure, candidates, _SHAPE_PHASE, objective.rate, seconds)
    closed = _measured(measure, candidates, "closed", None, seconds / 2)
    for (spins, instances, threads), candidate in shapes.items():
        if opened[candidate] and closed[candidate]:
            yield {
                "spins": spins,
                "instances": instances,
                "threads": threads,
                "settings": dict(candidate.settings),
                "cpu_ms": _rounded(statistics.cpu_ms_per_request(opened[candidate]) or 0.0),
                "closed_cpu_ms": _rounded(statistics.cpu_ms_per_request(closed[candidate]) or 0.0),
                "open_ms": _quantiles(opened[candidate]),
                "closed_ms": _quantiles(closed[candidate]),
            }


def _shape(space: Space, candidate: Candidate) -> tuple[str, int, int]:
    policy, plan = space.case.planned(candidate)
    spins = plan.exclusive_spinning or plan.spinning
    if spins == "bounded":
        spins = dict(policy.config_entries).get(SPIN_US, str(plan.spin_duration_us))
    return spins, int(candidate.get(INSTANCES) or 1), plan.intra_op or 1


def _products(space: Space) -> Iterator[Candidate]:
    """The plan, all thread counts with all ways to spin, and all instances with all ways to spin."""
    axes = {axis.name: axis for axis in space.axes if axis.name in _SHAPE}
    spinning = axes.get(SPINNING)
    yield Candidate()
    for name in (THREADS, INSTANCES):
        axis = axes.get(name)
        for _, choice in axis.choices if axis else ():
            yield choice
            for _, spins in spinning.choices if spinning else ():
                yield spinning.applied(choice, spins) if spinning else choice


def _factors(space: Space, objective: Objective, measure: Measure, seconds: float) -> dict[str, dict[str, list[float]]]:
    """Path -> value as JSON -> its times and its CPU by the plan's, 1 where they are not told apart."""
    factors: dict[str, dict[str, list[float]]] = {}
    axes = [axis for axis in space.axes if axis.name not in _SHAPE]
    choices = [choice for axis in axes for _, choice in axis.choices if len(choice.settings) == 1]
    result = _measured(measure, [Candidate(), *choices], "setting", objective.rate, seconds, rounds=_PAIRS)
    plan = result.pop(Candidate())
    for choice, blocks in result.items():
        if not plan or not blocks:
            continue
        ((path, value),) = choice.settings
        factors.setdefault(path, {})[json.dumps(value)] = [
            _factor(plan, blocks, lambda block: float(np.median(block.latencies_ms))),
            _factor(plan, blocks, lambda block: statistics.cpu_ms_per_request([block]) or 1.0),
        ]
    return factors


def _factor(plan: Sequence[Block], other: Sequence[Block], figure: Callable[[Block], float]) -> float:
    differences = [math.log(figure(one) / figure(two)) for one, two in zip(other, plan, strict=True)]
    result = statistics.interval(Kind.LATENCY, differences, error=_ERROR)
    return 1.0 if result.low <= 0 <= result.high else round(1 + result.percent / 100, 4)


def _measured(
    measure: Measure,
    candidates: Sequence[Candidate],
    phase: str,
    rate: float | None,
    seconds: float,
    *,
    rounds: int = _ROUNDS,
) -> dict[Candidate, list[Block]]:
    """Each one's blocks of so many seconds in all; [] where one failed."""
    result: dict[Candidate, list[Block]] = {candidate: [] for candidate in candidates}
    for number in range(rounds):
        for candidate in candidates[::-1] if number % 2 else candidates:
            request = MeasurementRequest(
                candidate=candidate, rate=rate, seconds=seconds / rounds, seed=number, phase=phase
            )
            block = measure(request)
            if isinstance(block, Block) and block.latencies_ms:
                result[candidate].append(block)
    return {candidate: blocks if len(blocks) == rounds else [] for candidate, blocks in result.items()}


def _quantiles(blocks: Sequence[Block]) -> list[float]:
    latencies_ms = [latency for block in blocks for latency in block.latencies_ms]
    return [_rounded(float(value)) for value in np.quantile(latencies_ms, QUANTILES)]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


# --- here -----------------------------------------------------------------------------------------------------------


def path_of(name: str, *, quick: bool) -> Path:
    """The surface of a site; one that was recorded quickly is outside git."""
    return BUILD / "quick" / f"{name}.json" if quick else FOLDER / f"recorded-{name}.json"


def record_here(name: str, result: here.LocalModel, *, quick: bool) -> Path:
    """The surface's file of a site, recorded where it was not on this machine, or goes on where it was ended."""
    path = path_of(name, quick=quick)
    machine = result.base.machine
    if path.exists() and json.loads(path.read_text())["recorded"]["on"] == NodeClass.of(machine).title:
        return path
    seconds, capacity_s = (1.0, 1.0) if quick else (10.0, _CAPACITY_S)

    def measure(request: MeasurementRequest) -> Block | Failure:
        print(f"{name}: {request.phase}: {request.candidate.title}", file=sys.stderr, flush=True)
        return result.measure(request)

    kept_path = BUILD / f"{name}{'-quick' if quick else ''}.blocks"
    asked = question(name, result.subject.asked, result.key, result.space, budget_s=seconds, trials=result.space.size)
    kept_path.parent.mkdir(parents=True, exist_ok=True)
    with Record.of(kept_path, asked) as kept:
        recording = Recording(kept, measure)
        request = MeasurementRequest(candidate=Candidate(), rate=None, seconds=capacity_s, seed=0, phase=CAPACITY)
        block = recording.measure(request)
        assert isinstance(block, Block), block
        rate = float(f"{LOAD * block.throughput:.2g}")
        record(
            path,
            f"{here.SITES[name].model.name}, limit {here.SITES[name].limit}, {rate:g}/s, recorded",
            Where.of(machine),
            result.space,
            Objective(kind=Kind.LATENCY, rate=rate),
            recording,
            seconds=seconds,
        )
    kept_path.unlink()
    return path


def repeats(*, quick: bool) -> int:
    """How often a disturbed block is measured again."""
    return 0 if quick else here.REPEATS


def main(names: Sequence[str], *, quick: bool) -> None:
    """Records these sites."""
    for name in names:
        with here.at(here.SITES[name], BUILD, repeats=repeats(quick=quick)) as result:
            print(record_here(name, result, quick=quick))
