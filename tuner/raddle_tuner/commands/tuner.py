"""`raddle tuner`: the container of an InferenceTuning's pod that measures what runs in the workload's one beside it.

What to measure comes as one JSON object. The whole document goes to standard output, as one line; its summary, or why
there is none, is the container's termination message.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from raddle import delivery
from raddle.cpus import cpuset
from raddle.planning.capacity import Budget
from raddle.planning.kinds import PolicyError
from raddle.process import cgroup
from raddle_operator.cli import offline
from raddle_operator.cli.manifests import ManifestError
from raddle_operator.cli.offline import default_policy, for_everything, of_container
from raddle_operator.injection.budget import container_budget, pod_resources
from raddle_operator.jobs.manifest import FOLDER, REQUEST_FOLDER
from raddle_operator.local import allocators
from raddle_operator.local.container import Container
from raddle_operator.objects.pods import pod_from_object
from raddle_operator.objects.policy import policy_from_object
from raddle_operator.objects.quantities import QuantityError
from raddle_operator.objects.reading import SpecError, as_object, mapping, text, texts
from raddle_operator.objects.tuning import TuningObject, tuning_from_object
from raddle_operator.results import summary
from raddle_operator.results.candidate import Candidate
from raddle_operator.results.objective import Kind, Objective
from raddle_operator.results.summary import Failed
from raddle_operator.results.verdict import Verdict
from raddle_tuner.analysis import subject as subjects
from raddle_tuner.search import search
from raddle_tuner.search.blocks import MeasurementRequest
from raddle_tuner.search.document import TuningResult, summary_of, to_document
from raddle_tuner.search.space import AXES, Case, Space, SpaceError, space
from raddle_tuner.trials import driving, ending, models
from raddle_tuner.trials.base import Base
from raddle_tuner.trials.http_load import Request
from raddle_tuner.trials.inputs import TORCHSCRIPT, AnyShapeError, InputError
from raddle_tuner.trials.load import LoadError
from raddle_tuner.trials.measuring import Measuring
from raddle_tuner.trials.pod import Pod
from raddle_tuner.trials.processes import TrialError
from raddle_tuner.trials.programs import Server
from raddle_tuner.trials.subject import Model, Served, Subject

# As many as InferenceTuning's schema allows.
_MOST_TRIALS: Final = 10000
# A large model takes minutes to load; one that takes longer leaves no time to measure.
_START_S: Final = 600.0
# What the tuner takes beside a model, generously.
_OWN_BYTES: Final = 256 << 20
_FOLDER: Final = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be measured.

    `container` is the workload's as in its pod, `policy` the one that is the baseline, None: all is left to Raddle.
    `confirmed` None: search; else this candidate is compared with the baseline. `guaranteed`: what its pod asks for
    does not keep the container from having CPUs for itself. `image` is a digest or "".
    """

    tuning: TuningObject
    container: Mapping[str, Any]
    policy: Mapping[str, Any] | None
    confirmed: Candidate | None
    guaranteed: bool
    image: str

    @classmethod
    def read(cls, given: str) -> Order:
        """The order that a JSON text is. Raises SpecError, naming the field."""
        try:
            result = as_object(json.loads(given), "order")
        except (ValueError, RecursionError):
            raise SpecError("order", f"{given[:64]!r} is not allowed; it must be JSON") from None
        confirmed = mapping(result, "confirm", "")
        for path, value in confirmed.items():
            if not isinstance(value, bool | int | float | str):
                raise SpecError(
                    f"confirm.{path}", f"{value!r} is not allowed; it must be a text, a number, true or false"
                )
        return cls(
            tuning=tuning_from_object(result.get("tuning")),
            container=as_object(result.get("container"), "container"),
            policy=None if result.get("policy") is None else mapping(result, "policy", ""),
            confirmed=None if result.get("confirm") is None else Candidate.of(confirmed),
            guaranteed=result.get("guaranteed") is not False,
            image=text(result, "image", ""),
        )

    @property
    def aim(self) -> Objective:
        """What the tuning aims at."""
        return Objective(kind=Kind(self.tuning.objective), rate=self.tuning.rate, p99_ms=self.tuning.p99_ms)

    @property
    def command(self) -> tuple[str, ...]:
        """The container's own command and args, () where the command is the image's."""
        own = texts(self.container, "command", "container")
        return (*own, *texts(self.container, "args", "container")) if own else ()


