"""What was measured so far, and what the budget still allows."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass, field
from math import inf, log
from typing import Final

from raddle.planning.kinds import PolicyError
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Kind, Objective
from raddle_operator.results.verdict import BoundTest
from raddle_tuner.search import statistics
from raddle_tuner.search.blocks import Block, Failure, MeasurementRequest
from raddle_tuner.search.result import Trial
from raddle_tuner.search.space import Case
from raddle_tuner.search.statistics import Noise

# What a driver sends for a request; None: someone wants the search to end with what is known.
MeasurementResult = Block | Failure | None
Measuring = Generator[MeasurementRequest, MeasurementResult, None]

# A block has so many requests at the objective's rate, within these seconds: more of them know their own figure better,
# shorter ones are nearer to each other.
_QUERIES: Final = 100
_BLOCK_S: Final = (1.0, 10.0)
# At rates so low that this comes to less, a block lasts longer.
_FEWER_QUERIES: Final = 20
# Blocks are as much shorter as it takes to have so many: with fewer the noise alone takes most of the budget.
BLOCKS: Final = 40
_LEAST_QUERIES: Final = 5
CLOSED_S: Final = 2.0
# Answers that each caller of a closed block gets: at least, and where the budget has room.
_ANSWERS: Final = (2.0, 5.0)
# A disturbed block is measured again so often, then taken as it is; not at all where the machine is hardly ever quiet.
_REPEATS: Final = 2
_HARDLY_QUIET: Final = 0.6
_FIRST_BLOCKS: Final = 8


class BudgetError(Exception):
    """The budget is used up, or someone wants an end."""


class BaselineError(Exception):
    """The baseline itself can't be measured, so that there is nothing to compare with; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a search may take: seconds of measured load and candidates, the plan's own among them."""

    seconds: float = 180.0
    trials: int = 64


def block_s(objective: Objective, seconds: float = inf, answer_s: float = 0.0) -> float:
    """How long a block is where there are so many seconds of load, in seconds.

    `answer_s` is how long a caller that follows its last answer waits for the next one.
    """
    if objective.kind is Kind.THROUGHPUT or objective.rate is None:
        least, most = (max(CLOSED_S, answers * answer_s) for answers in _ANSWERS)
    else:
        short, long = _BLOCK_S
        least = max(short, _LEAST_QUERIES / objective.rate)
        most = max(short, min(long, _QUERIES / objective.rate), _FEWER_QUERIES / objective.rate)
    return max(least, min(most, seconds / BLOCKS))


@dataclass(slots=True)
class Measurements:
    """All blocks of one search, by candidate. `noise` is known after the A/A; `seed` is that of the newest arrivals.

    `answer_s` is how long the baseline takes to answer, 0 where that is not known. `remarks` are what the user is to be
    told of the search.
    """

    case: Case
    objective: Objective
    limits: Limits
    baseline: Candidate
    noise: Noise = field(default_factory=lambda: Noise(0.0, 1))
    spent_s: float = 0.0
    measured: int = 0
    disturbed: list[str] = field(default_factory=list)
    blocks: dict[Candidate, list[tuple[MeasurementRequest, Block]]] = field(default_factory=dict)
    skipped: dict[Candidate, str] = field(default_factory=dict)
    seed: int = 0
    answer_s: float = 0.0
    remarks: list[str] = field(default_factory=list)
    _keys: dict[Hashable, Candidate] = field(default_factory=dict)

    @property
    def rate(self) -> float | None:
        """Requests a second that the objective is about; None: as many as are served."""
        return None if self.objective.kind is Kind.THROUGHPUT else self.objective.rate

    @property
    def block_s(self) -> float:
        """How long a block is, in seconds."""
        return block_s(self.objective, self.limits.seconds, self.answer_s)

    def rounds_until(self, share: float, candidates: int) -> int:
        """Rounds of so many candidates that fit until this share of the budget is spent."""
        return int((share * self.limits.seconds - self.spent_s) / (candidates * self.block_s) + 1e-9)

    def known(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates that can be measured, each once: of those that come to the same, the one met first.

        Those that can't be planned are skipped with the reason, and so are new ones when the trials are used up.
        """
        result: dict[Candidate, None] = {}
        for candidate in candidates:
            try:
                same = self._keys.setdefault(self.case.key(candidate), candidate)
            except PolicyError as error:
                self.skipped.setdefault(candidate, str(error))
                continue
            if same in self.skipped:
                continue
            if same not in self.blocks and self.full:
                self.skipped[same] = f"the budget of {self.limits.trials} trials was used up"
                continue
            self.blocks.setdefault(same, [])
            result[same] = None
        return list(result)

    @property
    def full(self) -> bool:
        """Whether as many candidates were met as may be measured."""
        return len(self.blocks) >= self.limits.trials

    def round(
        self, candidates: Sequence[Candidate], phase: str, seed: int | None = None, fresh: int = 0
    ) -> Generator[MeasurementRequest, MeasurementResult, list[float]]:
        """The losses of one block of each, with the same arrivals, in this order; inf for one that failed.

        The arrivals are new ones where no seed is given. `fresh` of the programs, the last ones, are started for it.
        """
        self.seed += seed is None
        losses = []
        for place, candidate in enumerate(candidates):
            anew = place >= len(candidates) - fresh
            block = yield from self.measure(candidate, phase, self.rate, self.block_s, seed, fresh=anew)
            result = None if block is None else statistics.loss(self.objective.kind, block)
            if block is not None and result is None:
                self._skip(candidate, f"no {statistics.FIGURES[self.objective.kind]}: no responses, or not known")
            losses.append(float("inf") if result is None else result)
        return losses

    def measure(
        self,
        candidate: Candidate,
        phase: str,
        rate: float | None,
        seconds: float,
        seed: int | None = None,
        *,
        fresh: bool = False,
    ) -> Generator[MeasurementRequest, MeasurementResult, Block | None]:
        """One block, None where the candidate can't be measured.

        Raises BudgetError where it would be too much, BaselineError where the baseline fails.
        """
        if candidate in self.skipped:
            return None
        request = MeasurementRequest(
            candidate=candidate, rate=rate, seconds=seconds, seed=seed or self.seed, phase=phase, fresh=fresh
        )
        repeats = _REPEATS
        while self.spent_s + seconds <= self.limits.seconds:
            answer = yield request
            if answer is None:
                break
            if isinstance(answer, Failure):
                self._skip(candidate, answer.reason)
                return None
            self.spent_s += max(seconds, answer.seconds)
            self.measured += 1
            if answer.disturbed:
                self.disturbed.append(", ".join(answer.disturbed))
                repeats -= 1
                quiet = self.measured < _FIRST_BLOCKS or len(self.disturbed) < _HARDLY_QUIET * self.measured
                if repeats >= 0 and quiet:
                    continue
            self.blocks.setdefault(candidate, []).append((request, answer))
            return answer
        raise BudgetError

    def _skip(self, candidate: Candidate, reason: str) -> None:
        if candidate == self.baseline:
            raise BaselineError(f"{candidate.title} can't be measured: {reason}")
        self.skipped[candidate] = reason

    def under_load(self, candidate: Candidate, phases: Sequence[str] = ()) -> list[Block]:
        """The candidate's blocks at the objective's rate; of these phases only, where they are named."""
        return [
            block
            for request, block in self.blocks.get(candidate, ())
            if request.rate == self.rate and (not phases or request.phase in phases)
        ]

    def bound_test(self, candidate: Candidate, phases: Sequence[str] = ()) -> BoundTest | None:
        """What the blocks say of the objective's bound; None without one."""
        bound_ms = self.objective.p99_ms
        return None if bound_ms is None else statistics.bound_test(bound_ms, self.under_load(candidate, phases))

    def breaks_bound(self, candidate: Candidate) -> bool:
        """Whether the candidate's p99 is surely above the bound."""
        test = self.bound_test(candidate)
        return test is not None and statistics.surely_above(test)

    def seems_late(self, candidate: Candidate) -> bool:
        """Whether the candidate's p99 is above the bound in what was measured, however sure that is."""
        test = self.bound_test(candidate)
        return test is not None and statistics.seems_above(test)

    def late(self, block: Block) -> float:
        """By how much a block's p99 is above the objective's bound, as a logarithm; 0 where it is not."""
        bound_ms, p99_ms = self.objective.p99_ms, statistics.p99_ms([block])
        return max(0.0, log(p99_ms / bound_ms)) if bound_ms and p99_ms else 0.0

    def trials(self) -> tuple[Trial, ...]:
        """All candidates that were measured or skipped, in the order in which they were met."""
        return tuple(
            Trial(
                candidate=candidate,
                phases=tuple(dict.fromkeys(request.phase for request, _ in self.blocks.get(candidate, ()))),
                blocks=tuple(self.under_load(candidate)),
                skipped=self.skipped.get(candidate, ""),
            )
            for candidate in dict.fromkeys([*self.blocks, *self.skipped])
            if self.under_load(candidate) or candidate in self.skipped
        )
