"""A scan in words: what the cells of a row say, in every format for people, and what is said beside the table."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from raddle import env
from raddle_operator.cli.picture.model import plural, printable
from raddle_operator.objects import nodereport
from raddle_operator.scanning.assess import Cause
from raddle_operator.scanning.rows import Row, Total, total, totals

CAUSES: Final[Mapping[Cause | nodereport.Cause, str]] = {
    Cause.NODE_CPUS: "the runtime counts the node's CPUs or cores, not the limit",
    Cause.FIXED: "the runtime uses a fixed number of threads, regardless of the limit",
    Cause.SET: "a variable or an argument in the pod spec sets more than the limit can run",
    Cause.OLDER: "a policy governs the pod, but the pod is older, or was created while the webhook did not answer",
    Cause.STALE: "Raddle's values are older than a change of the policy or the limit; a new pod gets current ones",
    Cause.FITS: "as planned, or fewer",
    Cause.UNKNOWN: "its current or planned threads are not visible from outside; -o wide has the reason",
    nodereport.Cause.CODE_SETS_IT: "the agent reports: the code sets another count than planned",
    nodereport.Cause.NOT_REACHED: "the agent reports: the plan has not reached the process",
    nodereport.Cause.RESIZED: "the agent reports: the limit differs from the planned one",
    nodereport.Cause.CPUSET_CHANGED: "the agent reports: the CPUs differ from the planned ones",
    nodereport.Cause.OTHER_THREADS: "the agent reports: another pool runs more threads than planned",
    nodereport.Cause.OVERSUBSCRIBED: "the agent reports: processes x sessions x threads exceed the CPUs by far",
    nodereport.Cause.SHARED_CORES: "the agent reports: the container is bound to the same CPUs as another one",
}


COLUMNS_MEAN: Final = (
    ("CPUS", "the container's limit / its node's CPUs"),
    ("THREADS", "of one process: now → planned, as in `raddle plan`"),
    (
        "SAVES",
        "CPUs of all pods, by the share of threads beyond the plan; ≤: not measured, assumes full use of the limit",
    ),
)
LONGEST_FIX: Final = 48
# Columns that are empty where nothing was.
MEASURED: Final = frozenset(("throttled", "used"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What is shown: rows, how many pods were looked at, and notes on how."""

    rows: list[Row]
    pods: int
    notes: Sequence[str]

    @property
    def total(self) -> Total:
        """The sums of all rows."""
        return total("", self.rows)

    @property
    def totals(self) -> list[Total]:
        """The sums of each namespace."""
        return totals(self.rows)


def cells(row: Row) -> dict[str, str]:
    """Column -> text, for one row."""
    seen = row.seen
    limit = "–" if seen.limit_cpus is None else f"{seen.limit_cpus:g}"
    each = f"{seen.processes} x " if seen.processes > 1 else ""
    return {
        "namespace": seen.namespace,
        "workload": seen.workload,
        "container": seen.container,
        "runtime": seen.runtime,
        "pods": str(row.pods),
        "cpus": f"{limit}/{_range(row.node_cpus)}",
        "threads": f"{each}{_threads(row)}",
        "cause": str(seen.cause),
        "throttled": "–" if row.throttled_share is None else f"{100 * row.throttled_share:.0f} %",
        "used": "–" if row.used_cpus is None else number(row.used_cpus),
        "saves": gives_back(row),
        "fix": seen.fix.short if len(seen.fix.short) <= LONGEST_FIX else "see below",
    }


def _threads(row: Row) -> str:
    if row.threads is None:
        return "?"
    now = _range(row.threads)
    return f"{now} → {_range(row.planned)}" if row.seen.is_finding else now


def gives_back(row: Row) -> str:
    """About how many CPUs, "" for none; ≤ where the limit stands for what was not measured."""
    if not row.seen.surplus_share:
        return ""
    if row.gives_back_cpus is None:
        return "?"
    return f"{'≤' if row.source == 'limit' else '~'}{number(row.gives_back_cpus)}"


def number(cpus: float) -> str:
    """A number of CPUs, of two digits or all before the point."""
    return f"{cpus:.0f}" if cpus >= 10 else f"{cpus:.1f}" if cpus >= 0.95 else f"{cpus:.2f}"


def _range(result: tuple[int, int] | None) -> str:
    if result is None:
        return "?"
    least, most = result
    return str(most) if least == most else f"{least}-{most}"


def because(row: Row) -> str:
    """Why the threads are as many, and why they should be so many."""
    seen = row.seen
    planned = f"; planned from {seen.planned_because}" if seen.planned is not None and seen.planned_because else ""
    return printable(f"{seen.threads_because}{planned or (seen.planned_because and f'; {seen.planned_because}')}")


def sentence(scan: Scan) -> str:
    """The answer in a sentence or two."""
    sums = scan.total
    if not sums.rows:
        return f"Nothing to show for {plural(scan.pods, 'pod')}."
    shown = f"{plural(sums.rows, 'container')} with a known runtime"
    if not sums.findings:
        return f"None of {shown} is known to run too many threads, in {plural(scan.pods, 'pod')}."
    how = misplanned(scan, "runs" if sums.findings == 1 else "run")
    saved = f" The fixes would save up to about {number(sums.gives_back_cpus)} CPUs." if sums.gives_back_cpus else ""
    return f"{sums.findings} of {shown} {how}, in {sums.pods} of {plural(scan.pods, 'pod')}.{saved}"


def misplanned(scan: Scan, verb: str) -> str:
    """What is found of containers, with a word for `run`."""
    otherwise = any(row.seen.is_from_agent for row in scan.rows)
    return f"{verb} too many threads{', or not as planned' * otherwise}"


def causes(scan: Scan) -> Iterator[tuple[str, str]]:
    """Yields the causes that occur, with what they mean."""
    there = {row.seen.cause for row in scan.rows}
    yield from ((str(cause), text) for cause, text in CAUSES.items() if cause in there)


def advice(scan: Scan) -> Iterator[tuple[str, str]]:
    """Yields what is found of which more is to be known than a variable or a few words, with what to do."""
    result = dict(_advised(row) for row in scan.rows)
    yield from ((name, text) for name, text in result.items() if len(text) > LONGEST_FIX)


def _advised(row: Row) -> tuple[str, str]:
    """What a fix is for, and its words: a container and what its agent has seen, else a kind of server."""
    seen = row.seen
    if seen.is_from_agent:
        return f"{seen.namespace} {seen.workload} {seen.container}", f"{seen.threads_because}; fix: {seen.fix.text}"
    return seen.runtime, seen.fix.text


def with_raddle(scan: Scan) -> str:
    """What does the same for a whole namespace; "" where there is nothing to be done, or a policy governs all."""
    left = [row for row in scan.rows if row.seen.is_finding and not row.seen.governed_by]
    if not left:
        return ""
    worst = left[0].seen.namespace
    return f"kubectl label namespace {shlex.quote(worst)} {env.INJECT_LABEL}=enabled"