@click.command()
@click.option(
    "--order", "tuning", envvar="RADDLE_TUNING", show_envvar=True, required=True, help="What to measure, as JSON."
)
@click.option(
    "--folder", default=Path(FOLDER), show_default=True, type=_FOLDER, help="The folder that both containers mount."
)
@click.option(
    "--request",
    default=Path(REQUEST_FOLDER),
    show_default=True,
    type=_FOLDER,
    help="Where the request's ConfigMap is mounted.",
)
@click.option(
    "--message",
    default=Path("/dev/termination-log"),
    show_default=True,
    type=_FOLDER,
    help="The container's termination message.",
)
def tuner(tuning: str, folder: Path, request: Path, message: Path) -> None:
    """Run the measurements of an InferenceTuning, on the workload's container in the same pod."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(ending.signals())
        try:
            result = _measured(Order.read(tuning), folder, request, stack)
            ended = _last_words(result, cut_short=bool(ending.status()))
            click.echo(json.dumps(to_document(result), separators=(",", ":")))
        except ending.EndedError:
            ended = Failed("ended before anything was measured")
        except _EXPECTED as error:
            ended = Failed(error.message if isinstance(error, click.ClickException) else str(error).strip())
        message.write_text(summary.to_text(ended))
    if isinstance(ended, Failed):
        _say(ended.error)
        sys.exit(1)


_EXPECTED: Final = (
    InputError,
    LoadError,
    ManifestError,
    OSError,
    PolicyError,
    SpaceError,
    SpecError,
    TrialError,
    search.BaselineError,
)


def _last_words(results: TuningResult, *, cut_short: bool) -> summary.Summary | Failed:
    """The summary; why there is none where the rate could not be measured, or a signal came before the end."""
    result = results.result
    if cut_short and result.verdict is Verdict.INCONCLUSIVE:
        return Failed("ended before anything was certain: its pod was stopped")
    if result.verdict is Verdict.BOUND_NOT_MET and not any(trial.blocks for trial in result.trials):
        return Failed("; ".join(result.remarks))
    return summary_of(results)


def _measured(order: Order, folder: Path, request: Path, stack: contextlib.ExitStack) -> TuningResult:
    """What comes of the order. Raises one of _EXPECTED, EndedError."""
    aim, budget_s = order.aim, 60.0 * order.tuning.minutes
    _require_request(order, request)
    there = stack.enter_context(Pod(folder))
    there.await_ready()
    base = _base(order, there)
    given = base.container(driving.BASELINE)
    for note in given.notes:
        _say(note)
    if not given.variables:
        raise TrialError(f"there is nothing to tune: {'; '.join(given.notes) or 'no setting applies to it'}")
    subject = _subject(order, base, there, request, min(_START_S, budget_s))
    # One program at a time: they all have the container's memory, and a server its port.
    measuring = stack.enter_context(Measuring(start=subject.start(base, _say), say=_say, kept=1))
    driver = driving.Driver(measuring=measuring, budget_s=budget_s, told=_tell)
    first = measuring.program(driving.BASELINE)
    searched = _space(base.case(first, subject.can, subject.max_inter_op), order)
    limits = search.Limits(
        seconds=driving.load_s(aim, budget_s, first.started_s), trials=order.tuning.trials or _MOST_TRIALS
    )
    if order.confirmed is None:
        requests = search.tune(aim, searched, limits, driving.BASELINE)
    else:
        requests = search.confirm(aim, searched, order.confirmed, limits, driving.BASELINE)
    result = driver.drive(requests)
    measuring.close()
    return driving.tuning(subject, base, searched.case, first, result, image=order.image)


def _require_request(order: Order, request: Path) -> None:
    """Raises SpecError where the ConfigMap of the request or its key is missing: its volume is empty then."""
    server = order.tuning.server
    if server is not None and server.config_map and not (request / server.key).exists():
        raise SpecError(
            "spec.server.request.configMap", f"ConfigMap {server.config_map} does not exist or has no key {server.key}"
        )


def _base(order: Order, there: Pod) -> Base:
    """The container, its policy and this node."""
    name, machine = offline.machine_of(None, Path("/"))
    assert machine is not None
    policy = dict(order.policy or default_policy().obj)
    policy["metadata"] = {"namespace": order.tuning.namespace, **policy.get("metadata", {})}
    # What is tuned is not tuned already.
    spec = {name: value for name, value in mapping(policy, "spec", "policy").items() if name != "tuning"}
    # The mounts are the pod's, so whether it has the shim is decided.
    mounted = {mount.get("mountPath") for mount in order.container.get("volumeMounts") or ()}
    own = {name: value for name, value in order.container.items() if name not in ("volumeMounts", "volumeDevices")}

    def applied(changed: Mapping[str, Any]) -> Container:
        result = policy_from_object({**policy, "spec": dict(changed)})
        return of_container(own, for_everything(result), name, machine, shim=delivery.PRELOAD_FILE in mounted)

    budget = _budget(own, policy_from_object({**policy, "spec": spec}).policy.reserve_cpus)
    whole_cpus = budget.whole_cpus if order.guaranteed else 0
    if whole_cpus and cpuset.count(there.cpus()) == whole_cpus:
        # Nobody but the static CPU manager gives a container as many CPUs as it asks for.
        machine = machine._replace(kubelet=machine.kubelet._replace(cpu_manager_policy="static"))
    return Base(
        spec=spec,
        cpus=budget.quota_cpus,
        machine=machine,
        applied=applied,
        place=there.place,
        allocators=allocators.named(there.present(allocators.paths())),
        whole_cpus=whole_cpus,
    )


def _budget(container: Mapping[str, Any], reserve_cpus: float | None) -> Budget:
    """What the container may use, in a pod of its own of which the policy reserves CPUs. Raises SpecError."""
    result = pod_from_object({"metadata": {}, "spec": {"containers": [container]}})
    try:
        return container_budget(result.containers[0], pod_resources(result, reserve_cpus))
    except QuantityError as error:
        raise SpecError("container.resources", str(error)) from None


def _subject(order: Order, base: Base, there: Pod, request: Path, start_s: float) -> Subject:
    """The model or the server, as the workload's container has it."""
    server = order.tuning.server
    if server is None:
        return _model(order, there, start_s)
    command = server.command or order.command
    if not command:
        raise SpecError(
            "spec.server.command", "must be set: the container has no command, and the image's is not known"
        )
    file = there.folder / "request"
    if server.config_map:
        file = request / server.key
    else:
        file.write_text(server.body)
    asked = Request(url=server.url, file=str(file), headers={"Content-Type": server.content_type})
    return Served(server=Server(command=command, request=asked, start_s=start_s), callers=base.callers)


