"""`raddle plan`: what policies would set on workloads, from files alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.markup import escape

from raddle import env
from raddle.planning import wire
from raddle_operator.cli import manifests, output
from raddle_operator.cli.manifests import ManifestError
from raddle_operator.cli.offline import PlannedWorkload, decide, machine_of
from raddle_operator.cli.workloads import TEMPLATES, read_policies, read_tunings, read_workloads
from raddle_operator.injection import explain, injected
from raddle_operator.injection.matching import Policies
from raddle_operator.objects.reasons import SkipReason

EPILOG = """\b
Examples:
  raddle plan -f policy.yaml -f deployment.yaml
  raddle plan -f policy.yaml -f deployment.yaml --machine /          as if bound to this machine
  raddle plan -f policy.yaml -f deployment.yaml --node worker-7      as if bound to a node of the cluster
  raddle plan -f policy.yaml -f deployment.yaml -f tuning.yaml --machine /    with the result of a tuning
  raddle plan -f policies/ -f app/ -o yaml                           the pods as they would be created
  helm template app | raddle plan -f policy.yaml -f - -o json

\b
A namespace that is not in the files is treated as if it had the label raddle.dev/inject=enabled.
Exit codes: 0 success, 1 no answer from the cluster, or no NodeCPUTopology for --node, 2 invalid input.
"""


@click.command(epilog=EPILOG)
@click.option(
    "-f", "--filename", "sources", multiple=True, required=True, help="File or folder of manifests; - is stdin."
)
@click.option("--node", help="Plan as if bound to this node of the current cluster.")
@click.option(
    "--machine",
    "root",
    type=click.Path(exists=True, path_type=Path),
    help="Plan as if bound to this machine: a directory with sys/ and proc/, or a NodeCPUTopology file.",
)
@click.option(
    "-o", "--output", "form", default="table", show_default=True, type=click.Choice(["table", "json", "yaml"])
)
def plan(sources: Sequence[str], node: str | None, root: Path | None, form: str) -> None:
    """Show what the policies in files would set on the workloads in files, and why. Needs no cluster."""
    if node and root:
        raise click.UsageError("--node and --machine exclude each other")
    result = manifests.load(sources)
    policies = Policies(list(read_policies(result)))
    workloads, tunings = list(read_workloads(result)), read_tunings(result)
    if not workloads:
        raise ManifestError(f"the files hold no workload: {', '.join(TEMPLATES)}")
    name, machine = machine_of(node, root)
    labels = {m.metadata.get("name"): m.metadata.get("labels") or {} for m in result if m.kind == "Namespace"}
    planned = [
        decide(one, policies, labels.get(one.namespace, {env.INJECT_LABEL: "enabled"}), name, machine, tunings)
        for one in workloads
    ]
    if form == "json":
        output.write([as_json(one) for one in planned], "json")
    elif form == "yaml":
        for one in planned:
            click.echo("---")
            output.write(one.pod, "yaml")
    else:
        _print(planned, name)
        _print_elsewhere(planned, policies)


def as_json(planned: PlannedWorkload) -> manifests.Object:
    """The documented JSON of one workload: what governs it, and each container's values with their reasons."""
    decision = planned.decision
    literals = injected.literals_of(planned.pod)
    containers = []
    for outcome in decision.containers:
        recorded = _recorded(planned.pod, outcome.name)
        containers.append(
            {
                "name": outcome.name,
                "values": dict(recorded.values) if recorded else {},
                "because": dict(recorded.because) if recorded else {},
                "node": recorded.node if recorded else None,
                "tuned": recorded.tuning.by if recorded and recorded.tuning else "",
                "variables": list(outcome.variables),
                "literals": dict(literals.get(outcome.name, {})),
                "kept": list(outcome.kept),
                "preset": outcome.preset.name if outcome.preset else "",
                "advice": outcome.advice,
                "skipped": _skip(outcome.skip),
                "withheld": [_skip(one) for one in outcome.withheld],
            }
        )
    return {
        "workload": planned.workload.title,
        "namespace": planned.workload.namespace,
        "governedBy": decision.policy.reference if decision.policy else None,
        "skipped": _skip(decision.skip),
        "containers": containers,
    }


def _recorded(pod: manifests.Object, container: str) -> wire.RecordedPlan | None:
    text = pod["metadata"].get("annotations", {}).get(env.PLAN_PREFIX + container)
    return wire.read_plan_text(text) if text is not None else None


def _skip(skip: Any) -> dict[str, str] | None:
    return None if skip is None else {"reason": str(skip.reason), "detail": skip.detail}


