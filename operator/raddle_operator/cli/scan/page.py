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

_COLUMNS: Final = ("workload", "runtime", "pods", "cpus", "threads", "cause", "throttled", "used", "saves", "fix")
_SHEET: Final = """
td.text,th.text{text-align:left}
td.fix{white-space:normal;min-width:16em;overflow-wrap:anywhere}
td.fix code{font:12px/1.4 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;user-select:all}
tr.namespace th{padding-top:1.6rem;color:var(--ink);font-size:1.05rem}
tr.namespace th .soft{font-weight:400;font-size:.9rem;margin-left:.8em}
tr.fits td,tr.unknown td{color:var(--soft)}
td .bar{display:block;height:4px;margin-top:3px;border-radius:2px;background:var(--bound);margin-left:auto}
"""
_TEXT: Final = frozenset(("runtime", "threads", "cause", "fix"))


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
        (words.misplanned(scan, "run"), str(sums.findings)),
        ("their pods", str(sums.pods)),
        ("CPUs that may come back", words.number(sums.gives_back_cpus)),
    ]
    answer = f'<p class="sentence">{_text(words.sentence(scan))}</p>'
    yield f'<section class="answer">\n{answer}\n{html.tiles(figures)}\n</section>'
    if scan.rows:
        yield f'<div class="wide"><table>{"".join(_table(scan))}</table></div>'
    if command := words.with_raddle(scan):
        yield "<h2>With Raddle installed</h2>"
        yield f'<p class="soft">In place of each fix, with a policy:</p>\n<pre>{_text(command)}</pre>'
    yield '<h2>What the words mean</h2>\n<dl class="key">'
    yield html.described((*words.causes(scan), *words.advice(scan), *words.COLUMNS_MEAN)) + "</dl>"
    yield from (f'<p class="soft">{_text(note)}</p>' for note in scan.notes)


def _table(scan: Scan) -> Iterator[str]:
    measured = any(row.source != "limit" for row in scan.rows)
    columns = [name for name in _COLUMNS if measured or name not in words.MEASURED]
    yield "<thead><tr>" + "".join(f"<th{_kind(name)}>{escape(name)}</th>" for name in columns) + "</tr></thead>"
    most = max((row.gives_back_cpus or 0.0 for row in scan.rows), default=0.0)
    for one in scan.totals:
        back = f", saves {words.number(one.gives_back_cpus)} CPUs" if one.gives_back_cpus else ""
        said = f'<span class="soft">{one.findings} of {plural(one.rows, "container")}{back}</span>'
        yield f'<tbody><tr class="namespace"><th colspan="{len(columns)}">{_text(one.namespace)}{said}</th></tr>'
        yield from (_row(row, columns, most) for row in scan.rows if row.seen.namespace == one.namespace)
        yield "</tbody>"


def _kind(name: str) -> str:
    classes = [kind for kind, is_it in (("text", name in _TEXT), ("fix", name == "fix")) if is_it]
    return f' class="{" ".join(classes)}"' if classes else ""


def _row(row: Row, columns: list[str], most: float) -> str:
    result = words.cells(row)
    cells = {name: _text(result[name]) for name in columns}
    said = f"{row.seen.container}: {words.because(row)}"
    cells["workload"] += f'<br><span class="soft">{_text(said)}</span>'
    if row.gives_back_cpus and most:
        cells["saves"] += f'<span class="bar" style="width:{100 * row.gives_back_cpus / most:.0f}%"></span>'
    fix = row.seen.fix
    command = fix.command or result["fix"]
    cells["fix"] = f"<code>{_text(command)}</code>" if command else ""
    kind = str(row.seen.cause).lower()
    return f'<tr class="{kind}">{"".join(f"<td{_kind(name)}>{cells[name]}</td>" for name in columns)}</tr>'


def _text(text: str) -> str:
    return escape(printable(text))
