"""Ways to choose a candidate on a surface: ours, and others on the same axes with the same noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from raddle_operator.results.candidate import Candidate
from raddle_tuner.search import statistics
from raddle_tuner.search.blocks import Block, MeasurementRequest
from raddle_tuner.search.result import Result
from raddle_tuner.search.search import Limits, drive, tune
from raddle_tuner.search.space import THREADS, Axis, Space
from tuning.surface import Player, Surface

# Measured load of a search whose blocks last 2 s; surfaces with longer blocks get as many of them.
SECONDS: Final = 180.0
LONGER: Final = 600.0
USUAL_BLOCK_S: Final = 2.0
# What Olive's SessionParamsTuning takes lists for.
_OLIVE: Final = (THREADS, "threads.interOp", "onnxruntime.graphOptimizationLevel", "program.ioBinding")
# An exhaustive search of more candidates isn't played.
MOST: Final = 16_000

Way = Callable[[Surface, Player], Candidate]


def limits(surface: Surface, seconds: float = SECONDS) -> Limits:
    """What a search on this surface may take: as many blocks as one whose blocks last 2 s has in these seconds."""
    return Limits(seconds=seconds * block_s(surface) / USUAL_BLOCK_S)


def block_s(surface: Surface) -> float:
    """How long our search's blocks on it are."""
    rate = surface.objective.rate
    return USUAL_BLOCK_S if rate is None else max(1.0, min(10.0, 100 / rate))


def searched(surface: Surface, player: Player, seconds: float = SECONDS) -> Result:
    """What our search finds."""
    return drive(tune(surface.objective, surface.space(), limits(surface, seconds)), player.measure)


def ours(surface: Surface, player: Player) -> Candidate:
    """The winner of our search."""
    return searched(surface, player).winner


def longer(surface: Surface, player: Player) -> Candidate:
    """The winner of our search in ten minutes."""
    return searched(surface, player, LONGER).winner


def by_chance(surface: Surface, player: Player) -> Candidate:
    """The best of as many candidates as our search has blocks, drawn by chance, each measured once."""
    space, rng = surface.space(), np.random.default_rng(player.seed)
    count = int(limits(surface).seconds / block_s(surface))
    drawn = [[int(rng.integers(len(axis.choices) + 1)) for axis in space.axes] for _ in range(count)]
    return min((_with(space.axes, one) for one in drawn), key=lambda one: _scored(surface, player, one))


def tpe(surface: Surface, player: Player) -> Candidate:
    """The best trial of Optuna's TPE, which has as many blocks as our search, one for a trial."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    axes = surface.space().axes

    def objective(trial: optuna.Trial) -> float:
        chosen = [trial.suggest_int(axis.name, 0, len(axis.choices)) for axis in axes]
        return _scored(surface, player, _with(axes, chosen))

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=player.seed))
    study.optimize(objective, n_trials=int(limits(surface).seconds / block_s(surface)))
    return _with(axes, [study.best_params[axis.name] for axis in axes])


def olive(surface: Surface, player: Player) -> Candidate:
    """The lowest mean latency of one caller, each combination of the lists measured once, as Olive does."""
    space = surface.space()
    axes = tuple(axis for axis in space.axes if axis.name in _OLIVE)

    def mean_ms(candidate: Candidate) -> float:
        block = player.measure(MeasurementRequest(candidate=candidate, rate=None, seconds=2.0, seed=0, phase="grid"))
        return float(np.mean(block.latencies_ms)) if isinstance(block, Block) else math.inf

    return min(_grid(space, axes), key=mean_ms)


def exhaustive(surface: Surface, player: Player) -> Candidate:
    """The best of all combinations, each measured once in one of our blocks."""
    space = surface.space()
    return min(_grid(space, space.axes), key=lambda candidate: _scored(surface, player, candidate))


def _with(axes: tuple[Axis, ...], chosen: Sequence[int]) -> Candidate:
    """The candidate with the so-manieth choice on each axis, 0: the plan's."""
    result = Candidate()
    for axis, number in zip(axes, chosen, strict=True):
        if number:
            result = axis.applied(result, axis.choices[number - 1][1])
    return result


def _grid(space: Space, axes: tuple[Axis, ...]) -> Iterator[Candidate]:
    """All combinations that come to something of their own."""
    met = set()
    for chosen in itertools.product(*(range(len(axis.choices) + 1) for axis in axes)):
        candidate = _with(axes, chosen)
        key = space.case.key(candidate)
        if key not in met:
            met.add(key)
            yield candidate


def _scored(surface: Surface, player: Player, candidate: Candidate) -> float:
    """The figure of one block; far above all others where p99 is later than the bound."""
    objective = surface.objective
    request = MeasurementRequest(
        candidate=candidate, rate=objective.rate, seconds=block_s(surface), seed=player.blocks, phase="trial"
    )
    block = player.measure(request)
    if not isinstance(block, Block):
        return 1e6
    late = objective.p99_ms is not None and (statistics.p99_ms([block]) or 0.0) > objective.p99_ms
    result = statistics.loss(objective.kind, block)
    return 1e6 if result is None else result + 1e3 * late
