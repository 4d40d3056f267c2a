"""`raddle tune`: the best settings for a model or a server on this machine, found and proven.

Each candidate is started as `raddle run` starts a program, under the same quota, and asked under load; `tuning` decides
what to measure next and what it all says.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, Final

import click

from raddle.planning.kinds import PolicyError
from raddle_operator.cli import manifests, offline, workloads
from raddle_operator.cli.manifests import Manifest, ManifestError
from raddle_operator.cli.offline import container, cpu_limit, default_policy, for_everything
from raddle_operator.local import allocators
from raddle_operator.local.container import Container
from raddle_operator.objects.quantities import parse as quantity
from raddle_operator.results.candidate import Value
from raddle_operator.results.objective import Kind, Objective
from raddle_tuner.analysis import subject as subjects
from raddle_tuner.commands.result import writing
from raddle_tuner.commands.tune import options
from raddle_tuner.commands.tune.progress import Progress
from raddle_tuner.search import search, statistics
from raddle_tuner.search.space import Case, Space, SpaceError, space
from raddle_tuner.trials import driving, ending, inputs, models
from raddle_tuner.trials.base import Base
from raddle_tuner.trials.http_load import Request
from raddle_tuner.trials.kserve import Inputs
from raddle_tuner.trials.measuring import Measuring
from raddle_tuner.trials.programs import Server, TrialError
from raddle_tuner.trials.record import Record, RecordError, question
from raddle_tuner.trials.subject import Model, Served, Subject

EPILOG = """\b
Examples:
  raddle tune model.onnx --limit 2 --rate 50 --p99 20ms --report result.html
  raddle tune model.onnx --limit 4 --objective throughput --runtime venv/bin/python
  raddle tune model.onnx --limit 2 --rate 50 --runner node --runtime app/node_modules
  raddle tune model.onnx --limit 2 --rate 50 --space threads.intraOp=1,2 --dry-run
  raddle tune --limit 2 --rate 20 --http http://127.0.0.1:{port}/predict --request cat.json \\
      -- python serve.py --port {port}
  raddle tune --limit 2 --rate 20 --kserve-v2 http://127.0.0.1:{port}/v2/models/ranker -- ./start.sh {port}

