"""`raddle tune`: the best settings for a model or a server on this machine, found and proven.

Each candidate is started as `raddle run` starts a program, under the same quota, and asked under load; `tuning` decides
what to measure next and what it all says.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import math
import os
import re
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import yaml

from raddle.cpus.topology import Machine
from raddle.planning.kinds import PolicyError
from raddle.planning.planner import Budget
from raddle_operator.cli import manifests, plan, workloads
from raddle_operator.cli.manifests import Manifest, ManifestError
from raddle_operator.cli.run import container, cpu_limit, default_policy, for_everything
from raddle_operator.cli.tuned import writing
from raddle_operator.local.container import Container
from raddle_operator.objects.quantities import parse as quantity
from raddle_operator.trials import inputs as model_inputs
from raddle_operator.trials import models, programs
from raddle_operator.trials.http_load import Request
from raddle_operator.trials.measuring import Measuring, Start
from raddle_operator.trials.programs import Program, TrialError
from raddle_operator.tuning import search
from raddle_operator.tuning.candidate import Candidate, Value
from raddle_operator.tuning.document import Tuning
from raddle_operator.tuning.key import Key, NodeClass
from raddle_operator.tuning.measured import Ask, Block, Failure
from raddle_operator.tuning.objective import Kind, Objective
from raddle_operator.tuning.space import Case, Space, SpaceError, space

EPILOG = """\b
Examples:
  raddle tune model.onnx --limit 2 --rate 50 --p99 20ms --report tuned.html
  raddle tune model.onnx --limit 4 --objective throughput --runtime venv/bin/python
  raddle tune model.onnx --limit 2 --rate 50 --space threads.intraOp=1,2 --dry-run
  raddle tune --limit 2 --rate 20 --http http://127.0.0.1:{port}/predict --request cat.json \\
      -- python serve.py --port {port}

\b
Ctrl-C ends the measuring; what is known until then is said.
Exit codes: 0 done, 1 it can't be measured, 2 bad input or usage, 130 ended by Ctrl-C.
"""

_MS: Final = {"us": 1e-3, "ms": 1.0, "s": 1e3}
_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0}
_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)([a-z]+)")
# What a block takes beside its load: warm-up, a pause, and its share of the program's next start.
_BESIDE_S: Final = 0.6
# How the shim tells of it, on standard error.
_SHIM_SAID: Final = re.compile(r"raddle: onnxruntime (\d+(?:\.\d+)+)")
_BASELINE: Final = Candidate()


class TuneError(click.ClickException):
    """It can't be measured; exit code 1."""


