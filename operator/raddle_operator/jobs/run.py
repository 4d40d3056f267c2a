"""What became of a tuning's Job, from what the Job controller and the kubelet say of it and of its pod."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum, unique
from typing import Any, Final

from raddle_operator.objects.reading import as_object, mapping, sequence, text, text_map
from raddle_operator.objects.times import epoch_s
from raddle_operator.results import summary
from raddle_operator.results.summary import DocumentError, Summary

TUNER: Final = "tuner"
"""The container that measures and says what came out."""
TUNING_LABEL: Final = "raddle.dev/tuning"
NODE_ANNOTATION: Final = "raddle.dev/tuning-node"
GENERATION_ANNOTATION: Final = "raddle.dev/tuning-generation"
TRY_ANNOTATION: Final = "raddle.dev/tuning-try"

POD_WITHIN_S: Final = 10
"""A Job that has had no pod for so long is refused one."""
START_WITHIN_S: Final = 600
"""A pod that does not run by then is given up: images are pulled in that time."""
GONE_WITHIN_S: Final = 60
"""So soon the pod of a Job that has had its time, or was deleted, is gone: it has 10 s of grace. Clocks differ, too."""
_ENDS_WITHIN_S: Final = 600
"""So long the last program may take beyond the budget."""
# Pulling an image takes a while and is tried again; these will never pass.
_NEVER_STARTS: Final = frozenset(("StartError", "ContainerCannotRun", "InvalidImageName", "ErrImageNeverPull"))
_OUT_OF_MEMORY: Final = "OOMKilled"
_DEADLINE: Final = "DeadlineExceeded"
_DIGEST: Final = re.compile("sha256:[0-9a-f]{64}")


@unique
class State(StrEnum):
    """Where a Job stands. NO_POD: none could be made. DISRUPTED: it ended by no fault of what was measured.

    ENDING: it is being deleted, and its pod may still be there.
    """

    NO_POD = "NoPod"
    WAITING = "Waiting"
    RUNNING = "Running"
    ENDING = "Ending"
    MEASURED = "Measured"
    FAILED = "Failed"
    DISRUPTED = "Disrupted"

    @property
    def is_active(self) -> bool:
        """Whether it has, or will have, a pod on its node."""
        return self in _ACTIVE


_ACTIVE: Final = frozenset((State.NO_POD, State.WAITING, State.RUNNING, State.ENDING))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A Job of a tuning. `owner` is the tuning's UID. `failed` is the reason why it failed, "" where it did not."""

    name: str
    uid: str
    owner: str
    tuning: str
    node: str
    generation: int
    attempt: int
    created_s: int
    failed: str
    message: str
    deleting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """The pod of a Job, `job` by its UID.

    `said` is what its tuner left when it ended, None while it has not. `waiting` says why it does not run, `never` that
    it never will. `killed` says how the measured container was ended, `disrupted` what came in the way of both. Each is
    "" where that is not so. `deleting`: somebody has deleted it. `image` is the measured image as the pod's spec names
    it, `digest` as the node's runtime resolved it.
    """

    job: str
    created_s: int
    running: bool = False
    said: str | None = None
    ended: str = ""
    waiting: str = ""
    never: bool = False
    killed: str = ""
    disrupted: str = ""
    deleting: bool = False
    image: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One Job and what is known of it. `since_s` is since when it waits; `message` says why, or why it failed.

    `outcome` is what its pod measured, with the `image` that it ran.
    """

    job: Job
    state: State
    since_s: int
    message: str = ""
    outcome: Summary | None = None
    image: str = ""


def lasts_s(minutes: int) -> int:
    """The seconds that a Job has for this budget, until its pod runs and until its last program has ended included."""
    return START_WITHIN_S + minutes * 60 + _ENDS_WITHIN_S


def job_name(tuning: str, uid: str, generation: int, node: str, attempt: int) -> str:
    """The same for the same pod, so that whoever makes it again finds that it is there. At most 63 characters."""
    of = "\0".join((uid, str(generation), node, str(attempt)))
    digest = hashlib.sha256(of.encode()).hexdigest()[:10]
    return f"{tuning.replace('.', '-')[:52].rstrip('-')}-{digest}"


def job_from_object(obj: Mapping[str, Any]) -> Job | None:
    """The facts of a Job; None for one that was not made for a tuning. Raises SpecError.

    Anybody can write labels, annotations and owners, or copy a Job with them: by its name it is what it says.
    """
    metadata, status = mapping(obj, "metadata", ""), mapping(obj, "status", "")
    annotations = text_map(metadata, "annotations", "metadata")
    generation, attempt = annotations.get(GENERATION_ANNOTATION, ""), annotations.get(TRY_ANNOTATION, "")
    if not generation.isdecimal() or not attempt.isdecimal() or NODE_ANNOTATION not in annotations:
        return None
    # From Kubernetes 1.31 on a Job has failed only when its pods have ended, and says before that it will.
    failed = _condition(status, "Failed") or _condition(status, "FailureTarget")
    job = Job(
        name=text(metadata, "name", "metadata"),
        uid=text(metadata, "uid", "metadata"),
        owner=_owner(metadata),
        tuning=text_map(metadata, "labels", "metadata").get(TUNING_LABEL, ""),
        node=annotations[NODE_ANNOTATION],
        generation=int(generation),
        attempt=int(attempt),
        created_s=epoch_s(metadata["creationTimestamp"]),
        failed=str(failed.get("reason") or "Failed") if failed.get("status") == "True" else "",
        message=str(failed.get("message") or ""),
        deleting="deletionTimestamp" in metadata,
    )
    made = job_name(job.tuning, job.owner, job.generation, job.node, job.attempt)
    return job if job.name == made else None


def pod_from_object(obj: Mapping[str, Any]) -> Pod:
    """The facts of a Job's pod. Raises SpecError."""
    metadata, status = mapping(obj, "metadata", ""), mapping(obj, "status", "")
    tuner = _container(status, "containerStatuses", TUNER)
    ended = mapping(mapping(tuner, "state", "status"), "terminated", "status")
    measured = sequence(status, "initContainerStatuses", "status")[-1:]
    last = as_object(measured[0], "status") if measured else {}
    waiting, never = _waiting(status)
    asked = sequence(mapping(obj, "spec", ""), "initContainers", "spec")[-1:]
    digest = _DIGEST.search(str(last.get("imageID") or ""))
    return Pod(
        job=_owner(metadata),
        created_s=epoch_s(metadata["creationTimestamp"]),
        running=bool(mapping(mapping(tuner, "state", "status"), "running", "status")),
        said=str(ended.get("message") or "") if ended else None,
        ended=f"{ended.get('reason') or 'Error'}, exit code {ended.get('exitCode', '?')}" if ended else "",
        waiting=waiting,
        never=never,
        killed=_killed(last),
        disrupted=_disrupted(status),
        deleting="deletionTimestamp" in metadata,
        image=text(as_object(asked[0], "spec.initContainers"), "image", "spec.initContainers") if asked else "",
        digest=digest[0] if digest else "",
    )


