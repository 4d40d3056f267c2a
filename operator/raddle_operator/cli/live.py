"""What the processes of running containers got: by /opt/raddle/raddle in each, run with the user's own rights."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from raddle import delivery, env
from raddle.planning.policy import WITHOUT_SHIM
from raddle_operator.cli import cluster, output
from raddle_operator.cli.choice import Choice, pods
from raddle_operator.cli.picture.model import printable
from raddle_operator.injection import plan_annotations
from raddle_operator.kube import ApiError, Forbidden, Kube, NotFound, Object

AT_ONCE: Final = 16
TIMEOUT_S: Final = 20.0
NOT_FOUND: Final = (126, 127)
"""What some container runtimes end with where there is no such program."""
_MARK: Final = re.compile(r"([a-z]+) ([0-9][\w.+-]*): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one injected container said; `problem` is why it said nothing, "" where it did.

    `processes` are as the program prints them (docs/how-to/troubleshoot.md), made printable.
    """

    namespace: str
    pod: str
    container: str
    problem: str = ""
    processes: tuple[Mapping[str, Any], ...] = field(default=())

    @property
    def with_runtime(self) -> tuple[Mapping[str, Any], ...]:
        """The processes that have a runtime."""
        return tuple(one for one in self.processes if one.get("runtimes"))

    @property
    def reached(self) -> int:
        """How many of those are reached."""
        return sum(one.get("reached") is True for one in self.with_runtime)

    @property
    def runs_the_shim(self) -> bool:
        """Whether there are such processes, and all are reached."""
        return bool(self.with_runtime) and self.reached == len(self.with_runtime)

    @property
    def fails(self) -> bool:
        """Whether it said nothing, or has a process that is not reached."""
        return bool(self.problem) or self.reached < len(self.with_runtime)


def injected(pod: Object) -> list[str]:
    """The pod's containers that have a plan, in the annotations' order."""
    keys = (pod.get("metadata") or {}).get("annotations") or {}
    split = [plan_annotations.split(str(key)) for key in keys]
    return [container for prefix, container in split if prefix == env.PLAN_PREFIX]


async def of_choice(choice: Choice, kubeconfig: Path | None, context: str | None) -> list[Answer]:
    """What the injected containers of a choice say, in the API server's order. Raises ClickException."""
    async with cluster.connected(kubeconfig, context) as kube:
        return await _ask(kube, [pod async for pod in pods(kube, choice, f"{env.INJECTED_LABEL}=true")])


async def of_pod(pod: Object, kubeconfig: Path | None, context: str | None) -> list[Answer]:
    """What a pod's injected containers say. Raises ClickException."""
    async with cluster.connected(kubeconfig, context) as kube:
        return await _ask(kube, [pod])


async def _ask(kube: Kube, pods: Iterable[Object]) -> list[Answer]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(pod: Object, container: str) -> Answer:
        async with gate:
            return await ask(kube, pod, container)

    return await asyncio.gather(*(one(pod, container) for pod in pods for container in injected(pod)))


async def ask(kube: Kube, pod: Object, container: str) -> Answer:
    """What one container says."""
    metadata = pod["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace") or "default"
    processes: tuple[Mapping[str, Any], ...] = ()
    problem = _closed(pod, container) or _not_running(pod, container)
    if not problem:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                done = await kube.execute(name, namespace, container, (delivery.PROGRAM, "-o", "json"))
            if done.status in NOT_FOUND:
                problem = _MISSING
            else:
                processes, problem = read(done.stdout)
                problem = problem and (printable(done.stderr.decode("utf-8", "replace").strip()) or problem)
        except TimeoutError:
            problem = f"no answer within {TIMEOUT_S:g} s"
        except Forbidden:
            problem = "you can't run a command in it: that requires permission to get and create pods/exec"
        except NotFound:
            problem = "the pod is gone"
        except ApiError as error:
            problem = _MISSING if "no such file" in error.message else printable(error.message)
    return Answer(namespace=namespace, pod=name, container=container, problem=problem, processes=processes)


_MISSING: Final = (
    f"there is no {delivery.PROGRAM} in it: the shim's ConfigMap was created after the pod; recreate the pod"
)


def _closed(pod: Object, container: str) -> str:
    """Why no process of the container says anything, "" where the container has the shim."""
    mounts = _spec(pod, container).get("volumeMounts") or ()
    has_shim = any(mount.get("mountPath") == delivery.PRELOAD_FILE for mount in mounts)
    return "" if has_shim else f"it has no shim: {WITHOUT_SHIM}"


def _not_running(pod: Object, container: str) -> str:
    """Why a container does not run, "" where it does."""
    status = pod.get("status") or {}
    kinds = ("containerStatuses", "initContainerStatuses")
    states = [one.get("state") or {} for kind in kinds for one in status.get(kind) or () if one["name"] == container]
    if not states:
        return f"it does not run: the pod is {status.get('phase') or 'new'}"
    for state in ("waiting", "terminated"):
        if state in states[0]:
            return f"it does not run: {(states[0][state] or {}).get('reason') or state}"
    return ""


def _spec(pod: Object, container: str) -> Object:
    spec = pod.get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    result: Object = next((one for one in containers if one["name"] == container), {})
    return result


