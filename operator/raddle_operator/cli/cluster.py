"""What commands ask a cluster for: a node's machine, a pod and what decides on it. Only where a cluster is needed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import yaml

from raddle import env
from raddle.cpus.topology import Machine
from raddle_operator.injection.matching import DISABLED, ENABLED, LABELLED
from raddle_operator.injection.tuning import Tunings
from raddle_operator.kube import (
    CLUSTER_INFERENCE_THREADINGS,
    INFERENCE_THREADINGS,
    INFERENCE_TUNINGS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODE_CPU_TOPOLOGIES,
    PODS,
    Forbidden,
    Kube,
    KubeError,
    NotFound,
    Object,
    Resource,
)
from raddle_operator.objects import nodecheck, nodetopology
from raddle_operator.objects.policy import PolicyObject, SpecError, policy_from_object
from raddle_operator.objects.tuning import results_from_object

CONFIGURATION: Final = "raddle"
"""The chart's MutatingWebhookConfiguration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A pod and all that decides what it gets, as the cluster holds it now.

    `machine` is the pod's node, None where it has none or its topology is not known; `architectures` are those of all
    nodes that Raddle knows; `unlabelled` is what a namespace without the label counts as. `tunings` are the
    namespace's, None where no policy there names one, or one may not look.
    """

    pod: Object
    namespace: str
    namespace_labels: Mapping[str, str]
    policies: tuple[PolicyObject, ...]
    machine: Machine | None = None
    architectures: frozenset[str] = frozenset()
    unlabelled: str = DISABLED
    tunings: Tunings | None = None

    @property
    def annotations(self) -> Mapping[str, str]:
        """The pod's annotations, {} where it has none."""
        result = self.pod.get("metadata", {}).get("annotations") or {}
        return {str(key): str(value) for key, value in result.items()}


async def machine(node: str, kubeconfig: Path | None = None, context: str | None = None) -> Machine:
    """The machine that a node's NodeCPUTopology describes. Raises click.ClickException."""
    async with connected(kubeconfig, context) as kube:
        try:
            obj = await kube.get(NODE_CPU_TOPOLOGIES, node)
        except NotFound:
            raise click.ClickException(f"nodecputopology/{node} not found") from None
    try:
        return nodecheck.machine_of(obj)
    except nodetopology.TopologyError as error:
        raise click.ClickException(f"nodecputopology/{node}: {error}") from None


async def read(name: str, namespace: str | None, kubeconfig: Path | None, context: str | None) -> Snapshot:
    """A pod with its namespace's labels and the policies that may govern it. Raises click.ClickException."""
    place = namespace or current_namespace(kubeconfig, context)
    async with connected(kubeconfig, context) as kube:
        return await Snapshots(kube).of(await _get(kube, PODS, name, place))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What the pods of a namespace have in common."""

    labels: Mapping[str, str]
    policies: tuple[PolicyObject, ...]
    tunings: Tunings | None


class Snapshots:
    """Makes snapshots of pods; what several of them have in common is read once."""

    def __init__(self, kube: Kube) -> None:
        """`kube` is asked when a snapshot is made."""
        self._kube = kube
        self._everywhere: tuple[frozenset[str], str] | None = None
        self._places: dict[str, _Place] = {}
        self._machines: dict[str, Machine | None] = {}

    async def of(self, pod: Object) -> Snapshot:
        """A pod and all that decides what it gets. Raises KubeError, and ClickException where its namespace is gone."""
        namespace = pod["metadata"].get("namespace") or "default"
        node = (pod.get("spec") or {}).get("nodeName") or ""
        if self._everywhere is None:
            self._everywhere = await _architectures(self._kube), await unlabelled(self._kube)
        if namespace not in self._places:
            self._places[namespace] = await self._place(namespace)
        if node not in self._machines:
            self._machines[node] = await _machine_of(self._kube, node)
        (architectures, scope), place = self._everywhere, self._places[namespace]
        return Snapshot(
            pod=pod,
            namespace=namespace,
            namespace_labels=place.labels,
            policies=place.policies,
            machine=self._machines[node],
            architectures=architectures,
            unlabelled=scope,
            tunings=place.tunings,
        )

    async def _place(self, namespace: str) -> _Place:
        labels = (await _get(self._kube, NAMESPACES, namespace))["metadata"].get("labels") or {}
        result = await policies(self._kube, namespace)
        tunings = await _tunings(self._kube, namespace) if any(policy.policy.tuning for policy in result) else None
        return _Place(labels=labels, policies=result, tunings=tunings)


async def unlabelled(kube: Kube) -> str:
    """What the installed webhook takes a namespace without the label for; disabled where one may not look."""
    try:
        return unlabelled_in(await kube.get(MUTATING_WEBHOOKS, CONFIGURATION))
    except (NotFound, Forbidden):
        return DISABLED


def unlabelled_in(configuration: Object) -> str:
    """What a webhook configuration takes a namespace without the label for: disabled, labelled or enabled."""
    for webhook in configuration.get("webhooks") or []:
        state = {"pods-enabled.raddle.dev": ENABLED, "pods-labelled.raddle.dev": LABELLED}.get(webhook.get("name"))
        for expression in (webhook.get("namespaceSelector") or {}).get("matchExpressions") or []:
            # NotIn holds for a label that is absent too.
            if state and (expression.get("key"), expression.get("operator")) == (env.INJECT_LABEL, "NotIn"):
                return state
    return DISABLED


async def _architectures(kube: Kube) -> frozenset[str]:
    """Those of all nodes that Raddle knows, as uname names them; none where one may not look."""
    try:
        result = await kube.list(NODE_CPU_TOPOLOGIES)
    except (NotFound, Forbidden):
        return frozenset()
    return frozenset(str((obj.get("spec") or {}).get("architecture") or "") for obj in result.items) - {""}


async def _machine_of(kube: Kube, node: str | None) -> Machine | None:
    """A node's machine; None where nobody knows it, or the user may not look."""
    if not node:
        return None
    try:
        return nodecheck.machine_of(await kube.get(NODE_CPU_TOPOLOGIES, node))
    except (NotFound, Forbidden, nodetopology.TopologyError):
        return None


