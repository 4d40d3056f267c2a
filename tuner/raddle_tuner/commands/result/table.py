"""A tuning on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from raddle_operator.cli import output
from raddle_operator.cli.picture.model import printable
from raddle_operator.results import phrases
from raddle_operator.results.verdict import Verdict
from raddle_tuner.commands.result.figures import Row, number, objective, rows, validity
from raddle_tuner.search import advice
from raddle_tuner.search.document import TuningResult

# What all columns take, with settings of a line or two.
_WIDE: Final = 110
_STYLES = {Verdict.BETTER: "bold green", Verdict.NO_DIFFERENCE: "bold", Verdict.BOUND_NOT_MET: "bold red"}


def show(tuning: TuningResult) -> None:
    """Prints the answer, the trials, what makes it valid, and what to do."""
    console, result = output.console(), tuning.result
    _line(console, f"{tuning.name}: {tuning.key.limit}, {tuning.key.node_class.title}")
    _line(console, f"{objective(result.objective)}; {tuning.finished}")
    console.print()
    _line(console, advice.answer(result), _STYLES.get(result.verdict, "bold yellow"))
    results = rows(tuning)
    if any(row.figures for row in results):
        console.print()
        console.print(_trials(results, wide=console.width >= _WIDE))
        for reason, titles in _without_figures(results):
            _line(console, f"{titles}: {reason}")
    if result.contributions:
        console.print()
        table = output.table("setting", "contributes")
        for path, part in result.contributions:
            table.add_row(_safe(path), phrases.signed(part))
        console.print(table)
    console.print()
    for remark in validity(tuning):
        _line(console, f"- {remark}")
    patch = advice.policy_patch(tuning)
    if patch:
        console.print()
        console.print(patch, markup=False, soft_wrap=True, end="")
    for one in advice.for_the_program(result.winner) if result.verdict is Verdict.BETTER else ():
        console.print()
        _line(console, f"{one.title}:", "bold")
        for where, code in one.code:
            _line(console, f"  {where}")
            console.print("".join(f"    {line}\n" for line in code.splitlines()), markup=False, soft_wrap=True, end="")


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(_safe(text), style=style or None, soft_wrap=True)


def _safe(text: str) -> str:
    return escape(printable(text))


def _trials(result: tuple[Row, ...], *, wide: bool) -> Table:
    more = ("throttled", "blocks") if wide else ()
    table = output.table("settings", "threads", "p50 ms", "p99 ms", "slowest tenth", "requests/s", "CPU ms", *more)
    table.columns[0].no_wrap = False
    for row in result:
        one = row.figures
        if one is None:
            continue
        figures = [one.p50_ms, one.p99_ms, one.slowest_tenth_ms, one.throughput, one.cpu_ms]
        throttled = "-" if one.throttled_percent is None else f"{one.throttled_percent:.1f} %"
        blocks = str(row.blocks) + (f", {row.disturbed} disturbed" if row.disturbed else "")
        table.add_row(
            _safe(row.candidate.title + (" *" if row.is_winner and not row.is_plan else "")),
            "-" if row.threads is None else str(row.threads),
            *map(number, figures),
            *((throttled, blocks) if wide else ()),
            style="green" if row.is_winner else "",
        )
    return table


def _without_figures(result: tuple[Row, ...]) -> Iterator[tuple[str, str]]:
    """Yields each reason with all that have it."""
    reasons: dict[str, list[str]] = {}
    for row in result:
        if row.figures is None:
            reasons.setdefault(row.skipped, []).append(row.candidate.title)
    for reason, titles in reasons.items():
        yield reason, "; ".join(titles)
