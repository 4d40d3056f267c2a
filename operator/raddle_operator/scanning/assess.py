"""What one pod shows: for each container with a known runtime its threads, what they should be, and what mends it."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from raddle import delivery, env
from raddle.cpus.topology import Machine
from raddle.planning import load as model
from raddle.planning import templates, wire
from raddle.planning.families import FAMILIES
from raddle.planning.planner import Plan
from raddle.planning.policy import Policy
from raddle.planning.values import computed
from raddle_operator.injection import shipped
from raddle_operator.injection.decide import ContainerOutcome, Facts, Settings, decide_object
from raddle_operator.injection.injected import strip_injected
from raddle_operator.injection.matching import DISABLED, Policies, govern
from raddle_operator.injection.plan_annotations import COUNTS
from raddle_operator.injection.workers import SIDECARS
from raddle_operator.objects import nodereport
from raddle_operator.objects.pods import WORKLOADS, Container, Pod, pod_from_object, workload_of
from raddle_operator.objects.policy import PolicyObject, policy_from_object
from raddle_operator.objects.quantities import QuantityError
from raddle_operator.objects.quantities import parse as quantity
from raddle_operator.objects.reading import SpecError
from raddle_operator.presets import matching
from raddle_operator.presets.rows import LIMIT
from raddle_operator.scanning import runtime as runtimes
from raddle_operator.scanning.runtime import Runtime, Threads

# A CronJob's Job ends in the minutes since 1970 of when it was due.
_CRON_JOB: Final = re.compile(r"(.+)-[0-9]{8}")
_ROLLOUT_HASH: Final = "rollouts-pod-template-hash"
# Whose pod template can be changed.
_CHANGED: Final = frozenset(kind.lower() for kind in WORKLOADS)
_VALUES: Final = {one.name: one.value for family in FAMILIES for one in family.variables}


class Cause(StrEnum):
    """Why a container's threads are as many as they are."""

    NODE_CPUS = "NodeCPUs"
    FIXED = "Fixed"
    SET = "SetTooHigh"
    OLDER = "OlderPod"
    STALE = "Stale"
    FITS = "Fits"
    UNKNOWN = "Unknown"


class Expected(NamedTuple):
    """What the model of a policy's `load` says of the threads now: the share of periods in which they are throttled.

    `gives_back_cpus`: what they use more than those of the plan.
    """

    throttled_share: float
    gives_back_cpus: float


class Node(NamedTuple):
    """A node's CPUs, and its machine, None where nobody tells of it."""

    cpus: int
    machine: Machine | None = None


