"""The proof: whether one candidate is better than the baseline, by fresh pairs of blocks alone.

What is ahead in a search is ahead by luck too, so nothing that was measured before counts here.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Kind
from raddle_operator.results.verdict import BoundTest, Interval, Verdict
from raddle_tuner.search import statistics
from raddle_tuner.search.blocks import MeasurementRequest
from raddle_tuner.search.measurements import BudgetError, MeasurementResult, Measurements

# The share of the budget that is spent when the proof ends.
PROVEN: Final = 0.95
# Pairs of the proof.
PAIRS: Final = (6, 150)
# After which shares of its pairs the proof looks whether they are enough, and the error of each look: 0.05 in all.
_LOOKS: Final = ((0.25, 0.001), (0.5, 0.009), (0.75, 0.015), (1.0, 0.025))
# A gain below this percentage is not worth more blocks.
WORTH: Final = 1.0


@dataclass(slots=True)
class Proof:
    """One of the book's candidates against its baseline.

    `winner` is the one that is compared, the baseline where none is better; `gain` how it compares as far as that is
    known.
    """

    measurements: Measurements
    winner: Candidate
    gain: Interval | None = None

    def run(self, order: Sequence[Candidate]) -> Generator[MeasurementRequest, MeasurementResult, Verdict]:
        """Whether the first is better than the baseline; the next one where it fails or breaks the bound meanwhile.

        Where the baseline seems to break the bound, the first that seems to keep it. Raises BudgetError where the
        budget ends before.
        """
        if self.measurements.seems_late(self.measurements.baseline):
            order = [one for one in order if not self.measurements.seems_late(one)] or order
        for candidate in order:
            if candidate == self.measurements.baseline:
                break
            verdict = yield from self._compared(candidate)
            if verdict is not None and not self.measurements.breaks_bound(candidate):
                return verdict
        self.winner, self.gain = self.measurements.baseline, None
        return Verdict.NO_DIFFERENCE

    def _compared(self, winner: Candidate) -> Generator[MeasurementRequest, MeasurementResult, Verdict | None]:
        """The verdict on this one against the baseline on fresh pairs; None where it fails."""
        # One before it that failed has won nothing.
        self.winner, self.gain = self.measurements.baseline, None
        least, most = PAIRS
        pairs = min(most, self.measurements.rounds_until(PROVEN, 2))
        if pairs < least:
            raise BudgetError
        errors: dict[int, float] = {}
        for share, error in _LOOKS:
            after = max(least, ceil(pairs * share))
            errors[after] = errors.get(after, 0.0) + error
        baseline, differences = self.measurements.baseline, list[float]()
        self.winner = winner
        for pair in range(pairs):
            turns = [winner, baseline] if pair % 2 else [baseline, winner]
            # Two processes of the same program differ: pairs of one start would not be independent.
            result = yield from self.measurements.round(turns, "proof", fresh=len(turns))
            losses = dict(zip(turns, result, strict=True))
            if winner in self.measurements.skipped:
                return None
            differences.append(losses[winner] - losses[baseline])
            if len(differences) < 2:
                continue
            if not self.measurements.seems_late(baseline):
                verdict = self._looked_at(differences, errors)
            elif self.measurements.breaks_bound(winner):
                return None
            else:
                # To keep the bound decides, whatever the figure is.
                self.gain = statistics.interval(self.measurements.objective.kind, differences)
                verdict = Verdict.BETTER if self._keeps_alone(winner, last=pair == pairs - 1) else None
            if verdict is Verdict.BETTER:
                return verdict
            if verdict is not None:
                break
        self.measurements.remarks.append(f"{winner.title}: {_words(self.gain)}, no certain gain")
        self.winner, self.gain = baseline, None
        return Verdict.NO_DIFFERENCE

    def _looked_at(self, differences: Sequence[float], errors: Mapping[int, float]) -> Verdict | None:
        """What so many pairs say; None where it is not certain, or not the time to look."""
        kind, look = self.measurements.objective.kind, errors.get(len(differences))
        self.gain = statistics.interval(kind, differences, error=look or min(errors.values()))
        best_case, worst_case = _from_best(kind, self.gain)
        if look and worst_case < 0:
            return Verdict.BETTER
        return Verdict.NO_DIFFERENCE if look and best_case > -WORTH else None

    def _keeps_alone(self, winner: Candidate, *, last: bool) -> bool:
        """Whether this one keeps the bound, and the baseline does not: certainly, or after the last pair seemingly."""
        test = self.bound_test()
        if last or test is None:
            return not self.measurements.seems_late(winner)
        return test.holds and self.measurements.breaks_bound(self.measurements.baseline)

    def keep_bound(self) -> Generator[MeasurementRequest, MeasurementResult, None]:
        """Measures the winner until it is certain whether it keeps the bound."""
        while (test := self.bound_test()) is not None and not test.holds and not statistics.surely_above(test):
            yield from self.measurements.round([self.winner], "bound")

    def bound_test(self) -> BoundTest | None:
        """What is known of the bound for the winner; None without a bound."""
        # The winner's earlier blocks are those by which it was chosen: lucky ones.
        fresh = () if self.winner == self.measurements.baseline else ("proof", "bound")
        return self.measurements.bound_test(self.winner, fresh)


def _from_best(kind: Kind, gain: Interval) -> tuple[float, float]:
    """The interval's ends, the one of the larger gain first; below zero is better."""
    return (-gain.high, -gain.low) if kind is Kind.THROUGHPUT else (gain.low, gain.high)


def _words(gain: Interval | None) -> str:
    return f"{gain.percent:+.1f} % [{gain.low:.1f}, {gain.high:.1f}]" if gain else "not compared"
