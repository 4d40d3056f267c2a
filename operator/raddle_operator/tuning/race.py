"""A race: candidates measured in turns, a block of each in a round, of which those surely behind leave.

Every second round goes backwards (ABBA for two), so that a machine that becomes steadily faster or slower favours none,
and all blocks of a round meet the same arrivals.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Final

import numpy as np

from raddle_operator.tuning.book import Answer, Book
from raddle_operator.tuning.candidate import Candidate
from raddle_operator.tuning.measured import Ask
from raddle_operator.tuning.statistics import Noise, chance

# A first round ends before this share of the budget is spent.
_FIRST_UNTIL: Final = 0.7


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
    first round may take more, but for what a proof needs: without it the order stays. One that breaks the objective's
    bound leaves, unless all do.
    """
    left = book.known(candidates)
    losses: dict[Candidate, list[float]] = {candidate: [] for candidate in left}
    for number in range(rounds):
        if len(left) < 2 or book.rounds_until(until if number else _FIRST_UNTIL, len(left)) < 1:
            break
        turns = left[::-1] if number % 2 else left
        for candidate, loss in zip(turns, (yield from book.round(turns, phase)), strict=True):
            losses[candidate].append(loss)
        left = [candidate for candidate in left if not isinf(losses[candidate][-1])]
        left = [candidate for candidate in left if not book.breaks_bound(candidate)] or left
        ranking = _ranked(book, left, losses)
        left = [
            candidate
            for candidate in left
            if candidate == ranking.order[0] or ranking.behind(candidate, ranking.order[0], book.noise) >= error
        ]
    return _ranked(book, left, losses)


def _ranked(book: Book, left: Sequence[Candidate], losses: dict[Candidate, list[float]]) -> Ranking:
    """The lowest mean loss first, and those that seem to break the bound last."""

    def place(candidate: Candidate) -> tuple[bool, float]:
        return book.seems_late(candidate), float(np.mean(losses[candidate] or [0.0]))

    return Ranking(tuple(sorted(left, key=place)), losses)
