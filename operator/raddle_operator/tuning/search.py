"""The search: which block to measure next, and in the end what won, by how much and how sure that is.

It starts at the plan's own answer and measures that against itself first (A/A). Then rounds of a few candidates, each
of which may be the best by what all blocks said so far (effects). The one that is ahead is measured against the
baseline again in fresh blocks, because it is ahead by luck too. Only that last comparison says that something is
better.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

import numpy as np

from raddle_operator.tuning import statistics
from raddle_operator.tuning.book import BLOCKS, CLOSED_S, Answer, BaselineError, Book, BudgetError, Limits, block_s
from raddle_operator.tuning.candidate import Candidate
from raddle_operator.tuning.effects import Effects, Fit, Seen
from raddle_operator.tuning.measured import CAPACITY, Ask, Block
from raddle_operator.tuning.objective import Kind, Objective
from raddle_operator.tuning.result import BoundTest, Interval, Result, Verdict
from raddle_operator.tuning.space import INSTANCES, THREADS, Space

__all__ = [
    "BLOCKS",
    "Answer",
    "BaselineError",
    "Limits",
    "ReplayError",
    "block_s",
    "confirm",
    "drive",
    "estimate",
    "replay",
    "tune",
]

Search = Generator[Ask, Answer, Result]

# Blocks of the baseline against itself, in pairs.
_AA_PAIRS: Final = 4
# Candidates of a round: they meet the same arrivals.
_ROUND: Final = 5
# So many different arrivals there are before the proof: candidates that met in no round met the same ones.
_SEEDS: Final = 8
# Which shares of the budget are spent when the search ends at the soonest, when it ends where no gain is in sight, and
# when the proof ends.
_SOONEST: Final = 0.35
_HOPELESS: Final = 0.5
_PROVEN: Final = 0.95
# More blocks than this tell the search little, and each round's sums take longer with them.
_MOST_BLOCKS: Final = 300
# Pairs of the proof.
_PAIRS: Final = (6, 150)
# After so many pairs both programs are started again: two processes of the same program differ, and one start's luck is
# no gain.
_SAME_PROGRAMS: Final = 3
# A gain of so many standard errors is mostly found; a few pairs more are for not knowing the deviation.
_ERRORS: Final = 3.2
_UNKNOWN: Final = 4
# After which shares of its pairs the proof looks whether they are enough, and the error of each look: 0.05 in all.
_LOOKS: Final = ((0.25, 0.001), (0.5, 0.009), (0.75, 0.015), (1.0, 0.025))
# A gain below this percentage is not worth more blocks.
_WORTH: Final = 1.0
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

    The same answers lead to the same asks. `baseline` absent: all is left to the plan. Raises BaselineError where the
    baseline can't be measured, PolicyError where it can't be planned.
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
    book = Book(case=space.case, objective=objective, limits=limits or Limits(), baseline=baseline)
    book.known([baseline])
    return _Search(space=space, book=book, winner=baseline)


def replay(search: Search, recorded: Iterable[tuple[Ask, Answer]]) -> Ask | Result:
    """What a search comes to that is sent these answers first: its next ask, or the result where it ends with them.

    Raises ReplayError where the search would have asked something else.
    """
    try:
        ask = next(search)
        for asked, answer in recorded:
            if ask != asked:
                raise ReplayError(f"another search was recorded: it asked {asked}, this one {ask}")
            ask = search.send(answer)
    except StopIteration as end:
        result: Result = end.value
        return result
    return ask


def drive(search: Search, measure: Callable[[Ask], Answer], recorded: Iterable[tuple[Ask, Answer]] = ()) -> Result:
    """The search's result, each ask answered by `measure`, the first of them by what was recorded.

    Raises ReplayError as `replay`.
    """
    found = replay(search, recorded)
    try:
        while isinstance(found, Ask):
            found = search.send(measure(found))
    except StopIteration as end:
        found = end.value
    assert isinstance(found, Result)
    return found


def estimate(objective: Objective, space: Space, limits: Limits | None = None) -> tuple[int, float]:
    """Candidates that a search measures where none is better, and how many seconds of load it takes at most."""
    limits = limits or Limits()

    def same(ask: Ask) -> Block:
        rate = ask.rate or 2 * (objective.rate or 1.0)
        count = max(1, round(rate * ask.seconds))
        return Block(latencies_ms=(1.0,) * count, missed=0, seconds=ask.seconds, cpu_s=0.001 * count)

    result = drive(tune(objective, space, limits), same)
    return sum(bool(trial.blocks) for trial in result.trials), limits.seconds


@dataclass(slots=True)
class _Search:
    space: Space
    book: Book
    winner: Candidate
    verdict: Verdict = Verdict.INCONCLUSIVE
    gain: Interval | None = None
    capacity: float | None = None
    bound: BoundTest | None = None
    contributions: tuple[tuple[str, Interval], ...] = ()
    remarks: list[str] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)

    def ended(self, run: Generator[Ask, Answer, None]) -> Search:
        """The result of the run, of as much of it as the budget allows."""
        try:
            yield from run
        except BudgetError:
            self.remarks.append("ended before all was measured")
        return self.result()

    def run_proof(self, candidate: Candidate) -> Generator[Ask, Answer, None]:
        if self.book.rate is None:
            yield from self._served()
        yield from self._noise()
        self.verdict = yield from self._proven(self.book.known([candidate]))
        if candidate in self.book.skipped:
            self.remarks.append(f"{candidate.title}: {self.book.skipped[candidate]}")
        yield from self._keep_bound()

    def run(self) -> Generator[Ask, Answer, None]:
        if not (yield from self._serves()):
            self.verdict = Verdict.BOUND_NOT_MET
            return
        yield from self._noise()
        effects = Effects.of(self.space, self.book.baseline)
        self.verdict = yield from self._proven((yield from self._searched(effects)))
        yield from self._keep_bound()
        if self.verdict is Verdict.BETTER:
            self.contributions = tuple(self._contributions(self._fit(effects)))

    def _serves(self) -> Generator[Ask, Answer, bool]:
        """Whether the rate can be served at all: by the baseline, else with other threads or instances."""
        book, rate = self.book, self.book.rate
        served = yield from self._served()
        if rate is None:
            return True
        self.capacity = served
        axes = [axis for axis in map(self.space.axis, (THREADS, INSTANCES)) if axis]
        for candidate in book.known([choice for axis in axes for _, choice in axis.choices]):
            if self.capacity > _SLACK * rate:
                break
            if candidate != book.baseline:
                seconds = max(min(CLOSED_S, book.block_s), 2 * book.answer_s)
                block = yield from book.measure(candidate, CAPACITY, None, seconds)
                self.capacity = max(self.capacity, block.throughput if block else 0.0)
        if self.capacity > _SLACK * rate:
            return True
        tried = [f"{axis.name} {', '.join(str(value) for value, _ in axis.choices)}" for axis in axes]
        found = f"{round(self.capacity, 1):g} are served at most; tried: {'; '.join([book.baseline.title, *tried])}"
        self.remarks.append(f"{rate:g} requests a second are above the capacity: {found}")
        return False

    def _served(self) -> Generator[Ask, Answer, float]:
        """Requests a second that the baseline serves where each follows the last answer. Raises BaselineError."""
        book, waited_s = self.book, 0.0
        phase = "first" if book.rate is None else CAPACITY
        for seconds in (min(CLOSED_S, book.block_s), max(CLOSED_S, _PATIENCE * book.limits.seconds)):
            block = yield from book.measure(book.baseline, phase, None, seconds)
            assert block is not None
            if block.missed < len(block.latencies_ms):
                book.answer_s = float(np.median(block.latencies_ms)) / 1000
                return block.throughput
            waited_s = max([waited_s, block.seconds, *(latency / 1000 for latency in block.latencies_ms)])
        raise BaselineError(
            f"{book.baseline.title} can't be measured: a request takes longer than {waited_s:.3g} s, so long was waited"
        )

    def _noise(self) -> Generator[Ask, Answer, None]:
        differences = []
        for turn in range(_AA_PAIRS):
            one, other = yield from self.book.round([self.book.baseline] * 2, "A/A", fresh=1)
            self._learn(self.book.baseline, turn, 2)
            differences.append(one - other)
        self.book.noise = statistics.Noise.of(differences)

    def _searched(self, effects: Effects) -> Generator[Ask, Answer, Sequence[Candidate]]:
        """What may be better than the baseline, the best first."""
        book, rng = self.book, np.random.default_rng(0)
        fit, turn = self._fit(effects), _AA_PAIRS
        while not self._enough(fit):
            candidates = self._next(fit, rng)
            if len(candidates) < 2:
                break
            turn += 1
            yield from book.round(candidates, "search", 1 + turn % _SEEDS)
            for candidate in candidates:
                self._learn(candidate, turn)
            fit = self._fit(effects)
        if turn == _AA_PAIRS and len(self._next(fit, rng)) > 1:
            length_s, load_s = book.block_s, book.limits.seconds
            needed = f"a search takes {BLOCKS} of {length_s:.3g} s"
            self.remarks.append(f"the noise alone took the {load_s:.0f} s of load that fit into the budget: {needed}")
            raise BudgetError
        order = sorted(self._measured(effects), key=fit.loss)
        return [one for one in order if not book.breaks_bound(one)]

    def _measured(self, effects: Effects) -> list[Candidate]:
        blocks, skipped = self.book.blocks, self.book.skipped
        return [one for one, found in blocks.items() if found and one in effects.parts and one not in skipped]

    def _learn(self, candidate: Candidate, turn: int, blocks: int = 1) -> None:
        """Keeps what the last so many blocks of a candidate say; one that failed says nothing."""
        for ask, block in self.book.blocks[candidate][-blocks:] if candidate not in self.book.skipped else ():
            aim, *others = statistics.figures(self.book.objective.kind, block)
            self.seen.append(Seen(candidate, ask.seed, turn, (aim + _LATE * self.book.late(block), *others)))

    def _fit(self, effects: Effects) -> Fit:
        pairs = np.array([one.losses for one in self.seen[: 2 * _AA_PAIRS]])
        squares = np.sum((pairs[::2] - pairs[1::2]) ** 2, axis=0) / 2
        expected = np.square(_EXPECTED[-len(squares) :])
        variances = (squares + _EXPECTED_PAIRS * expected) / (_AA_PAIRS + _EXPECTED_PAIRS)
        return effects.fitted(self.seen, variances)

    def _enough(self, fit: Fit) -> bool:
        """Whether what is left of the budget is needed to prove the gain that is expected."""
        book = self.book
        if len(self.seen) >= _MOST_BLOCKS:
            return True
        if book.rounds_until(_SOONEST, _ROUND) > 0:
            return False
        best, baseline = (fit.effects.parts[one] for one in (fit.best(), book.baseline))
        gain, deviation = fit.difference(baseline, best)
        gain -= deviation
        if 100 * gain < _WORTH:
            return book.rounds_until(_HOPELESS, _ROUND) < 1
        squares = book.noise.pairs * book.noise.variance + _EXPECTED_PAIRS * _EXPECTED_APART**2
        variance = squares / (book.noise.pairs + _EXPECTED_PAIRS)
        least, most = _PAIRS
        needed = _UNKNOWN + _ERRORS**2 * variance / gain**2
        return book.rounds_until(_PROVEN, 2) - _ROUND / 2 < min(most, max(least, needed))

    def _next(self, fit: Fit, rng: np.random.Generator) -> list[Candidate]:
        """The candidates of a round: those that tell why others failed, or a few that may be the best."""
        book, effects = self.book, fit.effects
        worked = {part for one in self._measured(effects) for part in effects.parts[one]}
        alone: dict[Candidate, None] = {}
        for candidate in book.skipped:
            unknown = set(effects.parts.get(candidate, ())) - worked - effects.out
            if len(unknown) == 1:
                effects.out.update(unknown)
            alone |= dict.fromkeys(effects.alone(part) for part in sorted(unknown))
        drawn = [fit.best(), *fit.drawn(rng, 2 * _ROUND)]
        if book.full:
            drawn = fit.drawn(rng, 2 * _ROUND, self._measured(effects))
        found: dict[Candidate, None] = {}
        for candidate in [*alone, *drawn]:
            for same in book.known([candidate]) if len(found) < _ROUND else ():
                # It may have been met under another name before.
                effects.parts.setdefault(same, effects.parts[candidate])
                found[same] = None
        return [*found]

    def _proven(self, order: Sequence[Candidate]) -> Generator[Ask, Answer, Verdict]:
        """Whether the first is better than the baseline; the next one where it fails or breaks the bound meanwhile.

        Where the baseline seems to break the bound, the first that seems to keep it.
        """
        # The search chose them by their luck with its own arrivals.
        self.book.seed = max(self.book.seed, _SEEDS)
        if self.book.seems_late(self.book.baseline):
            order = [one for one in order if not self.book.seems_late(one)] or order
        for candidate in order:
            if candidate == self.book.baseline:
                break
            verdict = yield from self._compared(candidate)
            if verdict is not None and not self.book.breaks_bound(candidate):
                return verdict
        self.winner, self.gain = self.book.baseline, None
        return Verdict.NO_DIFFERENCE

    def _compared(self, winner: Candidate) -> Generator[Ask, Answer, Verdict | None]:
        """The verdict on this one against the baseline on fresh pairs; None where it fails."""
        # One before it that failed has won nothing.
        self.winner, self.gain = self.book.baseline, None
        least, most = _PAIRS
        pairs = min(most, self.book.rounds_until(_PROVEN, 2))
        if pairs < least:
            raise BudgetError
        errors: dict[int, float] = {}
        for share, error in _LOOKS:
            after = max(least, ceil(pairs * share))
            errors[after] = errors.get(after, 0.0) + error
        baseline, differences = self.book.baseline, list[float]()
        self.winner = winner
        for pair in range(pairs):
            turns = [winner, baseline] if pair % 2 else [baseline, winner]
            fresh = 0 if pair % _SAME_PROGRAMS else len(turns)
            losses = dict(zip(turns, (yield from self.book.round(turns, "proof", fresh=fresh)), strict=True))
            if winner in self.book.skipped:
                return None
            differences.append(losses[winner] - losses[baseline])
            if len(differences) < 2:
                continue
            if not self.book.seems_late(baseline):
                verdict = self._looked_at(differences, errors)
            elif self.book.breaks_bound(winner):
                return None
            else:
                # To keep the bound decides, whatever the figure is.
                self.gain = statistics.interval(self.book.objective.kind, differences)
                verdict = Verdict.BETTER if self._keeps_alone(winner, last=pair == pairs - 1) else None
            if verdict is Verdict.BETTER:
                return verdict
            if verdict is not None:
                break
        self.remarks.append(f"{winner.title}: {_words(self.gain)}, no certain gain")
        self.winner, self.gain = baseline, None
        return Verdict.NO_DIFFERENCE

    def _looked_at(self, differences: Sequence[float], errors: Mapping[int, float]) -> Verdict | None:
        """What so many pairs say; None where it is not certain, or not the time to look."""
        kind, look = self.book.objective.kind, errors.get(len(differences))
        self.gain = statistics.interval(kind, differences, error=look or min(errors.values()))
        best_case, worst_case = _from_best(kind, self.gain)
        if look and worst_case < 0:
            return Verdict.BETTER
        return Verdict.NO_DIFFERENCE if look and best_case > -_WORTH else None

    def _keeps_alone(self, winner: Candidate, *, last: bool) -> bool:
        """Whether this one keeps the bound, and the baseline does not: certainly, or after the last pair seemingly."""
        test = self._bound_test()
        if last or test is None:
            return not self.book.seems_late(winner)
        return test.holds and self.book.breaks_bound(self.book.baseline)

    def _keep_bound(self) -> Generator[Ask, Answer, None]:
        """Measures the winner until it is certain whether it keeps the bound."""
        while (test := self._bound_test()) is not None and not test.holds and not statistics.surely_above(test):
            yield from self.book.round([self.winner], "bound")

    def _bound_test(self) -> BoundTest | None:
        # The winner's earlier blocks are those by which it was chosen: lucky ones.
        fresh = () if self.winner == self.book.baseline else ("proof", "bound")
        return self.book.bound_test(self.winner, fresh)

    def _contributions(self, fit: Fit) -> Iterator[tuple[str, Interval]]:
        """What the winner loses without each of its settings, by all blocks together."""
        winner = fit.effects.parts[self.winner]
        for axis in self.space.axes:
            without = fit.effects.without(self.winner, axis, self.space.case)
            if without == winner:
                continue
            if without == fit.effects.parts[self.book.baseline] and self.gain is not None:
                yield axis.name, self.gain
                continue
            yield axis.name, statistics.normal(self.book.objective.kind, *fit.difference(winner, without))

    def result(self) -> Result:
        """What is known now."""
        book, test = self.book, self._bound_test()
        if test is not None and not test.holds and self.verdict is not Verdict.INCONCLUSIVE:
            self.verdict = Verdict.BOUND_NOT_MET
            if test.queries:
                surely = "is above" if statistics.surely_above(test) else "is not certain to be below"
                self.remarks.append(f"p99 {surely} {test.bound_ms:g} ms: {test.over} of {test.queries} were later")
        late = book.bound_test(book.baseline)
        if self.verdict is Verdict.BETTER and late is not None and statistics.seems_above(late):
            said = f"{late.over} of {late.queries} requests were later with the plan"
            self.remarks.append(f"{self.winner.title} keeps p99 within {late.bound_ms:g} ms; {said}")
        if book.disturbed:
            first, *others = dict.fromkeys(book.disturbed)
            self.remarks.append(f"{len(book.disturbed)} disturbed blocks: {first}{' and the like' if others else ''}")
        return Result(
            objective=book.objective,
            verdict=self.verdict,
            figure=statistics.FIGURES[book.objective.kind],
            baseline=book.baseline,
            winner=self.winner,
            gain=self.gain,
            noise_percent=book.noise.percent(_AA_PAIRS),
            bound=test,
            contributions=self.contributions,
            front=self._front(),
            trials=book.trials(),
            remarks=tuple(self.remarks),
            capacity=self.capacity,
        )

    def _front(self) -> tuple[Candidate, ...]:
        """Those that no other beats in p99, throughput and CPU; at a given rate throughput is the rate's."""
        figures: dict[Candidate, tuple[float, ...]] = {}
        for trial in self.book.trials():
            if sum(len(block.latencies_ms) for block in trial.blocks) < _FRONT_QUERIES:
                continue
            p99_ms, cpu_ms = statistics.p99_ms(trial.blocks), statistics.cpu_ms_per_request(trial.blocks)
            served = sum(block.throughput * block.seconds for block in trial.blocks)
            seconds = sum(block.seconds for block in trial.blocks)
            slower = 0.0 if self.book.rate else -served / seconds
            figures[trial.candidate] = (p99_ms or 0.0, slower, cpu_ms or 0.0)
        return tuple(
            one
            for one, found in figures.items()
            if not any(other != found and all(map(float.__le__, other, found)) for other in figures.values())
        )


def _from_best(kind: Kind, gain: Interval) -> tuple[float, float]:
    """The interval's ends, the one of the larger gain first; below zero is better."""
    return (-gain.high, -gain.low) if kind is Kind.THROUGHPUT else (gain.low, gain.high)


def _words(gain: Interval | None) -> str:
    return f"{gain.percent:+.1f} % [{gain.low:.1f}, {gain.high:.1f}]" if gain else "not compared"
