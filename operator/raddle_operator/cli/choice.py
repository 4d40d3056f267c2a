"""Which pods a command speaks of, from what people have at hand: a workload's name, labels, a namespace, everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from raddle_operator.cli import cluster
from raddle_operator.kube import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Kube,
    NotFound,
    Object,
    Resource,
)
from raddle_operator.objects import selectors

_SHORT: Final[Mapping[str, Resource]] = {
    "po": PODS,
    "deploy": DEPLOYMENTS,
    "sts": STATEFUL_SETS,
    "ds": DAEMON_SETS,
    "rs": REPLICA_SETS,
    "job": JOBS,
}
KINDS: Final[Mapping[str, Resource]] = {
    **_SHORT,
    **{kind.kind.lower(): kind for kind in _SHORT.values()},
    **{kind.plural: kind for kind in _SHORT.values()},
}
"""What people write before the slash -> where such objects lie."""
ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A choice of pods. `name` "" means all pods of `namespace` ("": of all) that have the labels `selector`.

    Otherwise it is one object of `kind`: a pod, or a workload that stands for the pods that it selects.
    """

    kind: Resource = PODS
    name: str = ""
    namespace: str = ""
    selector: str = ""

    @property
    def is_one_pod(self) -> bool:
        """Whether it names a pod."""
        return bool(self.name) and self.kind is PODS

    @property
    def words(self) -> str:
        """What was chosen, for a sentence."""
        where = f"namespace {self.namespace}" if self.namespace else "the cluster"
        if self.name:
            return f"{self.kind.kind.lower()}/{self.name} in {where}"
        return f"{where} with labels {self.selector}" if self.selector else where


def chosen(
    target: str | None,
    namespace: str | None,
    selector: str,
    kubeconfig: Path | None,
    context: str | None,
    *,
    everywhere: bool,
) -> Choice:
    """The choice that a command line makes; without a name it is a whole namespace. Raises click.UsageError.

    As with kubectl, all namespaces are meant even where one is named too.
    """
    if target and (selector or everywhere):
        raise click.UsageError("name an object, or select pods by --selector and --all-namespaces")
    kind, slash, name = (target or "").rpartition("/")
    resource = KINDS.get(kind.lower()) if slash else PODS
    if resource is None:
        known = ", ".join(sorted(kind.kind.lower() for kind in _SHORT.values()))
        raise click.UsageError(f"{target!r} names a {kind}, which owns no pods that can be selected: use {known}")
    if slash and not name:
        raise click.UsageError(f"{target!r} lacks a name after the slash")
    place = "" if everywhere else namespace or cluster.current_namespace(kubeconfig, context)
    return Choice(kind=resource, name=name, namespace=place, selector=selector)


async def pods(kube: Kube, choice: Choice, also: str = "") -> AsyncIterator[Object]:
    """Yields the pods of a choice, page by page; with `also`, those that have these labels too.

    A pod that has come to its end (a Job's) is left out unless it is named. Raises ClickException where the named
    object is not there, and KubeError.
    """
    if choice.is_one_pod:
        yield await _named(kube, choice)
        return
    selector = choice.selector
    if choice.name:
        selector = selectors.to_query((await _named(kube, choice)).get("spec", {}).get("selector") or {})
    wanted = ",".join(part for part in (also, selector) if part)
    async for page in kube.pages(PODS, choice.namespace, label_selector=wanted):
        for pod in page.items:
            if (pod.get("status") or {}).get("phase") not in ENDED:
                yield pod


async def _named(kube: Kube, choice: Choice) -> Object:
    try:
        return await kube.get(choice.kind, choice.name, choice.namespace)
    except NotFound:
        raise click.ClickException(
            f"{choice.kind.kind.lower()}/{choice.name} not found in namespace {choice.namespace}"
        ) from None
