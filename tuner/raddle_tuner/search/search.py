"""The search: which block to measure next, and in the end what won, by how much and how sure that is.

It starts at the plan's own answer and measures that against itself first (A/A). Then rounds of a few candidates, each
of which may be the best by what all blocks said so far (effects). The one that is ahead is measured against the
baseline again in fresh blocks, because it is ahead by luck too. Only that last comparison says that something is
better.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Objective
from raddle_operator.results.verdict import Interval, Verdict
from raddle_tuner.search import statistics
from raddle_tuner.search.blocks import CAPACITY, Block, MeasurementRequest
from raddle_tuner.search.effects import Effects, Fit, Observation
from raddle_tuner.search.measurements import (
    BLOCKS,
    CLOSED_S,
    BaselineError,
    BudgetError,
    Limits,
    MeasurementResult,
    Measurements,
    block_s,
)
from raddle_tuner.search.proof import PAIRS, PROVEN, WORTH, Proof
from raddle_tuner.search.result import Result
from raddle_tuner.search.space import INSTANCES, THREADS, Space

__all__ = [
    "BLOCKS",
    "BaselineError",
    "Limits",
    "MeasurementResult",
    "ReplayError",
    "block_s",
    "confirm",
    "drive",
    "estimate",
    "replay",
    "tune",
]

Search = Generator[MeasurementRequest, MeasurementResult, Result]

# Blocks of the baseline against itself, in pairs.
_AA_PAIRS: Final = 4
# Candidates of a round: they meet the same arrivals.
_ROUND: Final = 5
# So many different arrivals there are before the proof: candidates that met in no round met the same ones.
_SEEDS: Final = 8
# Which shares of the budget are spent when the search ends at the soonest, and when it ends where no gain is in sight.
_SOONEST: Final = 0.35
_HOPELESS: Final = 0.5
# More blocks than this tell the search little, and each round's sums take longer with them.
_MOST_BLOCKS: Final = 300
# A gain of so many standard errors is mostly found; a few pairs more are for not knowing the deviation.
_ERRORS: Final = 3.2
_UNKNOWN: Final = 4
# A block's p99 that is later than the bound by a percent counts as so many percent of the figure.
_LATE: Final = 2.0
# Noise that is expected before the A/A, as the standard deviation of a block's figures, and how many pairs it counts.
_EXPECTED: Final = (0.06, 0.025)
_EXPECTED_PAIRS: Final = 4
# The same of the difference between two blocks in the figure that the proof compares.
_EXPECTED_APART: Final = 0.057
# Of fewer queries p99 is one of the two slowest.
_FRONT_QUERIES: Final = 200
# For a first answer no more of the budget is waited than this.
_PATIENCE: Final = 0.1
# A rate nearer to the capacity than this is not served for long.
_SLACK: Final = 1.02


class ReplayError(ValueError):
    """Answers that were recorded are of another search."""


def tune(objective: Objective, space: Space, limits: Limits | None = None, baseline: Candidate | None = None) -> Search:
    """Yields what to measure and is sent what came of it, None for "end now"; returns what is known at its end.

    The same answers lead to the same requests. `baseline` absent: all is left to the plan. Raises BaselineError where
    the baseline can't be measured, PolicyError where it can't be planned.
    """
    search = _begun(objective, space, limits, baseline)
    return (yield from search.ended(search.run()))


def confirm(
    objective: Objective,
    space: Space,
    candidate: Candidate,
    limits: Limits | None = None,
    baseline: Candidate | None = None,
) -> Search:
    """As `tune`, where another node of the same kind has found the candidate: the noise and the proof alone."""
    search = _begun(objective, space, limits, baseline)
    return (yield from search.ended(search.run_proof(candidate)))


def _begun(objective: Objective, space: Space, limits: Limits | None, baseline: Candidate | None) -> _Search:
    baseline = baseline or Candidate()
    space.case.key(baseline)
    measurements = Measurements(case=space.case, objective=objective, limits=limits or Limits(), baseline=baseline)
    measurements.known([baseline])
    return _Search(space=space, measurements=measurements, proof=Proof(measurements=measurements, winner=baseline))


def replay(
    search: Search, recorded: Iterable[tuple[MeasurementRequest, MeasurementResult]]
) -> MeasurementRequest | Result:
    """What a search comes to that is sent these answers first: its next request, or the result where it ends with them.

    Raises ReplayError where the search would have asked something else.
    """
    try:
        request = next(search)
        for asked, answer in recorded:
            if request != asked:
                raise ReplayError(f"the record is of another search: it requested {asked}, this one {request}")
            request = search.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result
    return request


def drive(
    search: Search,
    measure: Callable[[MeasurementRequest], MeasurementResult],
    recorded: Iterable[tuple[MeasurementRequest, MeasurementResult]] = (),
) -> Result:
    """The search's result, each request answered by `measure`, the first of them by what was recorded.

    Raises ReplayError as `replay`.
    """
    result = replay(search, recorded)
    try:
        while isinstance(result, MeasurementRequest):
            result = search.send(measure(result))
    except StopIteration as end:
        result = end.value
    assert isinstance(result, Result)
    return result


def estimate(objective: Objective, space: Space, limits: Limits | None = None) -> tuple[int, float]:
    """Candidates that a search measures where none is better, and how many seconds of load it takes at most."""
    limits = limits or Limits()

    def same(request: MeasurementRequest) -> Block:
        rate = request.rate or 2 * (objective.rate or 1.0)
        count = max(1, round(rate * request.seconds))
        return Block(latencies_ms=(1.0,) * count, missed=0, seconds=request.seconds, cpu_s=0.001 * count)

    result = drive(tune(objective, space, limits), same)
    return sum(bool(trial.blocks) for trial in result.trials), limits.seconds


@dataclass(slots=True)
class _Search:
    space: Space
    measurements: Measurements
    proof: Proof
    verdict: Verdict = Verdict.INCONCLUSIVE
    capacity: float | None = None
    contributions: tuple[tuple[str, Interval], ...] = ()
    seen: list[Observation] = field(default_factory=list)

    def ended(self, run: Generator[MeasurementRequest, MeasurementResult, None]) -> Search:
        """The result of the run, of as much of it as the budget allows."""
        try:
            yield from run
        except BudgetError:
            self.measurements.remarks.append("ended before everything was measured")
        return self.result()

    def run_proof(self, candidate: Candidate) -> Generator[MeasurementRequest, MeasurementResult, None]:
        if self.measurements.rate is None:
            yield from self._served()
        yield from self._noise()
        self.verdict = yield from self.proof.run(self.measurements.known([candidate]))
        if candidate in self.measurements.skipped:
            self.measurements.remarks.append(f"{candidate.title}: {self.measurements.skipped[candidate]}")
        yield from self.proof.keep_bound()

    def run(self) -> Generator[MeasurementRequest, MeasurementResult, None]:
        if not (yield from self._serves()):
            self.verdict = Verdict.BOUND_NOT_MET
            return
        yield from self._noise()
        effects = Effects.of(self.space, self.measurements.baseline)
        self.verdict = yield from self.proof.run((yield from self._searched(effects)))
        yield from self.proof.keep_bound()
        if self.verdict is Verdict.BETTER:
            self.contributions = tuple(self._contributions(self._fit(effects)))

    def _serves(self) -> Generator[MeasurementRequest, MeasurementResult, bool]:
        """Whether the rate can be served at all: by the baseline, else with other threads or instances."""
        measurements, rate = self.measurements, self.measurements.rate
        served = yield from self._served()
        if rate is None:
            return True
        self.capacity = served
        axes = [axis for axis in map(self.space.axis, (THREADS, INSTANCES)) if axis]
        for candidate in measurements.known([choice for axis in axes for _, choice in axis.choices]):
            if self.capacity > _SLACK * rate:
                break
            if candidate != measurements.baseline:
                seconds = max(min(CLOSED_S, measurements.block_s), 2 * measurements.answer_s)
                block = yield from measurements.measure(candidate, CAPACITY, None, seconds)
                self.capacity = max(self.capacity, block.throughput if block else 0.0)
        if self.capacity > _SLACK * rate:
            return True
        tried = [f"{axis.name} {', '.join(str(value) for value, _ in axis.choices)}" for axis in axes]
        result = (
            f"{round(self.capacity, 1):g} are served at most; tried: {'; '.join([measurements.baseline.title, *tried])}"
        )
        measurements.remarks.append(f"{rate:g} requests a second are above the capacity: {result}")
        return False

    def _served(self) -> Generator[MeasurementRequest, MeasurementResult, float]:
        """Requests a second that the baseline serves where each follows the last answer. Raises BaselineError."""
        measurements, waited_s = self.measurements, 0.0
        phase = "first" if measurements.rate is None else CAPACITY
        for seconds in (min(CLOSED_S, measurements.block_s), max(CLOSED_S, _PATIENCE * measurements.limits.seconds)):
            block = yield from measurements.measure(measurements.baseline, phase, None, seconds)
            assert block is not None
            if block.missed < len(block.latencies_ms):
                measurements.answer_s = float(np.median(block.latencies_ms)) / 1000
                return block.throughput
            waited_s = max([waited_s, block.seconds, *(latency / 1000 for latency in block.latencies_ms)])
        raise BaselineError(
            f"{measurements.baseline.title} can't be measured: a request takes longer than {waited_s:.3g} s, the "
            "timeout"
        )

    def _noise(self) -> Generator[MeasurementRequest, MeasurementResult, None]:
        differences = []
        for turn in range(_AA_PAIRS):
            one, other = yield from self.measurements.round([self.measurements.baseline] * 2, "A/A", fresh=1)
            self._learn(self.measurements.baseline, turn, 2)
            differences.append(one - other)
        self.measurements.noise = statistics.Noise.of(differences)

    def _searched(self, effects: Effects) -> Generator[MeasurementRequest, MeasurementResult, Sequence[Candidate]]:
        """What may be better than the baseline, the best first."""
        measurements, rng = self.measurements, np.random.default_rng(0)
        fit, turn = self._fit(effects), _AA_PAIRS
        while not self._enough(fit):
            candidates = self._next(fit, rng)
            if len(candidates) < 2:
                break
            turn += 1
            yield from measurements.round(candidates, "search", 1 + turn % _SEEDS)
            for candidate in candidates:
                self._learn(candidate, turn)
            fit = self._fit(effects)
        if turn == _AA_PAIRS and len(self._next(fit, rng)) > 1:
            length_s, load_s = measurements.block_s, measurements.limits.seconds
            needed = f"a search takes {BLOCKS} of {length_s:.3g} s"
            measurements.remarks.append(
                f"measuring the noise took all of the {load_s:.0f} s of load in the budget: {needed}"
            )
            raise BudgetError
        # What is measured from here on has arrivals of its own, by whose luck nothing was chosen.
        measurements.seed = max(measurements.seed, _SEEDS)
        order = sorted(self._measured(effects), key=fit.loss)
        return [one for one in order if not measurements.breaks_bound(one)]

    def _measured(self, effects: Effects) -> list[Candidate]:
        blocks, skipped = self.measurements.blocks, self.measurements.skipped
        return [one for one, item in blocks.items() if item and one in effects.parts and one not in skipped]

    def _learn(self, candidate: Candidate, turn: int, blocks: int = 1) -> None:
        """Keeps what the last so many blocks of a candidate say; one that failed says nothing."""
        for request, block in (
            self.measurements.blocks[candidate][-blocks:] if candidate not in self.measurements.skipped else ()
        ):
            aim, *others = statistics.figures(self.measurements.objective.kind, block)
            self.seen.append(
                Observation(candidate, request.seed, turn, (aim + _LATE * self.measurements.late(block), *others))
            )

    def _fit(self, effects: Effects) -> Fit:
        pairs = np.array([one.losses for one in self.seen[: 2 * _AA_PAIRS]])
        squares = np.sum((pairs[::2] - pairs[1::2]) ** 2, axis=0) / 2
        expected = np.square(_EXPECTED[-len(squares) :])
        variances = (squares + _EXPECTED_PAIRS * expected) / (_AA_PAIRS + _EXPECTED_PAIRS)
        return effects.fitted(self.seen, variances)

    def _enough(self, fit: Fit) -> bool:
        """Whether what is left of the budget is needed to prove the gain that is expected."""
        measurements = self.measurements
        if len(self.seen) >= _MOST_BLOCKS:
            return True
        if measurements.rounds_until(_SOONEST, _ROUND) > 0:
            return False
        best, baseline = (fit.effects.parts[one] for one in (fit.best(), measurements.baseline))
        gain, deviation = fit.difference(baseline, best)
        gain -= deviation
        if 100 * gain < WORTH:
            return measurements.rounds_until(_HOPELESS, _ROUND) < 1
        squares = measurements.noise.pairs * measurements.noise.variance + _EXPECTED_PAIRS * _EXPECTED_APART**2
        variance = squares / (measurements.noise.pairs + _EXPECTED_PAIRS)
        least, most = PAIRS
        needed = _UNKNOWN + _ERRORS**2 * variance / gain**2
        needed = max(self._pairs_of_bound(), min(most, max(least, needed)))
        return measurements.rounds_until(PROVEN, 2) - _ROUND / 2 < needed

    def _pairs_of_bound(self) -> float:
        """Pairs that have the winner's requests which make the bound certain; 0 without one at a rate."""
        bound_ms, rate = self.measurements.objective.p99_ms, self.measurements.rate
        if bound_ms is None or rate is None:
            return 0.0
        return statistics.bound_test(bound_ms, ()).needed / (rate * self.measurements.block_s)

    def _next(self, fit: Fit, rng: np.random.Generator) -> list[Candidate]:
        """The candidates of a round: those that tell why others failed, or a few that may be the best."""
        measurements, effects = self.measurements, fit.effects
        worked = {part for one in self._measured(effects) for part in effects.parts[one]}
        alone: dict[Candidate, None] = {}
        for candidate in measurements.skipped:
            unknown = set(effects.parts.get(candidate, ())) - worked - effects.out
            if len(unknown) == 1:
                effects.out.update(unknown)
            alone |= dict.fromkeys(effects.alone(part) for part in sorted(unknown))
        drawn = [fit.best(), *fit.drawn(rng, 2 * _ROUND)]
        if measurements.full:
            drawn = fit.drawn(rng, 2 * _ROUND, self._measured(effects))
        result: dict[Candidate, None] = {}
        for candidate in [*alone, *drawn]:
            for same in measurements.known([candidate]) if len(result) < _ROUND else ():
                # It may have been met under another name before.
                effects.parts.setdefault(same, effects.parts[candidate])
                result[same] = None
        return [*result]

    def _contributions(self, fit: Fit) -> Iterator[tuple[str, Interval]]:
        """What the winner loses without each of its settings, by all blocks together."""
        winner = fit.effects.parts[self.proof.winner]
        for axis in self.space.axes:
            without = fit.effects.without(self.proof.winner, axis, self.space.case)
            if without == winner:
                continue
            if without == fit.effects.parts[self.measurements.baseline] and self.proof.gain is not None:
                yield axis.name, self.proof.gain
                continue
            yield axis.name, statistics.normal(self.measurements.objective.kind, *fit.difference(winner, without))

    def result(self) -> Result:
        """What is known now."""
        measurements, test = self.measurements, self.proof.bound_test()
        if test is not None and not test.holds and self.verdict is not Verdict.INCONCLUSIVE:
            self.verdict = Verdict.BOUND_NOT_MET
            if test.queries:
                surely = "is above" if statistics.surely_above(test) else "is not certain to be below"
                measurements.remarks.append(
                    f"p99 {surely} {test.bound_ms:g} ms: {test.over} of {test.queries} were later"
                )
        late = measurements.bound_test(measurements.baseline)
        if self.verdict is Verdict.BETTER and late is not None and statistics.seems_above(late):
            said = f"{late.over} of {late.queries} requests were later with the plan"
            measurements.remarks.append(f"{self.proof.winner.title} keeps p99 within {late.bound_ms:g} ms; {said}")
        if measurements.disturbed:
            first, *others = dict.fromkeys(measurements.disturbed)
            measurements.remarks.append(
                f"{len(measurements.disturbed)} disturbed blocks: {first}{' and similar' if others else ''}"
            )
        return Result(
            objective=measurements.objective,
            verdict=self.verdict,
            figure=statistics.FIGURES[measurements.objective.kind],
            baseline=measurements.baseline,
            winner=self.proof.winner,
            gain=self.proof.gain,
            noise_percent=measurements.noise.percent(_AA_PAIRS),
            bound=test,
            contributions=self.contributions,
            front=self._front(),
            trials=measurements.trials(),
            remarks=tuple(measurements.remarks),
            capacity=self.capacity,
        )

    def _front(self) -> tuple[Candidate, ...]:
        """Those that no other beats in p99, throughput and CPU; at a given rate throughput is the rate's."""
        figures: dict[Candidate, tuple[float, ...]] = {}
        for trial in self.measurements.trials():
            if sum(len(block.latencies_ms) for block in trial.blocks) < _FRONT_QUERIES:
                continue
            p99_ms, cpu_ms = statistics.p99_ms(trial.blocks), statistics.cpu_ms_per_request(trial.blocks)
            served = sum(block.throughput * block.seconds for block in trial.blocks)
            seconds = sum(block.seconds for block in trial.blocks)
            slower = 0.0 if self.measurements.rate else -served / seconds
            figures[trial.candidate] = (p99_ms or 0.0, slower, cpu_ms or 0.0)
        return tuple(
            one
            for one, item in figures.items()
            if not any(other != item and all(map(float.__le__, other, item)) for other in figures.values())
        )