def _print(planned: Sequence[PlannedWorkload], node: str | None) -> None:
    console = output.console()
    made_for = f"for {node}" if node else "safe values, valid on any node; use --machine or --node to plan for one"
    console.print(f"[dim]{escape(made_for)}[/]")
    table = output.table(
        "workload", "container", "threads", "without shim", "inter-op", "omp", "spinning", "affinity", "because"
    )
    for one in planned:
        for row in _rows(one):
            table.add_row(*map(escape, row))
    console.print(table)
    for one in planned:
        for outcome in one.decision.containers:
            for skip in outcome.withheld:
                console.print(f"[yellow]note[/] {escape(f'{one.workload.title} {outcome.name}: {skip}')}")
            recorded = _recorded(one.pod, outcome.name)
            for kind, text in (
                ("sets", _own(recorded, injected.literals_of(one.pod).get(outcome.name, {}))),
                ("preset", explain.preset(outcome.preset, outcome.advice) if recorded else ""),
                ("tuning", _tuning(recorded)),
                ("advice", _layout(recorded)),
                ("model", _expected(recorded)),
            ):
                if text:
                    console.print(f"[dim]{kind}[/] {escape(f'{one.workload.title} {outcome.name}: {text}')}")
            if outcome.kept:
                note = f"{one.workload.title} {outcome.name}: kept as the pod spec sets it: {', '.join(outcome.kept)}"
                console.print(f"[yellow]note[/] {escape(note)}")


def _own(recorded: wire.RecordedPlan | None, literals: Mapping[str, str]) -> str:
    """The variables that no family has, with their reasons, "" for none."""
    result = explain.own_variables(recorded, literals)
    return "; ".join(f"{name}={literals[name]} ({why})" for name, why in result.items())


def _tuning(recorded: wire.RecordedPlan | None) -> str:
    """What the policy's tuning comes to, "" where it names none."""
    if recorded is None or recorded.tuning is None:
        return ""
    return explain.tuning(recorded.tuning.by, recorded.because)


def _layout(recorded: wire.RecordedPlan | None) -> str:
    """How many instances would fill the container's CPUs and why, "" where the plan says nothing of it."""
    layout = recorded.values.get("layout") if recorded else None
    if recorded is None or not isinstance(layout, dict):
        return ""
    others = layout.get("others", [])
    kinds = " and ".join(f"{each.get('workers')} x {each.get('threads')}" for each in (layout, *others))
    return f"instances x threads that fill its CPUs: {kinds} ({recorded.because.get('layout', '')})"


def _expected(recorded: wire.RecordedPlan | None) -> str:
    """What the model expects under the policy's spec.load, "" where there is none."""
    result = recorded.values.get("expected") if recorded else None
    if not isinstance(result, dict):
        return ""
    latency = "expected, not measured: p50 {p50Ms:g} ms, p99 {p99Ms:g} ms".format(**result)
    return latency + ", {cpus:g} CPUs, {throttledPercent:g} % of the periods throttled".format(**result)


def _print_elsewhere(planned: Sequence[PlannedWorkload], policies: Policies) -> None:
    """Says where the files' policies are, for workloads that none selects because their namespace is another."""
    there = {policy.namespace for policy in policies if policy.namespace}
    for one in planned:
        namespace, skip = one.workload.namespace, one.decision.skip
        if there and namespace not in there and skip is not None and skip.reason is SkipReason.NO_POLICY:
            note = f"{one.workload.title} is in namespace {namespace}, the policies are in {', '.join(sorted(there))}"
            output.console().print(f"[yellow]note[/] {escape(note)}")


def _rows(planned: PlannedWorkload) -> Iterator[tuple[str, ...]]:
    title = planned.workload.title
    if planned.decision.skip is not None and not planned.decision.containers:
        yield (title, "", "–", "–", "–", "–", "–", "–", str(planned.decision.skip))
        return
    for outcome in planned.decision.containers:
        recorded = _recorded(planned.pod, outcome.name)
        if recorded is None:
            skip = outcome.skip or planned.decision.skip
            yield (title, outcome.name, "–", "–", "–", "–", "–", "–", str(skip or ""))
            continue
        values = recorded.values
        yield (
            title,
            outcome.name,
            str(values.get("intraOp", "–")),
            str(values.get("intraOpWithoutShim", values.get("intraOp", "–"))),
            str(values.get("interOp", "–")),
            str(values.get("omp", "–")),
            explain.spinning(values),
            str(values.get("affinity", "–")),
            recorded.because.get("intraOp", ""),
        )
