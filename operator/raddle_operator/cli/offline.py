"""What the webhook would decide, from files alone: of a workload, or of a container on this machine."""

from __future__ import annotations

import asyncio
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click
import yaml

from raddle import delivery, env
from raddle.cpus.topology import Machine, cores_within
from raddle.machine import sysfs
from raddle_operator.cli import manifests, workloads
from raddle_operator.cli.manifests import Manifest, ManifestError
from raddle_operator.cli.workloads import Workload
from raddle_operator.injection import binding, json_patch, shipped
from raddle_operator.injection import decide as injection
from raddle_operator.injection.door import CLOSED
from raddle_operator.injection.matching import Policies
from raddle_operator.injection.tuning import Tunings
from raddle_operator.local.container import Container
from raddle_operator.objects import nodetopology
from raddle_operator.objects.policy import PolicyObject
from raddle_operator.objects.quantities import QuantityError
from raddle_operator.objects.quantities import parse as quantity
from raddle_operator.objects.reasons import SkipReason
from raddle_operator.objects.selectors import EVERYTHING
from raddle_operator.presets.rows import presets

_NAME: Final = "main"
_NAMESPACE: Final = "default"
_ANNOTATION: Final = re.compile(r"metadata\.annotations\['(.*)'\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedWorkload:
    """A workload, what was decided, and its pod with the changes (and those of the binding where a node is known)."""

    workload: Workload
    decision: injection.Decision
    pod: manifests.Object


def machine_of(node: str | None, root: Path | None) -> tuple[str | None, Machine | None]:
    """The name and the machine of a node or a folder or file; None and None where neither is asked for."""
    if node is not None:
        from raddle_operator.cli import cluster

        return node, asyncio.run(cluster.machine(node))
    if root is None:
        return None, None
    if root.is_dir():
        machine = sysfs.read_machine(str(root))
        if not machine.online:
            raise ManifestError(f"{root}: holds no sys/devices/system/cpu of a machine")
        return str(root), machine
    manifest = next((m for m in manifests.load([str(root)]) if m.kind == nodetopology.KIND), None)
    if manifest is None:
        raise ManifestError(f"{root}: holds no {nodetopology.KIND}")
    try:
        return str(manifest.metadata.get("name") or root), nodetopology.from_object(manifest.obj)
    except nodetopology.TopologyError as error:
        raise manifest.error(error.path, f"{error.value} is not {error.allowed}") from None


def decide(
    workload: Workload,
    policies: Policies,
    namespace_labels: Mapping[str, str],
    node: str | None,
    machine: Machine | None,
    tunings: Tunings | None = None,
) -> PlannedWorkload:
    """What the webhook would do at CREATE and, where the machine is known, at binding."""
    smallest = cores_within(machine, machine.online) if machine is not None else None
    # Manifests don't say it; a cluster has nodes of one kind more often than not.
    architecture = machine.architecture if machine is not None else delivery.ARCHITECTURES[0]
    architectures = frozenset({architecture} - {""})
    facts = injection.Facts(smallest_cores=smallest, architectures=architectures, tunings=tunings)
    decision = injection.decide_object(
        owned(workload), workload.namespace, namespace_labels, policies, facts, injection.Settings(shim=shipped.shim())
    )
    pod = json_patch.apply(workload.pod, decision.operations)
    if node is not None and machine is not None and decision.injected:
        annotations = pod["metadata"].get("annotations", {})
        rebound = binding.rebind(annotations, node, machine, namespace=workload.namespace, tunings=tunings)
        annotations.update(rebound.annotations)
    return PlannedWorkload(workload=workload, decision=decision, pod=pod)


def owned(workload: Workload) -> manifests.Object:
    """The pod as its workload's: by it `tuning: Auto` finds the tuning."""
    owner = {"kind": workload.manifest.kind, "name": workload.manifest.metadata.get("name"), "controller": True}
    return {**workload.pod, "metadata": {**workload.pod["metadata"], "ownerReferences": [owner]}}


# --- a container on this machine ------------------------------------------------------------------------------------


def cpu_limit(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The option's value. Raises BadParameter where it is no quantity."""
    del ctx, param
    try:
        if value is not None:
            quantity(value)
    except QuantityError as error:
        raise click.BadParameter(f"{error}; write CPUs as in Kubernetes, for example 4 or 500m") from None
    return value


def default_policy() -> Manifest:
    """A policy that leaves everything to Raddle."""
    obj = {"apiVersion": "raddle.dev/v1alpha1", "kind": "InferenceThreading", "metadata": {"name": "default"}}
    return Manifest(file="the policy", obj={**obj, "spec": {"podSelector": {}}}, node=yaml.MappingNode("", []))


def for_everything(policy: PolicyObject) -> PolicyObject:
    """The policy, whatever it selects."""
    return replace(
        policy,
        namespace=_NAMESPACE if policy.namespace else "",
        pod_selector=EVERYTHING,
        namespace_selector=EVERYTHING,
        # Named there, it is meant here too: also a server that would be left alone.
        containers=None if policy.containers is None else (_NAME,),
    )


def container(limit: str | None, policy: PolicyObject, root: Path, command: Sequence[str] = ()) -> Container:
    """What a container with this CPU limit and command gets on the machine. Raises ManifestError for no machine."""
    resources = {} if limit is None else {"limits": {"cpu": limit}}
    name, machine = machine_of(None, root)
    if machine is not None:
        # The files are for programs that run here.
        machine = machine._replace(architecture=platform.machine())
    # By its command a server is known.
    told = {name: os.environ[name] for row in presets() for name in row.unless if name in os.environ}
    env_entries = [{"name": name, "value": value} for name, value in told.items()]
    obj = {"name": _NAME, "image": _NAME, "resources": resources, "command": [*command], "env": env_entries}
    result = of_container(obj, policy, name, machine)
    return replace(result, variables={name: value.replace("$$", "$") for name, value in result.variables.items()})


def of_container(
    obj: manifests.Object,
    policy: PolicyObject,
    name: str | None,
    machine: Machine | None,
    *,
    shim: bool = True,
) -> Container:
    """What a pod's container gets on the machine beside its own; the variables as its spec would write them.

    Without `shim` its pod has none, which no note says. Raises ManifestError where the container is none.
    """
    labels = {} if shim else {env.DOOR_LABEL: CLOSED}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "raddle-run", "namespace": _NAMESPACE, "labels": labels},
        "spec": {"containers": [obj]},
    }
    made = Manifest(file="the pod", obj=pod, node=yaml.MappingNode("", []))
    workload = next(workloads.read_workloads([made]))
    planned = decide(workload, Policies([policy]), {env.INJECT_LABEL: "enabled"}, name, machine)
    decision, result = planned.decision, planned.pod["spec"]["containers"][0]
    skips = [decision.skip, *(skip for one in decision.containers for skip in (one.skip, *one.withheld))]
    own, annotations = obj.get("env") or [], planned.pod["metadata"].get("annotations", {})
    limit = ((obj.get("resources") or {}).get("limits") or {}).get("cpu")
    return Container(
        cpus=None if limit is None else float(quantity(limit)) or None,
        variables=dict(_written(entry, annotations) for entry in result.get("env", []) if entry not in own),
        mounts=tuple(mount["mountPath"] for mount in result.get("volumeMounts", [])),
        # The label stands for whatever the pod has no shim for.
        notes=tuple(
            dict.fromkeys(str(skip) for skip in skips if skip and (shim or skip.reason != SkipReason.DOOR_CLOSED))
        ),
    )


def _written(entry: manifests.Object, annotations: Mapping[str, str]) -> tuple[str, str]:
    """The name and the value of an entry that the container has not itself."""
    name = str(entry["name"])
    if "value" in entry:
        return name, entry["value"]
    key = _ANNOTATION.fullmatch(entry["valueFrom"]["fieldRef"]["fieldPath"])
    assert key is not None, "a reference of ours reads an annotation"
    return name, annotations.get(key[1], "").replace("$", "$$")
