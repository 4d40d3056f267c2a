"""A tuning as one HTML page: nothing in it is from elsewhere, no script, light and dark, and fit for paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from raddle_operator.cli.tuned import charts, style
from raddle_operator.cli.tuned.figures import Figures, Row, number, objective, rows, validity
from raddle_operator.tuning import advice
from raddle_operator.tuning.document import Tuning
from raddle_operator.tuning.figure import FIGURES
from raddle_operator.tuning.result import Verdict

_VERDICTS: Final = {
    Verdict.BETTER: ("winner", "Better than the plan"),
    Verdict.NO_DIFFERENCE: ("plan", "No significant difference: keep the plan"),
    Verdict.INCONCLUSIVE: ("limit", "Not decided"),
    Verdict.BOUND_NOT_MET: ("bound", "The objective is not met"),
}
_SHEET: Final = """\
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 FONT}
main{max-width:1160px;margin:0 auto;padding:24px 16px 48px}
h1{font-size:1.7rem;line-height:1.2;margin:0;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem}
p{margin:.3rem 0}
.soft,figcaption p,dt,th{color:var(--soft)}
.answer{margin:1.2rem 0;padding:14px 18px;background:var(--panel);border-left:5px solid var(--accent);border-radius:6px}
.answer .verdict{color:var(--accent);font-weight:700}
.answer .sentence{font-size:1.15rem;line-height:1.4;overflow-wrap:anywhere}
.whole{white-space:nowrap}
.tiles{display:flex;flex-wrap:wrap;gap:10px 34px;margin:.8rem 0 0}
.tiles dd{margin:0;font-size:1.25rem;font-weight:700}
.tiles dt,figcaption p,table{font-size:.9rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr));gap:26px 34px;margin-top:2rem}
figure{margin:0;break-inside:avoid}
figcaption{min-height:4.9em}
figcaption h2{margin:0}
figure svg{display:block;width:100%;height:auto}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%}
th,td{padding:5px 12px 5px 0;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid);vertical-align:top}
th:first-child,td:first-child{text-align:left;white-space:normal;min-width:13em;overflow-wrap:anywhere}
tr.winner td{font-weight:700}
tr.winner td:first-child{color:var(--winner)}
tr.plan td:first-child{color:var(--plan)}
tr.skipped td{color:var(--soft)}
pre{margin:.3rem 0;padding:12px 14px;background:var(--panel);border:1px solid var(--grid);border-radius:6px;
white-space:pre-wrap;overflow-wrap:anywhere;
font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;user-select:all}
ul{margin:.3rem 0;padding-left:1.2em}
dl.key{display:grid;grid-template-columns:max-content 1fr;gap:2px 18px;margin:.3rem 0}
dl.key dd{margin:0;overflow-wrap:anywhere}
@media print{body{font-size:11px}main{max-width:none;padding:0}.charts{grid-template-columns:1fr 1fr}
.wide{overflow:visible}h2{break-after:avoid}tr{break-inside:avoid}
th,td{padding-right:6px}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
@media (max-width:640px){dl.key{grid-template-columns:1fr}dl.key dt{margin-top:6px}figcaption{min-height:0}}
"""


def page(tuning: Tuning) -> str:
    """The whole page."""
    result = tuning.result
    accent, _ = _VERDICTS[result.verdict]
    title = escape(f"Tuning of {tuning.name}")
    variables = "".join(f"--{role}:{colour};" for role, colour in style.LIGHT.items())
    dark = "".join(f"--{role}:{colour};" for role, colour in style.DARK.items())
    sheet = (
        f":root{{color-scheme:light dark;{variables}--accent:var(--{accent})}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f"@media print{{:root{{color-scheme:light}}}}\n{_SHEET.replace('FONT', style.FONT)}{style.sheet()}"
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{sheet}\n</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(_parts(tuning, rows(tuning)))
        + "\n</main>\n</body>\n</html>\n"
    )


def _parts(tuning: Tuning, found: tuple[Row, ...]) -> Iterator[str]:
    result, key = tuning.result, tuning.key
    yield f"<header>\n<h1>{escape(tuning.name)}</h1>"
    line = " · ".join([objective(result.objective), key.limit, key.node_class.title])
    yield f'<p class="soft">{escape(line)} · <span class="whole">{escape(tuning.finished)}</span></p>\n</header>'
    yield _answer(tuning, found)
    patch = advice.policy_patch(tuning)
    if patch:
        only = " Only with what the program has to do itself, below." if advice.for_the_program(result.winner) else ""
        yield f'<h2>Policy patch</h2>\n<p class="soft">One click selects it.{only}</p>\n<pre>{escape(patch)}</pre>'
    drawn = "".join(
        f"<figure><figcaption><h2>{escape(chart.title)}</h2><p>{escape(chart.text)}</p></figcaption>{charts.svg(chart)}</figure>\n"
        for chart in charts.charts(tuning)
    )
    yield f'<div class="charts">\n{drawn}</div>'
    yield from _compared(found)
    yield "<h2>Trials</h2>"
    yield _trials(found)
    yield f"<h2>What makes it valid</h2>\n{_list(validity(tuning))}"
    if result.verdict is Verdict.BETTER:
        for one in advice.for_the_program(result.winner):
            yield f'<h2>{escape(one.title)}</h2>\n<p class="soft">The program does this itself: no policy can.</p>'
            for where, code in one.code:
                yield f"<p>{escape(where)}</p>\n<pre>{escape(code)}</pre>"
    yield f'<h2>What it is valid for</h2>\n<dl class="key">{_pairs(_key(tuning))}</dl>'


def _answer(tuning: Tuning, found: tuple[Row, ...]) -> str:
    result = tuning.result
    _, verdict = _VERDICTS[result.verdict]
    tiles = [("Noise of two equal settings", f"up to {result.noise_percent:.1f} %")] if advice.noise(result) else []
    if result.gain is not None:
        gain = result.gain
        title = FIGURES[result.figure].title
        tiles[:0] = [
            (f"{title[0].upper()}{title[1:]}, against the plan", f"{gain.percent:+.1f} %"),
            ("95 % interval", f"{gain.low:+.1f} to {gain.high:+.1f} %"),
        ]
    if result.bound is not None:
        said = (
            "kept"
            if result.bound.holds
            else "not certain"
            if result.verdict is not Verdict.BOUND_NOT_MET
            else "not met"
        )
        tiles.append((f"p99 within {result.bound.bound_ms:g} ms", said))
    measured = sum(1 for row in found if row.figures is not None)
    tiles.append(("Trials", f"{measured}, {len(found) - measured} skipped" if measured < len(found) else f"{measured}"))
    return (
        f'<section class="answer">\n<p class="verdict">{escape(verdict)}</p>\n'
        f'<p class="sentence">{escape(advice.answer(result))}</p>\n'
        f'<dl class="tiles">{"".join(f"<div>{_pairs([pair])}</div>" for pair in tiles)}</dl>\n</section>'
    )


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in pairs)


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _compared(found: tuple[Row, ...]) -> Iterator[str]:
    plan = next((row.figures for row in found if row.is_plan), None)
    winner = next((row for row in found if row.is_winner and not row.is_plan), None)
    if plan is None or winner is None or winner.figures is None:
        return
    lines = "".join(
        f"<tr><td>{escape(name)}</td><td>{number(before)}</td><td>{number(after)}</td>"
        f"<td>{_change(before, after)}</td></tr>"
        for name, before, after in _side_by_side(plan, winner.figures)
    )
    yield "<h2>The plan against the winner</h2>"
    yield (
        f'<p class="soft">All blocks of each; the gain above is of fresh blocks, one of each in turn. '
        f"The winner: {escape(', '.join(f'{path} {value}' for path, value in winner.candidate.settings))}.</p>"
    )
    yield f'<div class="wide"><table><tr><th></th><th>plan</th><th>winner</th><th>change</th></tr>{lines}</table></div>'


def _side_by_side(plan: Figures, winner: Figures) -> Iterator[tuple[str, float | None, float | None]]:
    yield "p50, ms", plan.p50_ms, winner.p50_ms
    yield "p99, ms", plan.p99_ms, winner.p99_ms
    yield "mean of the slowest tenth, ms", plan.slowest_tenth_ms, winner.slowest_tenth_ms
    yield "requests/s", plan.throughput, winner.throughput
    yield "CPU a request, ms", plan.cpu_ms, winner.cpu_ms
    yield "throttled CFS periods, %", plan.throttled_percent, winner.throttled_percent


def _change(before: float | None, after: float | None) -> str:
    return f"{100 * (after / before - 1):+.1f} %" if before and after is not None else "-"


def _trials(found: tuple[Row, ...]) -> str:
    columns = (
        "settings",
        "threads",
        "p50 ms",
        "p99 ms",
        "slowest tenth ms",
        "requests/s",
        "CPU ms",
        "throttled",
        "blocks",
    )
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(map(_trial, found))}</table></div>'


def _trial(row: Row) -> str:
    kind = "winner" if row.is_winner else "plan" if row.is_plan else "skipped" if row.figures is None else ""
    marks = [name for name, there in (("winner", row.is_winner), ("front", row.on_front)) if there]
    title = escape(row.candidate.title + (f" ({', '.join(marks)})" if marks else ""))
    if row.figures is None:
        title += f"<br>skipped: {escape(row.skipped)}"
    cells = [title, "-" if row.threads is None else str(row.threads), *_shown(row.figures)]
    cells.append(f"{row.blocks}, {row.disturbed} disturbed" if row.disturbed else f"{row.blocks}")
    return f'<tr class="{kind}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _shown(one: Figures | None) -> Iterator[str]:
    if one is None:
        yield from ["-"] * 6
        return
    yield from map(number, (one.p50_ms, one.p99_ms, one.slowest_tenth_ms, one.throughput, one.cpu_ms))
    yield "-" if one.throttled_percent is None else f"{one.throttled_percent:.1f} %"


def _key(tuning: Tuning) -> Iterator[tuple[str, str]]:
    key = tuning.key
    yield "Model", key.model or "not known"
    yield "Image", key.image or "none"
    yield "Node class", f"{key.node_class.title} ({key.node_class.architecture or 'architecture not known'})"
    yield "CPU limit", key.limit
    yield "Objective", objective(key.objective)
    yield "Runtime", f"{key.runtime} {key.runtime_version}".strip() or "not known"
