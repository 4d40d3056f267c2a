"""Blocks measured: what a search asks for, of programs that are started and kept as needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Self

from raddle_operator.results.candidate import Candidate
from raddle_tuner.search.blocks import CAPACITY, Block, Failure, MeasurementRequest
from raddle_tuner.trials import conditions
from raddle_tuner.trials.load import LoadError, LoadResult, LoadSpec
from raddle_tuner.trials.programs import Program, TrialError

# Those of a race; each holds the model in memory.
_KEPT: Final = 4
_WARM_UP_S: Final = 0.3
# Processes of one program differ, so one is not kept for long: it is started again once it has worked this many times
# as long as its start took.
_WORTH: Final = 4.0
# One of more refusals tells nothing of its settings.
_REFUSED_PERCENT: Final = 5.0

# Starts a candidate; may raise TrialError.
Start = Callable[[Candidate], AbstractContextManager[Program]]


@dataclass(slots=True)
class _Kept:
    program: Program
    stack: contextlib.ExitStack
    worked_s: float = 0.0


@dataclass(slots=True)
class Measuring:
    """Measures blocks, one at a time; as a context manager it leaves nothing behind.

    `kept` is how many programs live at the same time. All but the one that is measured are stopped meanwhile, so that
    no two candidates ever work at the same time. `say` is told what users should know of the answers.
    """

    start: Start
    say: Callable[[str], None]
    kept: int = _KEPT
    warm_up_s: float = _WARM_UP_S
    _programs: dict[Candidate, _Kept] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all programs."""
        while self._programs:
            self._end(next(iter(self._programs)))

    def measure(self, request: MeasurementRequest) -> Block | Failure:
        """What the block shows, or why there is none."""
        try:
            kept = self._working(request.candidate, fresh=request.fresh)
            try:
                block = _block(kept.program, request, self.warm_up_s, self.say)
            finally:
                kept.program.processes.pause()
            kept.worked_s += block.seconds
        except (TrialError, LoadError) as error:
            self._end(request.candidate)
            return Failure(str(error))
        except BaseException:
            self._end(request.candidate)
            raise
        return block

    def program(self, candidate: Candidate) -> Program:
        """The candidate's program, stopped; started where it isn't there. Raises TrialError."""
        program = self._working(candidate).program
        program.processes.pause()
        return program

    def _working(self, candidate: Candidate, *, fresh: bool = False) -> _Kept:
        """The candidate's program, as the one that was used last; no other works. `fresh`: it has not worked yet."""
        kept = self._programs.pop(candidate, None)
        if kept is not None and kept.worked_s > (0.0 if fresh else _WORTH * kept.program.started_s):
            kept.stack.close()
            kept = None
        if kept is None:
            while len(self._programs) >= self.kept:
                self._end(next(iter(self._programs)))
            stack = contextlib.ExitStack()
            kept = _Kept(stack.enter_context(self.start(candidate)), stack)
        else:
            kept.program.processes.resume()
        self._programs[candidate] = kept
        return kept

    def _end(self, candidate: Candidate) -> None:
        kept = self._programs.pop(candidate, None)
        if kept is not None:
            kept.stack.close()


def _block(program: Program, request: MeasurementRequest, warm_up_s: float, say: Callable[[str], None]) -> Block:
    processes = program.processes
    most = request.rate is None and request.phase == CAPACITY
    offer = LoadSpec(rate=request.rate, seconds=request.seconds, seed=request.seed, warm_up_s=warm_up_s, most=most)
    try:
        with program.caller.offered(offer) as seen_at_end:
            before = conditions.read(processes.usage())
            seen = seen_at_end()
            after = conditions.read(processes.usage())
    except LoadError:
        # That it has ended says more than that its answer did not come.
        processes.check()
        raise
    processes.check()
    _check_refusals(seen, say)
    meanwhile = conditions.between(before, after, seen.cpu_s)
    usage = meanwhile.usage
    # Without a quota none are counted.
    limited = after.usage.periods > 0
    return Block(
        latencies_ms=tuple(seen.latencies_ms),
        missed=seen.missed,
        seconds=seen.seconds,
        cpu_s=usage.cpu_s,
        periods=usage.periods if limited else None,
        throttled_periods=usage.throttled_periods if limited else None,
        throttled_s=usage.throttled_s if limited else None,
        disturbed=meanwhile.disturbed,
        conditions=tuple(meanwhile.figures),
    )


def _check_refusals(seen: LoadResult, say: Callable[[str], None]) -> None:
    """Tells of answers that were failures. Raises TrialError where they are many."""
    refused, asked = sum(seen.refused.values()), len(seen.latencies_ms)
    if not refused:
        return
    most = max(seen.refused, key=lambda one: seen.refused[one])
    said = f"{refused} of {asked} requests failed: {most}"
    if 100 * refused > _REFUSED_PERCENT * asked:
        raise TrialError(said)
    say(said)
