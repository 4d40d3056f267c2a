"""A scan as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from raddle_operator.cli import html
from raddle_operator.cli.picture.model import plural, printable
from raddle_operator.cli.scan import words
from raddle_operator.cli.scan.words import Scan
from raddle_operator.scanning.rows import Row

_COLUMNS: Final = (
    *("workload", "container", "runtime", "pods", "cpus", "threads", "cause"),
    *("throttled", "used", "saves", "fix"),
)
_SHEET: Final = """
td.text,th.text{text-align:left}
td.fix{white-space:normal;min-width:14em;overflow-wrap:anywhere}
td.fix code{font:12px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;user-select:all}
tr.fits td,tr.unknown td{color:var(--soft)}
td .bar{display:block;height:4px;margin-top:3px;border-radius:2px;background:var(--bound);margin-left:auto}
"""
_TEXT: Final = frozenset(("runtime", "container", "threads", "cause", "fix"))


def page(scan: Scan) -> str:
    """The whole page."""
    accent = "bound" if scan.total.findings else "winner"
    return html.page("Threads against CPU limits", _parts(scan), accent=accent, more=_SHEET)


def _parts(scan: Scan) -> Iterator[str]:
    sums = scan.total
    yield "<header>\n<h1>Threads against CPU limits</h1>"
    yield f'<p class="soft">raddle scan, {plural(scan.pods, "pod")}</p>\n</header>'
    figures = [
        ("Containers with a known runtime", str(sums.rows)),
        ("run too many threads", str(sums.findings)),
        ("their pods", str(sums.pods)),
        ("CPUs that may come back", words.number(sums.gives_back_cpus)),
    ]
    answer = f'<p class="sentence">{_text(words.sentence(scan))}</p>'
    yield f'<section class="answer">\n{answer}\n{html.tiles(figures)}\n</section>'
    most = max((row.gives_back_cpus or 0.0 for row in scan.rows), default=0.0)
    for one in scan.totals:
        back = f", saves {words.number(one.gives_back_cpus)} CPUs" if one.gives_back_cpus else ""
        yield f"<h2>{_text(one.namespace)}</h2>"
        yield f'<p class="soft">{one.findings} of {plural(one.rows, "container")}{back}</p>'
        rows = [row for row in scan.rows if row.seen.namespace == one.namespace]
        yield f'<div class="wide"><table><tr>{_head()}</tr>{"".join(_row(row, most) for row in rows)}</table></div>'
    if command := words.with_raddle(scan):
        yield "<h2>With Raddle installed</h2>"
        yield f'<p class="soft">In place of each fix, with a policy:</p>\n<pre>{_text(command)}</pre>'
    yield '<h2>What the words mean</h2>\n<dl class="key">'
    yield html.described((*words.causes(scan), *words.advice(scan), *words.COLUMNS_MEAN)) + "</dl>"
    yield from (f'<p class="soft">{_text(note)}</p>' for note in scan.notes)


def _head() -> str:
    return "".join(f"<th{_kind(name)}>{escape(name)}</th>" for name in _COLUMNS)


def _kind(name: str) -> str:
    classes = [kind for kind, is_it in (("text", name in _TEXT), ("fix", name == "fix")) if is_it]
    return f' class="{" ".join(classes)}"' if classes else ""


def _row(row: Row, most: float) -> str:
    found = words.cells(row)
    cells = {name: _text(found[name]) for name in _COLUMNS}
    cells["workload"] += f'<br><span class="soft">{_text(words.because(row))}</span>'
    if row.gives_back_cpus and most:
        cells["saves"] += f'<span class="bar" style="width:{100 * row.gives_back_cpus / most:.0f}%"></span>'
    fix = row.seen.fix
    command = fix.command or fix.short
    cells["fix"] = f"<code>{_text(command)}</code>" if command else ""
    kind = str(row.seen.cause).lower()
    return f'<tr class="{kind}">{"".join(f"<td{_kind(name)}>{cells[name]}</td>" for name in _COLUMNS)}</tr>'


def _text(text: str) -> str:
    return escape(printable(text))
