"""What Raddle changes of a pod when it is created: `decide_object`, a pure function from it to JSON-patch operations.

The pod that comes in may be a copy of an injected one, or one that another webhook has changed since our first look.
So nothing in it that bears our names is trusted: everything is decided again on the pod without it, and written,
overwritten or removed. Where all is as it should be, there are no operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from raddle import env
from raddle.cpus.topology import Machine
from raddle.planning.planner import Budget, Plan
from raddle.planning.policy import WITHOUT_SHIM, Policy
from raddle.planning.wire import TuningTarget
from raddle_operator.injection import door, plan_annotations, variables, volumes
from raddle_operator.injection.budget import Resources, container_budget, pod_resources
from raddle_operator.injection.injected import strip_injected
from raddle_operator.injection.json_patch import ContainerChange, Operation, operations
from raddle_operator.injection.matching import DISABLED, Policies, govern
from raddle_operator.injection.plan_annotations import compose, safe_values
from raddle_operator.injection.tuning import TuningContext, Tunings, overlay
from raddle_operator.injection.variables import Edits, Variables
from raddle_operator.injection.volumes import ShimDelivery
from raddle_operator.injection.workers import SIDECARS, workers
from raddle_operator.objects.pods import Container, Pod, pod_from_object, workload_of
from raddle_operator.objects.policy import PolicyObject
from raddle_operator.objects.quantities import QuantityError
from raddle_operator.objects.reading import SpecError
from raddle_operator.objects.reasons import Skip, SkipReason
from raddle_operator.presets import matching
from raddle_operator.presets.rows import Preset

# The API server allows 256 KiB of annotations; beyond it, it would deny the pod, or could not bind it.
MAX_ANNOTATIONS_BYTES: Final = 240 * 1024
# Plans of a pod: 48 KiB.
MAX_PLANNED_CONTAINERS: Final = 48 * 1024 // env.RESERVED_PLAN
# The chart's webhook configuration has the API server not ask for these.
SYSTEM_PRIORITY: Final = "system-"
_CONTAINER_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the operator was started with.

    `door`: whether pods may have the door. `unlabelled`: what a namespace without our label counts as. `agent`: the
    address and port at which shims reach their node's agent, "" where none listens.
    """

    shim: ShimDelivery = field(default_factory=ShimDelivery)
    door: bool = True
    unlabelled: str = DISABLED
    agent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of the cluster now.

    `smallest_cores`: physical cores of the smallest known node, None where none is known. `machines`: node name ->
    machine, for pods whose node is known when they are created. `config_map_present`: whether the pod's namespace has
    the shim ConfigMap. `architectures`: those of all known nodes, as uname names them. `tunings`: what tunings have
    found, for pods whose node is known; None where nobody reads them.
    """

    smallest_cores: int | None = None
    machines: Mapping[str, Machine] = field(default_factory=dict)
    config_map_present: bool = True
    architectures: frozenset[str] = frozenset()
    tunings: Tunings | None = None


class ContainerOutcome(NamedTuple):
    """What one container gets: a plan, or the reason why it gets nothing.

    `withheld` says which parts of the plan can't be given and why; `kept` names the variables that stay as the pod
    spec sets them, and what beats a preset's; `variables` those that Raddle sets. `preset` is the known
    server that it runs, and `advice` what its user should do about that.
    """

    name: str
    plan: Plan | None = None
    skip: Skip | None = None
    withheld: tuple[Skip, ...] = ()
    kept: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    preset: Preset | None = None
    advice: str = ""


class Decision(NamedTuple):
    """The operations, and what they come from: the governing policy, why the pod as a whole gets nothing, outcomes.

    `node` is the node that the plans were made for, None for safe values.
    """

    operations: list[Operation]
    policy: PolicyObject | None = None
    skip: Skip | None = None
    containers: tuple[ContainerOutcome, ...] = ()
    node: str | None = None

    @property
    def injected(self) -> bool:
        """Whether at least one container gets values."""
        return self.skip is None


def decide_object(
    obj: Any,
    namespace: str,
    namespace_labels: Mapping[str, str],
    policies: Policies,
    facts: Facts,
    settings: Settings,
) -> Decision:
    """What to change of a pod, as JSON of any shape, that is about to be created in `namespace`.

    Never raises: what no pod can be is skipped as Malformed.
    """
    try:
        pod = pod_from_object(obj)
    except SpecError as error:
        return Decision(operations=[], skip=Skip(reason=SkipReason.MALFORMED, detail=str(error)[:256]))
    if pod.mirror:
        # The API server's picture of a static pod: changing it changes nothing that runs.
        return Decision(operations=[], skip=Skip(reason=SkipReason.MIRROR_POD))
    if pod.priority_class.startswith(SYSTEM_PRIORITY):
        detail = f"priority class {pod.priority_class[:63]}"
        return Decision(operations=[], skip=Skip(reason=SkipReason.OPTED_OUT, detail=detail))
    governed = govern(pod, namespace, namespace_labels, policies, unlabelled=settings.unlabelled)
    clean, policy, skip = strip_injected(pod), governed.policy, governed.skip
    if policy is None:
        return Decision(operations=operations(pod, clean), skip=skip)
    if pod.os.lower() == "windows":
        return Decision(operations=operations(pod, clean), policy=policy, skip=Skip(reason=SkipReason.WINDOWS_POD))
    machine = facts.machines.get(pod.node_name) if pod.node_name else None
    outcomes, changes, shim, skip = _plan_containers(clean, namespace, policy, facts, settings, machine)
    skip = skip or _not_written(pod, policy, changes)
    return Decision(
        operations=operations(pod, clean, policy, changes, shim) if skip is None else operations(pod, clean),
        policy=policy,
        skip=skip,
        containers=tuple(outcomes),
        node=pod.node_name if machine is not None else None,
    )


def _plan_containers(
    pod: Pod, namespace: str, policy: PolicyObject, facts: Facts, settings: Settings, machine: Machine | None
) -> tuple[list[ContainerOutcome], list[ContainerChange], Mapping[str, Any] | None, Skip | None]:
    """What each container gets that the policy chooses, the shim's volume, and why none of them gets anything."""
    containers, outcomes = _chosen_containers(pod, policy)
    shim: Mapping[str, Any] | Skip | None = None
    if policy.policy.shim == "Auto":
        by_machine = machine.architecture if machine is not None else ""
        architecture = door.architecture_of(pod.architecture, by_machine, facts.architectures)
        present = facts.config_map_present
        shim = door.opened(pod, architecture, settings.shim, config_map_present=present, switch=settings.door)
    try:
        resources = pod_resources(pod, policy.policy.reserve_cpus)
    except QuantityError as error:
        return outcomes, [], None, Skip(reason=SkipReason.MALFORMED, detail=f"resources: {error}")
    common = _Common(
        pod=pod,
        namespace=namespace,
        policy=policy,
        resources=resources,
        shim=shim,
        machine=machine,
        smallest_cores=facts.smallest_cores,
        tunings=facts.tunings,
        agent=settings.agent,
    )
    changes: list[ContainerChange] = []
    for container in containers:
        skip = _not_planned(container, len(changes))
        preset = matching.find(container) if skip is None and policy.policy.presets == "Auto" else None
        if preset is not None and policy.containers is None:
            skip = _preset_skip(container, preset)
        if skip is not None:
            outcomes.append(ContainerOutcome(name=container.name[:63], skip=skip, preset=preset))
            continue
        outcome, change = _plan_container(container, common, preset)
        outcomes.append(outcome)
        if change is not None:
            changes.append(change)
    if not changes:
        nothing = Skip(reason=SkipReason.CONTAINER_NOT_FOUND, detail="the pod has no container that gets values")
        return outcomes, [], None, next((outcome.skip for outcome in outcomes if outcome.skip is not None), nothing)
    mounted = any(change.mounts for change in changes)
    return outcomes, changes, None if not mounted or isinstance(shim, Skip) else shim, None


