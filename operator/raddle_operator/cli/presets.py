"""`raddle presets`: the servers that Raddle knows, and what each gets or why it is left alone."""

from __future__ import annotations

from typing import Any

import click
from rich.markup import escape

from raddle_operator.cli import output
from raddle_operator.presets.rows import Preset
from raddle_operator.presets.rows import presets as rows

EPILOG = """\b
Examples:
  raddle presets
  raddle presets ollama
  raddle presets -o json

\b
A policy with `presets: Never` disables presets.
Exit codes: 0 success, 2 no such preset.
"""


@click.command(epilog=EPILOG)
@click.argument("name", required=False)
@click.option(
    "-o", "--output", "form", default="table", show_default=True, type=click.Choice(["table", "json", "yaml"])
)
def presets(name: str | None, form: str) -> None:
    """Show the presets: how Raddle recognises servers, and the values for each. Needs no cluster."""
    result = [row for row in rows() if name in (None, row.name)]
    if not result:
        raise click.UsageError(f"no preset {name}; there are: {', '.join(row.name for row in rows())}")
    if form != "table":
        output.write([as_json(row) for row in result], form)
    elif name is not None:
        _print_one(result[0])
    else:
        table = output.table("preset", "gets")
        for row in result:
            table.add_row(row.name, escape(gets(row)))
        output.console().print(table)


def as_json(row: Preset) -> dict[str, Any]:
    """A row as in presets.yaml, every field there."""
    return {
        "name": row.name,
        "title": row.title,
        "images": list(row.images),
        "commands": list(row.commands),
        "accelerator": row.accelerator,
        "variables": dict(row.variables),
        "runtimes": list(row.runtimes),
        "beaten_by": {name: list(others) for name, others in row.beaten_by.items()},
        "flags": list(row.flags),
        "stock": row.stock,
        "alone": row.alone,
        "unless": dict(row.unless),
        "advice": row.advice,
        "processes": row.processes,
        "source": row.source,
    }


def gets(row: Preset) -> str:
    """What a container of it gets, in a line."""
    if row.alone:
        return "left alone" + (f" unless {_pairs(row)} is set" if row.unless else "")
    variables = ", ".join(f"{name}={value}" for name, value in row.variables.items())
    families = f"families {', '.join(row.runtimes)}" if row.runtimes else ""
    return "; ".join(filter(None, (variables, families))) or "the default families, and advice"


def _pairs(row: Preset) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.unless.items())


def _print_one(row: Preset) -> None:
    kind = {None: "", True: ", with an accelerator", False: ", without an accelerator"}[row.accelerator]
    lines = (
        ("server", row.title + kind),
        ("images", ", ".join(row.images)),
        ("commands", ", ".join(row.commands)),
        ("gets", gets(row)),
        ("beaten by", ", ".join(one for others in row.beaten_by.values() for one in others)),
        ("why alone", row.alone),
        ("advice", row.advice),
        ("source", row.source),
    )
    console = output.console()
    for label, text in lines:
        if text:
            console.print(f"[bold]{label:<10}[/] {escape(text)}", soft_wrap=True)
