"""Kubernetes objects as users write them, and what Raddle has made of pods."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from raddle import env
from raddle.planning import wire

Object = dict[str, Any]
API = "raddle.dev/v1alpha1"

# --- as users write them ----------------------------------------------------------------------------------------------


def container(name: str = "serve", cpu: str | None = None, request: str | None = None, **more: Any) -> Object:
    """A container; `cpu` is its limit, `request` its request, both CPU quantities."""
    resources = {}
    if cpu is not None:
        resources["limits"] = {"cpu": cpu}
    if request is not None:
        resources["requests"] = {"cpu": request}
    return {"name": name, "image": "registry.example/app:1", "resources": resources, **more}


def guaranteed(name: str = "serve", cpu: str = "4", memory: str = "1Gi", **more: Any) -> Object:
    """A container whose requests are its limits."""
    same = {"cpu": cpu, "memory": memory}
    return container(name, **{"resources": {"limits": same, "requests": same}, **more})


def pod(
    *containers: Mapping[str, Any],
    name: str = "app",
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A pod; without containers it has one with a limit of 2 CPUs. `spec` is more of its spec."""
    metadata = _metadata(name, namespace, labels, annotations)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(*containers, **spec)}


def deployment(
    name: str, replicas: int, *containers: Mapping[str, Any], namespace: str | None = None, **spec: Any
) -> Object:
    """A Deployment of such pods, labelled with its name as `app`."""
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec(*containers, **spec)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(name, namespace),
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


def pod_spec(*containers: Mapping[str, Any], **spec: Any) -> Object:
    """The spec of such a pod."""
    return copy.deepcopy({"containers": list(containers) or [container(cpu="2")], **spec})


def policy(
    name: str = "policy",
    namespace: str | None = None,
    kind: str = "InferenceThreading",
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """A policy that selects every pod unless `podSelector` says otherwise. `metadata` is more of its metadata."""
    given = {**_metadata(name, namespace), **(metadata or {})}
    return {"apiVersion": API, "kind": kind, "metadata": given, "spec": {"podSelector": {}, **spec}}


def namespace(name: str, labels: Mapping[str, str] | None = None) -> Object:
    """A namespace, opted in unless other labels are given."""
    given = {env.INJECT_LABEL: "enabled"} if labels is None else labels
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(given)}}


def topology(node: str, **metadata: Any) -> Object:
    """A NodeCPUTopology of four CPUs, as short as the schema allows."""
    spec = {"cpus": {"online": "0-3"}}
    return {"apiVersion": API, "kind": "NodeCPUTopology", "metadata": {"name": node, **metadata}, "spec": spec}


def _metadata(
    name: str,
    namespace: str | None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """What is given of it."""
    result: Object = {"name": name}
    if namespace:
        result["namespace"] = namespace
    if labels is not None:
        result["labels"] = dict(labels)
    if annotations is not None:
        result["annotations"] = dict(annotations)
    return result


# --- what Raddle has made of pods -------------------------------------------------------------------------------------


def injected(one: Mapping[str, Any]) -> bool:
    """Whether Raddle has marked the pod."""
    return bool(one["metadata"].get("labels", {}).get(env.INJECTED_LABEL) == "true")


def governed_by(one: Mapping[str, Any]) -> str:
    """Kind and name of the policy that governs the pod, "" where none does."""
    return str(one["metadata"].get("annotations", {}).get(env.GOVERNED_BY, ""))


def plan_of(one: Mapping[str, Any], container: str = "serve") -> wire.RecordedPlan | None:
    """The plan annotation of a container, read; None where there is none."""
    text = one["metadata"].get("annotations", {}).get(env.PLAN_PREFIX + container)
    return wire.read_plan_text(text) if text else None


def threads(one: Mapping[str, Any], container: str = "serve") -> int | None:
    """How many threads a container is planned with, None where it has no plan."""
    plan = plan_of(one, container)
    return plan.values["intraOp"] if plan else None


def planned_for(one: Mapping[str, Any], container: str = "serve") -> str | None:
    """The node that a container's values are for, None where they are the safe ones or there are none."""
    plan = plan_of(one, container)
    return plan.node if plan else None


def env_of(one: Mapping[str, Any], container: str = "serve") -> dict[str, Object]:
    """Variable -> entry of a container."""
    spec = one["spec"]
    result = next(c for c in [*spec["containers"], *spec.get("initContainers", [])] if c["name"] == container)
    return {entry["name"]: entry for entry in result.get("env", [])}