class Drifted(NamedTuple):
    """What an agent says of a container: the worst finding, and the threads in effect where it knows them."""

    finding: nodereport.Finding
    threads: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """What mends it. `variables` are for the container's env, and `text` says what else, "" for nothing.

    `command` is kubectl's, "" where no command can.
    """

    variables: tuple[tuple[str, str], ...] = ()
    text: str = ""
    command: str = ""

    @property
    def short(self) -> str:
        """In a few words; "" where nothing is to be done."""
        if not self.variables:
            return self.text
        name, value = self.variables[0]
        more = len(self.variables) - 1
        return f"{name}={value}" + (f" (+{more})" if more else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedContainer:
    """One container of a pod.

    `workload` is its owner as kubectl writes it. `threads` and `planned` are of one of its `processes`; None where they
    can't be told. `limit_cpus` None: no limit, `node_cpus` None: not known. `governed_by` is the policy that governs
    it, "" for the default one. `fix` is empty where there is none, and `expected` None where the policy states no load.
    """

    namespace: str
    workload: str
    container: str
    runtime: str
    preset: str = ""
    limit_cpus: float | None = None
    node_cpus: int | None = None
    processes: int = 1
    threads: int | None = None
    threads_because: str = ""
    planned: int | None = None
    planned_because: str = ""
    cause: Cause | nodereport.Cause = Cause.UNKNOWN
    governed_by: str = ""
    fix: Fix = Fix()
    advice: str = ""
    expected: Expected | None = None

    @property
    def is_finding(self) -> bool:
        """Whether something is to be fixed."""
        return self.cause not in (Cause.FITS, Cause.UNKNOWN)

    @property
    def is_from_agent(self) -> bool:
        """Whether the cause is what the node's agent reports."""
        return isinstance(self.cause, nodereport.Cause)

    @property
    def surplus_share(self) -> float:
        """The part of the threads that is more than planned, 0 where that is not known."""
        if not self.is_finding or not self.threads or self.planned is None:
            return 0.0
        return max(0.0, 1 - self.planned / self.threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What decides beside a pod: policies, namespaces' labels by name, nodes by name.

    `unlabelled` is what a namespace without the label counts as. `assumed` is for pods whose node is not known; None:
    such a pod makes no threads yet. `created`: pods are there; else they are manifests, which the webhook will meet.
    `drifted` are the containers of which an agent says that they run otherwise than planned, by the pod's uid and name.
    """

    policies: Policies
    namespaces: Mapping[str, Mapping[str, str]]
    nodes: Mapping[str, Node]
    unlabelled: str = DISABLED
    assumed: Node | None = None
    created: bool = True
    drifted: Mapping[tuple[str, str], Drifted] = field(default_factory=dict)


# It leaves everything to Raddle, in all namespaces.
_DEFAULT: Final = policy_from_object(
    {"kind": "ClusterInferenceThreading", "metadata": {"name": "default"}, "spec": {"podSelector": {}}}
)


def assess(obj: Any, cluster: Cluster) -> Iterator[ScannedContainer]:
    """Yields the containers of a pod that run a known runtime, or have values from Raddle.

    None of a pod that can't be read, or has no node.
    """
    try:
        pod = pod_from_object(obj)
    except SpecError:
        return
    node = cluster.nodes.get(pod.node_name) if pod.node_name else None
    node = node or cluster.assumed
    if node is None or pod.mirror or pod.os.lower() == "windows":
        return
    planned = {container.name for container in pod.containers if env.PLAN_PREFIX + container.name in pod.annotations}
    # What Raddle has set is no choice of the user's.
    for container in (strip_injected(pod) if planned else pod).containers:
        if container.name in SIDECARS:
            continue
        result = runtimes.known(container)
        if result is None and container.name in planned:
            result = runtimes.governed()
        if result is not None:
            seen = _seen(pod, container, result, node, cluster)
            drifted = cluster.drifted.get((str(pod.raw["metadata"].get("uid")), container.name))
            yield seen if drifted is None else _as_it_runs(seen, drifted)


def _as_it_runs(seen: ScannedContainer, drifted: Drifted) -> ScannedContainer:
    """What an agent has seen counts more than what the pod's spec lets expect."""
    return replace(
        seen,
        threads=drifted.threads or seen.threads,
        threads_because=f"its node's agent: {drifted.finding.detail}",
        cause=drifted.finding.cause,
        fix=Fix(text=drifted.finding.fix),
    )


def _seen(pod: Pod, container: Container, runtime: Runtime, node: Node, cluster: Cluster) -> ScannedContainer:
    namespace = str(pod.raw["metadata"].get("namespace") or "default")
    labels = cluster.namespaces.get(namespace, {})
    policy = govern(pod, namespace, labels, cluster.policies, unlabelled=cluster.unlabelled).policy
    outcome = _outcome(pod, container, namespace, policy or _DEFAULT, node)
    limit_cpus = _limit(container, pod)
    recorded = _recorded(pod, container)
    cores = len(node.machine.cores) or None if node.machine is not None else None
    now = runtimes.threads(container, runtime, cpus=node.cpus, cores=cores, limit_cpus=limit_cpus)
    if recorded is not None and not now.own:
        now = Threads(_whole(recorded.values.get("intraOp")), "by Raddle")
    made = ScannedContainer(
        namespace=namespace,
        workload=workload(pod),
        container=container.name,
        runtime=runtime.preset.name if runtime.preset else runtime.title,
        preset=runtime.preset.name if runtime.preset else "",
        limit_cpus=limit_cpus,
        node_cpus=node.cpus,
        threads=now.number,
        threads_because=now.because,
        governed_by=policy.reference if policy is not None else "",
        advice=outcome.advice if outcome else "",
    )
    if outcome is None or outcome.plan is None:
        skip = outcome.skip if outcome else None
        return replace(made, planned_because=str(skip) if skip else "Raddle plans none of this pod")
    return _judged(made, container, runtime, now, outcome.plan, policy, recorded, cluster)


def _judged(
    made: ScannedContainer,
    container: Container,
    runtime: Runtime,
    now: Threads,
    plan: Plan,
    policy: PolicyObject | None,
    recorded: wire.RecordedPlan | None,
    cluster: Cluster,
) -> ScannedContainer:
    """With the plan's count, the cause, and the fix."""
    used = (policy or _DEFAULT).policy
    planned = plan.intra_op if plan.intra_op is not None else plan.omp
    if recorded is not None and recorded.tuning is not None:
        planned = now.number  # what a tuning has found is not decided again here
    if planned is not None and made.node_cpus is not None:
        planned = min(planned, made.node_cpus)
    made = replace(made, processes=plan.workers, planned=planned, planned_because=plan.because.get("intraOp", ""))
    if now.number is None or planned is None:
        return made
    if now.number <= planned or (runtime.stock == LIMIT and made.limit_cpus and not now.own):
        return replace(made, cause=Cause.FITS)
    made = replace(made, expected=_expected(plan, used, now.number, made.limit_cpus))
    given = recorded is not None or (policy is not None and _given(policy, runtime, container))
    if given and not now.own and not cluster.created:
        return replace(made, cause=Cause.FITS, threads=planned, threads_because=f"by {made.governed_by}")
    if given and not now.own:
        cause = Cause.OLDER if recorded is None else Cause.STALE
        return replace(made, cause=cause, fix=_restart(made))
    cause = Cause.SET if now.own else Cause.FIXED if runtime.stock.isdecimal() else Cause.NODE_CPUS
    return replace(made, cause=cause, fix=_fix(made, container, runtime, now, plan, used))


def _fix(
    made: ScannedContainer, container: Container, runtime: Runtime, now: Threads, plan: Plan, policy: Policy
) -> Fix:
    if now.own.startswith("-"):
        return Fix(text=f"{now.own}{'' if now.own.endswith('=') else ' '}{made.planned}")
    preset = runtime.preset
    if preset is not None and preset.alone and not preset.unless:
        # It makes processes or threads by such a variable itself: no value is right for all.
        return Fix(text=preset.advice or preset.alone)
    names = (now.own,) if now.own else runtime.sets
    variables = {
        name: value for name in names if (value := _value(name, runtime, plan, policy, made.planned)) is not None
    }
    if not variables:
        return Fix(text=preset.advice if preset is not None else "")
    text = ""
    if preset is not None and matching.skipped_reason(preset, container):
        # Not as a command: some versions end with it.
        variables, text = {**variables, **preset.unless}, preset.advice
    pairs = (f"{name}={value}" for name, value in variables.items())
    command = ("kubectl", "set", "env", "-n", made.namespace, made.workload, "-c", made.container, *pairs)
    return Fix(
        variables=tuple(variables.items()),
        text=text,
        command=shlex.join(command) if _can_change(made) and not text else "",
    )


def _value(name: str, runtime: Runtime, plan: Plan, policy: Policy, planned: int | None) -> str | None:
    """What a variable should be without Raddle's shim; None where it is not to be set."""
    of_preset = runtime.preset.variables if runtime.preset is not None else {}
    if name in of_preset:
        result = computed(templates.value(of_preset[name]), plan, policy)
    elif name in COUNTS:
        result = getattr(plan, COUNTS[name][1])
    elif name in _VALUES:
        result = computed(_VALUES[name], plan, policy)
    else:
        result = planned  # another name of the preset's own
    return None if result is None else str(result)


def _expected(plan: Plan, policy: Policy, threads: int, limit_cpus: float | None) -> Expected | None:
    """What the model says of so many threads that spin, as runtimes do untold; None where it says none of the plan."""
    if plan.expected is None or policy.run_time_us is None:
        return None
    run_time_s = policy.run_time_us / 1e6
    rate = policy.request_rate
    stated = model.usual(run_time_s, limit_cpus) if rate is None else model.Load(run_time_s, rate)
    now = model.expected(stated, model.Setting(threads, math.inf if threads > 1 else 0.0), limit_cpus)
    return Expected(now.throttled, max(0.0, now.cpus - plan.expected.cpus))


def _given(policy: PolicyObject, runtime: Runtime, container: Container) -> bool:
    """Whether a new pod would get the policy's values in this container."""
    if policy.mode != "Initial":
        return False
    if policy.containers is not None:
        return container.name in policy.containers
    preset = runtime.preset if policy.policy.presets == "Auto" else None
    return preset is None or not matching.skipped_reason(preset, container)


def _restart(made: ScannedContainer) -> Fix:
    if not _can_change(made):
        return Fix(text="a new pod gets Raddle's values")
    command = ("kubectl", "rollout", "restart", "-n", made.namespace, made.workload)
    return Fix(text="rollout restart", command=shlex.join(command))


def _can_change(made: ScannedContainer) -> bool:
    return made.workload.partition("/")[0] in _CHANGED


def _outcome(
    pod: Pod, container: Container, namespace: str, policy: PolicyObject, node: Node
) -> ContainerOutcome | None:
    """What Raddle would decide on the container alone; None where it decides nothing on the pod.

    The pod's own counts and its wish to be left alone are put aside: what they should be does not depend on them.
    """
    asked = replace(
        policy,
        kind=_DEFAULT.kind,
        tier=_DEFAULT.tier,
        namespace="",
        pod_selector=_DEFAULT.pod_selector,
        namespace_selector=_DEFAULT.namespace_selector,
        containers=(container.name,),
        mode="Initial",
        policy=policy.policy._replace(existing_values="Override", tuning=None),
    )
    labels = {name: value for name, value in pod.labels.items() if name not in (env.INJECT_LABEL, env.POLICY_LABEL)}
    raw = {**pod.raw, "metadata": {**pod.raw["metadata"], "labels": labels}}
    machine = node.machine
    cores = None if machine is None else len(machine.cores) or None
    architecture = machine.architecture if machine is not None else delivery.ARCHITECTURES[0]
    facts = Facts(
        smallest_cores=cores,
        machines={pod.node_name: machine} if machine is not None and pod.node_name else {},
        architectures=frozenset({architecture} - {""}),
    )
    decision = decide_object(
        raw, namespace, {env.INJECT_LABEL: "enabled"}, Policies([asked]), facts, Settings(shim=shipped.shim())
    )
    return next((one for one in decision.containers if one.name == container.name), None)


def _recorded(pod: Pod, container: Container) -> wire.RecordedPlan | None:
    text = pod.annotations.get(env.PLAN_PREFIX + container.name)
    if text is None:
        return None
    try:
        return wire.read_plan_text(text)
    except wire.WireError:
        return None


def _limit(container: Container, pod: Pod) -> float | None:
    for limits in (container.limits, pod.limits or {}):
        try:
            cpus = float(quantity(limits["cpu"])) if "cpu" in limits else 0.0
        except QuantityError:
            cpus = 0.0
        if cpus:
            return cpus
    return None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def workload(pod: Pod) -> str:
    """The pod's owner as kubectl writes it, `deployment/ranker`, without asking for it; where it has none, the pod.

    A Deployment, and an Argo Rollout, is told by its ReplicaSet's name, a CronJob by its Job's.
    """
    if result := workload_of(pod):
        kind, name = result.split("/", 1)
        return f"{kind.lower()}/{name}"
    metadata = pod.raw["metadata"]
    owners = metadata.get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if not isinstance(owner, dict) or owner.get("controller") is not True:
            continue
        kind, name = str(owner.get("kind")), str(owner.get("name"))
        rollout, _, template = name.rpartition("-")
        if kind == "ReplicaSet" and rollout and template == pod.labels.get(_ROLLOUT_HASH):
            return f"rollout/{rollout}"
        due = _CRON_JOB.fullmatch(name) if kind == "Job" else None
        return f"cronjob/{due[1]}" if due else f"{kind.lower()}/{name}"
    return f"pod/{metadata.get('name') or metadata.get('generateName') or '?'}"