def run_of(job: Job, pod: Pod | None) -> Run:
    """What became of a Job. What its tuner said counts more than how its pod ended."""
    run = Run(job=job, state=State.WAITING, since_s=job.created_s if pod is None else pod.created_s)
    if job.deleting:
        return replace(run, state=State.ENDING)
    if pod is not None and pod.said is not None:
        return _ended(run, pod, pod.said)
    if job.failed == _DEADLINE:
        # It is being ended, and may still say something.
        return replace(run, state=State.RUNNING) if pod is not None and pod.running else _too_slow(run)
    if pod is not None and pod.disrupted:
        return replace(run, state=State.DISRUPTED, message=pod.disrupted)
    if pod is not None and pod.never:
        return replace(run, state=State.FAILED, message=pod.waiting)
    if job.failed:
        message = f"{job.failed}: its pod is gone, for example after an eviction or a drain"
        return replace(run, state=State.DISRUPTED, message=message)
    if pod is None:
        message = (
            f"job/{job.name} has no pod: a ResourceQuota, a LimitRange, Pod Security or a webhook may reject it; "
            f"see `kubectl describe job {job.name}`"
        )
        return replace(run, state=State.NO_POD, message=message)
    if pod.running:
        return replace(run, state=State.RUNNING)
    return replace(run, message=pod.waiting)


