"""The search: which block to measure next, and in the end what won, by how much and how sure that is.

It starts at the plan's own answer and measures that against itself first (A/A). Threads are searched by a ladder and
golden sections, the rest one setting at a time around the best, and what helped is put together. The last few race; the
one that is ahead is measured against the baseline again in fresh blocks, because it is ahead by luck too. Only that
last comparison says that something is better.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from raddle_operator.tuning import statistics
from raddle_operator.tuning.book import Answer, BaselineError, Book, BudgetError, Limits
from raddle_operator.tuning.candidate import Candidate
from raddle_operator.tuning.measured import Ask, Block
from raddle_operator.tuning.objective import Kind, Objective
from raddle_operator.tuning.race import race
from raddle_operator.tuning.result import BoundTest, Interval, Result, Verdict
from raddle_operator.tuning.space import INSTANCES, SPINNING, THREADS, Axis, Space

__all__ = ["Answer", "BaselineError", "Limits", "ReplayError", "confirm", "drive", "estimate", "replay", "tune"]

Search = Generator[Ask, Answer, Result]

# Blocks of the baseline against itself, in pairs.
_AA_PAIRS: Final = 4
# Which share of the budget is spent when a stage ends.
_UNTIL: Final = {"threads": 0.18, "shape": 0.36, "again": 0.45, "settings": 0.54, "race": 0.62, "proof": 0.95}
_ROUNDS: Final = 8
_RACE_ROUNDS: Final = 12
_FINALISTS: Final = 4
# A setting that is no better by chance at more than this is not put together with others.
_HELPS: Final = 0.2
# How likely an equal candidate leaves in one round: while there are many, and in the last race in all its rounds.
_ERROR: Final = 0.05
# Pairs of the proof, and how often it looks whether they are enough; the error is divided among the looks.
_PAIRS: Final = (6, 60)
_LOOKS: Final = 4
# A gain below this percentage is not worth more blocks.
_WORTH: Final = 1.0
_PAIRS_EACH: Final = 6
# A thread count is not searched finer than this part of it.
_FINE: Final = 8
_GOLDEN: Final = 0.382
# Of fewer queries p99 is one of the two slowest.
_FRONT_QUERIES: Final = 200
# A rate nearer to the capacity than this is not served for long.
_SLACK: Final = 1.02
# Settings that change what a thread count is worth.
_SHAPE: Final = (SPINNING, INSTANCES, "threads.interOp")


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
    contributions: list[tuple[str, Interval]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def ended(self, run: Generator[Ask, Answer, None]) -> Search:
        """The result of the run, of as much of it as the budget allows."""
        try:
            yield from run
        except BudgetError:
            self.remarks.append("ended before all was measured")
        return self.result()

    def run_proof(self, candidate: Candidate) -> Generator[Ask, Answer, None]:
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
        finalists = yield from self._finalists()
        error = _ERROR / _RACE_ROUNDS / max(1, len(finalists) - 1)
        ranking = yield from race(self.book, finalists, "race", rounds=_RACE_ROUNDS, until=_UNTIL["race"], error=error)
        self.verdict = yield from self._proven(ranking.order)
        yield from self._keep_bound()
        if self.verdict is Verdict.BETTER:
            yield from self._contributions()

    def _serves(self) -> Generator[Ask, Answer, bool]:
        """Whether the rate can be served at all: by the baseline, else with another thread count."""
        rate = self.book.rate
        if rate is None:
            return True
        threads = self.space.axis(THREADS)
        others = [choice for _, choice in threads.choices] if threads else []
        for candidate in self.book.known([self.book.baseline, *others]):
            block = yield from self.book.measure(candidate, "capacity", None, self.book.block_s)
            self.capacity = max(self.capacity or 0.0, block.throughput if block else 0.0)
            if self.capacity > _SLACK * rate:
                return True
        self.remarks.append(f"{rate:g} requests a second are above the capacity: {self.capacity or 0:.3g} are served")
        return False

    def _noise(self) -> Generator[Ask, Answer, None]:
        differences = []
        for _ in range(_AA_PAIRS):
            one, other = yield from self.book.round([self.book.baseline, self.book.baseline], "A/A")
            differences.append(one - other)
        self.book.noise = statistics.Noise.of(differences)

    def _finalists(self) -> Generator[Ask, Answer, Sequence[Candidate]]:
        """The few that are worth a race, the baseline among them."""
        best = (yield from self._threads())[:2]
        shape = [axis for axis in self.space.axes if axis.name in _SHAPE]
        best = (yield from self._around(best, shape, "shape"))[:2]
        # What spinning is worth depends on threads and instances, and they on it.
        again = [axis for axis in shape if axis.name == SPINNING] + self._nearby(best[0])
        best = (yield from self._around(best[:1], again, "again"))[:2]
        rest = [axis for axis in self.space.axes if axis.name not in (*_SHAPE, THREADS)]
        best = (yield from self._around(best[:1], rest, "settings")) + best
        return [*list(dict.fromkeys(best))[: _FINALISTS - 1], self.book.baseline]

    def _threads(self) -> Generator[Ask, Answer, list[Candidate]]:
        """The thread counts that are left, the best first, all else as in the baseline."""
        axis, baseline = self.space.axis(THREADS), self.book.baseline
        if axis is None:
            return [baseline]
        ladder = [axis.applied(baseline, choice) for _, choice in axis.choices]
        order = yield from self._ranked([baseline, *ladder], "threads")
        measured = {self._count(candidate) for candidate in self.book.known([baseline, *ladder])}
        while axis.open and (count := _between(sorted(measured), self._count(order[0]))):
            if not self.book.rounds_until(_UNTIL["threads"], 2):
                break
            measured.add(count)
            probe = axis.applied(baseline, Candidate.of({THREADS: count}))
            pair = yield from self._ranked([order[0], probe], "threads")
            order = list(dict.fromkeys([*pair, *order]))
        return order

    def _nearby(self, candidate: Candidate) -> list[Axis]:
        """Half as many threads and twice as many, within the bounds of the space; [] where these are the user's."""
        axis, count = self.space.axis(THREADS), self._count(candidate)
        if axis is None or not axis.open:
            return []
        most = max(self._count(choice) for _, choice in axis.choices)
        counts = {count // 2, 2 * count} - {0}
        choices = [(near, Candidate.of({THREADS: near})) for near in sorted(counts) if near <= most]
        return [Axis(THREADS, tuple(choices))]

    def _count(self, candidate: Candidate) -> int:
        return self.space.case.planned(candidate)[1].intra_op or 1

    def _ranked(self, candidates: Sequence[Candidate], phase: str) -> Generator[Ask, Answer, list[Candidate]]:
        ranking = yield from race(self.book, candidates, phase, rounds=_ROUNDS, until=_UNTIL[phase], error=_ERROR)
        return list(ranking.order) or [self.book.baseline]

    def _around(
        self, centres: Sequence[Candidate], axes: Sequence[Axis], phase: str
    ) -> Generator[Ask, Answer, list[Candidate]]:
        """The best of the centres, as many as there is time for, and of all that differ from one of them on one axis.

        Before these the one that has all together that helped, where that is more than one thing.
        """
        choices = 1 + sum(len(axis.choices) for axis in axes)
        centres = centres[: max(1, self.book.rounds_until(_UNTIL[phase], choices))]
        made: dict[Candidate, tuple[Candidate, Axis, Candidate]] = {}
        for centre in centres:
            for axis in axes:
                for _, choice in axis.choices:
                    for candidate in self.book.known([axis.applied(centre, choice)]):
                        made.setdefault(candidate, (centre, axis, choice))
        ranking = yield from race(
            self.book, [*centres, *made], phase, rounds=_ROUNDS, until=_UNTIL[phase], error=_ERROR
        )
        best = next(iter(ranking.order), self.book.baseline)
        if best not in made or best in centres:
            return list(ranking.order) or [best]
        centre, together, used = made[best][0], best, {made[best][1].name}
        if centre in ranking.order and ranking.behind(centre, best, self.book.noise) >= _HELPS:
            # One of many is ahead by luck: what is simpler stays.
            return list(dict.fromkeys([centre, *ranking.order]))
        for candidate in ranking.order[1:]:
            if candidate in centres:
                continue
            home, axis, choice = made[candidate]
            helps = home == centre and ranking.behind(centre, candidate, self.book.noise) < _HELPS
            if helps and axis.name not in used:
                together = axis.applied(together, choice)
                used.add(axis.name)
        return list(dict.fromkeys([*self.book.known([together]), *ranking.order]))

    def _proven(self, order: Sequence[Candidate]) -> Generator[Ask, Answer, Verdict]:
        """Whether the first is better than the baseline; the next one where it fails or breaks the bound meanwhile."""
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
        least, most = _PAIRS
        pairs = min(most, self.book.rounds_until(_UNTIL["proof"], 2))
        if pairs < least:
            raise BudgetError
        looks = sorted({max(least, ceil(pairs * look / _LOOKS)) for look in range(1, _LOOKS + 1)})
        kind, baseline, differences = self.book.objective.kind, self.book.baseline, list[float]()
        self.winner = winner
        for pair in range(pairs):
            turns = [winner, baseline] if pair % 2 else [baseline, winner]
            losses = dict(zip(turns, (yield from self.book.round(turns, "proof")), strict=True))
            if winner in self.book.skipped:
                return None
            differences.append(losses[winner] - losses[baseline])
            if len(differences) < 2:
                continue
            self.gain = statistics.interval(kind, differences, error=0.05 / len(looks))
            if len(differences) in looks:
                best_case, worst_case = _from_best(kind, self.gain)
                if worst_case < 0:
                    return Verdict.BETTER
                if best_case > -_WORTH:
                    break
        self.remarks.append(f"{winner.title}: {_words(self.gain)}, no certain gain")
        self.winner, self.gain = baseline, None
        return Verdict.NO_DIFFERENCE

    def _keep_bound(self) -> Generator[Ask, Answer, None]:
        """Measures the winner until it is certain whether it keeps the bound."""
        while (test := self._bound_test()) is not None and not test.holds and not statistics.surely_above(test):
            yield from self.book.round([self.winner], "bound")

    def _bound_test(self) -> BoundTest | None:
        # The winner's earlier blocks are those by which it was chosen: lucky ones.
        fresh = () if self.winner == self.book.baseline else ("proof", "bound")
        return self.book.bound_test(self.winner, fresh)

    def _contributions(self) -> Generator[Ask, Answer, None]:
        """What the winner loses without each of its settings, as far as the budget goes."""
        kind = self.book.objective.kind
        without = {axis.name: axis.without(self.winner) for axis in self.space.axes}
        changed = {name: candidate for name, candidate in without.items() if candidate != self.winner}
        for name, candidate in changed.items():
            if candidate == self.book.baseline and self.gain is not None:
                self.contributions.append((name, self.gain))
                continue
            if not self.book.rounds_until(1.0, 2 * _PAIRS_EACH) or not self.book.known([candidate]):
                continue
            differences = []
            for pair in range(_PAIRS_EACH):
                turns = [self.winner, candidate] if pair % 2 else [candidate, self.winner]
                losses = dict(zip(turns, (yield from self.book.round(turns, "contributions")), strict=True))
                differences.append(losses[self.winner] - losses[candidate])
            if candidate not in self.book.skipped:
                self.contributions.append((name, statistics.interval(kind, differences)))

    def result(self) -> Result:
        """What is known now."""
        book, test = self.book, self._bound_test()
        if test is not None and not test.holds and self.verdict is not Verdict.INCONCLUSIVE:
            self.verdict = Verdict.BOUND_NOT_MET
            if test.queries:
                surely = "is above" if statistics.surely_above(test) else "is not certain to be below"
                self.remarks.append(f"p99 {surely} {test.bound_ms:g} ms: {test.over} of {test.queries} were later")
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
            contributions=tuple(self.contributions),
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


def _between(measured: Sequence[int], best: int) -> int | None:
    """A count in the wider gap beside the best, at its golden section; None where the gaps are fine enough."""
    below = max((count for count in measured if count < best), default=best)
    above = min((count for count in measured if count > best), default=best)
    gap, sign = max((best - below, -1), (above - best, 1))
    if gap <= max(1, best // _FINE):
        return None
    return best + sign * max(1, round(_GOLDEN * gap))


def _from_best(kind: Kind, gain: Interval) -> tuple[float, float]:
    """The interval's ends, the one of the larger gain first; below zero is better."""
    return (-gain.high, -gain.low) if kind is Kind.THROUGHPUT else (gain.low, gain.high)


def _words(gain: Interval | None) -> str:
    return f"{gain.percent:+.1f} % [{gain.low:.1f}, {gain.high:.1f}]" if gain else "not compared"
