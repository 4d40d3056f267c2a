"""What people see while `raddle tune` measures, on standard error: nothing of it is in the way of the result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rich import progress
from rich.console import Console

from raddle_operator.results.candidate import Candidate
from raddle_tuner.search.blocks import MeasurementRequest

# Where there is no terminal, a line is written at each new phase, and after so long.
_LINES_S: Final = 10.0


@dataclass(slots=True)
class Progress:
    """A bar of the budget on a terminal, else a line now and then."""

    budget_s: float
    console: Console = field(default_factory=lambda: Console(stderr=True, highlight=False, soft_wrap=True))
    _seen: set[Candidate] = field(default_factory=set)
    _phase: str = ""
    _said_s: float = 0.0
    _bar: progress.Progress | None = None

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """The bar is there within."""
        if not self.console.is_terminal:
            yield
            return
        columns = (
            progress.TextColumn("[bold]{task.description}"),
            progress.BarColumn(bar_width=20),
            progress.TextColumn("{task.fields[note]}"),
        )
        # It is drawn between blocks only: what draws takes CPU time from what is measured.
        self._bar = progress.Progress(*columns, console=self.console, auto_refresh=False, transient=True)
        self._draw("starting", "the first program", self.budget_s)
        with self._bar:
            yield

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def say(self, note: str) -> None:
        """Writes a line that stays."""
        self.console.print(f"raddle tune: {note}", markup=False)

    def tell(self, request: MeasurementRequest, left_s: float) -> None:
        """What is measured next, and how much of the budget is left."""
        self._seen.add(request.candidate)
        count = len(self._seen)
        counted = f"{count} candidate{'s' if count > 1 else ''}, {_minutes(left_s)} left"
        now_s = time.monotonic()
        if self._bar is not None:
            self._draw(request.phase, f"{counted}: {request.candidate.title}", left_s)
        elif request.phase != self._phase or now_s - self._said_s > _LINES_S:
            self._phase, self._said_s = request.phase, now_s
            self.say(f"{request.phase}: {counted}: {request.candidate.title}")

    def _draw(self, phase: str, note: str, left_s: float) -> None:
        assert self._bar is not None
        if not self._bar.task_ids:
            self._bar.add_task("", total=self.budget_s, note="")
        (task,) = self._bar.task_ids
        done_s = max(0.0, self.budget_s - left_s)
        self._bar.update(task, description=f"{phase:13}", note=note, completed=done_s, refresh=True)


def _minutes(seconds: float) -> str:
    whole = max(0, round(seconds))
    return f"{whole // 60}:{whole % 60:02}"
