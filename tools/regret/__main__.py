"""`python -m regret`: by how much the planner's choices miss the best setting of each recorded cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import report
from load import surface, variants
from regret import judging
from regret.judging import RULES, Judgement

EXAMPLES = """\b
Examples:
  python -m regret
  python -m regret -o json
  python -m regret held-out/*.json
"""
# What a table of cells takes; a pipe has 80.
_COLUMNS = 150
_LEGEND = (
    "p50 / p99 in ms; below a choice its regret in p50 / p99 / CPU:"
    " ~ within noise, * worse than stock beyond noise (no run of the one is as good as a run of the other)"
)


@click.command(epilog=EXAMPLES)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(files: tuple[Path, ...], output: str) -> None:
    """Print what the planner chooses in each cell of these surfaces, the best setting there, and the regret.

    FILES are surfaces that `python -m load surface` wrote; without any those of benchmarks/surfaces.
    """
    judged = judging.all_judged({path.stem: surface.read(path) for path in files or surface.committed()})
    if output == "json":
        click.echo(report.folded_json({"surfaces": judging.summaries(judged), "cells": list(map(document, judged))}))
        return
    console = Console(width=max(Console().width, _COLUMNS))
    console.print(_cells(judged), _summaries(judging.summaries(judged)))


def document(one: Judgement) -> dict[str, Any]:
    """One rule in one cell, as JSON; numbers are the figures of the settings, and ratios less 1."""
    named = {"stock": variants.STOCK, "best": one.best, "chosen": one.recorded}
    return {
        "surface": one.surface,
        "cell": one.cell.conditions.title,
        "rule": one.rule,
        "setting": one.chosen,
        "best_setting": one.best,
        "recorded_setting": one.recorded,
        **{
            name: judging.median(one.cell, setting)._asdict()
            for name, setting in named.items()
            if setting is not None and setting in one.cell.settings
        },
        "regret": one.regret,
        "beyond_noise": one.beyond_noise,
        "worse_than_stock": one.harm,
    }


def _cells(judged: Sequence[Judgement]) -> Table:
    table = Table(title=_LEGEND, title_justify="left", box=SIMPLE_HEAD)
    for heading in ("cell", "stock", *RULES, "best"):
        table.add_column(heading)
    by_cell: dict[tuple[str, int], list[Judgement]] = {}
    for one in judged:
        by_cell.setdefault((one.surface, id(one.cell)), []).append(one)
    for (name, _), (first, *others) in by_cell.items():
        cell = first.cell
        table.add_row(
            f"{cell.conditions.title}\n[dim]{name}; {report.short(cell.service_ms)} ms on one thread[/]",
            _figures(first, variants.STOCK),
            *map(_choice, (first, *others)),
            f"{first.best}: {_figures(first, first.best)}",
        )
    return table


def _choice(one: Judgement) -> str:
    if one.recorded is None:
        return f"{one.chosen}: [dim]not recorded[/]"
    by = "" if one.recorded == one.chosen else f" [dim](of {one.recorded})[/]"
    regret = " / ".join(
        f"{100 * value:+.0f} %" + "~" * (value > 0 and name not in one.beyond_noise) + "*" * (name in one.harm)
        for name, value in (one.regret or {}).items()
    )
    return f"{one.chosen}: {_figures(one, one.recorded)}{by}\n{regret}"


def _figures(one: Judgement, setting: str) -> str:
    if setting not in one.cell.settings:
        return "–"
    figures = judging.median(one.cell, setting)
    return f"{report.short(figures.p50_ms)} / {report.short(figures.p99_ms)}"


def _summaries(summaries: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Table:
    title = "regret in %: mean / 95th percentile / worst; and cells where it is worse than stock beyond noise"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for heading in ("surface", "", "cells", "p50", "p99", "CPU a request", "worse than stock", "not recorded"):
        table.add_column(heading, no_wrap=True)
    for name, by_rule in summaries.items():
        for rule, summary in by_rule.items():
            regrets = (
                " / ".join(f"{100 * value:.0f}" for value in figures.values()) for figures in summary["regret"].values()
            )
            counts = (str(summary[count]) for count in ("worse_than_stock_cells", "not_recorded_cells"))
            table.add_row(name, rule, str(summary["cells"]), *regrets, *counts)
    return table


if __name__ == "__main__":
    main(prog_name="python -m regret")
