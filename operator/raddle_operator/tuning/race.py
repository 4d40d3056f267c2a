"""A race: candidates measured in turns, a block of each in a round, of which those surely behind leave.

Every second round goes backwards (ABBA for two), so that a machine that becomes steadily faster or slower favours none,
and all blocks of a round meet the same arrivals.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import isinf

import numpy as np

from raddle_operator.tuning.book import Answer, Book
from raddle_operator.tuning.candidate import Candidate
from raddle_operator.tuning.measured import Ask
from raddle_operator.tuning.statistics import Noise, chance


@dataclass(frozen=True, slots=True)
class Ranking:
    """`order` are those that are left, the best first; `losses` what each had, round by round, as long as it ran."""

    order: tuple[Candidate, ...]
    losses: dict[Candidate, list[float]]

    def behind(self, one: Candidate, other: Candidate, noise: Noise) -> float:
        """How likely `one` is as far behind the other, or farther, if they are equal; 1 where they never met."""
        differences = [a - b for a, b in zip(self.losses[one], self.losses[other], strict=False)]
        return chance(differences, noise) if differences else 1.0


def race(
    book: Book, candidates: Sequence[Candidate], phase: str, *, rounds: int, until: float, error: float
) -> Generator[Ask, Answer, Ranking]:
    """The candidates' ranking. `error` is how likely an equal one leaves in a round.

    It ends when one is left, after `rounds`, or where another round would take more than this share of the budget; the
    first round is always run. One that breaks the objective's bound leaves, unless all do.
    """
    left = book.known(candidates)
    losses: dict[Candidate, list[float]] = {candidate: [] for candidate in left}
    for number in range(rounds):
        if len(left) < 2 or (number and not book.rounds_until(until, len(left))):
            break
        turns = left[::-1] if number % 2 else left
        for candidate, loss in zip(turns, (yield from book.round(turns, phase)), strict=True):
            losses[candidate].append(loss)
        left = [candidate for candidate in left if not isinf(losses[candidate][-1])]
        left = [candidate for candidate in left if not book.breaks_bound(candidate)] or left
        ranking = _ranked(left, losses)
        left = [
            candidate
            for candidate in left
            if candidate == ranking.order[0] or ranking.behind(candidate, ranking.order[0], book.noise) >= error
        ]
    return _ranked(left, losses)


def _ranked(left: Sequence[Candidate], losses: dict[Candidate, list[float]]) -> Ranking:
    return Ranking(tuple(sorted(left, key=lambda candidate: float(np.mean(losses[candidate] or [0.0])))), losses)