def _ended(run: Run, pod: Pod, said: str) -> Run:
    """The run whose tuner has ended."""
    try:
        result = summary.from_text(said)
    except DocumentError:
        result = None
    if isinstance(result, Summary):
        # The tuner sees the image's name only.
        known = result if result.key.image else replace(result, key=replace(result.key, image=pod.digest))
        return replace(run, state=State.MEASURED, outcome=known, image=pod.image)
    if run.job.failed == _DEADLINE:
        return _too_slow(run)
    if pod.disrupted or pod.deleting:
        return replace(run, state=State.DISRUPTED, message=pod.disrupted or "its pod was deleted")
    message = "" if result is None else result.error
    if pod.killed or pod.ended.startswith(_OUT_OF_MEMORY):
        killed = pod.killed or (
            f"{_OUT_OF_MEMORY}: the tuner, not the measured container, exceeds its memory limit, for example with a "
            "large model: keep the model's weights in an external file, or tune its server with spec.server"
        )
        message = f"{killed}{message and '; '}{message}"
    if not message:
        last = said.strip().splitlines()[-1:]
        message = f"the tuner printed nothing ({pod.ended}){''.join(f': {line}' for line in last)}; {_log(run.job)}"
    return replace(run, state=State.FAILED, message=message)


def _too_slow(run: Run) -> Run:
    """A Job that would take as long again."""
    message = f"{_DEADLINE}: it exceeded the time limit of its Job; {_log(run.job)}"
    return replace(run, state=State.FAILED, message=message)


def _log(job: Job) -> str:
    return f"see `kubectl logs job/{job.name} -c {TUNER}`"


# --- parts of a pod's status ----------------------------------------------------------------------------------------


def _owner(metadata: Mapping[str, Any]) -> str:
    """The UID of the controller that owns an object, "" where none does."""
    references = (as_object(one, "metadata") for one in sequence(metadata, "ownerReferences", "metadata"))
    return next((str(one.get("uid")) for one in references if one.get("controller")), "")


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    result = (as_object(one, "status.conditions") for one in sequence(status, "conditions", "status"))
    return next((one for one in result if one.get("type") == kind), {})


def _container(status: Mapping[str, Any], field: str, name: str) -> Mapping[str, Any]:
    result = (as_object(one, f"status.{field}") for one in sequence(status, field, "status"))
    return next((one for one in result if one.get("name") == name), {})


def _killed(measured: Mapping[str, Any]) -> str:
    """How the measured container's program was ended from outside: it runs as long as the pod does."""
    for state in ("state", "lastState"):
        ended = mapping(mapping(measured, state, "status"), "terminated", "status")
        if ended.get("reason") == _OUT_OF_MEMORY:
            why = "the measured container exceeded its memory limit; raise resources.limits.memory"
            return f"{_OUT_OF_MEMORY}: {why}"
    return ""


def _disrupted(status: Mapping[str, Any]) -> str:
    """What ended the pod from outside: the kubelet's reason (Evicted, OutOfcpu), or who deleted it."""
    reason = text(status, "reason", "status")
    if status.get("phase") == "Failed" and reason:
        return _said(reason, text(status, "message", "status"))
    target = _condition(status, "DisruptionTarget")
    if target.get("status") == "True":
        return _said(str(target.get("reason") or "Disrupted"), str(target.get("message") or ""))
    return ""


def _waiting(status: Mapping[str, Any]) -> tuple[str, bool]:
    """Why a pod does not run, and whether it never will."""
    for field in ("initContainerStatuses", "containerStatuses"):
        for one in sequence(status, field, "status"):
            container = as_object(one, f"status.{field}")
            result, never = _held_up(container, failed=status.get("phase") == "Failed")
            if result:
                return f"{container.get('name')}: {result}", never
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return _said(str(scheduled.get("reason") or "Unschedulable"), str(scheduled.get("message") or "")), False
    return "", False


def _held_up(container: Mapping[str, Any], *, failed: bool) -> tuple[str, bool]:
    """What keeps a container from running, and whether that is final; `failed`: the pod is."""
    for state in ("state", "lastState"):
        ended = mapping(mapping(container, state, "status"), "terminated", "status")
        reason, message = str(ended.get("reason") or ""), str(ended.get("message") or "")
        if reason in _NEVER_STARTS:
            return f"{_said(reason, message)}; the image needs a shell, /bin/sh", True
        if failed and ended.get("exitCode"):
            return _said(f"{reason}, exit code {ended['exitCode']}", message), True
    waits = mapping(mapping(container, "state", "status"), "waiting", "status")
    reason = str(waits.get("reason") or "")
    if reason in ("", "PodInitializing", "ContainerCreating"):
        return "", False
    return _said(reason, str(waits.get("message") or "")), reason in _NEVER_STARTS


def _said(reason: str, message: str) -> str:
    return f"{reason}: {message}" if message else reason
