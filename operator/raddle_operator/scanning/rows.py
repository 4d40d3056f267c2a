"""Rows for people: one for each workload's container, however many pods it has, worst first, and totals by namespace.

What a container would give back is estimated: the part of its CPU time that goes to the threads beyond the plan, if all
of its threads take the same. Where nothing was measured, the model of the policy's `load` says it; where there is
none, the limit stands for the CPU time, so it is the most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from raddle_operator.scanning.assess import Cause, ScannedContainer
from raddle_operator.scanning.measured import Usage


@dataclass(slots=True)
class Part:
    """The pods of a row that look the same, and the sums of what was measured of `measured` of them."""

    seen: ScannedContainer
    pods: int = 0
    measured: int = 0
    used_cpus: float = 0.0
    periods: float = 0.0
    throttled_periods: float = 0.0

    def add(self, usage: Usage) -> None:
        """Counts what was measured of one of the pods."""
        self.measured += 1
        self.used_cpus += usage.used_cpus
        self.periods += usage.periods
        self.throttled_periods += usage.throttled_periods

    @property
    def gives_back_cpus(self) -> float | None:
        """CPUs of all of its pods; None where neither their CPU time nor a limit is known."""
        share = self.seen.surplus_share
        if not share:
            return 0.0
        if not self.measured and self.seen.expected is not None:
            return self.seen.expected.gives_back_cpus * self.pods
        one = self.used_cpus / self.measured if self.measured else self.seen.limit_cpus
        return None if one is None else share * one * self.pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One container of a workload, as the worst of its pods has it.

    `node_cpus`, `threads` and `planned` are the least and the most of all pods, None where not known. `used_cpus` is of
    all pods together, None where nothing was measured; `throttled_share` of the periods, None where no model says it
    either. `gives_back_cpus`: see the module; None where not known.
    """

    seen: ScannedContainer
    pods: int
    node_cpus: tuple[int, int] | None
    threads: tuple[int, int] | None
    planned: tuple[int, int] | None
    used_cpus: float | None = None
    throttled_share: float | None = None
    gives_back_cpus: float | None = 0.0

    @property
    def source(self) -> str:
        """What its costs are from: "measured", "model", or "limit"."""
        if self.used_cpus is not None:
            return "measured"
        return "limit" if self.seen.expected is None else "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The sums of a namespace, or of all of them: containers of workloads, those to be mended, their pods, CPUs."""

    namespace: str
    rows: int
    findings: int
    pods: int
    gives_back_cpus: float


@dataclass(slots=True)
class Gathered:
    """What is kept of pods: a part for each way in which a workload's container looks."""

    pods: int = 0
    parts: dict[ScannedContainer, Part] = field(default_factory=dict)

    def add(self, result: Iterable[ScannedContainer], pods: int = 1) -> list[Part]:
        """Counts one pod, or so many alike; returns the parts of its containers."""
        self.pods += pods
        parts = []
        for seen in result:
            part = self.parts.get(seen)
            if part is None:
                part = self.parts[seen] = Part(seen)
            part.pods += pods
            parts.append(part)
        return parts

    def rows(self, min_saving_cpus: float = 0.0) -> list[Row]:
        """The rows that give back at least so many CPUs, or where that is not known; the most first."""
        groups: dict[tuple[str, str, str], list[Part]] = {}
        for part in self.parts.values():
            seen = part.seen
            groups.setdefault((seen.namespace, seen.workload, seen.container), []).append(part)
        result = (_row(parts) for parts in groups.values())
        return sorted((row for row in result if _at_least(row, min_saving_cpus)), key=_order)


def _at_least(row: Row, min_saving_cpus: float) -> bool:
    if not min_saving_cpus:
        return True
    return row.seen.is_finding and (row.gives_back_cpus is None or row.gives_back_cpus >= min_saving_cpus)


def _order(row: Row) -> tuple[bool, bool, float, float, str, str, str]:
    seen = row.seen
    surplus = (seen.threads or 0) - (seen.planned or 0)
    return (
        not seen.is_finding,
        seen.cause is Cause.FITS,
        -(row.gives_back_cpus or 0.0),
        -surplus * row.pods,
        *(seen.namespace, seen.workload, seen.container),
    )