def _chosen_containers(pod: Pod, policy: PolicyObject) -> tuple[list[Container], list[ContainerOutcome]]:
    """The containers that the policy chooses; and as outcomes the names that the pod does not have."""
    if policy.containers is None:
        return [container for container in pod.containers if container.name not in SIDECARS], []
    by_name = {c.name: c for c in reversed(pod.containers + pod.init_containers)}
    absent = [
        _skipped(name, SkipReason.CONTAINER_NOT_FOUND, f"the pod has no container {name}")
        for name in policy.containers
        if name not in by_name
    ]
    return [by_name[name] for name in policy.containers if name in by_name], absent


class _Common(NamedTuple):
    """What holds for all containers of a pod, which is without ours; see the modules that it comes from."""

    pod: Pod
    namespace: str
    policy: PolicyObject
    resources: Resources
    shim: Mapping[str, Any] | Skip | None
    machine: Machine | None
    smallest_cores: int | None
    tunings: Tunings | None
    agent: str


def _plan_container(
    container: Container, common: _Common, preset: Preset | None
) -> tuple[ContainerOutcome, ContainerChange | None]:
    """What a container without ours gets; no change where it gets nothing."""
    name, governing = container.name, common.policy
    beating: tuple[str, ...] = ()
    if preset is not None:
        of_preset, beating = matching.applied(preset, governing, container)
        governing = replace(governing, policy=of_preset)
    policy = governing.policy
    closed: Skip | None = None
    if common.shim is not None:
        closed = common.shim if isinstance(common.shim, Skip) else door.occupied(container)
    loads = common.shim is not None and closed is None
    asked, source = workers(container)
    try:
        budget = container_budget(
            container,
            common.resources,
            workers=policy.workers or asked,
            workers_source="" if policy.workers else source,
            shim=loads,
            smallest_cores=common.smallest_cores,
        )
    except QuantityError as error:
        return _skipped(name, SkipReason.MALFORMED, f"resources: {error}"), None
    mounts = volumes.SHIM_MOUNTS if loads else ()
    agent = _agent(container, common, loads=loads)
    alike = common.machine is None and policy.tuning is None
    if alike and variables.sets_nothing(container, policy):
        plan, given, edits, annotations = _values_by_name(name, budget, governing, loads, agent)
    else:
        plan, given, edits, annotations = _values(container, budget, governing, loads, agent, common)
    if plan.cap is None and policy.intra_op is None:
        return _skipped(name, SkipReason.NO_CPU_BOUND, plan.because.get("intraOp", "")), None
    skip = given.withheld[-1] if given.withheld else closed
    if not given.names and skip is not None:
        if closed is not None and skip is not closed:
            # By it the container would have had something.
            skip = replace(skip, detail=f"{skip.detail}; {closed.reason}: {closed.detail}")
        return ContainerOutcome(name=name, plan=plan, skip=skip, kept=given.kept, preset=preset), None
    withheld = (*_without_shim(policy, closed, loads=loads), *given.withheld)
    outcome = ContainerOutcome(
        name=name,
        plan=plan,
        withheld=withheld,
        kept=given.kept + beating,
        variables=given.names,
        preset=preset,
        advice=_advice(preset, processes=policy.workers is not None or bool(source)),
    )
    return outcome, ContainerChange(container, edits, mounts, annotations)


