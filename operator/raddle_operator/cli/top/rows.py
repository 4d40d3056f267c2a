"""The lines of `raddle top`, from agents' reports and policies' statuses. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raddle_operator.cli import running
from raddle_operator.cli.reports import Reports
from raddle_operator.objects import nodereport
from raddle_operator.objects.nodereport import Container, NodeReport


@dataclass(frozen=True, slots=True)
class Row:
    """A line: its cells, with `more` for -o wide; the same for programs."""

    cells: tuple[str, ...]
    more: tuple[str, ...]
    document: Mapping[str, Any]


# --- pods -------------------------------------------------------------------------------------------------------------

PODS: Final = ("namespace", "pod", "container", "cpus", "threads", "cpu", "throttled", "delay", "finding")
PODS_WIDE: Final = ("node", "policy", "detail")
ObservedContainer = tuple[str, Container]
"""A container and its node."""

POD_ORDERS: Final[Mapping[str, Callable[[Container], Any]]] = {
    "worst": running.badness,
    "cpu": lambda one: one.used_cpus or 0.0,
    "throttled": lambda one: one.throttled_share or 0.0,
    "delay": lambda one: (running.delay_cpus(one) or 0.0, one.waiting_share or 0.0),
    "threads": lambda one: one.effective_threads or 0,
    "name": lambda _: 0,
}
"""What is sorted by -> what is larger for those that come first; the name decides between equals."""


def seen(reports: Reports, uids: Collection[str] | None = None) -> list[ObservedContainer]:
    """The containers in the reports; with `uids` only those of these pods."""
    return [
        (node, one)
        for node, report in reports.by_node.items()
        for one in report.containers
        if uids is None or one.uid in uids
    ]


def pods(result: Iterable[ObservedContainer], order: str) -> list[Row]:
    """A line for each container."""
    named = sorted(result, key=lambda one: (one[1].namespace, one[1].pod, one[1].name))
    key = POD_ORDERS[order]
    return [_pod(node, one) for node, one in sorted(named, key=lambda one: key(one[1]), reverse=True)]


def _pod(node: str, one: Container) -> Row:
    cells = (
        *(one.namespace, one.pod, one.name, running.limit(one), running.threads(one)),
        *(running.cpus(one.used_cpus), running.share(one.throttled_share), running.delay(one)),
        running.finding(running.causes(one)),
    )
    detail = one.findings[0].detail if one.findings else running.UNKNOWN
    plain = {key: value for key, value in nodereport.as_document(one).items() if key != "processes"}
    return Row(cells, (node, one.policy or running.UNKNOWN, detail), {"node": node, **plain} | _delay(one))


def _delay(one: Container) -> dict[str, float]:
    delay = running.delay_cpus(one)
    return {} if delay is None else {"delayCpus": delay}


# --- nodes ------------------------------------------------------------------------------------------------------------

NODES: Final = ("node", "cpus", "containers", "threads", "cpu", "throttled", "delay", "drifted", "finding")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node's containers, summed; `throttled_share` is the worst container's. `problem`: why there is no report."""

    name: str
    cpus: int | None = None
    containers: int = 0
    planned_threads: int = 0
    effective_threads: int = 0
    used_cpus: float = 0.0
    delay_cpus: float | None = None
    throttled_share: float = 0.0
    drifted: int = 0
    causes: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""


NODE_ORDERS: Final[Mapping[str, Callable[[Node], Any]]] = {
    "worst": lambda one: (bool(one.problem), bool(one.drifted), one.throttled_share, one.delay_cpus or 0.0),
    "cpu": lambda one: one.used_cpus,
    "throttled": lambda one: one.throttled_share,
    "delay": lambda one: one.delay_cpus or 0.0,
    "threads": lambda one: one.effective_threads,
    "drifted": lambda one: one.drifted,
    "name": lambda _: 0,
}


def summed(reports: Reports, cpus: Mapping[str, int]) -> list[Node]:
    """Every node of which something is known, by name; `cpus` are the CPUs of those that Raddle knows."""
    result = [_node(report, cpus.get(name)) for name, report in reports.by_node.items()]
    result += [Node(name=name, cpus=cpus.get(name), problem=why) for name, why in reports.failed.items()]
    return sorted(result, key=lambda one: one.name)


