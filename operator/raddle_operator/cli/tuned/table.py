"""A tuning on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from raddle_operator.cli import output
from raddle_operator.cli.picture.model import printable
from raddle_operator.cli.tuned.figures import Row, number, objective, rows, validity
from raddle_operator.tuning import advice
from raddle_operator.tuning.document import Tuning
from raddle_operator.tuning.result import Verdict

_STYLES = {Verdict.BETTER: "bold green", Verdict.NO_DIFFERENCE: "bold", Verdict.BOUND_NOT_MET: "bold red"}


def show(tuning: Tuning) -> None:
    """Prints the answer, the trials, what makes it valid, and what to do."""
    console, result = output.console(), tuning.result
    _line(console, f"{tuning.name}: {tuning.key.limit}, {tuning.key.node_class.title}")
    _line(console, f"{objective(result.objective)}; {tuning.finished}")
    console.print()
    _line(console, advice.answer(result), _STYLES.get(result.verdict, "bold yellow"))
    console.print()
    console.print(_trials(rows(tuning)))
    if result.contributions:
        console.print()
        table = output.table("setting", "contributes")
        for path, part in result.contributions:
            table.add_row(_safe(path), advice.signed(part))
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


def _trials(found: tuple[Row, ...]) -> Table:
    table = output.table(
        "settings",
        "threads",
        "p50 ms",
        "p99 ms",
        "slowest tenth",
        "requests/s",
        "CPU ms",
        "throttled",
        "blocks",
        "because",
    )
    for row in found:
        title = row.candidate.title + (" *" if row.is_winner and not row.is_plan else "")
        style = "green" if row.is_winner else "dim" if row.figures is None else ""
        threads = "-" if row.threads is None else str(row.threads)
        if row.figures is None:
            table.add_row(_safe(title), threads, *["-"] * 6, str(row.blocks), _safe(row.skipped), style=style)
            continue
        one = row.figures
        because = f"{row.disturbed} of them disturbed" if row.disturbed else ""
        table.add_row(
            _safe(title),
            threads,
            number(one.p50_ms),
            number(one.p99_ms),
            number(one.slowest_tenth_ms),
            number(one.throughput),
            number(one.cpu_ms),
            "-" if one.throttled_percent is None else f"{one.throttled_percent:.1f} %",
            str(row.blocks),
            because,
            style=style,
        )
    return table
