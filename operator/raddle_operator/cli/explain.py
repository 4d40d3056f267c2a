"""`raddle explain pod/NAME`: why a running pod has what it has, or why it has nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from raddle import delivery, env
from raddle.planning import wire
from raddle_operator.cli import cluster, output, plan
from raddle_operator.cli import live as inside
from raddle_operator.injection import decide, injected, shipped, volumes
from raddle_operator.injection import explain as pure
from raddle_operator.injection.literals import VARIABLES
from raddle_operator.injection.matching import Policies, select
from raddle_operator.injection.tuned import NOT_READ, Place, follow
from raddle_operator.objects import quantities
from raddle_operator.objects.reasons import Skip, SkipReason

EPILOG = """\b
Examples:
  kubectl raddle explain pod/resnet-7d9f -n models
  kubectl raddle explain resnet-7d9f -n models -o json
  kubectl raddle explain resnet-7d9f -n models -o wide   (with Raddle's own variables)
  kubectl raddle explain --live pod/resnet-7d9f -n models
  kubectl raddle explain --live --all-namespaces         (every injected container)

\b
Exit codes: 0 explained, with --live: and every process with a runtime is reached; 1 no such pod, no answer from the
cluster, with --live: a container is not reached or says nothing; 2 bad usage.
"""
# What people want to know first, in this order; what follows is as the plan has it.
FIRST = ("intraOp", "intraOpWithoutShim", "interOp", "spinning", "omp", "blas", "affinity")
# Variables that no runtime reads, only a shim or nobody: RADDLE_PLAN repeats the table.
OWN = "RADDLE_"


@click.command(epilog=EPILOG)
@click.argument("pod", required=False)
@click.option("-n", "--namespace", help="The pod's namespace. Absent: the context's.")
@click.option(
    "--live",
    is_flag=True,
    help="Ask the running containers too, by pods/exec: which processes are reached, and what they got."
    " Without POD: all injected containers of the namespace.",
)
@click.option("-l", "--selector", default="", help="With --live, in the place of POD: pods with these labels.")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="With --live, in the place of POD.")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="As for kubectl.")
@click.option("--context", help="Context of the kubeconfig. Absent: its current one.")
@click.option(
    "-o", "--output", "form", default="text", show_default=True, type=click.Choice(["text", "wide", "json", "yaml"])
)
def explain(
    pod: str | None,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
    form: str,
    *,
    live: bool,
    selector: str,
    everywhere: bool,
) -> None:
    """Say why a pod's containers have the numbers they have, or why they have none."""
    if wrong := inside.selection_error(pod, selector, everywhere=everywhere, live=live):
        raise wrong
    if pod is None:
        answers = asyncio.run(inside.of_pods(namespace, selector, kubeconfig, context, everywhere=everywhere))
        if form in {"text", "wide"}:
            inside.show_many(output.console(), answers)
        else:
            output.write(inside.document(answers), form)
    else:
        answers = _explain_one(pod, namespace, kubeconfig, context, form, live=live)
    if any(answer.fails for answer in answers):
        sys.exit(1)


def _explain_one(
    pod: str, namespace: str | None, kubeconfig: Path | None, context: str | None, form: str, *, live: bool
) -> list[inside.Answer]:
    """Explains a pod; returns what its containers said, nothing where they were not asked."""
    kind, slash, name = pod.rpartition("/")
    if slash and kind.lower() not in {"pod", "pods", "po"}:
        raise click.UsageError(f"{pod!r} names a {kind}; only pods can be explained: pod/NAME")
    snapshot = asyncio.run(cluster.read(name, namespace, kubeconfig, context))
    answers = asyncio.run(inside.of_pod(snapshot.pod, kubeconfig, context)) if live else []
    if form in {"text", "wide"}:
        console = output.console()
        show(console, snapshot, inside.runtimes(answers), wide=form == "wide")
        inside.show(console, answers)
    else:
        output.write(
            {**_document(snapshot, inside.runtimes(answers)), **({"live": inside.document(answers)} if live else {})},
            form,
        )
    return answers


Runtimes = Mapping[str, tuple[str, str]]
"""Container -> the runtime that it has loaded, and its version."""


def show(console: Console, snapshot: cluster.Snapshot, runtimes: Runtimes | None = None, *, wide: bool) -> None:
    """Prints all that there is to say of a pod; with `wide` also the variables that only Raddle's own shims read.

    `runtimes` are what its containers have said, None where they were not asked.
    """
    explanations = explained(snapshot)
    name, node = snapshot.pod["metadata"]["name"], snapshot.pod.get("spec", {}).get("nodeName") or "not bound yet"
    console.print(f"[bold]pod/{escape(name)}[/] in {escape(snapshot.namespace)}, node {escape(node)}")
    if not explanations:
        skip = why_not(snapshot)
        console.print(f"Raddle has set nothing.\n  [yellow]{skip.reason}[/] {escape(skip.detail)}")
        return
    if (newer := changed_since(snapshot)) is not None:
        console.print(f"[yellow]Stale:[/] made with other settings than {escape(newer)} has now; a new pod gets those")
    for one in explanations:
        _print(console, one, snapshot, tuned_now(snapshot, one, runtimes), wide=wide)


def explained(snapshot: cluster.Snapshot) -> list[pure.ContainerExplanation]:
    """What the pod itself says of its containers, and what they do not get, decided again."""
    if not any(key.startswith(env.PLAN_PREFIX) for key in snapshot.annotations):
        return []
    decision = _decide(snapshot)
    withheld = {outcome.name: outcome.withheld for outcome in decision.containers}
    would = _behind_the_door(plan.apply(snapshot.pod, decision.operations)) if decision.injected else frozenset()
    for name in would - _behind_the_door(snapshot.pod):
        withheld[name] = (
            Skip(reason=SkipReason.DOOR_CLOSED, detail="it was when the pod was created"),
            *withheld[name],
        )
    presets = {outcome.name: pure.preset(outcome.preset, outcome.advice) for outcome in decision.containers}
    return pure.explain(snapshot.annotations, injected.literals_of(snapshot.pod), withheld, presets)


def _behind_the_door(pod: Mapping[str, Any]) -> frozenset[str]:
    """The containers that have the shim by /etc/ld.so.preload."""
    spec = pod.get("spec") or {}
    return frozenset(
        container["name"]
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        for mount in container.get("volumeMounts") or ()
        if (mount["name"], mount["mountPath"]) == (volumes.SHIM_VOLUME, delivery.PRELOAD_FILE)
    )


def changed_since(snapshot: cluster.Snapshot) -> str | None:
    """The policy that would give the pod other values now, None where it has those; its status counts the pod.

    A pod that no policy governs any more keeps what it has, and is nobody's.
    """
    labels = snapshot.pod.get("metadata", {}).get("labels") or {}
    made_with = snapshot.annotations.get(env.SETTINGS_HASH)
    now = select(labels, snapshot.namespace, snapshot.namespace_labels, Policies(list(snapshot.policies))).policy
    if made_with is None or now is None or now.settings_hash == made_with:
        return None
    return now.reference


def resized_to(snapshot: cluster.Snapshot, one: pure.ContainerExplanation) -> float | None:
    """A container's own CPU limit now where it was planned with another, else None."""
    spec = snapshot.pod.get("spec") or {}
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    limits = [
        (found.get("resources") or {}).get("limits") or {} for found in containers if found["name"] == one.container
    ]
    if not limits or "cpu" not in limits[0]:
        return None
    limit_cpus = float(quantities.parse(limits[0]["cpu"]))
    return None if one.problem or limit_cpus == one.planned_cpus else limit_cpus


def _decide(snapshot: cluster.Snapshot) -> decide.Decision:
    """Decides on the pod with what the cluster holds now.

    When it was created no node was chosen yet, so its architecture may not have been known; the door says that it was.
    """
    machine, pod = snapshot.machine, snapshot.pod
    spec = pod.get("spec") or {}
    node, architectures = spec.get("nodeName"), snapshot.architectures
    if _behind_the_door(pod):
        architectures = frozenset({(machine.architecture if machine is not None else "") or delivery.ARCHITECTURES[0]})
    else:
        pod = {**pod, "spec": {key: value for key, value in spec.items() if key != "nodeName"}}
    facts = decide.Facts(
        smallest_cores=(len(machine.cores) or None) if machine is not None else None,
        machines={node: machine} if node and machine is not None else {},
        architectures=architectures,
    )
    # The operator's native shims, of which this installation may have none.
    shim = replace(shipped.shim(), door_items=dict.fromkeys(delivery.ARCHITECTURES, ()))
    settings = decide.Settings(shim=shim, unlabelled=snapshot.unlabelled)
    policies = Policies(list(snapshot.policies))
    return decide.decide_object(pod, snapshot.namespace, snapshot.namespace_labels, policies, facts, settings)


def why_not(snapshot: cluster.Snapshot) -> Skip:
    """Why a pod has no values, by deciding on it again with what the cluster holds now."""
    decision = _decide(snapshot)
    if decision.skip is not None:
        return decision.skip
    assert decision.policy is not None
    detail = (
        f"{decision.policy.reference} governs it now, but the pod was created before that, or while the webhook did"
        " not answer; a new pod gets values"
    )
    return Skip(reason=SkipReason.WEBHOOK_MISSED, detail=detail)


def tuned_now(
    snapshot: cluster.Snapshot, one: pure.ContainerExplanation, runtimes: Runtimes | None = None
) -> str | None:
    """What the tuning comes to now, where that is something else; None where it is not.

    The node has told which image it runs, its process perhaps the runtime, and a tuning may have found more since.
    """
    if snapshot.tunings is None or snapshot.machine is None or one.node is None:
        return None
    recorded = wire.read_plan_text(snapshot.annotations[env.PLAN_PREFIX + one.container])
    made_with = recorded.because.get(wire.TUNED, NOT_READ)
    if recorded.tuned is None or made_with == NOT_READ:
        return None
    image_id = _image_id(snapshot.pod, one.container)
    runtime = (runtimes or {}).get(one.container, ("", ""))
    references = (env.OMP, env.OPENBLAS)
    given = {name: "" if name in references else value for name, value in one.variables.items()}
    place = Place(
        *(snapshot.namespace, one.container, recorded.tuned, snapshot.machine),
        *(image_id, *runtime),
        own=one.kept,
        # Of a pod that was created for a node, without a binding, they are that node's.
        given={name: value for name, value in given.items() if name in (*references, *VARIABLES)},
    )
    now = follow(recorded.policy, recorded.budget, place, snapshot.tunings)
    if now is None or now.because == made_with:
        return None
    return pure.tuning(now.tuned.by, {wire.TUNED: now.because})


def _image_id(pod: Mapping[str, Any], container: str) -> str:
    """The digest of the image that the node runs, "" where it has told none."""
    status = pod.get("status") or {}
    told = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    ids = (str(one.get("imageID") or "") for one in told if one.get("name") == container)
    return next(ids, "").rpartition("@")[2]


def _print(
    console: Console, one: pure.ContainerExplanation, snapshot: cluster.Snapshot, now: str | None, *, wide: bool
) -> None:
    console.print(f"\ncontainer [bold]{escape(one.container)}[/], governed by {escape(one.governed_by or '?')}")
    if one.problem:
        console.print(f"  [yellow]its plan can't be read:[/] {escape(one.problem)}")
        return
    made_for = f"values for node {one.node}" if one.node else "safe values, right on any node"
    console.print(f"  {escape(made_for)}")
    known = f"known server: {one.preset}" if one.preset else ""
    for line in filter(None, (known, pure.tuning(one.tuned, one.because))):
        console.print(f"  {escape(line)}")
    if now is not None:
        console.print(f"  [yellow]Now:[/] {escape(now)}")
    if (resized_cpus := resized_to(snapshot, one)) is not None:
        planned = "without a limit" if one.planned_cpus is None else f"for {one.planned_cpus:g} CPUs"
        advice = "shims count with the limit as it is; a new pod gets its numbers"
        console.print(f"  [yellow]Resized:[/] planned {planned}, the limit is {resized_cpus:g} now; {advice}")
    table = output.table("setting", "value", "because")
    names = [*(n for n in FIRST if n in one.values), *(n for n in one.values if n not in FIRST)]
    for name in names:
        table.add_row(name, escape(_text(one.values[name])), escape(one.because.get(name, "")))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    for name, value in one.variables.items():
        if wide or not name.startswith(OWN):
            # Whole, so that it can be copied.
            why = f"   {one.reasons[name]}" if name in one.reasons else ""
            console.print(f"  [dim]{escape(name)}={escape(value)}{escape(why)}[/]", soft_wrap=True)
    for skip in one.withheld:
        console.print(f"  [yellow]not given[/] {escape(str(skip))}")
    if one.kept:
        console.print(f"  kept as the pod spec sets them: {escape(', '.join(one.kept))}")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def _document(snapshot: cluster.Snapshot, runtimes: Runtimes | None = None) -> Mapping[str, Any]:
    explanations = explained(snapshot)
    skip = None if explanations else why_not(snapshot)
    metadata = snapshot.pod.get("metadata", {})
    now = {one.container: tuned_now(snapshot, one, runtimes) for one in explanations}
    return {
        "pod": metadata.get("name"),
        "namespace": snapshot.namespace,
        "node": snapshot.pod.get("spec", {}).get("nodeName"),
        "injected": (metadata.get("labels") or {}).get(env.INJECTED_LABEL) == "true",
        "containers": [_plain(asdict(one)) for one in explanations],
        "staleAgainst": changed_since(snapshot),
        "tunedNow": {container: text for container, text in now.items() if text is not None},
        "resizedTo": {one.container: cpus for one in explanations if (cpus := resized_to(snapshot, one)) is not None},
        "skipped": None if skip is None else {"reason": str(skip.reason), "detail": skip.detail},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, str):
        return str(value)  # a reason is one, but not to YAML
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
