"""Models on this machine, each under a CPU limit, measured as `raddle tune` measures them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from load import models as networks
from raddle_operator.local.container import Container
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.key import Key
from raddle_operator.results.objective import Kind, Objective
from raddle_tuner.analysis import subject as subjects
from raddle_tuner.commands.tune import command
from raddle_tuner.search.blocks import Block, Failure, MeasurementRequest
from raddle_tuner.search.space import Space, space
from raddle_tuner.trials.base import Base
from raddle_tuner.trials.measuring import Measuring
from raddle_tuner.trials.models import Runner
from raddle_tuner.trials.subject import Model

# What a program is told of itself here: that Raddle does nothing for it; that it is another process of the same.
STOCK: Final = Candidate.of({"program.stock": True})
AGAIN: Final = Candidate.of({"program.again": True})
# Each is measured in turns, and shall live on meanwhile.
_KEPT: Final = 8
# A disturbed block is measured again so often, then taken as it is, as a search does.
REPEATS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A model and a container's limits.cpu."""

    model: networks.Model
    limit: str


SITES: Final = {
    f"{model.name}-limit{limit}": Site(model=model, limit=limit)
    for model in (networks.MEDIUM, networks.BELOW_2MS)
    for limit in ("2", "1")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalModel:
    """A site whose programs can be measured. `key` is of the plan at no objective in particular.

    A block that others on the machine disturbed is measured again up to `repeats` times.
    """

    base: Base
    subject: Model
    measuring: Measuring
    space: Space
    key: Key
    repeats: int

    def measure(self, request: MeasurementRequest) -> Block | Failure:
        """A block, or why there is none."""
        for _ in range(self.repeats):
            result = self.measuring.measure(request)
            if isinstance(result, Failure) or not result.disturbed:
                return result
        return self.measuring.measure(request)


@contextlib.contextmanager
def at(site: Site, folder: Path, *, repeats: int = REPEATS) -> Iterator[LocalModel]:
    """The site with its model in the folder. Raises TrialError where the plan's own program does not come up."""
    with contextlib.ExitStack() as stack:
        inputs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raddle-tuning-")))
        inputs.chmod(0o755)
        subject = subjects.model(site.model.file(folder), Runner(), inputs)
        base = command.baseline(site.limit)
        started = subject.start(base, print)
        nothing = Container(cpus=base.cpus, variables={}, mounts=(), notes=())
        stock = subject.start(replace(base, applied=lambda _: nothing), print)
        measuring = Measuring(
            start=lambda candidate: (stock if candidate == STOCK else started)(candidate), say=print, kept=_KEPT
        )
        stack.enter_context(measuring)
        first = measuring.program(Candidate())
        searched = space(base.case(first, subject.can, subject.max_inter_op))
        key = base.key(subject.digest, Objective(kind=Kind.LATENCY), first)
        yield LocalModel(base=base, subject=subject, measuring=measuring, space=searched, key=key, repeats=repeats)