def _values(
    container: Container,
    budget: Budget,
    governing: PolicyObject,
    shim: bool,
    agent: str,
    common: _Common | None = None,
) -> tuple[Plan, Variables, Edits, Mapping[str, str]]:
    """The plan, and what it comes to: variables, the changes that set them, annotations, key to value.

    `shim`: its processes load it; `agent`: where the shim sends datagrams. Without `common` the node is not known.
    """
    policy, tuning_overlay = governing.policy, None
    kept = variables.kept_counts(container, policy)
    own = kept
    if common is not None and policy.tuning is not None:
        others = (one.name for one in common.pod.containers if one.name not in SIDECARS)
        program = TuningTarget(
            container.image,
            workload_of(common.pod),
            first=container.name == next(others, ""),
            door=shim,
        )
        own += variables.kept_literals(container, policy)
        context = TuningContext(common.namespace, container.name, program, common.machine, own=own, created=False)
        tuning_overlay = overlay(policy, budget, context, common.tunings)
    if common is None or common.machine is None:
        plan, values = safe_values(budget, policy, own, governing.reference, None, tuning_overlay)
    else:
        node = common.pod.node_name
        plan, values = compose(common.machine, budget, policy, own, governing.reference, node, tuning_overlay)
    if tuning_overlay is not None:
        policy = tuning_overlay.policy
    if plan.cap is None and policy.intra_op is None:
        return plan, Variables({}, {}), Edits(), {}
    given = variables.chosen(container, plan, policy, kept=kept, shim=shim)
    edits = variables.edits(container, given, agent=agent)
    prefixes = (*given.references.values(), env.PLAN_PREFIX)
    annotations = {prefix + container.name: values[prefix] for prefix in prefixes}
    return plan, given._replace(kept=kept + given.kept), edits, annotations


