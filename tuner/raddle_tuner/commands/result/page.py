"""A tuning as one HTML page: nothing in it is from elsewhere, no script, light and dark, and fit for paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from raddle_operator.cli import html
from raddle_operator.results.verdict import FIGURES, Verdict
from raddle_tuner.commands.result import charts, style
from raddle_tuner.commands.result.figures import Figures, Row, number, objective, rows, validity
from raddle_tuner.search import advice
from raddle_tuner.search.document import TuningResult

_VERDICTS: Final = {
    Verdict.BETTER: ("winner", "Better than the plan"),
    Verdict.NO_DIFFERENCE: ("plan", "No significant difference: keep the plan"),
    Verdict.INCONCLUSIVE: ("limit", "Not decided"),
    Verdict.BOUND_NOT_MET: ("bound", "The objective is not met"),
}


def page(tuning: TuningResult) -> str:
    """The whole page."""
    result = tuning.result
    accent, _ = _VERDICTS[result.verdict]
    parts = _parts(tuning, rows(tuning))
    return html.page(f"Tuning of {tuning.name}", parts, accent=accent, more=style.sheet())


def _parts(tuning: TuningResult, results: tuple[Row, ...]) -> Iterator[str]:
    result, key = tuning.result, tuning.key
    yield f"<header>\n<h1>{escape(tuning.name)}</h1>"
    line = " · ".join([objective(result.objective), key.limit, key.node_class.title])
    yield f'<p class="soft">{escape(line)} · <span class="whole">{escape(tuning.finished)}</span></p>\n</header>'
    yield _answer(tuning, results)
    patch = advice.policy_patch(tuning)
    if patch:
        only = " It requires the changes to the program below." if advice.for_the_program(result.winner) else ""
        yield f'<h2>Policy patch</h2>\n<p class="soft">One click selects it.{only}</p>\n<pre>{escape(patch)}</pre>'
    drawn = "".join(
        f"<figure><figcaption><h2>{escape(chart.title)}</h2><p>{escape(chart.text)}</p></figcaption>{charts.svg(chart)}</figure>\n"
        for chart in charts.charts(tuning)
    )
    yield f'<div class="charts">\n{drawn}</div>'
    yield from _compared(results)
    yield "<h2>Trials</h2>"
    yield _trials(results)
    yield f"<h2>Why the result is valid</h2>\n{_list(validity(tuning))}"
    if result.verdict is Verdict.BETTER:
        for one in advice.for_the_program(result.winner):
            yield f'<h2>{escape(one.title)}</h2>\n<p class="soft">The program must do this; a policy cannot.</p>'
            for where, code in one.code:
                yield f"<p>{escape(where)}</p>\n<pre>{escape(code)}</pre>"
    yield f'<h2>What it is valid for</h2>\n<dl class="key">{html.described(_key(tuning))}</dl>'


def _answer(tuning: TuningResult, results: tuple[Row, ...]) -> str:
    result = tuning.result
    _, verdict = _VERDICTS[result.verdict]
    tiles = [("Noise", f"up to {result.noise_percent:.1f} %")] if advice.noise(result) else []
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
    measured = sum(1 for row in results if row.figures is not None)
    tiles.append(
        ("Trials", f"{measured}, {len(results) - measured} skipped" if measured < len(results) else f"{measured}")
    )
    return (
        f'<section class="answer">\n<p class="verdict">{escape(verdict)}</p>\n'
        f'<p class="sentence">{escape(advice.answer(result))}</p>\n'
        f"{html.tiles(tiles)}\n</section>"
    )


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _compared(result: tuple[Row, ...]) -> Iterator[str]:
    plan = next((row.figures for row in result if row.is_plan), None)
    winner = next((row for row in result if row.is_winner and not row.is_plan), None)
    if plan is None or winner is None or winner.figures is None:
        return
    lines = "".join(
        f"<tr><td>{escape(name)}</td><td>{number(before)}</td><td>{number(after)}</td>"
        f"<td>{_change(before, after)}</td></tr>"
        for name, before, after in _side_by_side(plan, winner.figures)
    )
    yield "<h2>The plan against the winner</h2>"
    yield (
        f'<p class="soft">All blocks of both; the gain above is from additional blocks that alternate. '
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


def _trials(result: tuple[Row, ...]) -> str:
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
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(map(_trial, result))}</table></div>'


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


def _key(tuning: TuningResult) -> Iterator[tuple[str, str]]:
    key = tuning.key
    yield "Model", key.model or "not known"
    yield "Image", key.image or "none"
    yield "Node class", f"{key.node_class.title} ({key.node_class.architecture or 'architecture not known'})"
    yield "CPU limit", key.limit
    yield "Objective", objective(key.objective)
    yield "Runtime", f"{key.runtime} {key.runtime_version}".strip() or "not known"
