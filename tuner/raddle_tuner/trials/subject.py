"""What is tuned: a model alone, or a server."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from raddle_operator.results.candidate import Candidate
from raddle_tuner.trials import models, programs
from raddle_tuner.trials.base import Base
from raddle_tuner.trials.measuring import Start
from raddle_tuner.trials.programs import Program


class Runner(Protocol):
    """How a model is run alone: `models.Runner` here, `models.PodRunner` in a tuning's pod."""

    @property
    def language(self) -> str:
        """One of models.RUNNERS."""

    def command(self, model: Path, inputs: Path, *, io_binding: bool = False) -> list[str]:
        """The command line, but for the socket."""


class Subject(Protocol):
    """One that can be tuned."""

    @property
    def name(self) -> str:
        """For people."""

    @property
    def can(self) -> tuple[str, ...]:
        """What it takes itself, as in Case."""

    @property
    def digest(self) -> str:
        """The model's, as in Key."""

    @property
    def asked(self) -> str:
        """A digest of what it is asked with."""

    @property
    def max_inter_op(self) -> int:
        """How many operators can run beside each other, as in Case."""

    @property
    def kept(self) -> int:
        """How many of its programs may live at the same time."""

    def start(self, base: Base, say: Callable[[str], None]) -> Start:
        """Starts a candidate's program. `say` is told what can't be had here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model alone, by a runner. `inputs` is a folder as `models.write_inputs` writes it, `digest` as in Key."""

    path: Path
    runner: Runner
    inputs: Path
    digest: str
    start_s: float = programs.START_S
    max_inter_op: int = 1
    kept: int = 4

    @property
    def name(self) -> str:
        """The file's."""
        return self.path.name

    @property
    def can(self) -> tuple[str, ...]:
        """What the runner takes itself."""
        return models.can(self.runner.language, self.path)

    @property
    def asked(self) -> str:
        """Of the inputs."""
        return _digest(*(path.read_bytes() for path in sorted(self.inputs.iterdir())))

    def start(self, base: Base, say: Callable[[str], None]) -> Start:
        """Starts a candidate's runners."""

        def start(candidate: Candidate) -> contextlib.AbstractContextManager[Program]:
            program = candidate.program()
            command = self.runner.command(self.path, self.inputs, io_binding=bool(program.get("ioBinding")))
            instances = int(program.get("instances", 1))
            given = base.container(candidate)
            return programs.runners(given, command, instances, say, place=base.place, start_s=self.start_s)

        return start


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server. `callers` ask it at the same time where each waits for its answer."""

    server: programs.Server
    callers: int

    @property
    def name(self) -> str:
        """Its command."""
        return shlex.join(self.server.command)

    @property
    def kept(self) -> int:
        """Of servers with a port of their own only one can live."""
        return 1 if self.server.own_port else 4

    @property
    def can(self) -> tuple[str, ...]:
        """Nothing: its settings are its own."""
        return ()

    @property
    def max_inter_op(self) -> int:
        """1: its models are its own."""
        return 1

    @property
    def digest(self) -> str:
        """Its models are its own."""
        return ""

    @property
    def asked(self) -> str:
        """Of the request."""
        request, kserve = self.server.request, self.server.kserve
        said = [request.url, dict(request.headers), dict(kserve.shapes) if kserve else {}]
        npz = kserve.npz.read_bytes() if kserve and kserve.npz else b""
        return _digest(json.dumps(said).encode(), request.body() or b"", npz)

    def start(self, base: Base, say: Callable[[str], None]) -> Start:
        """Starts a candidate's server."""
        return lambda candidate: programs.server(
            base.container(candidate), self.server, self.callers, say, place=base.place
        )


def _digest(*parts: bytes) -> str:
    result = hashlib.sha256()
    for part in parts:
        result.update(hashlib.sha256(part).digest())
    return "sha256:" + result.hexdigest()