@lru_cache(maxsize=1024)
def _values_by_name(
    name: str, budget: Budget, governing: PolicyObject, shim: bool, agent: str
) -> tuple[Plan, Variables, Edits, Mapping[str, str]]:
    """As `_values`, for a container that sets nothing: all like it get the same, whatever pod they are in."""
    return _values(Container(name), budget, governing, shim, agent)


def _preset_skip(container: Container, preset: Preset) -> Skip | None:
    """Why a known server is left to size its own threads; None: it is not."""
    why = matching.skipped_reason(preset, container)
    if not why:
        return None
    detail = f"{why}; or name {container.name[:63]} in the policy's containers to plan it anyway"
    return Skip(reason=SkipReason.MANAGED_BY_SERVER, detail=detail)


def _advice(preset: Preset | None, *, processes: bool) -> str:
    """What the user of a known server should do; `processes`: how many it starts is known."""
    if preset is None or preset.alone or (preset.processes and processes):
        return ""
    return preset.advice


def _not_planned(container: Container, planned: int) -> Skip | None:
    """Why a container can't be planned, before more of it is looked at, after so many `planned` ones; None: it can."""
    if _CONTAINER_NAME.fullmatch(container.name) is None:
        return Skip(reason=SkipReason.MALFORMED, detail="the name can't be part of an annotation's key")
    if planned >= MAX_PLANNED_CONTAINERS:
        detail = f"at most {MAX_PLANNED_CONTAINERS} containers of a pod get values"
        return Skip(reason=SkipReason.ANNOTATION_BUDGET, detail=detail)
    return None


def _agent(container: Container, common: _Common, *, loads: bool) -> str:
    """The value of RADDLE_AGENT: where the container's shims send datagrams, and their container; "" for none."""
    wanted = common.agent and loads and common.policy.policy.observe != "None"
    return f"{common.agent}/{container.name}" if wanted and env.AGENT not in container.env else ""


def _not_written(pod: Pod, policy: PolicyObject, changes: Sequence[ContainerChange]) -> Skip | None:
    """Why nothing of what was decided is written."""
    if policy.mode == "Observe":
        return Skip(reason=SkipReason.OBSERVED, detail=f"{policy.reference} has mode Observe")
    # With the pod's own, and the most that ours may grow to at binding.
    own = {key: value for key, value in pod.annotations.items() if not plan_annotations.is_ours(key)}
    ours = len(env.GOVERNED_BY) + len(policy.reference) + len(env.SETTINGS_HASH) + 64
    keys = [key for change in changes for key in change.annotations]
    grown = sum(len(key) + plan_annotations.reserved(plan_annotations.split(key)[0]) for key in keys)
    if plan_annotations.size_of(own) + ours + grown <= MAX_ANNOTATIONS_BYTES:
        return None
    detail = f"the pod's annotations leave too little of {MAX_ANNOTATIONS_BYTES // 1024} KiB"
    return Skip(reason=SkipReason.ANNOTATION_BUDGET, detail=detail)


def _without_shim(policy: Policy, closed: Skip | None, *, loads: bool) -> Iterator[Skip]:
    """Yields what a container does not get because its processes do not load the shim."""
    if closed is not None:
        yield replace(closed, detail=f"{closed.detail}; {WITHOUT_SHIM}")
    if policy.allocator != "System" and not loads:
        yield Skip(reason=SkipReason.SHIM_MISSING, detail=f"allocator {policy.allocator} is preloaded by the shim")


def _skipped(name: str, reason: SkipReason, detail: str) -> ContainerOutcome:
    return ContainerOutcome(name=name, skip=Skip(reason=reason, detail=detail))
