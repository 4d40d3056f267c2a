"""The pictures of a report, by matplotlib: for the page each by itself, as a file all together."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isfinite, log10
from typing import Any, Final

import matplotlib as mpl

mpl.use("agg")  # no display

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from raddle_operator.cli.page_style import LIGHT
from raddle_operator.results.verdict import FIGURES
from raddle_tuner.commands.result import style
from raddle_tuner.commands.result.figures import Figures, Row, rows
from raddle_tuner.search.document import TuningResult

_C: Final = LIGHT
# Text is in the reader's font; matplotlib measures with the widest of these. Ids are the same each time.
_LOOKS: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "raddle",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.parse_math": False,
    "text.color": _C["ink"],
    "axes.edgecolor": _C["soft"],
    "axes.labelcolor": _C["ink"],
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": _C["grid"],
    "grid.linewidth": 0.8,
    "xtick.color": _C["soft"],
    "ytick.color": _C["soft"],
    "xtick.labelcolor": _C["ink"],
    "ytick.labelcolor": _C["ink"],
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handletextpad": 0.4,
    "legend.columnspacing": 1.2,
    "figure.facecolor": "none",
}
_INCHES: Final = (5.2, 3.5)
# All answered at the rate that was asked, where they differ by less than this.
_SAME_THROUGHPUT: Final = 1.05
# Values that are further apart than so many times are drawn on a logarithmic scale.
_FAR: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture: `name` for files and ids, `title` and `text` for people."""

    name: str
    title: str
    text: str
    draw: Callable[[Axes], None]


def charts(tuning: TuningResult) -> tuple[Chart, ...]:
    """Those for which there are figures."""
    return tuple(_charts(tuning, [row for row in rows(tuning) if row.figures is not None]))


def _charts(tuning: TuningResult, results: Sequence[Row]) -> Iterator[Chart]:
    result = tuning.result
    figure = FIGURES[result.figure]
    if _points(results, "threads", result.figure):
        title = f"{figure.title} against threads"
        yield Chart(
            name="threads",
            title=title[0].upper() + title[1:],
            text=f"{'Lower' if figure.lower_is_better else 'Higher'} is better. Each large mark is a trial, each small "
            "dot one of its blocks.",
            draw=lambda axes: _against_threads(axes, tuning, results, result.figure),
        )
    if _points(results, "throughput", "p99_ms") and _differ([_value(row.figures, "throughput") for row in results]):
        yield Chart(
            name="trade",
            title="Throughput against p99",
            text="Down and to the right is better. The dashed line is the Pareto front: trials that no other trial "
            "beats in both.",
            draw=lambda axes: _trade(axes, tuning, results, "throughput"),
        )
    elif _points(results, "cpu_ms_per_request", "p99_ms"):
        yield Chart(
            name="trade",
            title="CPU a request against p99",
            text="All trials served the requested rate. Down and to the left is better. The dashed line is the "
            "Pareto front: trials that no other trial beats in both.",
            draw=lambda axes: _trade(axes, tuning, results, "cpu_ms_per_request"),
        )
    if result.figure != "cpu_ms_per_request" and _points(results, "threads", "cpu_ms_per_request"):
        yield Chart(
            name="cpu",
            title="CPU a request against threads",
            text="What a request costs: threads that spin or wait for each other cost more.",
            draw=lambda axes: _against_threads(axes, tuning, results, "cpu_ms_per_request"),
        )
    if any(row.latencies_ms for row in results if row.is_plan or row.is_winner):
        yield Chart(
            name="latencies",
            title="Latencies: the plan and the winner",
            text="How long the slower requests took: at 99 one in a hundred took longer.",
            draw=lambda axes: _latencies(axes, tuning, results),
        )
    if result.contributions:
        yield Chart(
            name="contributions",
            title="What each setting contributes",
            text=f"The winner with and without the setting, with 95 % intervals; "
            f"{'left' if figure.lower_is_better else 'right'} is better. Shaded: the noise.",
            draw=lambda axes: _contributions(axes, tuning),
        )


def svg(chart: Chart) -> str:
    """One picture, as a part of a page."""
    return style.inline(style.restyled(_rendered([chart]), chart.name, chart.title))


def file(tuning: TuningResult) -> str:
    """All pictures, as an SVG file."""
    return together(charts(tuning), "tuned", f"Tuning of {tuning.name}")


def together(result: Sequence[Chart], name: str, title: str) -> str:
    """These pictures with their titles, as an SVG file; `name` and `title` are the file's own, as a chart has them."""
    return style.file(style.restyled(_rendered(result, titled=True), name, title))


