"""What Raddle changes of a pod when it is created: `decide`, a pure function from a pod to JSON-patch operations.

The pod that comes in may be a copy of an injected one, or one that another webhook has changed since our first look.
So nothing in it that bears our names is trusted: everything is decided anew on the pod without it, and written,
overwritten or removed. Where all is as it should be, there are no operations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from raddle import env
from raddle.cpus.topology import Machine
from raddle.planning.planner import Plan
from raddle_operator.injection import activation, door, environment, plan_annotations, variables, volumes
from raddle_operator.injection.activation import Loading
from raddle_operator.injection.budget import Resources, container_budget, pod_resources
from raddle_operator.injection.json_patch import Chosen, Operation, operations
from raddle_operator.injection.matching import DISABLED, Policies, govern
from raddle_operator.injection.variables import Variables
from raddle_operator.injection.volumes import Shim, ShimDelivery
from raddle_operator.injection.workers import SIDECARS, binds_itself, workers
from raddle_operator.objects.pods import Container, Pod, pod_from_object
from raddle_operator.objects.policy import PolicyObject
from raddle_operator.objects.quantities import QuantityError
from raddle_operator.objects.reading import SpecError
from raddle_operator.objects.reasons import Skip, SkipReason

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

    `door`: whether pods may have the door. `unlabelled`: what a namespace without our label counts as.
    """

    shim: ShimDelivery = field(default_factory=ShimDelivery)
    door: bool = True
    unlabelled: str = DISABLED


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of the cluster now.

    `smallest_cores`: physical cores of the smallest known node, None where none is known. `machines`: node name ->
    machine, for pods whose node is known when they are created. `config_map_present`: whether the pod's namespace has
    the shim ConfigMap. `architectures`: those of all known nodes, as uname names them.
    """

    smallest_cores: int | None = None
    machines: Mapping[str, Machine] = field(default_factory=dict)
    config_map_present: bool = True
    architectures: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOutcome:
    """What one container gets: a plan, or the reason why it gets nothing.

    `withheld` says which parts of the plan can't be given and why; `kept` names the variables that stay as the pod
    spec sets them; `variables` those that Raddle sets.
    """

    name: str
    plan: Plan | None = None
    skip: Skip | None = None
    withheld: tuple[Skip, ...] = ()
    kept: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
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
    """As `decide`, for a pod as JSON of any shape. Never raises: what no pod can be is skipped as Malformed."""
    try:
        pod = pod_from_object(obj)
    except SpecError as error:
        return Decision(operations=[], skip=Skip(reason=SkipReason.MALFORMED, detail=str(error)[:256]))
    return decide(pod, namespace, namespace_labels, policies, facts, settings)


def decide(
    pod: Pod,
    namespace: str,
    namespace_labels: Mapping[str, str],
    policies: Policies,
    facts: Facts,
    settings: Settings,
) -> Decision:
    """What to change of a pod that is about to be created in `namespace`. Never raises for a Pod that was read."""
    if pod.mirror:
        # The API server's picture of a static pod: changing it changes nothing that runs.
        return Decision(operations=[], skip=Skip(reason=SkipReason.MIRROR_POD))
    if pod.priority_class.startswith(SYSTEM_PRIORITY):
        detail = f"priority class {pod.priority_class[:63]}"
        return Decision(operations=[], skip=Skip(reason=SkipReason.OPTED_OUT, detail=detail))
    governed = govern(pod, namespace, namespace_labels, policies, unlabelled=settings.unlabelled)
    policy, skip = governed.policy, governed.skip
    if policy is None:
        return Decision(operations=operations(pod, None, (), None), skip=skip)
    if pod.os.lower() == "windows":
        skip = Skip(reason=SkipReason.WINDOWS_POD)
        return Decision(operations=operations(pod, None, (), None), policy=policy, skip=skip)
    return _Injection(pod, policy, facts, settings).decide()


class _Injection:
    """One decision in the making."""

    def __init__(self, pod: Pod, policy: PolicyObject, facts: Facts, settings: Settings) -> None:
        self.pod = pod
        self.policy = policy
        self.facts = facts
        self.machine = facts.machines.get(pod.node_name) if pod.node_name else None
        self.node = pod.node_name if self.machine is not None else None
        machine = self.machine.architecture if self.machine is not None else ""
        self.architecture = activation.architecture_of(pod.architecture, machine, facts.architectures)
        self.names_of_ours = volumes.names_of_ours(pod)
        self.chosen: list[Chosen] = []
        self.outcomes: list[ContainerOutcome] = []
        self.containers = self._containers()
        # One for the pod: its containers mount one volume, which has the files of the one way or of the other.
        found = self._door(settings) if policy.policy.shim == "Auto" else ""
        self.door_closed = found if isinstance(found, Skip) else None
        self.shim = volumes.choose(
            pod,
            policy.policy.shim,
            settings.shim,
            config_map_present=facts.config_map_present,
            by_door=found if isinstance(found, str) else "",
        )

    def _door(self, settings: Settings) -> str | Skip:
        """The architecture for which the door is open, or why it is closed."""
        return door.opened(
            self.pod,
            self.containers,
            self.architecture,
            shipped=settings.shim.door_items.keys(),
            switch=settings.door,
            ours=self.names_of_ours,
        )

    def decide(self) -> Decision:
        skip = self._plan_containers()
        if skip is None and self.policy.mode == "Observe":
            skip = Skip(reason=SkipReason.OBSERVED, detail=f"{self.policy.reference} has mode Observe")
        if skip is None and self._annotation_bytes() > MAX_ANNOTATIONS_BYTES:
            detail = f"the pod's annotations leave too little of {MAX_ANNOTATIONS_BYTES // 1024} KiB"
            skip = Skip(reason=SkipReason.ANNOTATION_BUDGET, detail=detail)
        if skip is None:
            shim = self.shim if isinstance(self.shim, Shim) and any(c.mounts for c in self.chosen) else None
            found = operations(self.pod, self.policy, tuple(self.chosen), shim)
        else:
            found = operations(self.pod, None, (), None)
        return Decision(
            operations=found, policy=self.policy, skip=skip, containers=tuple(self.outcomes), node=self.node
        )

    def _plan_containers(self) -> Skip | None:
        """Plans for the containers that the policy chooses; the reason where none of them gets anything."""
        try:
            resources = pod_resources(self.pod, without=volumes.our_init_container(self.pod))
        except QuantityError as error:
            return Skip(reason=SkipReason.MALFORMED, detail=f"resources: {error}")
        self.outcomes.extend(self._container(container, resources) for container in self.containers)
        if self.chosen:
            return None
        for outcome in self.outcomes:
            if outcome.skip is not None:
                return outcome.skip
        return Skip(reason=SkipReason.CONTAINER_NOT_FOUND, detail="the pod has no container that gets values")

    def _containers(self) -> list[Container]:
        """The containers that the policy chooses; names that the pod does not have become outcomes."""
        if self.policy.containers is None:
            return [container for container in self.pod.containers if container.name not in SIDECARS]
        # An init container by our name gets nothing, whoever wrote it: with our mounts it would count as ours, and go.
        by_name = {c.name: c for c in reversed(self.pod.init_containers) if c.name != volumes.SHIM_INIT_CONTAINER}
        by_name |= {c.name: c for c in reversed(self.pod.containers)}
        found = []
        for name in self.policy.containers:
            if name in by_name:
                found.append(by_name[name])
            else:
                skip = Skip(reason=SkipReason.CONTAINER_NOT_FOUND, detail=f"the pod has no container {name}")
                self.outcomes.append(ContainerOutcome(name=name, skip=skip))
        return found

    def _container(self, container: Container, resources: Resources) -> ContainerOutcome:
        name, policy = container.name, self.policy.policy
        skip = self._not_planned(container)
        if skip is not None:
            return ContainerOutcome(name=name[:63], skip=skip)
        clean = environment.without_ours(container)
        load = self._load(clean)
        asked, source = workers(clean)
        try:
            budget = container_budget(
                clean,
                resources,
                workers=policy.workers or asked,
                workers_source="" if policy.workers else source,
                shim=load.reaches,
                smallest_cores=self.facts.smallest_cores,
            )
        except QuantityError as error:
            return _skipped(name, SkipReason.MALFORMED, f"resources: {error}")
        kept = variables.kept_counts(clean, policy)
        composed = plan_annotations.compose(
            self.machine,
            budget,
            policy,
            kept=kept,
            hidden=variables.hidden(clean, policy),
            governed_by=self.policy.reference,
            node=self.node,
        )
        if composed.plan.cap is None and policy.intra_op is None:
            return _skipped(name, SkipReason.NO_CPU_BOUND, composed.plan.because.get("intraOp", ""))
        given = variables.chosen(
            clean, composed, policy, self.policy.image_env, kept=kept, shim=load.loads, door=load.door
        )
        kept += given.kept
        withheld = [*load.withheld, *given.withheld]
        if not given.names and withheld:
            skip = withheld[-1]
            if self.door_closed is not None:
                # By it the container would have had something.
                skip = replace(skip, detail=f"{skip.detail}; {self.door_closed.reason}: {self.door_closed.detail}")
            return ContainerOutcome(name=name, plan=composed.plan, skip=skip, kept=kept)
        self._choose(clean, composed, given, load, self._mounts(clean, load, withheld))
        return ContainerOutcome(
            name=name, plan=composed.plan, withheld=tuple(withheld), kept=kept, variables=given.names
        )

    def _not_planned(self, container: Container) -> Skip | None:
        """Why a container is left alone before anything of it is looked at."""
        runtime = binds_itself(container) if self.policy.containers is None else ""
        if runtime:
            name = container.name[:63]
            detail = f"{runtime} binds its own threads; name {name} in the policy's containers to plan it anyway"
            return Skip(reason=SkipReason.SELF_BINDING_RUNTIME, detail=detail)
        if _CONTAINER_NAME.fullmatch(container.name) is None:
            return Skip(reason=SkipReason.MALFORMED, detail="the name can't be part of an annotation's key")
        if len(self.chosen) >= MAX_PLANNED_CONTAINERS:
            detail = f"at most {MAX_PLANNED_CONTAINERS} containers of a pod get values"
            return Skip(reason=SkipReason.ANNOTATION_BUDGET, detail=detail)
        return None

    def _load(self, clean: Container) -> Loading:
        """How the container's processes find the shim, and why some don't."""
        policy = self.policy.policy
        if self.shim is None:
            if activation.wants_native(policy):
                detail = "nativeShim and allocator need the shim's files, and the policy's shim is None"
                return Loading(withheld=(Skip(reason=SkipReason.SHIM_MISSING, detail=detail),))
            return Loading()
        if isinstance(self.shim, Skip):
            return Loading(withheld=(self.shim,))
        if self.shim.init_container is not None and clean.field == "initContainers":
            detail = "the shim is copied after the other init containers"
            return Loading(withheld=(Skip(reason=SkipReason.SHIM_MISSING, detail=detail),))
        taken = volumes.mount_is_taken(clean, ours=self.names_of_ours)
        if taken is not None:
            return Loading(withheld=(taken,))
        if self.shim.by_door:
            return activation.BY_DOOR
        found = activation.by_variables(clean, policy, self.policy.image_env, self.shim, self.architecture)
        if self.door_closed is None:
            return found
        return replace(found, withheld=tuple(dict.fromkeys((self.door_closed, *found.withheld))))

    def _mounts(self, clean: Container, load: Loading, withheld: list[Skip]) -> list[Mapping[str, Any]]:
        """What is mounted in a container: the shim's files, a place for reports."""
        if self.shim is None and self.policy.policy.reports:
            detail = "the policy's shim is None, so nothing writes reports"
            withheld.append(Skip(reason=SkipReason.REPORTS_MISSING, detail=detail))
        if not load.loads or not isinstance(self.shim, Shim):
            return []
        found = [*self.shim.mounts]
        if self.policy.policy.reports and clean.effective(env.REPORT) is None:
            problem = volumes.no_report(clean, ours=self.names_of_ours)
            if problem is None:
                found.append(volumes.report_mount(clean.name))
            else:
                withheld.append(problem)
        return found

    def _choose(
        self,
        clean: Container,
        composed: plan_annotations.Composed,
        given: Variables,
        load: Loading,
        mounts: Sequence[Mapping[str, Any]],
    ) -> None:
        prefixes = (*given.references.values(), env.PLAN_PREFIX)
        keys = {prefix: prefix + clean.name for prefix in prefixes}
        reports = any(mount["name"] == volumes.REPORT_VOLUME for mount in mounts)
        self.chosen.append(
            Chosen(
                clean,
                variables.edits(clean, given, keys, load.edits, reports=reports),
                mounts,
                {keys[prefix]: composed.values[prefix] for prefix in prefixes},
                sum(len(key) + plan_annotations.reserved(prefix) for prefix, key in keys.items()),
            )
        )

    def _annotation_bytes(self) -> int:
        """The annotations' size with the pod's own and the most that ours may grow to at binding."""
        own = sum(
            len(key.encode()) + len(value.encode())
            for key, value in self.pod.annotations.items()
            if not plan_annotations.is_ours(key)
        )
        ours = len(env.GOVERNED_BY) + len(self.policy.reference) + len(env.SETTINGS_HASH) + len(volumes.SAFE_TO_EVICT)
        return own + ours + 64 + sum(chosen.reserved_bytes for chosen in self.chosen)


def _skipped(name: str, reason: SkipReason, detail: str) -> ContainerOutcome:
    return ContainerOutcome(name=name, skip=Skip(reason=reason, detail=detail))
