"""A response surface: how long each candidate's runs take, and blocks that are drawn from it.

A shape is what a pool looks like: threads, spinning, instances. All other settings are factors on its times. Between
thread counts times are interpolated by the count's logarithm. On a simulated surface requests that come by chance are
queued before the instances, so what waiting does to latencies is exact; a recorded one has latencies with waiting.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import assembling
from raddle.cpus.topology import Kubelet, Machine
from raddle.planning.planner import Budget
from raddle_operator.results.candidate import Candidate, Value
from raddle_operator.results.objective import Kind, Objective
from raddle_tuner.search import statistics
from raddle_tuner.search.blocks import Block, Failure, MeasurementRequest
from raddle_tuner.search.space import INSTANCES, SPIN_US, Case, Space, space

FOLDER = Path(__file__).parent / "surfaces"
# The shares of the requests that are as fast as a time of a shape.
QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0)
SHAPE = ("threads.", "session.intra_op.", INSTANCES, "budget.")


@dataclass(frozen=True, slots=True)
class Times:
    """Of one shape: run times in ms at QUANTILES and CPU ms a request; open: at the rate, closed: all callers busy."""

    open_ms: tuple[float, ...]
    closed_ms: tuple[float, ...]
    cpu_ms: float
    closed_cpu_ms: float

    def mixed(self, other: Times, share: float) -> Times:
        """Times between these and the other's, nearer to the other's the larger the share."""

        def between(one: float, two: float) -> float:
            return math.exp((1 - share) * math.log(one) + share * math.log(two))

        return Times(
            tuple(map(between, self.open_ms, other.open_ms)),
            tuple(map(between, self.closed_ms, other.closed_ms)),
            between(self.cpu_ms, other.cpu_ms),
            between(self.closed_cpu_ms, other.closed_cpu_ms),
        )

    def scaled(self, times: float, cpu: float) -> Times:
        """All times by these factors."""
        return Times(
            tuple(times * value for value in self.open_ms),
            tuple(times * value for value in self.closed_ms),
            cpu * self.cpu_ms,
            cpu * self.closed_cpu_ms,
        )


@dataclass(frozen=True, slots=True)
class Noise:
    """What blocks differ by: standard deviations of a machine's drift, a block and a start, as shares of the figure."""

    drift: float = 0.01
    block: float = 0.01
    start: float = 0.01
    # How long the drift remembers, as the part of it that is left in the next block.
    memory: float = 0.9
    # How often a neighbour takes CPU in a block, and how much longer runs take then.
    neighbour: float = 0.02
    slower: float = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """`shapes`: (spinning, instances) -> threads -> times. `factors`: path -> value -> (times, CPU).

    `queued`: the times are of runs, before which requests wait; else of whole requests.
    """

    name: str
    about: str
    case: Case
    objective: Objective
    shapes: Mapping[tuple[str, int], Mapping[int, Times]]
    factors: Mapping[str, Mapping[Value, tuple[float, float]]]
    queued: bool = True

    def space(self) -> Space:
        """What is searched on it."""
        return space(self.case)

    def times(self, candidate: Candidate) -> tuple[Times, int] | None:
        """Its times and its instances; None where the surface has none."""
        policy, plan = self.case.planned(candidate)
        threads, spins = plan.intra_op or 1, plan.exclusive_spinning or plan.spinning
        if spins == "bounded":
            spins = dict(policy.config_entries).get(SPIN_US, str(plan.spin_duration_us))
        instances = int(candidate.get(INSTANCES) or 1)
        shape = self.shapes.get((spins, instances))
        if not shape or not min(shape) <= threads <= max(shape):
            return None
        below = max(count for count in shape if count <= threads)
        above = min(count for count in shape if count >= threads)
        share = 0.0 if below == above else math.log(threads / below) / math.log(above / below)
        result = shape[below].mixed(shape[above], share)
        for path, value in candidate.settings:
            if path.startswith(SHAPE) or "spin_duration" in path:
                continue
            result = result.scaled(*self.factors.get(path, {}).get(value, (1.0, 1.0)))
        return result, instances

    def true(self, candidate: Candidate, requests: int) -> dict[str, float] | None:
        """What it comes to without noise, by so many requests: p99_ms, throughput, cpu_ms_per_request."""
        result = self.times(candidate)
        if result is None:
            return None
        rate = self.objective.rate if self.objective.kind is not Kind.THROUGHPUT else None
        block = _block(
            *result,
            rate=rate,
            seconds=requests / (rate or 1.0),
            count=requests,
            seed=1,
            rng=np.random.default_rng(1),
            factor=1.0,
            queued=self.queued,
        )
        return {
            "p99_ms": statistics.p99_ms([block]) or math.inf,
            "throughput": block.throughput,
            "cpu_ms_per_request": statistics.cpu_ms_per_request([block]) or math.inf,
        }