def _rendered(result: Sequence[Chart], *, titled: bool = False) -> str:
    columns = min(2, len(result)) or 1
    lines = ceil(len(result) / columns) or 1
    size = (_INCHES[0] * columns, _INCHES[1] * lines)
    with mpl.rc_context(_LOOKS), warnings.catch_warnings():
        # Of characters that DejaVu Sans has not: the reader's font may.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        whole, grid = plt.subplots(lines, columns, figsize=size, squeeze=False, layout="constrained")
        if titled:
            whole.set_layout_engine("constrained", h_pad=0.14, w_pad=0.14)
        for axes in grid.flat[len(result) :]:
            axes.set_axis_off()
        for axes, chart in zip(grid.flat, result, strict=False):
            chart.draw(axes)
            if titled:
                axes.set_title(chart.title, fontsize=11, fontweight="bold", pad=20)
        text = io.StringIO()
        whole.savefig(text, format="svg", metadata={"Date": None})
        plt.close(whole)
    return text.getvalue()


# --- parts ----------------------------------------------------------------------------------------------------------


def _value(figures: Figures | None, name: str) -> float | None:
    if figures is None:
        return None
    return figures.p99_ms if name == "p99_ms" else figures.named(name)


def _points(result: Sequence[Row], x: str, y: str) -> bool:
    """Whether any trial has both."""
    return any(
        (row.threads if x == "threads" else _value(row.figures, x)) is not None and _value(row.figures, y) is not None
        for row in result
    )


def _differ(values: Sequence[float | None]) -> bool:
    known = [value for value in values if value]
    return len(known) > 1 and max(known) > _SAME_THROUGHPUT * min(known)


def _mark(row: Row) -> Mapping[str, Any]:
    if row.is_winner and not row.is_plan:
        return {"marker": "D", "color": _C["winner"], "markersize": 9, "zorder": 5}
    if row.is_plan:
        return {"marker": "s", "color": _C["plan"], "markersize": 8, "zorder": 4}
    return {"marker": "o", "color": _C["other"], "markersize": 6, "zorder": 3}


