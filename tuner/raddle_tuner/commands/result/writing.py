"""Prints a result, and writes reports of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from raddle_operator.cli import output
from raddle_tuner.search.document import TuningResult, from_document, to_document

Command = Callable[..., None]

_KINDS: Final = (".html", ".svg", ".json")


def options(command: Command) -> Command:
    """The command with the options that say how its tuning is written: `form` and `report` of `write`."""
    form = click.option(
        "-o", "--output", "form", type=click.Choice(["text", "json"]), default="text", show_default=True
    )
    report = click.option(
        "--report",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        callback=_report_path,
        help="Also write a report, by suffix: .html a page, .svg its charts, .json the JSON.",
    )
    return form(report(command))


def _report_path(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Raises BadParameter where its suffix is of none that can be made, or its folder is not there."""
    del ctx, param
    if value is not None and value.suffix not in _KINDS:
        raise click.BadParameter(f"{value}: reports end in {', '.join(_KINDS)}")
    # What takes minutes is not measured for nothing.
    if value is not None and not value.parent.is_dir():
        raise click.BadParameter(f"{value}: there is no folder {value.parent}")
    if value is not None and not os.access(value.parent, os.W_OK):
        raise click.BadParameter(f"{value}: nothing can be written to the folder {value.parent}")
    return value


def write(tuning: TuningResult, *, form: str, report: Path | None = None) -> None:
    """Prints the tuning as "text" or "json", and writes a report in the format that its suffix names.

    Raises ClickException where that can't be written.
    """
    document = to_document(tuning)
    kept = from_document(document)
    if form == "json":
        output.write(document, form)
    else:
        from raddle_tuner.commands.result import table

        table.show(kept)
    if report is not None:
        try:
            report.write_text(_report(kept, document, report.suffix), encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"{report}: {error.strerror}") from None


def _report(tuning: TuningResult, document: dict[str, Any], suffix: str) -> str:
    if suffix == ".json":
        return json.dumps(document, ensure_ascii=False) + "\n"
    # matplotlib takes a second to be imported.
    from raddle_tuner.commands.result import charts, page

    return charts.file(tuning) if suffix == ".svg" else page.page(tuning)
