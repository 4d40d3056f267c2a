"""A chart of one cell: a panel per figure, a bar per variant, the single runs as dots on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")  # no display, and no window from a benchmark

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

import report
from load.compare import Row

# Okabe and Ito's palette, told apart with every common colour blindness: vermilion, blue, green, orange, purple, sky.
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9")
_PANELS = (
    ("p50_ms", "p50 latency (ms)"),
    ("p99_ms", "p99 latency (ms)"),
    ("cpu_percent", "CPU used (% of the limit)"),
    ("throttled_percent", "throttled CFS periods (%)"),
)


def draw(rows: Sequence[Row], path: Path) -> Path:
    """Write the chart of these rows (one cell) to `path`, in the format its suffix names (.svg, .png); the path."""
    known = [(figure, title) for figure, title in _PANELS if all(row.values(figure) for row in rows)]
    with plt.rc_context({"font.size": 10, "svg.fonttype": "none", "svg.hashsalt": "raddle"}):
        figure, axes = plt.subplots(
            1, len(known), figsize=(3.1 * len(known), 1.6 + 0.42 * len(rows)), sharey=True, layout="constrained"
        )
        for axis, (name, title) in zip(axes, known, strict=True):
            _panel(axis, rows, name, title)
        axes[0].set_yticks(range(len(rows)), [row.variant for row in rows])
        axes[0].invert_yaxis()
        runs = len(rows[0].runs)
        figure.suptitle(rows[0].cell.title, fontweight="bold")
        figure.supxlabel(f"bars: median of {runs}; dots: each run; shorter is better", fontsize=9, color="#444444")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        plt.close(figure)
    return path


def _panel(axis: Axes, rows: Sequence[Row], name: str, title: str) -> None:
    medians = [row.median(name) or 0.0 for row in rows]
    highest = max((max(row.values(name)) for row in rows), default=0.0)
    axis.set_title(title, fontsize=10)
    axis.barh(range(len(rows)), medians, color=[_COLOURS[i % len(_COLOURS)] for i in range(len(rows))], height=0.62)
    for place, row in enumerate(rows):
        values = row.values(name)
        axis.plot(values, [place] * len(values), "o", markersize=3, color="black", alpha=0.55, markeredgewidth=0)
        axis.annotate(
            report.short(medians[place]), (max(values), place), xytext=(5, 0), textcoords="offset points", va="center"
        )
    axis.set_xlim(0, (highest or 1.0) * 1.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.xaxis.set_major_locator(MaxNLocator(4))
