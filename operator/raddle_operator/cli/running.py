"""What an agent says of a container, in the words of `raddle explain` and `raddle top`. Pure, but for the printing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from raddle_operator.cli.picture.model import plural, printable
from raddle_operator.cli.reports import Reports
from raddle_operator.kube import Object
from raddle_operator.objects import nodereport
from raddle_operator.objects.nodereport import Cause, Container

UNKNOWN: Final = "-"


def delay_cpus(container: Container) -> float | None:
    """How long its threads waited for a CPU, a second, all together; None where the agent may not see it."""
    seen = [pool.delay_cpus for process in container.processes for pool in process.pools]
    known = [delay for delay in seen if delay is not None]
    return sum(known) if known else None


def badness(container: Container) -> tuple[float, ...]:
    """What is worse is larger: findings first, then what limits and waiting cost."""
    waiting = delay_cpus(container) or 0.0
    return (
        float(bool(container.findings)),
        container.throttled_share or 0.0,
        waiting,
        container.waiting_share or 0.0,
        float(container.effective_threads or 0),
    )


# --- cells of tables --------------------------------------------------------------------------------------------------


def cpus(value: float | None) -> str:
    """A number of CPUs, as 1.25."""
    return UNKNOWN if value is None else f"{value:.2f}"


def limit(container: Container) -> str:
    """The limit of the pod's spec, as 2 or 0.5."""
    return UNKNOWN if container.limit_cpus is None else f"{container.limit_cpus:g}"


def share(value: float | None) -> str:
    """A share, as 12%."""
    return UNKNOWN if value is None else f"{value:.0%}"


def count(value: int | None) -> str:
    """A count."""
    return UNKNOWN if value is None else str(value)


def threads(container: Container) -> str:
    """Planned and effective threads, as 2/16."""
    return f"{count(container.planned_threads)}/{count(container.effective_threads)}"


def delay(container: Container) -> str:
    """The CPUs' worth of waiting, as 1.25; where only cgroups are seen, in how much of the time any thread waited."""
    waited = delay_cpus(container)
    return share(container.waiting_share) if waited is None else cpus(waited)


def finding(causes: Sequence[Cause]) -> str:
    """The first cause, and how many more there are."""
    return f"{causes[0]}{f' +{len(causes) - 1}' if len(causes) > 1 else ''}" if causes else UNKNOWN


def causes(container: Container) -> tuple[Cause, ...]:
    """The causes of a container's findings, each once."""
    return tuple(dict.fromkeys(item.cause for item in container.findings))


def sentence(container: Container) -> str:
    """What runs in a container, in a line."""
    parts = []
    if container.effective_threads is not None:
        planned = container.planned_threads
        parts.append(f"{plural(container.effective_threads, 'thread')}{f', {planned} planned' if planned else ''}")
    if container.used_cpus is not None:
        of = f" of {container.limit_cpus:g}" if container.limit_cpus is not None else ""
        parts.append(f"{container.used_cpus:.2f}{of} CPUs used")
    if container.throttled_share is not None:
        parts.append(f"throttled in {container.throttled_share:.0%} of periods")
    if (waited := delay_cpus(container)) is not None:
        parts.append(f"threads waited {waited:.2f} s a second for a CPU")
    elif container.waiting_share is not None:
        parts.append(f"threads waited for a CPU in {container.waiting_share:.0%} of the time")
    return "; ".join(parts) or "nothing is known about it yet"


# --- a pod's section of `raddle explain` ------------------------------------------------------------------------------


def of_pod(reports: Reports, pod: Object) -> tuple[Container, ...]:
    """What its node's agent says of a pod's containers; () where it says nothing."""
    report = reports.by_node.get((pod.get("spec") or {}).get("nodeName") or "")
    uid = pod["metadata"].get("uid")
    return tuple(one for one in (report.containers if report is not None else ()) if one.uid == uid)


def show(console: Console, reports: Reports, pod: Object) -> None:
    """Prints what runs in a pod and what of it is not as planned; where nobody knows, why, in a dim line."""
    node = (pod.get("spec") or {}).get("nodeName") or ""
    if not node:
        return
    if missing := reports.missing([node]):
        console.print(f"\n[dim]what runs is not known: {escape(missing)}[/]", soft_wrap=True)
        return
    report, result = reports.by_node[node], of_pod(reports, pod)
    console.print(f"\nrunning, in the {report.window_s:g} s to {escape(printable(report.at))}:")
    if not result:
        console.print("  [dim]its node's agent reports no governed container in it[/]")
    for one in result:
        console.print(f"  {escape(printable(one.name))}: {escape(sentence(one))}", soft_wrap=True)
        for said in one.findings:
            console.print(f"    [yellow]{said.cause}[/] {escape(printable(said.detail))}", soft_wrap=True)
            console.print(f"      fix: {escape(printable(said.fix))}", soft_wrap=True)


def document(reports: Reports, pod: Object) -> Mapping[str, Any]:
    """The same for programs: containers as in the agent's report, or why they are not known."""
    node = (pod.get("spec") or {}).get("nodeName") or ""
    missing = reports.missing([node]) if node else "it is not bound to a node"
    return {
        "problem": missing or None,
        "containers": [nodereport.as_document(one) for one in of_pod(reports, pod)],
    }
