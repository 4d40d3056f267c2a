"""Carries out InferenceTunings: reads what there is, decides by `jobs`, writes the status, then stops and starts Jobs.

The status is written first, so that a Job never measures for a node that the status does not name. A Job's name says
what it is for: one that is made twice is there already.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from raddle_operator.controller import metrics
from raddle_operator.controller.facts import TuningRecord
from raddle_operator.controller.publish import StatusWriter
from raddle_operator.controller.state import POLICY_KINDS, ClusterState
from raddle_operator.controller.status import status_matches, with_times
from raddle_operator.injection import matching
from raddle_operator.injection.volumes import ShimDelivery
from raddle_operator.jobs import changes
from raddle_operator.jobs.changes import JobChanges, Start, Stop, TuningInputs, failures
from raddle_operator.jobs.manifest import Settings, Wanted, manifest
from raddle_operator.jobs.places import Places, places
from raddle_operator.jobs.run import (
    GONE_WITHIN_S,
    TUNING_LABEL,
    Job,
    Pod,
    Run,
    job_from_object,
    pod_from_object,
    run_of,
)
from raddle_operator.jobs.status import known, taken_until_s, tuning_status
from raddle_operator.jobs.template import RefusedError, Template, template_of
from raddle_operator.kube import (
    DAEMON_SETS,
    DEPLOYMENTS,
    INFERENCE_TUNINGS,
    JOBS,
    PODS,
    STATEFUL_SETS,
    AlreadyExists,
    Forbidden,
    Invalid,
    Kube,
    NotFound,
    Object,
)
from raddle_operator.kube.events import Recorder, Reference
from raddle_operator.kube.informer import CacheState, Informer, Key
from raddle_operator.objects.policy import PolicyObject
from raddle_operator.objects.reading import SpecError
from raddle_operator.objects.tuning import TuningObject

log = logging.getLogger(__name__)

AGAIN_S: Final = 30.0
"""What is not watched is looked at again so soon: a workload that is missing, a quota that refused a Job."""
_WORKLOADS: Final = {kind.kind: kind for kind in (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS)}


class _Refusal(NamedTuple):
    """A Job that the API server did not take: why, and when to try again, by the monotonic clock."""

    message: str
    again_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A tuning that can be carried out: what is measured, where, and by which policy its pods are governed."""

    tuning: TuningObject
    template: Template
    places: Places
    policy: PolicyObject | None


