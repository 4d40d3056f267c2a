"""How commands print: one console that knows terminals, JSON and YAML for tools."""

from __future__ import annotations

import json
import os
from typing import Any, Final

import click
import yaml
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table


def console() -> Console:
    """A console on standard output: colours only on a terminal, and never where NO_COLOR is set."""
    # A pipe gets whole lines: cutting to 80 columns would lose data.
    width = None if os.isatty(1) else 200
    return Console(width=width, highlight=False, soft_wrap=False)


_NAMES: Final = {"command", "container", "namespace", "node", "pod", "policy", "workload"}
_SENTENCES: Final = {"because", "detail", "effective", "finding", "gets", "runtimes", "spinning", "without shim"}


class _Table(Table):
    """A table whose columns come closer together where the terminal is too narrow for it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for apart in range(self.padding[1], 0, -1):
            self.padding = (0, apart, 0, 0)
            if self.__rich_measure__(console, options.update_width(_ANY_WIDTH)).maximum <= options.max_width:
                break
        yield from super().__rich_console__(console, options)


_ANY_WIDTH: Final = 10_000


def table(*columns: str) -> Table:
    """An unframed table in kubectl's manner. A narrow terminal folds its words: a cut number is another number."""
    made = _Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    for column in columns:
        made.add_column(column.upper(), overflow="fold", no_wrap=column.lower() not in _NAMES | _SENTENCES)
    return made


def write(document: Any, form: str) -> None:
    """Prints a document as "json" or "yaml"."""
    if form == "json":
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)
