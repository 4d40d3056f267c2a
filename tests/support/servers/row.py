"""A row of the table of servers, and where its program comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from runtimes import nodejs, pythons


class Way(StrEnum):
    """How a limit reaches a program, or why Raddle doesn't make it do so."""

    VARIABLE = "variable"
    SHIM = "shim"
    PRESET = "preset"
    ADVICE = "advice"
    LEFT_ALONE = "left alone"
    ITSELF = "reads the limit itself"


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a row starts: a package with its version, and what has to be there before `{here}/...` can be started.

    `made` returns that folder, and raises UnavailableError where this machine can't have it. Words of `command` may
    have {here}, {programs} (tests/servers/programs), {models} (small ones, model.onnx
    among them), {serving} (a service of tests/runtimes/processes), {work} (an empty folder), {limit} (CPUs) and {port}.
    """

    registry: str
    package: str
    version: str
    made: Callable[[], Path]
    command: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Request:
    """One unit of work that is asked of a server: asked again until the answer is a good one.

    Where several `processes` answer, it is asked until so many have: each says its `pid`, in a JSON object, which may
    have `says`.
    """

    path: str = "/"
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    processes: int = 1


@dataclass(frozen=True, kw_only=True)
class Row:
    """One server or library.

    Without a `request` the program does its work and prints a line of JSON, which may have `says`, a count that the
    library itself tells. Then for each line of its input it works for so many seconds and prints how many `units` in how
    many `seconds` it did, until its input ends; one that only waits for that end does not `repeats`. `most` is how many threads it may have with Raddle, all its
    processes together. `peak`: its threads end with the work, so the most at any time are counted, not those that stay.

    `container` is what the pod's spec says (image, command, args, env), for those who recognise it; `image_env` what the
    image sets; `policy` fields of the policy's spec, nothing of which is needed where a preset or a default does it.

    `by` is the variable, the setting or the flag that does it, as the table shows it; `variables` are those of the
    container that the way is proven by. `advised`: words added to the command that do what is advised.
    `why` says for the table what a reader has to know; where it is left alone, Raddle's own reason has `reason`.

    A row without a `way` shows that the program is never slower than stock under this limit.
    """

    name: str
    program: Program
    way: Way | None = None
    by: str = ""
    most: int = 0
    limit_cpus: int = 2
    request: Request | None = None
    variables: tuple[str, ...] = ()
    policy: Mapping[str, Any] = field(default_factory=dict)
    container: Mapping[str, Any] = field(default_factory=dict)
    image_env: Mapping[str, str] = field(default_factory=dict)
    advised: tuple[str, ...] = ()
    peak: bool = False
    repeats: bool = True
    why: str = ""
    reason: str = ""

    @property
    def label(self) -> str:
        """What no other row is called, and the option -k of pytest takes."""
        return self.name if self.way else f"{self.name}, limit-{self.limit_cpus}"


# --- where programs come from -----------------------------------------------------------------------------------------


def pypi(environment: Mapping[str, Any], package: str, *command: str) -> Program:
    """A program of a shared virtual environment (see `environment`); `package` is one of its pins, without a version."""
    pins = dict(pin.split("==") for pin in (*environment["packages"], *environment["unresolved"]))
    (version,) = (pins[pin] for pin in pins if pin.partition("[")[0] == package)
    return Program(
        registry="PyPI", package=package, version=version, made=lambda: _environment(environment), command=command
    )


def environment(
    name: str, *packages: str, python: str = "3.11", shared: bool = False, unresolved: tuple[str, ...] = ()
) -> Mapping[str, Any]:
    """A virtual environment, each package pinned (numpy==2.4.6); `shared`: one of other tests, by its name there.

    `unresolved` come without what they depend on.
    """
    digest = "" if shared else hashlib.sha256("\n".join((*packages, *unresolved)).encode()).hexdigest()[:8]
    full = name if shared else f"servers-{name}-{digest}"
    return {"name": full, "python": python, "packages": packages, "unresolved": unresolved}


def _environment(of: Mapping[str, Any]) -> Path:
    return pythons.venv(of["name"], of["python"], of["packages"], of["unresolved"]).parent


def npm(package: str, version: str, *command: str) -> Program:
    """A package of npm; {here} is its node_modules."""
    name = f"{package}@{version}"
    return Program(registry="npm", package=package, version=version, made=lambda: nodejs.package(name), command=command)