def read(said: bytes) -> tuple[tuple[Mapping[str, Any], ...], str]:
    """The processes of the program's JSON, and what is wrong where it is none. Never raises."""
    try:
        document = json.loads(said)
        if document["v"] != 1:
            return (), f"it answered in version {printable(str(document['v']))}, but this raddle reads version 1"
        return tuple(_clean(one) for one in document["processes"] if _is_process(one)), ""
    # What runs there may say anything; a deep nesting raises RecursionError.
    except (ValueError, TypeError, KeyError, RecursionError):
        return (), "its answer can't be read"


def _is_process(one: Any) -> bool:
    """Whether all that is looked at by its kind has it."""
    return (
        isinstance(one, dict)
        and isinstance(one.get("pid"), int)
        and isinstance(one.get("runtimes"), (list, NoneType))
        and isinstance(one.get("marks"), (list, NoneType))
        and isinstance(one.get("door"), (bool, NoneType))
    )


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {printable(key): _clean(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_clean(inner) for inner in value]
    return printable(value) if isinstance(value, str) else value


def got(process: Mapping[str, Any]) -> str:
    """In words what a process got, or why it is not reached."""
    if process.get("readable") is False:
        return "may not be read"
    if not process.get("runtimes"):
        return "-"
    counts = _pairs(process.get("counts"), " ")
    if process.get("reached") is not True:
        return "; ".join(filter(None, [f"not reached: {process.get('why')}", counts]))
    return "; ".join(filter(None, [*_marks(process), counts])) or "-"


def _marks(process: Mapping[str, Any]) -> list[str]:
    """A process's marks; what is none is left out."""
    return [mark for mark in process.get("marks") or () if isinstance(mark, str)]


def runtimes(answers: Iterable[Answer]) -> dict[str, tuple[str, str]]:
    """The runtime that each container has loaded, and its version, as far as a process of it says so."""
    marks = (
        (one.container, _MARK.match(mark))
        for one in answers
        for process in one.with_runtime
        for mark in _marks(process)
    )
    return {container: (match[1], match[2]) for container, match in marks if match is not None}


def _pairs(values: Any, between: str) -> str:
    return between.join(f"{name}={value}" for name, value in values.items()) if isinstance(values, dict) else ""


# --- printing -------------------------------------------------------------------------------------------------------


def show(console: Console, answers: Sequence[Answer]) -> None:
    """Prints each container of one pod with its processes."""
    for one in answers:
        console.print(f"\nlive, container [bold]{escape(one.container)}[/]: {escape(_summary(one))}", soft_wrap=True)
        if one.processes:
            table = output.table("pid", "command", "door", "threads", "runtimes", "detail")
            table.columns[-1].header = "SETTINGS"
            for process in one.processes:
                table.add_row(*(escape(cell) for cell in _row(process)))
            console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _row(process: Mapping[str, Any]) -> tuple[str, ...]:
    runtimes = process.get("runtimes") or ()
    door = {True: "open", False: "closed"}.get(process.get("door"), "?")  # type: ignore[arg-type]  # None: not read
    return (
        str(process["pid"]),
        str(process.get("command", "?")),
        door,
        str(process.get("threads", "?")),
        ", ".join(map(str, runtimes)) or "-",
        got(process),
    )


def _summary(one: Answer) -> str:
    if one.problem:
        return one.problem
    if not one.with_runtime:
        opened = sum(process.get("door") is True for process in one.processes)
        return f"no process has a runtime; the door is open to {opened} of {len(one.processes)}"
    count = len(one.with_runtime)
    return f"reached: {one.reached} of {count} {'process' if count == 1 else 'processes'} with a runtime"


def show_many(console: Console, answers: Sequence[Answer]) -> None:
    """Prints a line for each container of a selection, and the total."""
    if answers:
        table = output.table("namespace", "pod", "container", "reached", "detail")
        for one in answers:
            reached = "?" if one.problem else f"{one.reached}/{len(one.with_runtime)}" if one.with_runtime else "-"
            why = [got(process) for process in one.with_runtime if process.get("reached") is not True]
            table.add_row(one.namespace, one.pod, one.container, reached, escape(one.problem or (why or [""])[0]))
        console.print(table)
    console.print(total(answers))


def total(answers: Sequence[Answer]) -> str:
    """How many of the containers run the shim, in words."""
    ours = sum(one.runs_the_shim for one in answers)
    silent = sum(bool(one.problem) for one in answers)
    without = sum(not one.problem and not one.with_runtime for one in answers)
    more = [f"{silent} gave no answer"] * bool(silent) + [f"{without} without a runtime"] * bool(without)
    return ", ".join([f"reached in {ours} of {len(answers)} injected containers", *more])


def document(answers: Sequence[Answer]) -> dict[str, Any]:
    """The same for programs."""
    return {
        "injected": len(answers),
        "reached": sum(one.runs_the_shim for one in answers),
        "unanswered": sum(bool(one.problem) for one in answers),
        "containers": [
            {
                "namespace": one.namespace,
                "pod": one.pod,
                "container": one.container,
                "problem": one.problem or None,
                "withRuntime": len(one.with_runtime),
                "reached": one.reached,
                "processes": list(one.processes),
            }
            for one in answers
        ],
    }
