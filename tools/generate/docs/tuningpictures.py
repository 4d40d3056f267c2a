"""Makes docs/images/tuning: the pictures of a small simulated tuning, as `raddle tune --report` draws them.

Nothing in it was measured: a queue whose service times depend on the settings stands for a program, so that the
pictures are the same each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from random import Random
from typing import Final

from raddle_operator.results.candidate import Candidate, Value
from raddle_operator.results.key import Key, NodeClass
from raddle_operator.results.objective import Kind, Objective
from raddle_operator.results.verdict import BoundTest, Interval, Verdict
from raddle_tuner.commands.result import charts
from raddle_tuner.search import statistics
from raddle_tuner.search.blocks import Block
from raddle_tuner.search.document import TuningResult
from raddle_tuner.search.result import Result, Trial

_LIMIT: Final = 4
_SECONDS: Final = 8.0
_PERIOD_S: Final = 0.1
_BLOCKS: Final = 6
_SPIN_US: Final = "onnxruntime.configEntries.session.intra_op.spin_duration_us"
_PLAN: Final = Candidate()
_PLANNED: Final = Candidate.of({"threads.intraOp": 4, "threads.spinning": "Bounded"})
_SEARCHED: Final[tuple[Mapping[str, Value], ...]] = (
    {"threads.intraOp": 1},
    {"threads.intraOp": 2},
    {"threads.intraOp": 3},
    {"threads.intraOp": 6},
    {"threads.intraOp": 8},
    {"threads.intraOp": 3, "threads.spinning": "Never"},
    {"threads.intraOp": 3, "threads.spinning": "Bounded", _SPIN_US: 1000},
    {"threads.intraOp": 3, "threads.spinning": "Always"},
    {"threads.intraOp": 1, "program.instances": 4, "budget.workersPerContainer": 4},
    {"threads.intraOp": 3, "program.ioBinding": True},
    {"threads.intraOp": 3, "threads.spinning": "Never", "program.ioBinding": True},
    {"threads.spinning": "Never", "program.ioBinding": True},
)
_FAILS: Final = Candidate.of({"threads.intraOp": 3, "allocator": "Jemalloc"})


def pictures() -> str:
    """All pictures of the example in one."""
    return charts.file(example(Kind.LATENCY))


@cache
def example(kind: Kind) -> TuningResult:
    """A tuning for this objective, the same each time."""
    aim = {
        Kind.LATENCY: Objective(kind=kind, rate=20.0, p99_ms=40.0),
        Kind.THROUGHPUT: Objective(kind=kind, p99_ms=60.0),
        Kind.COST: Objective(kind=kind, rate=20.0),
    }[kind]
    candidates = [_PLAN, *map(Candidate.of, _SEARCHED)]
    blocks = {one: tuple(_block(one, aim, seed) for seed in range(_BLOCKS)) for one in candidates}
    losses = {one: [statistics.loss(kind, block) or 0.0 for block in item] for one, item in blocks.items()}
    winner = min(candidates, key=lambda one: sum(losses[one]))

    def gain(one: Candidate, other: Candidate) -> Interval:
        pairs = [a - b for a, b in zip(losses[one], losses[other], strict=True)]
        return statistics.interval(kind, pairs)

    trials = [Trial(candidate=one, phases=("race",), blocks=item) for one, item in blocks.items()]
    failed = Trial(candidate=_FAILS, phases=("settings",), blocks=(), skipped="the image has no libjemalloc.so.2")
    again = [_block(_PLAN, aim, seed, "again") for seed in range(_BLOCKS)]
    noise = [(statistics.loss(kind, one) or 0.0) - loss for one, loss in zip(again, losses[_PLAN], strict=True)]
    return TuningResult(
        name="resnet50.onnx",
        finished="2026-11-23T10:00:00Z",
        key=_key(aim),
        result=Result(
            objective=aim,
            verdict=Verdict.BETTER,
            figure=statistics.FIGURES[kind],
            baseline=_PLAN,
            winner=winner,
            gain=gain(winner, _PLAN),
            noise_percent=statistics.Noise.of(noise).percent(len(noise)),
            bound=_bound_test(aim, blocks[winner]),
            contributions=tuple(
                (path, gain(winner, winner.with_setting(path, None)))
                for path, _ in winner.settings
                if winner.with_setting(path, None) in losses
            ),
            front=_front(blocks),
            trials=(*trials, failed),
            remarks=("3 disturbed blocks: other processes took 31 % of the machine",),
            capacity=118.4,
        ),
        planned=_PLANNED,
    )


def undecided(verdict: Verdict) -> TuningResult:
    """The example where nothing is better for certain."""
    made = example(Kind.LATENCY)
    kept = made.result.winner if verdict is Verdict.INCONCLUSIVE else _PLAN
    gain = Interval(percent=-2.1, low=-5.0, high=0.9) if verdict is Verdict.INCONCLUSIVE else None
    late = made.result.bound
    if verdict is Verdict.BOUND_NOT_MET and late is not None:
        late = replace(late, over=late.queries // 10, needed=2 * late.queries)
    return replace(
        made, result=replace(made.result, verdict=verdict, winner=kept, gain=gain, bound=late, contributions=())
    )


def _bound_test(aim: Objective, blocks: tuple[Block, ...]) -> BoundTest | None:
    return None if aim.p99_ms is None else statistics.bound_test(aim.p99_ms, blocks)


def _front(blocks: Mapping[Candidate, tuple[Block, ...]]) -> tuple[Candidate, ...]:
    figures = {
        one: (
            statistics.p99_ms(item) or 0.0,
            -sum(block.throughput for block in item),
            statistics.cpu_ms_per_request(item) or 0.0,
        )
        for one, item in blocks.items()
    }
    return tuple(
        one
        for one, mine in figures.items()
        if not any(theirs != mine and all(map(float.__le__, theirs, mine)) for theirs in figures.values())
    )


def _key(aim: Objective) -> Key:
    node = NodeClass(
        architecture="x86_64", model="Simulated CPU", sockets=1, numa_nodes=1, l3_domains=2, cores=8, cpus=16
    )
    return Key(
        model="sha256:" + "5e1f" * 16,
        image="",
        node_class=node,
        limit_cpus=float(_LIMIT),
        objective=aim,
        runtime="onnxruntime",
        runtime_version="1.29.0",
    )


# --- the program that is simulated ----------------------------------------------------------------------------------


def _block(candidate: Candidate, aim: Objective, seed: int, turn: str = "") -> Block:
    """A block of a queue: each request takes what the settings make of it, and waits for a session that is free."""
    random = Random(f"{candidate.settings} {seed} {turn}")
    threads, instances = int(_setting(candidate, "threads.intraOp")), int(candidate.get("program.instances") or 1)
    run_ms, cpu_ms, over = _costs(candidate, threads * instances, threads)
    arrivals = Random(seed)
    free_ms, due_ms, latencies_ms = [0.0] * instances, 0.0, []
    end_ms = 1000 * _SECONDS
    while due_ms < end_ms:
        service_ms = run_ms * random.lognormvariate(0, 0.08) + (random.random() < 0.25 * over) * 12 * over
        first = free_ms.index(min(free_ms))
        begun_ms = max(due_ms, free_ms[first]) if aim.rate else free_ms[first]
        free_ms[first] = begun_ms + service_ms
        latencies_ms.append(round(free_ms[first] - (due_ms if aim.rate else begun_ms), 3))
        due_ms = due_ms + arrivals.expovariate(aim.rate) * 1000 if aim.rate else min(free_ms)
    periods = round(_SECONDS / _PERIOD_S)
    disturbed = seed == _BLOCKS - 1 and candidate == _PLAN
    return Block(
        latencies_ms=tuple(latencies_ms),
        missed=0,
        seconds=_SECONDS,
        cpu_s=round(len(latencies_ms) * cpu_ms / 1000 * random.lognormvariate(0, 0.02), 4),
        periods=periods,
        throttled_periods=round(periods * min(1.0, 0.2 * over)),
        throttled_s=round(0.02 * over, 3),
        disturbed=("other processes took 31 % of the machine",) if disturbed else (),
        conditions=(
            ("steal_percent", round(random.uniform(0, 0.4), 1)),
            ("others_percent", 31.0 if disturbed else round(random.uniform(0.5, 2.5), 1)),
            ("own_stalled_percent", round(4 * over + random.uniform(0, 0.5), 1)),
            ("mhz", round(random.uniform(2790, 2810), 1)),
        ),
    )


def _costs(candidate: Candidate, threads: int, each: int) -> tuple[float, float, float]:
    """A run's time and its CPU time, both in ms, and how far the threads are beyond the limit."""
    spins = {"Never": 0.0, "Bounded": 0.5, "Always": 1.0}[str(_setting(candidate, "threads.spinning"))]
    spins += 0.3 if candidate.get(_SPIN_US) else 0.0
    over = max(0.0, threads / _LIMIT - 0.7) * (0.5 + spins)
    run_ms = 24 * (0.15 + 0.85 / each) + 0.5 * each + 1.2 * spins + 12 * over
    copies_ms = 0.0 if candidate.get("program.ioBinding") else 0.9
    cpu_ms = 24 + 0.6 * each + 5.0 * spins * (each - 1) + copies_ms
    return run_ms + copies_ms, cpu_ms, over


def _setting(candidate: Candidate, path: str) -> Value:
    result = candidate.get(path)
    result = _PLANNED.get(path) if result is None else result
    assert result is not None
    return result