def _row(parts: list[Part]) -> Row:
    worst = max(parts, key=lambda part: (part.seen.is_finding, part.seen.surplus_share, part.seen.threads or 0))
    seen = [part.seen for part in parts]
    measured = sum(part.measured for part in parts)
    pods = sum(part.pods for part in parts)
    saved = [part.gives_back_cpus for part in parts]
    known = [one for one in saved if one is not None]
    return Row(
        seen=worst.seen,
        pods=pods,
        node_cpus=_range(one.node_cpus for one in seen),
        threads=_range(one.threads for one in seen),
        planned=_range(one.planned for one in seen),
        used_cpus=sum(part.used_cpus for part in parts) * pods / measured if measured else None,
        throttled_share=_share(parts, worst, measured),
        gives_back_cpus=sum(known) if known else None,
    )


def _share(parts: list[Part], worst: Part, measured: int) -> float | None:
    if measured:
        periods = sum(part.periods for part in parts)
        return sum(part.throttled_periods for part in parts) / periods if periods else 0.0
    return None if worst.seen.expected is None else worst.seen.expected.throttled_share


def _range(values: Iterable[int | None]) -> tuple[int, int] | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None


def totals(rows: Iterable[Row]) -> list[Total]:
    """The sums of each namespace, the most given back first."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.seen.namespace, []).append(row)
    result = [total(namespace, group) for namespace, group in groups.items()]
    return sorted(result, key=lambda one: (-one.gives_back_cpus, -one.findings, one.namespace))


def total(namespace: str, rows: Iterable[Row]) -> Total:
    """The sums of these rows."""
    group = list(rows)
    findings = [row for row in group if row.seen.is_finding]
    # Containers of one workload are in the same pods.
    pods: dict[tuple[str, str], int] = {}
    for row in findings:
        owner = row.seen.namespace, row.seen.workload
        pods[owner] = max(pods.get(owner, 0), row.pods)
    return Total(
        namespace=namespace,
        rows=len(group),
        findings=len(findings),
        pods=sum(pods.values()),
        gives_back_cpus=sum(row.gives_back_cpus or 0.0 for row in findings),
    )


def to_document(rows: list[Row], notes: Iterable[str]) -> Mapping[str, Any]:
    """All of it as JSON: names in camel case, null for what is not known."""
    whole = total("", rows)
    return {
        "workloads": [dict(_fields(row)) for row in rows],
        "namespaces": [{"namespace": one.namespace, **_sums(one)} for one in totals(rows)],
        "total": _sums(whole),
        "notes": list(notes),
    }


def _sums(one: Total) -> dict[str, Any]:
    return {
        "containers": one.rows,
        "findings": one.findings,
        "pods": one.pods,
        "givesBackCpus": round(one.gives_back_cpus, 3),
    }


def _fields(row: Row) -> Iterator[tuple[str, Any]]:
    seen = row.seen
    yield "namespace", seen.namespace
    yield "workload", seen.workload
    yield "container", seen.container
    yield "runtime", seen.runtime
    yield "preset", seen.preset or None
    yield "pods", row.pods
    yield "limitCpus", seen.limit_cpus
    for name, item in (("nodeCpus", row.node_cpus), ("threads", row.threads), ("planned", row.planned)):
        yield name, None if item is None else {"least": item[0], "most": item[1]}
    yield "processes", seen.processes
    yield "threadsBecause", seen.threads_because
    yield "plannedBecause", seen.planned_because
    yield "cause", str(seen.cause)
    yield "governedBy", seen.governed_by or None
    yield "usedCpus", _rounded(row.used_cpus)
    yield "throttledShare", _rounded(row.throttled_share)
    yield "givesBackCpus", _rounded(row.gives_back_cpus)
    yield "source", row.source
    yield "fix", {"variables": dict(seen.fix.variables), "text": seen.fix.text, "command": seen.fix.command}
    yield "advice", seen.advice or None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
