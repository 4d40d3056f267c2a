"""A search driven: its requests answered by blocks measured here, within a budget of time, until a signal comes."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from raddle_operator.results.candidate import Candidate, Value
from raddle_operator.results.objective import Objective
from raddle_tuner.search import search, statistics
from raddle_tuner.search.blocks import Block, Failure, MeasurementRequest
from raddle_tuner.search.document import TuningResult
from raddle_tuner.search.result import Result
from raddle_tuner.search.space import Case
from raddle_tuner.trials import ending
from raddle_tuner.trials.base import Base
from raddle_tuner.trials.measuring import Measuring
from raddle_tuner.trials.programs import Program
from raddle_tuner.trials.record import Record, RecordError
from raddle_tuner.trials.subject import Subject

# The plan's own answer.
BASELINE: Final = Candidate()
# What a block takes beside its load and a start: warm-up and a pause.
_BESIDE_S: Final = 0.6
# At least so much of the load is the winner's, of those blocks that tell whether it keeps the bound.
_WINNERS: Final = 0.2


def load_s(aim: Objective, budget_s: float, start_s: float) -> float:
    """Seconds of load that fit into the budget, beside what each block takes besides.

    `start_s` is what the start of a program takes: most blocks need one.
    """
    beside_s = start_s + _BESIDE_S
    length_s = search.block_s(aim, budget_s - search.BLOCKS * beside_s)
    return budget_s * length_s / (length_s + beside_s)


def enough_s(aim: Objective, start_s: float) -> float:
    """The least budget in which more than the plan is measured, in seconds."""
    return search.BLOCKS * (search.block_s(aim, 0.0) + start_s + _BESIDE_S)


def sure_s(aim: Objective, start_s: float) -> float:
    """The least budget that holds the requests which make a bound certain, in seconds; 0 without one at a rate."""
    if aim.p99_ms is None or aim.rate is None:
        return 0.0
    seconds = statistics.bound_test(aim.p99_ms, ()).needed / (aim.rate * _WINNERS)
    return seconds * (1 + (start_s + _BESIDE_S) / search.block_s(aim, seconds))


@dataclass(slots=True, kw_only=True)
class Driver:
    """Answers a search, first by what was recorded, then by measuring, and records that.

    `told` is called before each block with what is asked and the seconds that are left of the budget.
    """

    measuring: Measuring
    budget_s: float
    told: Callable[[MeasurementRequest, float], None]
    record: Record | None = None
    begun_s: float = 0.0
    _disturbed: bool = False

    def drive(self, asking: search.Search) -> Result:
        """What the search comes to. Raises RecordError, BaselineError."""
        recorded = () if self.record is None else self.record.answers
        self.begun_s = time.monotonic() - (0.0 if self.record is None else self.record.spent_s)
        try:
            return search.drive(asking, self._measure, recorded)
        except search.ReplayError as error:
            raise RecordError(str(error)) from None

    def _measure(self, request: MeasurementRequest) -> Block | Failure | None:
        """None when the budget is used up or a signal has come."""
        spent_s = time.monotonic() - self.begun_s
        if ending.status() or spent_s > self.budget_s:
            return None
        self.told(request, self.budget_s - spent_s)
        try:
            answer = self.measuring.measure(request)
        except ending.EndedError:
            return None
        if isinstance(answer, Failure):
            if request.candidate == BASELINE:
                # The search ends by it, and says why; next time it may be another thing.
                return answer
            self.measuring.say(f"{request.candidate.title}: {answer.reason}")
        elif answer.disturbed and not self._disturbed:
            self._disturbed = True
            self.measuring.say(
                f"{', '.join(answer.disturbed)}: disturbed blocks are less precise, so the search takes longer"
            )
        if self.record is not None:
            try:
                self.record.add(request, answer, time.monotonic() - self.begun_s)
            except RecordError as error:
                self.measuring.say(f"{error}: blocks are no longer recorded")
                self.record = None
        return answer


def tuning(
    subject: Subject, base: Base, case: Case, first: Program, result: Result, *, image: str = ""
) -> TuningResult:
    """The result with what it is of. `first` is a program of the subject, `image` as in Key."""
    finished = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    key = base.key(subject.digest, result.objective, first, image)
    return TuningResult(name=subject.name, finished=finished, key=key, result=result, planned=_planned(case))


def _planned(case: Case) -> Candidate:
    _, made = case.planned(BASELINE)
    result: dict[str, Value] = {"threads.spinning": made.spinning.capitalize()}
    if made.intra_op is not None:
        result["threads.intraOp"] = made.intra_op
    return Candidate.of(result)