def _model(order: Order, there: Pod, start_s: float) -> Model:
    path, copy, inputs = order.tuning.model, there.folder / "model", there.folder / "inputs"
    if path.endswith(TORCHSCRIPT):
        raise SpecError("spec.model", f"{path} is TorchScript, which does not describe its inputs: tune its server")
    inputs.mkdir()
    runner = models.PodRunner.written(order.tuning.runner.lower(), there.folder, next(iter(order.command), ""))
    there.copied(path, copy)
    try:
        if said := too_large(copy.stat().st_size, cgroup.read_limits().memory_limit_bytes):
            raise SpecError("spec.model", f"{path} {said}")
        return subjects.model(Path(path), runner, inputs, file=copy, start_s=start_s)
    except AnyShapeError as error:
        raise SpecError(
            "spec.model", f"{error.problem}, which can't be generated: tune its server with spec.server"
        ) from None
    except InputError as error:
        raise InputError(str(error).replace(str(copy), path)) from None
    finally:
        copy.unlink()


def too_large(size_bytes: int, limit_bytes: int | None) -> str:
    """Why a model's file of this size can't be read within so much memory; "" where it can. None: no limit."""
    # The file, what it is parsed to, and the tuner itself.
    readable_bytes = None if limit_bytes is None else max(0, limit_bytes - _OWN_BYTES) // 2
    if readable_bytes is None or size_bytes <= readable_bytes:
        return ""
    return (
        f"has {size_bytes >> 20} MiB, and the tuner reads at most {readable_bytes >> 20}: keep its weights in an "
        "external file, as onnx.save does with save_as_external_data=True, or tune its server with spec.server"
    )


def _space(case: Case, order: Order) -> Space:
    """The space, of which the tuning may name the settings that are left."""
    wanted = order.tuning.space
    for name in wanted:
        if name not in AXES:
            raise SpaceError(f"spec.space: {name!r} is not a setting; known are {', '.join(AXES)}")
    return space(case, {name: () for name in AXES if wanted and name not in wanted})


def _say(note: str) -> None:
    click.echo(f"raddle tuner: {note}", err=True)


def _tell(asked: MeasurementRequest, left_s: float) -> None:
    _say(f"{asked.phase}: {asked.candidate.title}, {left_s:.0f} s left")
