"""`raddle explain`: why running pods have what they have, or why they have nothing, and what runs in them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from raddle import env
from raddle_operator.cli import cluster, groups, output, running, why
from raddle_operator.cli import live as inside
from raddle_operator.cli import reports as reports_of
from raddle_operator.cli.choice import Choice, chosen, pods
from raddle_operator.cli.why import Runtimes
from raddle_operator.injection import explain as pure
from raddle_operator.kube import Kube, Object

EPILOG = """\b
Examples:
  kubectl raddle explain pod/resnet-7d9f -n models
  kubectl raddle explain resnet-7d9f -n models -o json
  kubectl raddle explain resnet-7d9f -n models -o wide   (with Raddle's own variables)
  kubectl raddle explain deployment/resnet -n models     (or statefulset/, daemonset/, replicaset/, job/)
  kubectl raddle explain -n models                       (the whole namespace; -l app=resnet, -A)
  kubectl raddle explain --live pod/resnet-7d9f -n models
  kubectl raddle explain --live --all-namespaces         (every injected container)

\b
Effective values need agents with agent.watch (a chart value), and permission to get pods/proxy in Raddle's namespace.

\b
Exit codes: 0 success; 1 no such object, no pods, or no answer from the cluster; 2 invalid usage. With --live also 1 if
a process with a runtime did not load the shim, or a container can't be inspected.
"""
# What people want to know first, in this order; what follows is as the plan has it.
FIRST = ("intraOp", "intraOpWithoutShim", "interOp", "spinning", "omp", "blas", "affinity")
# Variables that no runtime reads, only a shim or nobody: RADDLE_PLAN repeats the table.
OWN = "RADDLE_"


@click.command(epilog=EPILOG)
@click.argument("target", required=False)
@click.option("-n", "--namespace", help="Namespace. Default: the context's namespace.")
@click.option("-l", "--selector", default="", help="Explain pods with these labels instead of TARGET.")
@click.option(
    "-A", "--all-namespaces", "everywhere", is_flag=True, help="Explain pods in all namespaces instead of TARGET."
)
@click.option(
    "--live",
    is_flag=True,
    help="Also inspect the running containers (pods/exec): processes that loaded the shim, and their settings.",
)
@click.option(
    "--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Path to the kubeconfig file."
)
@click.option("--context", help="Kubeconfig context. Default: the current context.")
@click.option(
    "-o", "--output", "form", default="text", show_default=True, type=click.Choice(["text", "wide", "json", "yaml"])
)
def explain(
    target: str | None,
    namespace: str | None,
    selector: str,
    kubeconfig: Path | None,
    context: str | None,
    form: str,
    *,
    live: bool,
    everywhere: bool,
) -> None:
    """Show the planned and effective values of containers with the reasons, or why they have none.

    TARGET is pod/NAME (or NAME), deployment/NAME, statefulset/NAME, daemonset/NAME, replicaset/NAME or job/NAME. The
    default is all pods of the namespace. Several pods are shown as a table, in which those that do not differ share a
    line.
    """
    choice = chosen(target, namespace, selector, kubeconfig, context, everywhere=everywhere)
    readable = form in {"text", "wide"}
    answers: list[inside.Answer] = []
    if choice.is_one_pod:
        snapshot, reports = asyncio.run(_one(choice, kubeconfig, context))
        answers = asyncio.run(inside.of_pod(snapshot.pod, kubeconfig, context)) if live else []
        if readable:
            _show_one(snapshot, reports, answers, wide=form == "wide")
        else:
            document = {
                **_document(snapshot, inside.runtimes(answers)),
                "running": running.document(reports, snapshot.pod),
            }
            output.write({**document, **({"live": inside.document(answers)} if live else {})}, form)
    elif live:
        answers = asyncio.run(inside.of_choice(choice, kubeconfig, context))
        if readable:
            inside.show_many(output.console(), answers)
        else:
            output.write(inside.document(answers), form)
    else:
        several = asyncio.run(_several(choice, kubeconfig, context))
        if not readable:
            output.write(groups.document(several.groups, several.missing), form)
        elif several.only is not None:
            _show_one(several.only, several.reports, [], wide=form == "wide")
        else:
            groups.show(output.console(), several.groups, several.missing, everywhere=not choice.namespace)
    if any(answer.fails for answer in answers):
        sys.exit(1)


async def _one(
    choice: Choice, kubeconfig: Path | None, context: str | None
) -> tuple[cluster.Snapshot, reports_of.Reports]:
    """A pod, and the report of its node's agent."""
    async with cluster.connected(kubeconfig, context) as kube:
        (pod,) = [pod async for pod in pods(kube, choice)]
        return await cluster.Snapshots(kube).of(pod), await _reports(kube, [pod])


async def _reports(kube: Kube, result: Iterable[Object]) -> reports_of.Reports:
    nodes = {str(node) for pod in result if (node := (pod.get("spec") or {}).get("nodeName"))}
    return await reports_of.of_nodes(kube, nodes) if nodes else reports_of.Reports()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Several:
    """What is said of several pods; `only` is the one that there is, None where there are more."""

    groups: Sequence[groups.Group]
    missing: str
    only: cluster.Snapshot | None
    reports: reports_of.Reports


async def _several(choice: Choice, kubeconfig: Path | None, context: str | None) -> _Several:
    """Raises ClickException where the choice has no pods."""
    async with cluster.connected(kubeconfig, context) as kube:
        snapshots, said = cluster.Snapshots(kube), []
        only: cluster.Snapshot | None = None
        # A large cluster's pods are not held: of each stays what is said.
        async for pod in pods(kube, choice):
            only = await snapshots.of(pod)
            metadata, node = pod["metadata"], (pod.get("spec") or {}).get("nodeName") or ""
            place = groups.Pod(only.namespace, metadata["name"], metadata.get("uid") or "", node)
            said.append((place, groups.answers(only)))
        if not said:
            raise click.ClickException(f"no pods of {choice.words}")
        nodes = {pod.node for pod, its in said if pod.node and any(one.container for one in its)}
        reports = await reports_of.of_nodes(kube, nodes) if nodes else reports_of.Reports()
    return _Several(
        groups=groups.grouped(said, reports),
        missing=reports.missing(nodes),
        only=only if len(said) == 1 else None,
        reports=reports,
    )


def _show_one(
    snapshot: cluster.Snapshot, reports: reports_of.Reports, answers: Sequence[inside.Answer], *, wide: bool
) -> None:
    console = output.console()
    show(console, snapshot, inside.runtimes(answers), wide=wide)
    if why.explained(snapshot):
        running.show(console, reports, snapshot.pod)
    inside.show(console, answers)


def show(console: Console, snapshot: cluster.Snapshot, runtimes: Runtimes | None = None, *, wide: bool) -> None:
    """Prints all that there is to say of a pod; with `wide` also the variables that only Raddle's own shims read.

    `runtimes` are what its containers have said, None where they were not asked.
    """
    explanations = why.explained(snapshot)
    name, node = snapshot.pod["metadata"]["name"], snapshot.pod.get("spec", {}).get("nodeName") or "not bound yet"
    console.print(f"[bold]pod/{escape(name)}[/] in {escape(snapshot.namespace)}, node {escape(node)}")
    if not explanations:
        skip = why.why_not(snapshot)
        console.print(f"Raddle has set nothing.\n  [yellow]{skip.reason}[/] {escape(skip.detail)}")
        return
    if (newer := why.changed_since(snapshot)) is not None:
        console.print(
            f"[yellow]Stale:[/] created with other settings than {escape(newer)} has now; a new pod gets "
            "the current ones"
        )
    for one in explanations:
        _print(console, one, snapshot, why.tuned_now(snapshot, one, runtimes), wide=wide)


def _print(
    console: Console, one: pure.ContainerExplanation, snapshot: cluster.Snapshot, now: str | None, *, wide: bool
) -> None:
    console.print(f"\ncontainer [bold]{escape(one.container)}[/], governed by {escape(one.governed_by or '?')}")
    if one.problem:
        console.print(f"  [yellow]its plan can't be read:[/] {escape(one.problem)}")
        return
    made_for = f"values for node {one.node}" if one.node else "safe values, valid on any node"
    console.print(f"  {escape(made_for)}")
    known = f"known server: {one.preset}" if one.preset else ""
    for line in filter(None, (known, pure.tuning(one.tuned, one.because))):
        console.print(f"  {escape(line)}")
    if now is not None:
        console.print(f"  [yellow]Now:[/] {escape(now)}")
    if (resized_cpus := why.resized_to(snapshot, one)) is not None:
        planned = "without a limit" if one.planned_cpus is None else f"for {one.planned_cpus:g} CPUs"
        advice = "shims use the current limit; a new pod gets values for it"
        console.print(f"  [yellow]Resized:[/] planned {planned}, the limit is {resized_cpus:g} now; {advice}")
    table = output.table("setting", "value", "because")
    names = [*(n for n in FIRST if n in one.values), *(n for n in one.values if n not in FIRST)]
    for name in names:
        table.add_row(name, escape(_text(one.values[name])), escape(one.because.get(name, "")))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    for name, value in one.variables.items():
        if wide or not name.startswith(OWN):
            # Whole, so that it can be copied.
            reason = f"   {one.reasons[name]}" if name in one.reasons else ""
            console.print(f"  [dim]{escape(name)}={escape(value)}{escape(reason)}[/]", soft_wrap=True)
    for skip in one.withheld:
        console.print(f"  [yellow]not given[/] {escape(str(skip))}")
    if one.kept:
        console.print(f"  kept as the pod spec sets them: {escape(', '.join(one.kept))}")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in value.items())
    return f"{value:g}" if isinstance(value, float) else str(value)


def _document(snapshot: cluster.Snapshot, runtimes: Runtimes | None = None) -> Mapping[str, Any]:
    explanations = why.explained(snapshot)
    skip = None if explanations else why.why_not(snapshot)
    metadata = snapshot.pod.get("metadata", {})
    resized = {one.container: why.resized_to(snapshot, one) for one in explanations}
    now = {one.container: why.tuned_now(snapshot, one, runtimes) for one in explanations}
    return {
        "pod": metadata.get("name"),
        "namespace": snapshot.namespace,
        "node": snapshot.pod.get("spec", {}).get("nodeName"),
        "injected": (metadata.get("labels") or {}).get(env.INJECTED_LABEL) == "true",
        "containers": [_plain(asdict(one)) for one in explanations],
        "staleAgainst": why.changed_since(snapshot),
        "tunedNow": {container: text for container, text in now.items() if text is not None},
        "resizedTo": {name: cpus for name, cpus in resized.items() if cpus is not None},
        "skipped": None if skip is None else {"reason": str(skip.reason), "detail": skip.detail},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, str):
        return str(value)  # a reason is one, but not to YAML
    return [_plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value