class _EndedError(BaseException):
    """A signal that asks for an end; `status` is the exit status for it."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


def _amount(units: Mapping[str, float], example: str) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    def parsed(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
        del ctx, param
        if value is None:
            return None
        found = _AMOUNT.fullmatch(value)
        if found is None or found[2] not in units or not float(found[1]):
            raise click.BadParameter(f"{value!r} is no time; write it as {example}, in {', '.join(units)}")
        return float(found[1]) * units[found[2]]

    return parsed


def _narrowed(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, list[Value]]:
    del ctx, param
    found: dict[str, list[Value]] = {}
    for value in values:
        path, sign, words = value.partition("=")
        if not sign or not path:
            raise click.BadParameter(f"{value!r} is no setting with its values; write threads.intraOp=1,2,4")
        found[path] = [yaml.safe_load(word) for word in words.split(",") if word]
    return found


def _shapes(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, model_inputs.Shape]:
    del ctx, param
    try:
        return dict(model_inputs.parsed_shape(value) for value in values)
    except model_inputs.InputError as error:
        raise click.BadParameter(str(error)) from None


_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(epilog=EPILOG)
@click.option("--limit", metavar="CPUS", callback=cpu_limit, help="The container's limits.cpu: 4, 500m. Absent: none.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Requests a second, which arrive by chance.")
@click.option("--p99", "p99_ms", metavar="TIME", callback=_amount(_MS, "20ms"), help="The bound that p99 must keep.")
@click.option(
    "--objective",
    type=click.Choice([kind.value.lower() for kind in Kind]),
    help="What is best: the least p99 at the rate, the most requests a second, the least CPU a request at the rate."
    " Absent: latency with a rate, else throughput.",
)
@click.option("--budget", "budget_s", default="3m", show_default=True, callback=_amount(_S, "3m"), metavar="TIME")
@click.option("--trials", type=click.IntRange(2), default=64, show_default=True, help="Candidates at most.")
@click.option("--space", "narrowed", multiple=True, metavar="PATH=A,B", callback=_narrowed, help="Only these values.")
@click.option("-f", "--filename", "sources", multiple=True, help="File with the policy that is the baseline.")
@click.option(
    "--runtime",
    type=click.Path(exists=True, path_type=Path),
    help="The Python that has the model's runtime. Absent: Raddle's own.",
)
@click.option("--inputs", "npz", type=_FILE, help="An .npz file with the model's inputs. Absent: they are made.")
@click.option(
    "--shape", "shapes", multiple=True, metavar="NAME=1,3", callback=_shapes, help="Of an input that is made."
)
@click.option("--http", "url", metavar="URL", help="Tune the server that COMMAND starts, asked there.")
@click.option("--request", "posted", type=_FILE, help="What is posted to the server, as it is. Absent: a GET.")
@click.option("--header", "headers", multiple=True, metavar="NAME: VALUE", help="Of the request to the server.")
@click.option("--callers", type=click.IntRange(1), help="Who ask the server at once without a rate. Absent: its CPUs.")
@click.option(
    "--start",
    "start_s",
    default="2m",
    show_default=True,
    callback=_amount(_S, "2m"),
    metavar="TIME",
    help="How long a program may take to come up.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be measured, and for how long.")
@click.option("-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    callback=writing.report_path,
    help="Write a page (FILE.html), its pictures (.svg) or the JSON (.json) too.",
)
@click.argument("model_or_command", metavar="MODEL | -- COMMAND", nargs=-1, type=click.UNPROCESSED)
def tune(
    limit: str | None,
    rate: float | None,
    p99_ms: float | None,
    objective: str | None,
    budget_s: float,
    trials: int,
    narrowed: Mapping[str, Sequence[Value]],
    sources: Sequence[str],
    runtime: Path | None,
    npz: Path | None,
    shapes: Mapping[str, model_inputs.Shape],
    url: str | None,
    posted: Path | None,
    headers: Sequence[str],
    callers: int | None,
    start_s: float,
    dry_run: bool,
    form: str,
    report: Path | None,
    model_or_command: tuple[str, ...],
) -> None:
    """Find the best settings for a model, or a server, on this machine under a CPU limit."""
    aim = _objective(objective, rate, p99_ms)
    with contextlib.ExitStack() as stack:
        base = _Base.read(limit, sources)
        subject: _Model | _Served
        if url is not None:
            subject = _Served.of(model_or_command, url, posted, headers, start_s, callers or base.callers)
        else:
            if posted is not None or headers:
                raise click.UsageError("--request and --header are for a server; name it with --http URL")
            runner = models.Runner(runtime=runtime)
            subject = _Model.of(model_or_command, runner, npz, shapes, start_s, stack)
        measuring = stack.enter_context(Measuring(start=subject.start(base), say=_say, kept=subject.kept))
        status = 0
        with _signals():
            try:
                first = measuring.program(_BASELINE)
                searched = _space(base.case(first, subject.can), narrowed)
                limits = search.Limits(seconds=_load_s(aim, budget_s), trials=trials)
                if dry_run:
                    _say_plan(aim, searched, limits, budget_s)
                    return
                driver = _Driver(measuring=measuring, budget_s=budget_s)
                result = search.drive(search.tune(aim, searched, limits, _BASELINE), driver.measure)
                status = driver.status
            except (TrialError, search.BaselineError) as error:
                raise TuneError(str(error)) from None
            except _EndedError as ended:
                sys.exit(ended.status)
    key = base.key(subject.digest, aim, first)
    finished = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = Tuning(name=subject.name, finished=finished, key=key, result=result, planned=_planned(searched))
    writing.write(found, form=form, report=report)
    sys.exit(status)


def _say(note: str) -> None:
    click.echo(f"raddle tune: {note}", err=True)


def _objective(name: str | None, rate: float | None, p99_ms: float | None) -> Objective:
    kind = Kind(name.capitalize()) if name else (Kind.LATENCY if rate is not None else Kind.THROUGHPUT)
    if kind is not Kind.THROUGHPUT and rate is None:
        raise click.UsageError(f"--objective {kind.value.lower()} needs --rate: at how many requests a second?")
    return Objective(kind=kind, rate=rate, p99_ms=p99_ms)


def _space(case: Case, narrowed: Mapping[str, Sequence[Value]]) -> Space:
    try:
        return space(case, narrowed)
    except (SpaceError, PolicyError) as error:
        raise ManifestError(str(error)) from None


def _load_s(aim: Objective, budget_s: float) -> float:
    """Seconds of load that fit into the budget, beside what each block takes besides."""
    block_s = 2.0 if aim.rate is None or aim.kind is Kind.THROUGHPUT else max(1.0, min(10.0, 100 / aim.rate))
    return budget_s * block_s / (1.25 * block_s + _BESIDE_S)


# --- what every candidate starts from -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """The limit, the policy as it stands, and this machine."""

    limit: str | None
    policy: Manifest
    machine: Machine

    @classmethod
    def read(cls, limit: str | None, sources: Sequence[str]) -> _Base:
        """Raises ManifestError unless there is exactly one policy."""
        policy = default_policy()
        if sources:
            found = [one for one in manifests.load(sources) if one.kind in workloads.POLICY_KINDS]
            if len(found) != 1:
                raise ManifestError(
                    f"the files hold {len(found)} policies ({', '.join(workloads.POLICY_KINDS)}); give one"
                )
            policy = found[0]
        _, machine = plan.machine_of(None, Path("/"))
        assert machine is not None
        base = cls(limit=limit, policy=policy, machine=machine)
        base.container(_BASELINE)
        return base

    @property
    def cpus(self) -> float | None:
        """The limit, None without one."""
        return None if self.limit is None else float(quantity(self.limit)) or None

    @property
    def callers(self) -> int:
        """As many as there are CPUs."""
        return max(1, math.ceil(self.cpus or len(os.sched_getaffinity(0))))

    def container(self, candidate: Candidate) -> Container:
        """What the candidate's container gets here. Raises ManifestError."""
        spec = _over(self.policy.obj.get("spec") or {}, candidate.spec())
        manifest = Manifest(file=self.policy.file, obj={**self.policy.obj, "spec": spec}, node=self.policy.node)
        (policy,) = workloads.read_policies([manifest])
        return container(self.limit, for_everything(policy), Path("/"))

    def case(self, first: Program, can: tuple[str, ...]) -> Case:
        """What is searched, by what the first program says of itself."""
        said = first.said
        version = said.get("version", "") if said.get("runtime") == "onnxruntime" else ""
        shim = _SHIM_SAID.search(first.processes.output())
        version = version or (shim[1] if shim else "")
        because = "no CPU limit" if self.cpus is None else f"limits.cpu {self.limit}"
        return Case(
            machine=self.machine,
            budget=Budget(quota_cpus=self.cpus, because=because),
            spec=self.policy.obj.get("spec") or {},
            onnxruntime=tuple(map(int, re.findall(r"\d+", version)[:3])) or None,
            providers=tuple(said.get("providers") or ("CPUExecutionProvider",)),
            can=can,
        )

    def key(self, digest: str, aim: Objective, first: Program) -> Key:
        """What the result is valid for."""
        return Key(
            model=digest,
            image="",
            node_class=NodeClass.of(self.machine),
            limit_cpus=self.cpus,
            objective=aim,
            runtime=str(first.said.get("runtime", "")),
            runtime_version=str(first.said.get("version", "")),
        )


