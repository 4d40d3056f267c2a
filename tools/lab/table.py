"""The verdicts of a run as a table for people, as JSON for programs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lab.verdict import Verdict, told

HEADINGS = (
    "SHAPE",
    "SCENARIO",
    "CPUS",
    "QUOTA",
    "PLAN",
    "RADDLE",
    "ITS WORKERS ON",
    "SPIN",
    "MEMORY ON",
    "STOCK",
    "ERRORS",
    "SPIN",
    "",
)
PAGES_SHOWN = 0.01
WIDTH = 116


def table(verdicts: Sequence[Verdict]) -> str:
    """A row a session, what is wrong below it, and what the columns mean."""
    rows = [HEADINGS, *(_row(one) for one in verdicts)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = []
    for row, one in zip(rows, (None, *verdicts), strict=True):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        for problem in one.wrong if one else ():
            lines += textwrap.wrap(problem, WIDTH, initial_indent="    ! ", subsequent_indent="      ")
    return "\n".join(lines) + "\n"


LEGEND = """\
CPUS, QUOTA   the container's cpuset.cpus and cpu.max, as the kubelet writes them
PLAN, RADDLE  threads in RADDLE_PLAN, threads of the session's pool in the guest (the caller is one)
ITS WORKERS   where the kernel lets each worker run (the caller may run anywhere in CPUS)
SPIN          workers that still burn CPU time after the answer, and what Raddle's report says of spinning
MEMORY ON     NUMA nodes of what the session has allocated
STOCK         threads of the same session without Raddle, in the same guest; ERRORS: its lines of
              "pthread_setaffinity_np failed"; the second SPIN is its own
"""


def _row(one: Verdict) -> tuple[str, ...]:
    raddle, stock = one.raddle or {}, one.stock or {}
    quota = "-" if one.limits.quota_cpus is None else f"{one.limits.quota_cpus:g}"
    name = one.scenario if one.session == 0 else f"  then ({one.session})"
    return (
        one.shape,
        name,
        one.limits.cpuset,
        quota,
        str(one.planned),
        str(raddle.get("threads", "?")),
        told(raddle.get("workers", ())),
        " ".join([_spinning(raddle), *((raddle.get("raddle") or {}).get("spins", ()))]),
        _nodes(raddle.get("memory", {})),
        str(stock.get("threads", "?")),
        str(stock.get("affinity_errors", "?")),
        _spinning(stock),
        "WRONG" if one.wrong else "ok",
    )


def _spinning(session: Mapping[str, Any]) -> str:
    """How many workers burn CPU time; a C program doesn't look."""
    return "-" if session and session["spinning"] is None else str(session.get("spinning", "?"))


def _nodes(pages: Mapping[str, int]) -> str:
    """The NUMA nodes with a share worth naming: "1", or "0 60% 1 40%"."""
    total = sum(pages.values())
    shares = {node: count / total for node, count in sorted(pages.items()) if count >= PAGES_SHOWN * total}
    if len(shares) == 1:
        return next(iter(shares))
    return " ".join(f"{node}:{share:.0%}" for node, share in shares.items()) or "?"


def document(verdicts: Iterable[Verdict]) -> str:
    """JSON: {"sessions": [...], "wrong": number}."""
    sessions: list[dict[str, Any]] = [asdict(one) for one in verdicts]
    return json.dumps({"sessions": sessions, "wrong": sum(bool(one["wrong"]) for one in sessions)}, indent=2)
