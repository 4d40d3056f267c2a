"""Outcomes as tables for people, as JSON for programs, and as the sections of docs/reliability.md."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from reliability.model import Outcome
from report import markdown_table

HEADINGS = ("CHECK", "VERDICT", "SECONDS", "FIGURES")
DOCUMENT_HEADINGS = ("check", "what happens", "what is promised", "figures", "kept")
TITLES = {"failure": "FAILURES", "attack": "ATTACKS"}
WIDTH = 118
MOST_CHARACTERS = 300


def table(outcomes: Sequence[Outcome]) -> str:
    """A block a section: a row per check, with its figures, and below it what is broken."""
    return "\n".join(
        f"{title}\n{_block(rows)}"
        for section, title in TITLES.items()
        if (rows := [one for one in outcomes if one.check.section == section])
    )


def _block(outcomes: Sequence[Outcome]) -> str:
    rows = [HEADINGS, *((one.check.name, one.verdict, f"{one.seconds:.0f}", "") for one in outcomes)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS) - 1)]
    indent = " " * (sum(widths) + 2 * len(widths))
    lines = []
    for row, one in zip(rows, (None, *outcomes), strict=True):
        head = "".join(f"{cell:{width}}  " for cell, width in zip(row, widths, strict=False))
        text = row[-1] if one is None else figures(one)
        lines += textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=indent) or [head.rstrip()]
        for sentence in broken(one) if one else ():
            lines += textwrap.wrap(sentence, WIDTH, initial_indent="    ! ", subsequent_indent="      ")
    return "\n".join(lines) + "\n"


def figures(one: Outcome) -> str:
    """The figures in a line, or why there are none."""
    if one.unavailable:
        return one.unavailable
    return "; ".join(f"{what}: {figure}" for what, figure in one.result.figures.items())


def broken(one: Outcome) -> list[str]:
    """What is broken, each a line or a few: a process's whole log stands in the progress."""
    return [textwrap.shorten(sentence, MOST_CHARACTERS, placeholder=" …") for sentence in one.result.broken]


def counts(outcomes: Sequence[Outcome], seconds: float) -> str:
    """The line that ends a run."""
    verdicts = [one.verdict for one in outcomes]
    kept, broken, left_out = (verdicts.count(word) for word in ("kept", "BROKEN", "not run"))
    return f"{len(outcomes)} checks, {kept} kept, {broken} broken, {left_out} not run ({seconds:.0f} s)"


def document(outcomes: Sequence[Outcome]) -> str:
    """JSON: {"checks": [...], "kept": number, "broken": number, "notRun": number}."""
    checks: list[dict[str, Any]] = [
        {
            "name": one.check.name,
            "section": one.check.section,
            "what": one.check.what,
            "promise": one.check.promise,
            "verdict": one.verdict,
            "figures": dict(one.result.figures),
            "broken": list(one.result.broken),
            "unavailable": one.unavailable,
            "seconds": round(one.seconds, 1),
        }
        for one in outcomes
    ]
    verdicts = [one.verdict for one in outcomes]
    numbers = {"kept": verdicts.count("kept"), "broken": verdicts.count("BROKEN"), "notRun": verdicts.count("not run")}
    return json.dumps({"checks": checks, **numbers}, indent=2)


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The table of the docs."""
    rows = [
        (f"`{one.check.name}`", one.check.what, one.check.promise, "<br>".join(_cell(one)), one.verdict.lower())
        for one in outcomes
    ]
    return markdown_table(DOCUMENT_HEADINGS, rows)


def _cell(one: Outcome) -> list[str]:
    if one.unavailable:
        return [one.unavailable]
    return [*(f"{what}: {figure}" for what, figure in one.result.figures.items()), *broken(one)]
