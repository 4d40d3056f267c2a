"""`raddle result`: the result of a tuning, from its JSON, as `raddle tune` printed it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click

from raddle_operator.cli.manifests import ManifestError
from raddle_operator.results.codec import DocumentError
from raddle_tuner.commands.result import writing
from raddle_tuner.search.document import TuningResult, from_document

EPILOG = """\b
Examples:
  raddle result result.json --report result.html
  kubectl logs job/ranker-1c2d3e4f5a -c tuner | raddle result - --report result.html

\b
Exit codes: 0 success, 2 invalid input or usage.
"""


@click.command(epilog=EPILOG)
@writing.options
@click.argument("source", metavar="FILE", type=click.File(encoding="utf-8", errors="replace"))
def result(form: str, report: Path | None, source: IO[str]) -> None:
    """Show the result of a tuning.

    FILE is the JSON of `raddle tune -o json` or `--report FILE.json`, or the log of an InferenceTuning's Jobs; - is
    standard input. If a log contains several results, the one with the most candidates is shown.
    """
    writing.write(_read(source.name, source.read()), form=form, report=report)


def _read(name: str, text: str) -> TuningResult:
    """The result. Raises ManifestError where the text has none."""
    try:
        return from_document(_document(text))
    except DocumentError as error:
        raise ManifestError(f"{name}: {error}") from None
    except ValueError:
        raise ManifestError(f"{name}: not a JSON result; raddle tune -o json writes one") from None


def _document(text: str) -> Any:
    """The whole text as JSON, or the line that is a result of the most trials. Raises ValueError where there is none.

    A tuner prints one at its end: that of the node that searched, and those of the nodes that only confirmed what won.
    """
    try:
        return json.loads(text)
    except ValueError:
        objects = list(_objects(text))
        if not objects:
            raise
        return max(reversed(objects), key=_trials)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yields the lines that are JSON objects."""
    for line in text.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                yield json.loads(line)


def _trials(document: dict[str, Any]) -> int:
    """How many it has, 0 where it is no result."""
    result = document.get("result")
    trials = result.get("trials") if isinstance(result, dict) else None
    return len(trials) if isinstance(trials, list) else 0
