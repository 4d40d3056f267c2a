"""The verdicts of a run as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lab.verdict import Verdict, formatted, marked

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


def table(rows: Iterable[Sequence[str]]) -> str:
    """`row`s below their headings, and what the columns mean."""
    lines = [HEADINGS, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "\n".join(text) + "\n\n" + LEGEND


LEGEND = """\
CPUS, QUOTA   the container's cpuset.cpus and cpu.max, as the kubelet writes them
PLAN, RADDLE  threads in RADDLE_PLAN, threads of the session's pool in the guest (the caller is one)
ITS WORKERS   where the kernel lets each worker run (the caller may run anywhere in CPUS)
SPIN          workers that still burn CPU time after the answer, and what Raddle's report says of spinning
MEMORY ON     NUMA nodes of what the session has allocated
STOCK         threads of the same session without Raddle, in the same guest; ERRORS: its lines of
              "pthread_setaffinity_np failed"; the second SPIN is its own
"""


def row(one: Verdict) -> tuple[str, ...]:
    """One session in the order of HEADINGS."""
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
        formatted(raddle.get("workers", ())),
        " ".join([_spinning(raddle), *marked(raddle)]),
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
