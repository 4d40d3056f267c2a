"""Many pods in few lines: containers of which the same can be said are one line, the worst first. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from raddle_operator.cli import output, running, why
from raddle_operator.cli.cluster import Snapshot
from raddle_operator.cli.picture.model import plural, printable
from raddle_operator.cli.reports import Reports
from raddle_operator.injection.explain import explain
from raddle_operator.objects.nodereport import Finding

STALE: Final = "Stale"
RESIZED: Final = "Resized"


@dataclass(frozen=True, slots=True)
class Pod:
    """Where a container is: enough to find what its node's agent says of it."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is said of a container. `container` is "" for a pod that has nothing; then `because` says why.

    `notes` name what is not as it should be: causes of the agent's findings, Stale and Resized.
    """

    namespace: str
    container: str = ""
    planned: int | None = None
    effective: int | None = None
    because: str = ""
    notes: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Group:
    """An answer with the pods that it holds for, and the first finding of each cause."""

    answer: Answer
    pods: list[str] = field(default_factory=list)
    findings: dict[str, Finding] = field(default_factory=dict)


def answers(snapshot: Snapshot) -> list[Answer]:
    """What a pod itself says: an answer for each container that has a plan, else one that says why there is none."""
    # Without the variables and what else a single pod is told: that takes ten times as long.
    namespace, explanations = snapshot.namespace, explain(snapshot.annotations)
    if not explanations:
        skip = why.why_not(snapshot)
        return [Answer(namespace=namespace, because=f"{skip.reason} {skip.detail}")]
    stale = why.changed_since(snapshot) is not None
    result = []
    for one in explanations:
        threads = one.values.get("intraOp")
        resized = why.resized_to(snapshot, one) is not None
        result.append(
            Answer(
                namespace=namespace,
                container=one.container,
                planned=threads if isinstance(threads, int) else None,
                because=f"its plan can't be read: {one.problem}" if one.problem else one.because.get("intraOp", ""),
                notes=(STALE,) * stale + (RESIZED,) * resized,
            )
        )
    return result


def grouped(said: Iterable[tuple[Pod, Sequence[Answer]]], reports: Reports) -> list[Group]:
    """The groups, with what agents say added, the worst first: findings, then nothing given, then the most pods."""
    by_container = {
        (one.uid, one.name): one for report in reports.by_node.values() for one in report.containers
    }  # one look-up for each container
    groups: dict[Answer, Group] = {}
    for pod, its in said:
        for plain in its:
            seen = by_container.get((pod.uid, plain.container))
            answer = plain
            if seen is not None:
                causes = tuple(str(cause) for cause in running.causes(seen))
                notes = tuple(dict.fromkeys((*causes, *plain.notes)))
                answer = replace(plain, effective=seen.effective_threads, notes=notes)
            group = groups.setdefault(answer, Group(answer=answer))
            group.pods.append(f"{pod.namespace}/{pod.name}")
            for finding in seen.findings if seen is not None else ():
                group.findings.setdefault(str(finding.cause), finding)
    return sorted(groups.values(), key=_order)


def _order(group: Group) -> tuple[Any, ...]:
    answer = group.answer
    over = (answer.effective or 0) / (answer.planned or answer.effective or 1)
    return (not group.findings, not answer.notes, bool(answer.container), -over, -len(group.pods), answer.namespace)


def show(console: Console, groups: Sequence[Group], missing: str, *, everywhere: bool) -> None:
    """Prints a line for each group, then each cause with what was seen first and what to do.

    `missing` says why what runs is not known of some pods; "" where it is.
    """
    place = ("namespace",) * everywhere
    table = output.table(*place, "pods", "container", "threads", "effective", "finding", "because")
    for group in groups:
        one = group.answer
        cells = [one.namespace] * everywhere
        cells += [str(len(group.pods)), one.container or running.UNKNOWN]
        cells += [running.count(one.planned), running.count(one.effective)]
        cells += [", ".join(one.notes) or running.UNKNOWN, printable(one.because)]
        table.add_row(*map(escape, cells), style="" if one.container else "dim")
    console.print(table)
    for cause, (finding, pods) in _by_cause(groups).items():
        console.print(f"\n[yellow]{cause}[/] in {plural(len(pods), 'pod')}, as {escape(pods[0])}", soft_wrap=True)
        console.print(f"  {escape(printable(finding.detail))}", soft_wrap=True)
        console.print(f"  fix: {escape(printable(finding.fix))}", soft_wrap=True)
    if missing:
        console.print(f"\n[dim]what runs is not known for all pods: {escape(missing)}[/]", soft_wrap=True)


def _by_cause(groups: Sequence[Group]) -> dict[str, tuple[Finding, list[str]]]:
    pods: defaultdict[str, list[str]] = defaultdict(list)
    first: dict[str, Finding] = {}
    for group in groups:
        for cause, finding in group.findings.items():
            first.setdefault(cause, finding)
            pods[cause] += group.pods
    return {cause: (finding, pods[cause]) for cause, finding in first.items()}


def document(groups: Sequence[Group], missing: str) -> dict[str, Any]:
    """The same for programs, with the names of all pods."""
    return {
        "problem": missing or None,
        "groups": [
            {
                "namespace": group.answer.namespace,
                "container": group.answer.container or None,
                "plannedThreads": group.answer.planned,
                "effectiveThreads": group.answer.effective,
                "because": group.answer.because,
                "notes": list(group.answer.notes),
                "findings": [
                    {"cause": str(one.cause), "detail": one.detail, "fix": one.fix} for one in group.findings.values()
                ],
                "pods": group.pods,
            }
            for group in groups
        ],
    }