async def _tunings(kube: Kube, namespace: str) -> Tunings | None:
    """What the namespace's tunings have found; None where one may not look, or the cluster has no such kind."""
    try:
        result = await kube.list(INFERENCE_TUNINGS, namespace)
    except (NotFound, Forbidden):
        return None
    read = {}
    for obj in result.items:
        # One that can't be read is left out by the webhook too.
        with suppress(SpecError):
            results = results_from_object(obj)
            read[namespace, results.name] = results
    return read


async def policies(kube: Kube, namespace: str = "") -> tuple[PolicyObject, ...]:
    """The policies of a namespace ("": of all), and those of the cluster. Raises KubeError: Raddle may not be there."""
    own = await kube.list(INFERENCE_THREADINGS, namespace)
    everywhere = await kube.list(CLUSTER_INFERENCE_THREADINGS)
    # Items of a list need not carry their kind.
    objects = [{**obj, "kind": INFERENCE_THREADINGS.kind} for obj in own.items]
    objects += [{**obj, "kind": CLUSTER_INFERENCE_THREADINGS.kind} for obj in everywhere.items]
    return tuple(_read_policies(objects))


def _read_policies(objects: list[Object]) -> list[PolicyObject]:
    read = []
    for obj in objects:
        try:
            read.append(policy_from_object(obj))
        except SpecError:
            # The webhook leaves it out as well; its status says why.
            continue
    return read


@asynccontextmanager
async def connected(kubeconfig: Path | None, context: str | None) -> AsyncIterator[Kube]:
    """Yields a client with the user's own rights. Raises click.ClickException, also for what fails while it is used."""
    try:
        async with await Kube.from_settings(_kubeconfig(kubeconfig), context) as kube:
            yield kube
    except KubeError as error:
        raise click.ClickException(str(error)) from None


async def _get(kube: Kube, resource: Resource, name: str, namespace: str = "") -> Object:
    try:
        return await kube.get(resource, name, namespace)
    except NotFound:
        where = f" in namespace {namespace}" if namespace else ""
        raise click.ClickException(f"{resource.kind.lower()}/{name} not found{where}") from None


def _kubeconfig(given: Path | None) -> Path | None:
    """The file that kubectl would read first; None in a pod that has none, which means its own account.

    Raises click.ClickException where there is neither.
    """
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    candidates = [given] if given else named or [Path.home() / ".kube" / "config"]
    result = next((path for path in candidates if path.exists()), None)
    if result is None and not os.environ.get("KUBERNETES_SERVICE_HOST"):
        looked = ", ".join(map(str, candidates))
        raise click.ClickException(f"no kubeconfig: there is no {looked}; set KUBECONFIG to one")
    return result


def current_namespace(kubeconfig: Path | None, context: str | None) -> str:
    """The namespace that kubectl would take."""
    path = _kubeconfig(kubeconfig)
    try:
        config: Any = yaml.safe_load(path.read_text()) if path else {}
        wanted = context or config.get("current-context")
        result = next(one["context"] for one in config["contexts"] if one["name"] == wanted)
        return str(result.get("namespace") or "default")
    except (OSError, yaml.YAMLError, AttributeError, KeyError, StopIteration, TypeError):
        return "default"