def _over(spec: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(spec)
    for name, value in patch.items():
        below = made.get(name)
        made[name] = _over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return made


# --- what is tuned --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """A model alone, by a runner."""

    path: Path
    runner: models.Runner
    inputs: Path
    start_s: float
    kept: int = 4

    @classmethod
    def of(
        cls,
        arguments: tuple[str, ...],
        runner: models.Runner,
        npz: Path | None,
        shapes: Mapping[str, model_inputs.Shape],
        start_s: float,
        stack: contextlib.ExitStack,
    ) -> _Model:
        """Reads the model's inputs and writes them for the runners. Raises ClickException."""
        if len(arguments) != 1:
            raise click.UsageError(
                "which model? raddle tune model.onnx --limit 2 --rate 50, or a server with --http URL"
            )
        path = Path(arguments[0])
        try:
            wanted = model_inputs.read(path)
            arrays = model_inputs.made(wanted, shapes) if npz is None else model_inputs.read_npz(npz, wanted)
            runner.command(path, Path())
        except (model_inputs.InputError, models.RunnerError) as error:
            raise ManifestError(str(error)) from None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raddle-tune-")))
        folder.chmod(0o755)
        models.write_inputs(folder, arrays)
        return cls(path=path, runner=runner, inputs=folder, start_s=start_s)

    @property
    def name(self) -> str:
        """For people."""
        return self.path.name

    @property
    def can(self) -> tuple[str, ...]:
        """What the runner takes itself."""
        return models.CAN[self.runner.language]

    @property
    def digest(self) -> str:
        """Of the model's file."""
        with self.path.open("rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()

    def start(self, base: _Base) -> Start:
        """Starts a candidate's runners."""

        def start(candidate: Candidate) -> contextlib.AbstractContextManager[Program]:
            program = candidate.program()
            command = self.runner.command(self.path, self.inputs, io_binding=bool(program.get("ioBinding")))
            instances = int(program.get("instances", 1))
            return programs.runners(base.container(candidate), command, instances, _say_once(), start_s=self.start_s)

        return start


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """A server."""

    server: programs.Server
    callers: int

    @classmethod
    def of(
        cls,
        command: tuple[str, ...],
        url: str,
        posted: Path | None,
        headers: Sequence[str],
        start_s: float,
        callers: int,
    ) -> _Served:
        """Raises UsageError."""
        if not command:
            raise click.UsageError("which server? raddle tune --http URL --request FILE -- COMMAND")
        pairs = [header.partition(":") for header in headers]
        if any(not sign for _, sign, _ in pairs):
            raise click.UsageError("--header is NAME: VALUE")
        given = {name.strip(): value.strip() for name, _, value in pairs}
        if posted is not None and posted.suffix == ".json":
            given.setdefault("Content-Type", "application/json")
        request = Request(url=url, file=str(posted) if posted else None, headers=given)
        return cls(server=programs.Server(command=command, request=request, start_s=start_s), callers=callers)

    @property
    def name(self) -> str:
        """For people."""
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
    def digest(self) -> str:
        """Its models are its own."""
        return ""

    def start(self, base: _Base) -> Start:
        """Starts a candidate's server."""
        return lambda candidate: programs.server(base.container(candidate), self.server, self.callers, _say_once())


_said: Final[set[str]] = set()


def _say_once() -> Callable[[str], None]:
    def say(note: str) -> None:
        if note not in _said:
            _said.add(note)
            _say(note)

    return say


# --- driving --------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Driver:
    """Answers the search; `status` is the exit status, of a signal where one ended it."""

    measuring: Measuring
    budget_s: float
    status: int = 0
    begun_s: float = 0.0

    def measure(self, ask: Ask) -> Block | Failure | None:
        """None when the budget is used up or a signal has come."""
        self.begun_s = self.begun_s or time.monotonic()
        spent_s = time.monotonic() - self.begun_s
        if self.status or spent_s > self.budget_s:
            return None
        left_s = max(0.0, self.budget_s - spent_s)
        line = f"{ask.phase}: {ask.candidate.title}, {left_s:.0f} s left"
        terminal = sys.stderr.isatty()
        click.echo(f"\r\033[K{line}" if terminal else f"raddle tune: {line}", err=True, nl=not terminal)
        try:
            answer = self.measuring.measure(ask)
        except _EndedError as ended:
            self.status = ended.status
            return None
        if isinstance(answer, Failure):
            _say(f"{ask.candidate.title}: {answer.reason}")
        return answer


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM raise once; from then on what was begun is ended in order."""

    def end(number: int, _: object) -> None:
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)
        raise _EndedError(128 + number)

    before = {one: signal.signal(one, end) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


# --- what is said ---------------------------------------------------------------------------------------------------


def _say_plan(aim: Objective, searched: Space, limits: search.Limits, budget_s: float) -> None:
    candidates, _ = search.estimate(aim, searched, limits)
    click.echo(f"{candidates} of {searched.size} candidates, {budget_s / 60:.3g} minutes at most")
    for axis in searched.axes:
        click.echo(f"  {axis.name}: {', '.join(str(value) for value, _ in axis.choices)}")
    for name, why in searched.left_out:
        click.echo(f"  {name}: not searched: {why}")


def _planned(searched: Space) -> Candidate:
    _, made = searched.case.planned(_BASELINE)
    found: dict[str, Value] = {"threads.spinning": made.spinning.capitalize()}
    if made.intra_op is not None:
        found["threads.intraOp"] = made.intra_op
    return Candidate.of(found)
