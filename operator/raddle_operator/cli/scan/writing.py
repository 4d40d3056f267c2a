"""Writes a scan in the form that was asked for, on standard output."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from raddle_operator.cli import output
from raddle_operator.cli.picture.model import printable
from raddle_operator.cli.scan import words
from raddle_operator.cli.scan.words import Scan
from raddle_operator.scanning.assess import Cause
from raddle_operator.scanning.rows import Row, to_document

__all__ = ["FORMS", "Scan", "write"]

_COLUMNS: Final = ("namespace", "workload", "runtime", "pods", "cpus", "threads", "cause", "throttled", "saves", "fix")
_WIDE: Final = (*_COLUMNS[:2], "container", *_COLUMNS[2:-2], "used", *_COLUMNS[-2:])
_RIGHT: Final = frozenset(("pods", "cpus", "throttled", "used", "saves"))
_FOLDED: Final = frozenset(("namespace", "workload", "runtime", "fix"))
# As kubectl takes them too.
_SHORT: Final = {"deployment": "deploy", "statefulset": "sts", "daemonset": "ds", "replicaset": "rs", "cronjob": "cj"}
_STYLES: Final[Mapping[str, str]] = {Cause.FITS: "green", Cause.UNKNOWN: "dim"}


def write(scan: Scan, form: str) -> None:
    """Prints the scan in one of the `FORMS`."""
    FORMS[form](scan)


def _table(scan: Scan, *, wide: bool = False) -> None:
    console = output.console()
    if scan.rows:
        console.print(_rows(scan, _WIDE if wide else _COLUMNS))
        console.print()
    _line(console, words.sentence(scan), "bold")
    if len(scan.totals) > 1:
        _totals(console, scan)
    meanings = words.COLUMNS_MEAN if scan.rows else ()
    for name, text in (*meanings, *words.causes(scan), *words.advice(scan)):
        _line(console, f"{name}: {text}", "dim")
    if wide:
        _details(console, scan)
    if command := words.with_raddle(scan):
        _line(console, f"With Raddle installed, instead of each fix: {command}, and a policy")
    for note in scan.notes:
        _line(console, f"note: {note}", "dim")


def _rows(scan: Scan, columns: tuple[str, ...]) -> Table:
    shown = _shown(scan, columns)
    table = output.table(*shown)
    table.padding = (0, 2, 0, 0)
    for column, name in zip(table.columns, shown, strict=True):
        column.no_wrap = name not in _FOLDED
        column.justify = "right" if name in _RIGHT else "left"
    for row in scan.rows:
        result = words.cells(row)
        kind, _, name = result["workload"].partition("/")
        result["workload"] = f"{_SHORT.get(kind, kind)}/{name}"
        table.add_row(*(escape(printable(result[name])) for name in shown), style=_STYLES.get(row.seen.cause))
    return table


def _shown(scan: Scan, columns: tuple[str, ...]) -> list[str]:
    measured = any(row.source != "limit" for row in scan.rows)
    return [name for name in columns if measured or name not in words.MEASURED]


def _totals(console: Console, scan: Scan) -> None:
    table = output.table("namespace", "containers", "to fix", "pods", "saves")
    for column in table.columns[1:]:
        column.justify = "right"
    for one in scan.totals:
        back = words.number(one.gives_back_cpus) if one.findings else ""
        figures = (str(one.rows), str(one.findings), str(one.pods), back)
        table.add_row(escape(printable(one.namespace)), *figures)
    console.print()
    console.print(table)
    console.print()


def _details(console: Console, scan: Scan) -> None:
    for row in scan.rows:
        seen = row.seen
        _line(console, f"{seen.namespace} {seen.workload} {seen.container}: {words.because(row)}")
        for text in (seen.fix.command, seen.fix.text):
            if text:
                _line(console, f"  {text}")


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(escape(printable(text)), style=style or None, soft_wrap=True)


def _document(form: str) -> Callable[[Scan], None]:
    return lambda scan: output.write(to_document(scan.rows, scan.notes), form)


def _csv(scan: Scan) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_FLAT)
    writer.writerows(map(_flat, scan.rows))
    click.echo(text.getvalue(), nl=False)


_FLAT: Final = (
    *("namespace", "workload", "container", "runtime", "pods", "limit_cpus", "node_cpus", "processes"),
    *("threads", "planned", "cause", "throttled_share", "used_cpus", "gives_back_cpus", "fix", "command"),
)


def _flat(row: Row) -> list[str]:
    """Numbers as numbers, the most of a range, "" for what is not known."""
    seen = row.seen
    values = (
        *(seen.namespace, seen.workload, seen.container, seen.runtime, row.pods, seen.limit_cpus),
        *(row.node_cpus and row.node_cpus[1], seen.processes, row.threads and row.threads[1]),
        *(row.planned and row.planned[1], str(seen.cause)),
        *(_rounded(row.throttled_share), _rounded(row.used_cpus), _rounded(row.gives_back_cpus)),
        *(" ".join(f"{name}={value}" for name, value in seen.fix.variables) or seen.fix.text, seen.fix.command),
    )
    return ["" if value is None else _safe(printable(str(value))) for value in values]


def _safe(text: str) -> str:
    """Not read as a formula by a spreadsheet."""
    return f"'{text}" if text.startswith(("=", "+", "@", "-")) else text


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _markdown(scan: Scan) -> None:
    click.echo("\n".join(_markdown_lines(scan)))


def _markdown_lines(scan: Scan) -> Iterator[str]:
    yield words.sentence(scan)
    if scan.rows:
        yield ""
        columns = _shown(scan, _COLUMNS)
        yield f"| {' | '.join(columns)} |"
        yield f"|{'|'.join('---:' if name in _RIGHT else '---' for name in columns)}|"
        for row in scan.rows:
            result = words.cells(row)
            yield f"| {' | '.join(_cell(result[name], code=name == 'fix') for name in columns)} |"
        yield ""
    yield from (f"- {_cell(name)}: {_cell(text)}" for name, text in (*words.causes(scan), *words.advice(scan)))
    yield from (f"- {_cell(note)}" for note in scan.notes)


def _cell(text: str, *, code: bool = False) -> str:
    one = printable(text).replace("|", "\\|").replace("<", "&lt;")
    return f"`{one}`" if code and one else one


def _html(scan: Scan) -> None:
    from raddle_operator.cli.scan import page

    click.echo(page.page(scan), nl=False)


FORMS: Final[dict[str, Callable[[Scan], None]]] = {
    "table": _table,
    "wide": lambda scan: _table(scan, wide=True),
    "json": _document("json"),
    "yaml": _document("yaml"),
    "csv": _csv,
    "html": _html,
    "markdown": _markdown,
}
"""How a scan can be printed: name -> what prints it."""