def _legend(axes: Axes) -> None:
    """The marks, below the axes."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, borderaxespad=0)


def _name(row: Row) -> str:
    if row.is_plan:
        return "the plan, the winner" if row.is_winner else "the plan"
    return "the winner" if row.is_winner else "other trials"


def _draw(axes: Axes, result: Sequence[tuple[Row, float, float]]) -> None:
    """A mark for each trial, in the legend once for each kind."""
    named = set()
    for row, x, y in sorted(result, key=lambda one: (one[0].is_plan, one[0].is_winner)):
        name = _name(row)
        label = name if name not in named else "_"
        named.add(name)
        axes.plot([x], [y], linestyle="none", label=label, markeredgecolor=_C["page"], **_mark(row))


def _unit(figure: str) -> str:
    if figure == "p99_ms":
        return "p99, ms"
    known = FIGURES[figure]
    return f"{known.title}, {known.unit}" if known.unit else known.title


def _scales(axes: Axes, *, x: Sequence[float] = (), y: Sequence[float] = ()) -> None:
    """Logarithmic scales where the values are that far apart, with numbers as people write them."""
    for values, axis, to_log in ((x, axes.xaxis, axes.set_xscale), (y, axes.yaxis, axes.set_yscale)):
        if not values:
            continue
        if 0 < _FAR * min(values) < max(values):
            to_log("log")
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_locator(NullLocator())
        else:
            axis.set_major_locator(MaxNLocator(6))
        _plain(axis)


def _plain(axis: Any) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _against_threads(axes: Axes, tuning: TuningResult, result: Sequence[Row], figure: str) -> None:
    points = []
    for row in result:
        value = _value(row.figures, figure)
        if row.threads is None or value is None:
            continue
        points.append((row, float(row.threads), value))
        each = [one for one in (_value(part, figure) for part in row.each) if one is not None]
        axes.plot(
            [row.threads] * len(each),
            each,
            ".",
            markersize=3,
            color=_mark(row)["color"],
            alpha=0.45,
            zorder=2,
            label="_",
        )
    _draw(axes, points)
    counts = sorted({int(x) for _, x, _ in points})
    limit, cores = tuning.key.limit_cpus, tuning.key.node_class.cores
    marks = [(limit, f"limit {limit:g}", "--")] if limit else []
    # Cores far beyond all that was tried would only squeeze the rest.
    if cores and cores <= 2 * counts[-1]:
        marks.append((float(cores), f"{cores} cores", ":"))
    if len(marks) == 2 and marks[0][0] == marks[1][0]:
        marks = [(float(cores), f"limit {limit:g} = cores", "--")]
    places = [float(count) for count in counts] + [place for place, _, _ in marks]
    if max(places) > 8 * min(places):
        axes.set_xscale("log", base=2)
        axes.set_xlim(min(places) / 1.35, max(places) * 1.35)
    else:
        axes.set_xlim(min(places) - 0.6, max(places) + 0.6)
    axes.xaxis.set_major_locator(FixedLocator(_apart(counts, axes.get_xscale() == "log")))
    axes.xaxis.set_minor_locator(NullLocator())
    _plain(axes.xaxis)
    for place, label, line in marks:
        axes.axvline(place, color=_C["limit"], linestyle=line, linewidth=1.3, zorder=1)
        # The lower one is told of on its left, so that two lines side by side keep their words apart.
        left = len(marks) == 2 and place == min(one for one, _, _ in marks)
        axes.annotate(
            label,
            (place, 1.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(-3 if left else 3, 2),
            textcoords="offset points",
            ha="right" if left else "left",
            va="bottom",
            fontsize=9,
            color=_C["limit"],
        )
    _scales(axes, y=[y for _, _, y in points])
    axes.set_xlabel("threads of all sessions")
    axes.set_ylabel(_unit(figure))
    _legend(axes)


def _apart(counts: Sequence[int], log: bool) -> list[int]:
    """Of the counts those whose labels have room."""
    if not log:
        step = max(1, ceil((counts[-1] - counts[0]) / 16))
        return [count for count in counts if (count - counts[0]) % step == 0]
    kept: list[int] = []
    for count in counts:
        if not kept or count >= 1.3 * kept[-1]:
            kept.append(count)
    return kept


def _trade(axes: Axes, tuning: TuningResult, result: Sequence[Row], across: str) -> None:
    points = []
    for row in result:
        x, y = _value(row.figures, across), _value(row.figures, "p99_ms")
        if x is not None and y is not None:
            points.append((row, x, y))
    better = -1 if across == "throughput" else 1
    front = sorted((better * x, y) for row, x, y in points if row.on_front)
    steps: list[tuple[float, float]] = []
    for x, y in front:
        if not steps or y < steps[-1][1]:
            steps.append((x, y))
    if steps:
        xs, ys = zip(*((better * x, y) for x, y in steps), strict=True)
        axes.plot(
            xs, ys, "--o", color=_C["ink"], markerfacecolor="none", markersize=13, linewidth=1, alpha=0.7, label="front"
        )
    _draw(axes, points)
    _bound(axes, tuning)
    axes.margins(0.12)
    _scales(axes, x=[x for _, x, _ in points], y=[y for _, _, y in points])
    axes.set_xlabel(_unit(across))
    axes.set_ylabel("p99, ms")
    _legend(axes)


def _bound(axes: Axes, tuning: TuningResult) -> None:
    bound_ms = tuning.result.objective.p99_ms
    if bound_ms is not None:
        axes.axhline(bound_ms, color=_C["bound"], linewidth=1.5, label=f"bound {bound_ms:g} ms", zorder=1)


def _latencies(axes: Axes, tuning: TuningResult, result: Sequence[Row]) -> None:
    most = 0
    for row in sorted(result, key=lambda row: row.is_winner):
        if not (row.is_plan or row.is_winner) or not row.latencies_ms:
            continue
        count = len(row.latencies_ms)
        most = max(most, count)
        # Distance from the end in powers of ten, to the last request.
        xs = np.linspace(0, log10(count), 80) if count > 1 else np.array([0.0])
        ys = np.quantile(row.latencies_ms, np.clip(1 - 10.0**-xs, 0, 1), method="inverted_cdf")
        color = _C["winner"] if row.is_winner and not row.is_plan else _C["plan"]
        line = "-" if row.is_winner else "--"
        axes.step(xs, ys, line, where="post", color=color, linewidth=1.8, label=_name(row))
    _bound(axes, tuning)
    places = {0.0: "0", log10(2): "50", 1.0: "90", 2.0: "99", 3.0: "99.9", 4.0: "99.99", 5.0: "99.999"}
    known = {place: label for place, label in places.items() if place <= log10(max(most, 10))}
    axes.xaxis.set_major_locator(FixedLocator(list(known)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: known.get(value, "")))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(MaxNLocator(6))
    _plain(axes.yaxis)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("percent of the requests took at most")
    axes.set_ylabel("ms")
    _legend(axes)


def _contributions(axes: Axes, tuning: TuningResult) -> None:
    result = tuning.result
    sign = 1 if FIGURES[result.figure].lower_is_better else -1
    results = [(path, part) for path, part in result.contributions if isfinite(part.low) and isfinite(part.high)]
    for place, (_, part) in enumerate(results):
        color = _C["winner"] if sign * part.percent < 0 else _C["bound"]
        axes.barh(place, part.percent, color=color, height=0.5, zorder=2)
        axes.plot([part.low, part.high], [place, place], "-|", color=_C["ink"], linewidth=1.4, markersize=8, zorder=3)
    axes.axvspan(-result.noise_percent, result.noise_percent, color=_C["grid"], alpha=0.7, zorder=1, linewidth=0)
    axes.axvline(0, color=_C["soft"], linewidth=1, zorder=2)
    axes.set_yticks(range(len(results)), [path.rpartition(".")[2] for path, _ in results])
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.08)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    _plain(axes.xaxis)
    axes.set_xlabel(f"{FIGURES[result.figure].title}, change in %")