class Player:
    """Measures on a surface: blocks with noise that one seed decides, one after the other."""

    def __init__(self, surface: Surface, noise: Noise, seed: int) -> None:
        self.surface = surface
        self.noise = noise
        self.seed = seed
        self.blocks = 0
        self.seconds = 0.0
        self.candidates: set[Candidate] = set()
        self._times: dict[Candidate, tuple[Times, int] | None] = {}
        self._starts: dict[Candidate, float] = {}
        self._rng = np.random.default_rng(seed)
        self._drift = self._rng.normal(0, noise.drift)

    def block(self, candidate: Candidate, seconds: float, seed: int) -> Block:
        """A block of a new process under the objective's load. Raises KeyError for a candidate that is not there."""
        objective = self.surface.objective
        rate = None if objective.kind is Kind.THROUGHPUT else objective.rate
        result = self.measure(
            MeasurementRequest(candidate=candidate, rate=rate, seconds=seconds, seed=seed, phase="", fresh=True)
        )
        if isinstance(result, Failure):
            raise KeyError(candidate)
        return result

    def measure(self, request: MeasurementRequest) -> Block | Failure:
        """A block of the candidate."""
        if request.candidate not in self._times:
            self._times[request.candidate] = self.surface.times(request.candidate)
        result = self._times[request.candidate]
        if result is None:
            return Failure("the surface has no such candidate")
        noise, rng = self.noise, self._rng
        kept = noise.memory
        self._drift = kept * self._drift + rng.normal(0, noise.drift * math.sqrt(1 - kept * kept))
        if request.fresh or request.candidate not in self._starts:
            self._starts[request.candidate] = rng.normal(0, noise.start)
        factor = math.exp(self._drift + self._starts[request.candidate] + rng.normal(0, noise.block))
        disturbed = rng.random() < noise.neighbour
        self.blocks += 1
        self.candidates.add(request.candidate)
        self.seconds += request.seconds
        return _block(
            *result,
            rate=request.rate,
            seconds=request.seconds,
            count=None,
            seed=1000 * self.seed + request.seed,
            rng=rng,
            factor=factor * (noise.slower if disturbed else 1.0),
            queued=self.surface.queued,
            disturbed=("a neighbour took CPU",) if disturbed else (),
        )


def _block(
    times: Times,
    instances: int,
    *,
    rate: float | None,
    seconds: float,
    count: int | None,
    seed: int,
    rng: np.random.Generator,
    factor: float,
    queued: bool,
    disturbed: tuple[str, ...] = (),
) -> Block:
    """`count` requests, by chance for so many seconds where it is None."""
    if rate is None:
        expected = float(np.trapezoid(times.closed_ms, QUANTILES)) * factor
        count = count or max(1, int(instances * seconds * 1000 / expected))
        latencies = np.interp(rng.random(count), QUANTILES, times.closed_ms) * factor
        seconds = float(latencies.sum()) / 1000 / instances
        cpu_s = count * times.closed_cpu_ms * factor / 1000
        return Block(
            latencies_ms=tuple(latencies.tolist()), missed=0, seconds=seconds, cpu_s=cpu_s, disturbed=disturbed
        )
    arrivals = np.random.default_rng(seed)
    due = np.sort(arrivals.random(count or arrivals.poisson(rate * seconds))) * seconds * 1000
    runs = np.interp(rng.random(len(due)), QUANTILES, times.open_ms) * factor
    return Block(
        latencies_ms=tuple(_queued(due, runs, instances) if queued else runs.tolist()),
        missed=0,
        seconds=seconds,
        cpu_s=len(due) * times.cpu_ms * factor / 1000,
        disturbed=disturbed,
    )


def _queued(due_ms: np.ndarray[Any, Any], runs_ms: np.ndarray[Any, Any], instances: int) -> list[float]:
    """Latencies where requests wait in one queue for an instance that is free."""
    if instances == 1:
        ran = np.cumsum(runs_ms)
        # Lindley's recursion: a run ends its own time after the latest moment from which all was busy.
        return list((ran + np.maximum.accumulate(due_ms - ran + runs_ms) - due_ms).tolist())
    free = [0.0] * instances
    latencies = []
    for due, run in zip(due_ms.tolist(), runs_ms.tolist(), strict=True):
        end = max(due, heapq.heappop(free)) + run
        heapq.heappush(free, end)
        latencies.append(end - due)
    return latencies


# --- files ----------------------------------------------------------------------------------------------------------


def read(path: Path) -> Surface:
    """The surface of a file."""
    return of_document(path.stem, json.loads(path.read_text()))


def of_document(name: str, result: Mapping[str, Any]) -> Surface:
    """The surface that a file's document describes."""
    machine = result["machine"]
    shapes: dict[tuple[str, int], dict[int, Times]] = {}
    for line in result["shapes"]:
        times = Times(tuple(line["open_ms"]), tuple(line["closed_ms"]), line["cpu_ms"], line["closed_cpu_ms"])
        shapes.setdefault((line["spins"], line["instances"]), {})[line["threads"]] = times
    case = Case(
        machine=machine_of(machine),
        budget=Budget(quota_cpus=result["limit_cpus"], whole_cpus=machine.get("exclusive_cpus", 0)),
        onnxruntime=tuple(result["onnxruntime"]),
        allocators=tuple(result["allocators"]),
        can=tuple(result["can"]),
        spec={"objective": "Throughput"} if result["objective"] == "Throughput" else {},
    )
    return Surface(
        name=name,
        about=result["about"],
        case=case,
        objective=Objective(kind=Kind(result["objective"]), rate=result["rate"], p99_ms=result["p99_ms"]),
        shapes=shapes,
        factors={
            path: {json.loads(value): (times, cpu) for value, (times, cpu) in values.items()}
            for path, values in result["factors"].items()
        },
        queued=result["queued"],
    )


def all_surfaces() -> list[Surface]:
    """Those that are committed."""
    return [read(path) for path in sorted(FOLDER.glob("*.json"))]


def machine_of(result: Mapping[str, Any]) -> Machine:
    """The machine that a file describes."""
    policy = "static" if result.get("exclusive_cpus") else "none"
    return assembling.regular(
        result["cores"],
        result["threads_per_core"],
        numa_nodes=result["numa_nodes"],
        l3_domains=result["l3_domains"],
        kubelet=Kubelet(cpu_manager_policy=policy),
    )