def _node(report: NodeReport, cpus: int | None) -> Node:
    containers = report.containers
    delays = [delay for one in containers if (delay := running.delay_cpus(one)) is not None]
    return Node(
        name=report.node,
        cpus=cpus,
        containers=len(containers),
        planned_threads=sum(one.planned_threads or 0 for one in containers),
        effective_threads=sum(one.effective_threads or 0 for one in containers),
        used_cpus=sum(one.used_cpus or 0.0 for one in containers),
        delay_cpus=sum(delays) if delays else None,
        throttled_share=max((one.throttled_share or 0.0 for one in containers), default=0.0),
        drifted=sum(bool(one.findings) for one in containers),
        causes=Counter(str(cause) for one in containers for cause in running.causes(one)),
    )


def nodes(result: Iterable[Node], order: str) -> list[Row]:
    """A line for each node."""
    named = sorted(result, key=lambda one: one.name)
    return [_node_row(one) for one in sorted(named, key=NODE_ORDERS[order], reverse=True)]


def _node_row(one: Node) -> Row:
    cpus = running.count(one.cpus)
    if one.problem:
        cells = (one.name, cpus, *[running.UNKNOWN] * 6, one.problem)
        return Row(cells, (), {"node": one.name, "cpus": one.cpus, "problem": one.problem})
    cells = (
        *(one.name, cpus, str(one.containers), f"{one.planned_threads}/{one.effective_threads}"),
        *(running.cpus(one.used_cpus), running.share(one.throttled_share), running.cpus(one.delay_cpus)),
        *(str(one.drifted), counted(one.causes)),
    )
    document = {
        "node": one.name,
        "cpus": one.cpus,
        "containers": one.containers,
        "plannedThreads": one.planned_threads,
        "effectiveThreads": one.effective_threads,
        "usedCpus": one.used_cpus,
        "throttledShare": one.throttled_share,
        "delayCpus": one.delay_cpus,
        "drifted": one.drifted,
        "causes": dict(one.causes),
    }
    return Row(cells, (), document)


def counted(causes: Mapping[str, int]) -> str:
    """Causes with how many containers have each, the most first."""
    ranked = sorted(causes.items(), key=lambda one: (-one[1], one[0]))
    return ", ".join(f"{cause} {count}" for cause, count in ranked) or running.UNKNOWN


# --- policies ---------------------------------------------------------------------------------------------------------

POLICIES: Final = ("namespace", "policy", "pods", "injected", "threads", "containers", "drifted", "finding")
_POLICY_ORDERS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "worst": lambda row: (row.document["drifted"] or 0, row.document["injectedPods"]),
    "drifted": lambda row: row.document["drifted"] or 0,
    "pods": lambda row: row.document["matchedPods"],
    "name": lambda _: 0,
}
POLICY_ORDERS: Final = tuple(_POLICY_ORDERS)


def policies(result: Sequence[Mapping[str, Any]], order: str) -> list[Row]:
    """A line for each policy, from its status; what runs is unknown where no agent watches."""
    rows = sorted(map(_policy, result), key=lambda row: row.cells[:2])
    return sorted(rows, key=_POLICY_ORDERS[order], reverse=True)


def _policy(policy: Mapping[str, Any]) -> Row:
    metadata, status = policy["metadata"], policy.get("status") or {}
    running_now = status.get("running") or {}
    matched, injected = int(status.get("matchedPods") or 0), int(status.get("injectedPods") or 0)
    containers, drifted = running_now.get("containers"), running_now.get("drifted")
    worst = next(iter(running_now.get("worst") or ()), None)
    finding = f"{worst['cause']} in {worst['namespace']}/{worst['pod']}" if worst else running.UNKNOWN
    cells = (
        *(metadata.get("namespace") or running.UNKNOWN, metadata["name"], str(matched), str(injected)),
        *(status.get("threads") or running.UNKNOWN, running.count(containers), running.count(drifted), finding),
    )
    document = {
        "kind": policy.get("kind"),
        "namespace": metadata.get("namespace"),
        "name": metadata["name"],
        "matchedPods": matched,
        "injectedPods": injected,
        "threads": status.get("threads"),
        "containers": containers,
        "drifted": drifted,
        "running": running_now or None,
    }
    return Row(cells, (), document)