class TuningReconciler:
    """``on_change()`` is called where a Job or its pod has changed; ``delivery_in`` says how pods get the shim."""

    def __init__(
        self,
        kube: Kube,
        state: ClusterState,
        writer: StatusWriter,
        recorder: Recorder,
        settings: Settings,
        *,
        delivery_in: Callable[[str], ShimDelivery],
        unlabelled: str,
        on_change: Callable[[], None],
    ) -> None:
        self._kube = kube
        self._state = state
        self._writer = writer
        self._recorder = recorder
        self._settings = settings
        self._delivery_in = delivery_in
        self._unlabelled = unlabelled
        self._on_change = on_change
        self._jobs: Informer[Job] = Informer(
            kube, JOBS, job_from_object, label_selector=TUNING_LABEL, on_change=self._job_changed
        )
        self._pods: Informer[Pod] = Informer(
            kube, PODS, pod_from_object, label_selector=TUNING_LABEL, on_change=lambda *_: on_change()
        )
        self.informers: Final = (self._jobs, self._pods)
        self._made: dict[Key, Job] = {}
        """Jobs that were made and that the informer has not told of yet."""
        self._stopped: dict[str, float] = {}
        """UIDs of Jobs that had taken their node when they were to be stopped, and until when they keep it still."""
        self._refusals: dict[Key, dict[str, _Refusal]] = {}
        """By tuning and node."""

    def _job_changed(self, key: Key, old: Job | None, new: Job | None) -> None:
        self._made.pop(key, None)
        if old is not None and new is None:
            self._stopped.pop(old.uid, None)
        self._on_change()

    def cache(self) -> CacheState:
        """How many Jobs are known, and since when nothing was heard of them."""
        return CacheState(JOBS.kind, len(self._jobs.store), self._jobs.age_s)

    def forget(self, key: Key) -> None:
        """Drops what is remembered about a tuning that is gone."""
        self._refusals.pop(key, None)
        self._writer.forget(INFERENCE_TUNINGS, key)

    async def reconcile(self, key: Key) -> float | None:
        """Does what is to be done for a tuning now; returns the seconds after which to look again, None: on a change.

        Raises KubeError for what may pass.
        """
        record = self._state.tunings.get(key)
        if record is None:
            self.forget(key)
            return None
        now_s, problem, case = time.time(), None, None
        try:
            case = await self._case(record)
        except RefusedError as error:
            problem = error
        inputs = self._world(key, record, case, now_s)
        plan = changes.decide(case.tuning, inputs) if case is not None else changes.stopped(record.tuning, inputs)
        self._keep_nodes(key, plan, inputs)
        wanted = tuning_status(
            plan,
            generation=record.generation,
            places=None if case is None else case.places,
            refused=problem,
        )
        wanted["conditions"] = with_times(wanted["conditions"], record.status, record.generation, now_s)
        if not status_matches(record.status, wanted):
            wait_s = self._writer.wait_s(INFERENCE_TUNINGS, key, record.generation)
            if wait_s > 0:
                return wait_s
            stored = await self._writer.write(INFERENCE_TUNINGS, key, record.uid, record.status, wanted)
            if stored is None:
                return None  # another object now
            self._state.deliver(INFERENCE_TUNINGS, key, stored)
            for node in failures(inputs.known, plan.classes):
                self._tell(key, record, "NodeFailed", f"node {node.name}: {node.message}", warning=True)
        for stop in plan.stop:
            await self._stop(key, record, stop)
        if case is not None:
            await self._start(key, record, case, plan)
        return self._again_s(key, plan, problem)

    def _again_s(self, key: Key, plan: JobChanges, problem: RefusedError | None) -> float | None:
        due = [refusal.again_s - time.monotonic() for refusal in self._refusals.get(key, {}).values()]
        due += [AGAIN_S] if problem is not None and problem.reason != "Invalid" else []
        due += [plan.again_s] if plan.again_s is not None else []
        return max(0.0, min(due)) if due else None

    # ---- what there is

    async def _case(self, record: TuningRecord) -> _Case:
        """What is to be carried out. Raises RefusedError where that can't be."""
        tuning = record.tuning
        if tuning is None:
            raise RefusedError("Invalid", record.problem)
        facts = self._state.opened(tuning.namespace)
        if facts is None:
            message = (
                "the namespace is not opted in, so its pods would not get the result; label it raddle.dev/inject: "
                "enabled, or labelled"
            )
            raise RefusedError("NotOptedIn", message)
        try:
            template = template_of(tuning, await self._workload(tuning))
            nodes = {name: node.place for (_, name), node in self._state.nodes.items() if node.place is not None}
            classes = {name: one.node_class for (_, name), one in self._state.topologies.items() if one.node_class}
            result = places(tuning.nodes, template.spec, nodes, classes)
        except SpecError as error:
            raise RefusedError("Invalid", f"the workload's {error}") from None
        policy = None
        if matching.opted_in(template.labels, facts.labels, unlabelled=self._unlabelled) is None:
            policy = matching.select(template.labels, tuning.namespace, facts.labels, self._state.arranged()).policy
        return _Case(tuning=tuning, template=template, places=result, policy=policy)

    async def _workload(self, tuning: TuningObject) -> Object | None:
        if tuning.workload is None:
            return None
        try:
            return await self._kube.get(_WORKLOADS[tuning.workload.kind], tuning.workload.name, tuning.namespace)
        except NotFound:
            return None

    def _world(self, key: Key, record: TuningRecord, case: _Case | None, now_s: float) -> TuningInputs:
        runs: list[Run] = []
        busy: dict[str, float] = {}
        for (namespace, _), run in self._runs():
            if (namespace, run.job.owner) == (key[0], record.uid):
                runs.append(run)
            elif run.state.is_active and (until_s := self._taken_until_s(namespace, run.job)) > now_s:
                busy[run.job.node] = max(until_s, busy.get(run.job.node, 0.0))
        return TuningInputs(
            known=known(record.status, record.generation),
            places=Places(classes={}, left_out={}) if case is None else case.places,
            nodes={name: node.place for (_, name), node in self._state.nodes.items() if node.place is not None},
            runs=runs,
            now_s=now_s,
            busy=busy,
            refused={node: refusal.message for node, refusal in self._refusals.get(key, {}).items()},
        )

    def _runs(self) -> Iterator[tuple[Key, Run]]:
        """Yields every tuning's Jobs, with what became of them."""
        pods = {(namespace, pod.job): pod for (namespace, _), pod in self._pods.store.items()}
        for key, job in {**self._made, **self._jobs.store}.items():
            yield key, run_of(job, pods.get((key[0], job.uid)))

    def _taken_until_s(self, namespace: str, job: Job) -> float:
        """Until when a Job keeps other tunings off its node: one of a tuning of its namespace, where that measures now.

        0: it does not. Who may create Jobs can make one that looks just so, for any node; a status is the controller's.
        """
        stopped_s = self._stopped.get(job.uid, 0.0)
        result = self._state.tunings.get((namespace, job.tuning))
        if result is None or result.uid != job.owner:
            return stopped_s
        return max(stopped_s, taken_until_s(job, result.status, result.tuning))

    def _keep_nodes(self, key: Key, plan: JobChanges, inputs: TuningInputs) -> None:
        """Remembers the nodes of Jobs that are to be stopped: the status that is written next may not name them.

        Their pods are there for some seconds more.
        """
        stop = {stop.job for stop in plan.stop}
        for run in inputs.runs:
            if run.job.name in stop and (until_s := self._taken_until_s(key[0], run.job)) > inputs.now_s:
                self._stopped[run.job.uid] = min(until_s, inputs.now_s + GONE_WITHIN_S)

    # ---- what is done

    async def _stop(self, key: Key, record: TuningRecord, stop: Stop) -> None:
        try:
            await self._kube.delete(JOBS, stop.job, key[0], propagation="Foreground")
        except NotFound:
            return
        metrics.TUNING_JOBS.labels("deleted").inc()
        self._tell(key, record, "JobDeleted", f"job/{stop.job}: {stop.why}")

    def _tell(self, key: Key, record: TuningRecord, reason: str, note: str, *, warning: bool = False) -> None:
        about = Reference.of(INFERENCE_TUNINGS, {"metadata": {"namespace": key[0], "name": key[1], "uid": record.uid}})
        self._recorder.post(about, reason=reason, note=note, action="Measure", warning=warning)
        log.info("%s/%s: %s: %s", *key, reason, note)

    async def _start(self, key: Key, record: TuningRecord, case: _Case, plan: JobChanges) -> None:
        refusals = self._refusals.setdefault(key, {})
        for node in refusals.keys() - {start.node for start in plan.start}:
            del refusals[node]
        if not plan.start:
            return
        policy = None if case.policy is None else await self._policy(case.policy)
        for start in plan.start:
            if start.node in refusals and refusals[start.node].again_s > time.monotonic():
                continue
            try:
                refused = await self._create(record, case, start, policy)
            except (Forbidden, Invalid) as error:
                refused = error.message
            if refused:
                metrics.TUNING_JOBS.labels("refused").inc()
                log.warning("%s/%s: no Job on %s: %s", *key, start.node, refused)
                refusals[start.node] = _Refusal(refused, time.monotonic() + AGAIN_S)
                self._on_change()
            else:
                refusals.pop(start.node, None)

    async def _create(self, record: TuningRecord, case: _Case, start: Start, policy: Mapping[str, Any] | None) -> str:
        """Makes a Job; returns why it can't be this tuning's, "" where it is. Raises KubeError."""
        tuning, topology = case.tuning, self._state.topologies.get(("", start.node))
        body = manifest(
            Wanted(
                tuning=tuning,
                obj={"spec": record.spec},
                template=case.template,
                start=start,
                policy=policy,
                reserve_cpus=None if case.policy is None else case.policy.policy.reserve_cpus,
                shim="Auto" if case.policy is None else case.policy.policy.shim,
                delivery=self._delivery_in(tuning.namespace),
                architecture=topology.architecture if topology is not None else "",
            ),
            self._settings,
        )
        name = body["metadata"]["name"]
        job_key = tuning.namespace, name
        try:
            made = await self._kube.create(JOBS, body)
        except AlreadyExists:
            if job_key not in self._made and job_key not in self._jobs.store:
                # Somebody has made it first, or has taken off what tells whose it is.
                return f"job/{name} exists and does not belong to this tuning; delete it"
            metrics.TUNING_JOBS.labels("there").inc()
            return ""
        metrics.TUNING_JOBS.labels("created").inc()
        job = job_from_object(made)
        if job is not None and job_key not in self._jobs.store:
            self._made[job_key] = job
        does = "searches" if start.winner is None else "verifies the winner"
        self._tell((tuning.namespace, tuning.name), record, "JobCreated", f"job/{name} on node {start.node} {does}")
        return ""

    async def _policy(self, policy: PolicyObject) -> Mapping[str, Any]:
        """The policy as the tuner is told of it. Raises KubeError, NotFound where it has gone since."""
        result = await self._kube.get(POLICY_KINDS[policy.kind], policy.name, policy.namespace)
        metadata = {
            name: result["metadata"][name] for name in ("name", "namespace", "uid") if name in result["metadata"]
        }
        kind = POLICY_KINDS[policy.kind]
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": result["spec"]}