\b
A candidate is one combination of settings. Each is measured in several blocks (short runs).
Ctrl-C ends the measurement and prints the result so far. With --resume FILE, the same command continues from there.
Exit codes: 0 success, 1 nothing can be measured, 2 invalid input or usage, 130 interrupted by Ctrl-C, 143 by SIGTERM.
"""


class TuneError(click.ClickException):
    """Nothing can be measured; exit code 1."""


_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(epilog=EPILOG)
@click.option("--limit", metavar="CPUS", callback=cpu_limit, help="The container's CPU limit: 4, 500m. Default: none.")
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    metavar="NUMBER",
    help="Requests per second, with Poisson arrivals.",
)
@click.option("--p99", "p99_ms", metavar="TIME", callback=options.time(options.MS, "20ms"), help="Upper bound of p99.")
@click.option(
    "--objective",
    type=click.Choice([kind.value.lower() for kind in Kind]),
    help="Lowest p99 at the rate, most requests per second, or least CPU time per request at the rate."
    " Default: latency with a rate, else throughput.",
)
@click.option(
    "--budget",
    "budget_s",
    default="3m",
    show_default=True,
    callback=options.time(options.S, "3m"),
    metavar="TIME",
    help="Maximum total time.",
)
@click.option(
    "--trials",
    type=click.IntRange(2),
    default=64,
    show_default=True,
    metavar="COUNT",
    help="Maximum number of candidates.",
)
@click.option(
    "--space",
    "narrowed",
    multiple=True,
    metavar="PATH=A,B",
    callback=options.narrowed,
    help="Try only these values of a policy field.",
)
@click.option("-f", "--filename", "sources", multiple=True, help="File with the policy to start from.")
@click.option(
    "--runner",
    type=click.Choice(models.RUNNERS),
    help=f"Language of the program that runs the model. Default: {models.RUNNERS[0]}.",
)
@click.option(
    "--runtime",
    type=click.Path(exists=True, path_type=Path),
    help="The Python, folder with node_modules or libonnxruntime.so to use, depending on --runner. Default: Raddle's"
    " Python, the current folder or the loader's library.",
)
@click.option("--inputs", "npz", type=_FILE, help="An .npz file with the model's inputs. Default: generated.")
@click.option(
    "--shape", "shapes", multiple=True, metavar="NAME=1,3", callback=options.shapes, help="Shape of a generated input."
)
@click.option(
    "--http",
    "url",
    metavar="URL",
    callback=options.url,
    help="Tune the server that COMMAND starts, at this URL.",
)
@click.option(
    "--kserve-v2",
    "model_url",
    metavar="URL",
    callback=options.model_url,
    help="Tune the KServe v2 server that COMMAND starts; URL of its model: http://HOST:PORT/v2/models/NAME.",
)
@click.option("--request", "posted", type=_FILE, help="File to POST to the server. Default: a GET without a body.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME: VALUE", callback=options.headers, help="Header of the request."
)
@click.option(
    "--callers",
    type=click.IntRange(1),
    metavar="COUNT",
    help="Number of concurrent clients of a server, without --rate. Default: the number of its CPUs.",
)
@click.option(
    "--start",
    "start_s",
    default="2m",
    show_default=True,
    callback=options.time(options.S, "2m"),
    metavar="TIME",
    help="Maximum time for the server or model to start.",
)
@click.option(
    "--resume",
    "record_path",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Save every block in this file, and continue from it after Ctrl-C or a crash.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be measured and how long it would take.")
@writing.options
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
    runner: str | None,
    runtime: Path | None,
    npz: Path | None,
    shapes: Mapping[str, inputs.Shape],
    url: str | None,
    model_url: str | None,
    posted: Path | None,
    headers: Mapping[str, str],
    callers: int | None,
    start_s: float,
    record_path: Path | None,
    dry_run: bool,
    form: str,
    report: Path | None,
    model_or_command: tuple[str, ...],
) -> None:
    """Find the best settings for a model or a server on this machine under a CPU limit."""
    aim = options.objective(objective, rate, p99_ms)
    options.check(
        url,
        model_url,
        request=posted,
        header=headers,
        callers=callers,
        inputs=npz,
        shape=shapes,
        runner=runner,
        runtime=runtime,
    )
    served = _request(url or model_url, posted, headers)
    with contextlib.ExitStack() as stack:
        stack.enter_context(ending.signals())
        base = baseline(limit, sources)
        subject: Subject
        if served is not None:
            kserve = Inputs(npz=npz, shapes=shapes) if model_url is not None else None
            server = Server(command=_command(model_or_command), request=served, kserve=kserve, start_s=start_s)
            subject = Served(server=server, callers=callers or base.callers)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raddle-tune-")))
            folder.chmod(0o755)
            subject = _model(
                model_or_command,
                models.Runner(language=runner or models.RUNNERS[0], runtime=runtime),
                folder,
                npz,
                shapes,
                start_s,
            )
        shown = Progress(budget_s)
        stack.enter_context(shown.shown())
        measuring = Measuring(start=subject.start(base, _once(shown.say)), say=shown.say, kept=subject.kept)
        with measuring:
            try:
                first = measuring.program(driving.BASELINE)
                searched = _space(base.case(first, subject.can, subject.max_inter_op), narrowed)
                driver = driving.Driver(measuring=measuring, budget_s=budget_s, told=shown.tell)
                start_s = first.started_s
                if record_path is not None and not dry_run:
                    key = base.key(subject.digest, aim, first)
                    asked = question(subject.name, subject.asked, key, searched, budget_s=budget_s, trials=trials)
                    driver.record = stack.enter_context(_record(record_path, asked, start_s, shown))
                    start_s = driver.record.start_s
                limits = search.Limits(seconds=driving.load_s(aim, budget_s, start_s), trials=trials)
                searches = not searched.axes or budget_s >= driving.enough_s(aim, start_s)
                tries = searches or _tried(aim, searched, limits) > 1
                for note in _too_short(aim, budget_s, start_s, tries=tries):
                    shown.say(note)
                if dry_run:
                    _say_plan(_tried(aim, searched, limits), searched, budget_s)
                    return
                result = driver.drive(search.tune(aim, searched, limits, driving.BASELINE))
            except (TrialError, search.BaselineError) as error:
                raise TuneError(str(error)) from None
            except (RecordError, inputs.InputError) as error:
                raise ManifestError(str(error)) from None
            except ending.EndedError as ended:
                shown.say("ended before anything was measured")
                sys.exit(ended.status)
        shown.close()
        writing.write(driving.tuning(subject, base, searched.case, first, result), form=form, report=report)
        if ending.status() and record_path is not None:
            shown.say(f"the same command continues where it ended; {record_path} holds all blocks")
        sys.exit(ending.status())


# --- what is tuned --------------------------------------------------------------------------------------------------


def baseline(limit: str | None, sources: Sequence[str] = ()) -> Base:
    """The limit, the policy as it stands, and this machine. Raises ManifestError unless there is exactly one policy."""
    policy = default_policy()
    if sources:
        result = [one for one in manifests.load(sources) if one.kind in workloads.POLICY_KINDS]
        if len(result) != 1:
            raise ManifestError(
                f"the files hold {len(result)} policies ({', '.join(workloads.POLICY_KINDS)}); give one"
            )
        policy = result[0]
    _, machine = offline.machine_of(None, Path("/"))
    assert machine is not None

    def applied(spec: Mapping[str, Any]) -> Container:
        changed = Manifest(file=policy.file, obj={**policy.obj, "spec": dict(spec)}, node=policy.node)
        (result,) = workloads.read_policies([changed])
        return container(limit, for_everything(result), Path("/"))

    cpus = None if limit is None else float(quantity(limit)) or None
    base = Base(
        spec=policy.obj.get("spec") or {},
        cpus=cpus,
        machine=machine,
        applied=applied,
        allocators=allocators.here(),
    )
    base.container(driving.BASELINE)
    return base


def _model(
    arguments: tuple[str, ...],
    runner: models.Runner,
    folder: Path,
    npz: Path | None,
    shapes: Mapping[str, inputs.Shape],
    start_s: float,
) -> Model:
    """Raises ClickException."""
    if len(arguments) > 1:
        raise click.UsageError(f"one model, not {len(arguments)}: {' '.join(arguments)}; for a server use --http URL")
    if not arguments:
        raise click.UsageError("which model? raddle tune model.onnx --limit 2 --rate 50, or a server with --http URL")
    try:
        model = subjects.model(Path(arguments[0]), runner, folder, npz=npz, shapes=shapes, start_s=start_s)
        runner.command(model.path, folder)
    except (inputs.InputError, models.RunnerError) as error:
        raise ManifestError(str(error)) from None
    return model


def _request(url: str | None, posted: Path | None, headers: Mapping[str, str]) -> Request | None:
    if url is None:
        return None
    kind = {"Content-Type": "application/json"} if posted is not None and posted.suffix == ".json" else {}
    return Request(url=url, file=str(posted) if posted else None, headers={**kind, **headers})


def _command(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Raises UsageError."""
    if not arguments:
        raise click.UsageError("which server? raddle tune --http URL --request FILE -- COMMAND")
    return arguments


def _space(case: Case, narrowed: Mapping[str, Sequence[Value]]) -> Space:
    try:
        return space(case, narrowed)
    except (SpaceError, PolicyError) as error:
        raise ManifestError(str(error)) from None


def _tried(aim: Objective, searched: Space, limits: search.Limits) -> int:
    """How many candidates are tried where none is better. It takes seconds where the budget is long."""
    candidates, _ = search.estimate(aim, searched, limits)
    return candidates


def _too_short(aim: Objective, budget_s: float, start_s: float, *, tries: bool) -> Iterator[str]:
    """Yields what the budget is too short for; `tries` is whether it holds another candidate than the plan."""
    enough_s, sure_s = driving.enough_s(aim, start_s), driving.sure_s(aim, start_s)
    if not tries:
        yield f"the budget is too short to try anything but the plan; use --budget {ceil(enough_s / 60)}m or more"
    if budget_s < sure_s:
        needed = statistics.bound_test(aim.p99_ms or 0.0, ()).needed
        yield (
            f"at {aim.rate:g} requests a second the budget may be too short for the {needed} requests to the winner "
            "that "
            f"are needed to prove a p99 below {aim.p99_ms:g} ms; use --budget {ceil(sure_s / 60)}m or more"
        )


def _record(path: Path, asked: Mapping[str, Any], start_s: float, shown: Progress) -> Record:
    """Raises RecordError."""
    record = Record.of(path, asked, start_s)
    if record.answers:
        shown.say(f"{path} has {len(record.answers)} blocks and {record.spent_s:.0f} s of the budget: continuing there")
    return record


# --- what is said ---------------------------------------------------------------------------------------------------


def _once(say: Callable[[str], None]) -> Callable[[str], None]:
    said: set[str] = set()

    def once(note: str) -> None:
        if note not in said:
            said.add(note)
            say(note)

    return once


def _say_plan(candidates: int, searched: Space, budget_s: float) -> None:
    most = f"{budget_s / 60:.3g} minutes at most"
    click.echo(f"{candidates} of {searched.size} candidates if none is better than the plan, {most}")
    for axis in searched.axes:
        click.echo(f"  {axis.name}: {', '.join(str(value) for value, _ in axis.choices)}")
    for name, why in searched.left_out:
        click.echo(f"  {name}: not searched: {why}")
