"""The picture of one search over a committed surface: `python -m tuning picture` writes it into the docs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from raddle_operator.cli import page_style
from raddle_operator.results.candidate import Candidate
from raddle_tuner.commands.result import charts
from raddle_tuner.search import search, statistics
from raddle_tuner.search.blocks import Block, MeasurementRequest
from raddle_tuner.search.result import Result
from tuning import peers
from tuning.surface import FOLDER, Noise, Player, Surface, read

FILE: Final = Path(__file__).resolve().parents[2] / "docs" / "images" / "tuning" / "search.svg"
SURFACE: Final = FOLDER / "small-5ms-limit2.json"
_SEED: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A block under the objective's load: when it ended, in minutes of load, and what the proof compares of it."""

    candidate: Candidate
    phase: str
    minutes: float
    slowest_tenth_ms: float


def searched(surface: Surface, seed: int) -> tuple[list[Dot], Result]:
    """All blocks of a search with this noise, and what it came to."""
    player, dots = Player(surface, Noise(), seed), list[Dot]()

    def measure(request: MeasurementRequest) -> search.MeasurementResult:
        answer = player.measure(request)
        if isinstance(answer, Block) and request.rate is not None:
            tail_ms = statistics.slowest_tenth_ms(answer.latencies_ms)
            minutes = player.seconds / 60
            dots.append(
                Dot(candidate=request.candidate, phase=request.phase, minutes=minutes, slowest_tenth_ms=tail_ms)
            )
        return answer

    asking = search.tune(surface.objective, surface.space(), peers.limits(surface))
    return dots, search.drive(asking, measure)


def drawn(dots: Sequence[Dot], result: Result) -> str:
    """An SVG file: a mark for each block, and where each phase begins."""
    title = "A search, block by block"
    chart = charts.Chart(name="search", title=title, text="", draw=lambda axes: _draw(axes, dots, result))
    return charts.together([chart], "search", title)


def _draw(axes: Axes, dots: Sequence[Dot], result: Result) -> None:
    looks = {"other candidates": ("o", "other", 4), "the plan": ("s", "plan", 5), "the winner": ("D", "winner", 5)}
    for name, (marker, role, size) in looks.items():
        results = [dot for dot in dots if _name(dot, result) == name]
        axes.plot(
            [dot.minutes for dot in results],
            [dot.slowest_tenth_ms for dot in results],
            marker,
            markersize=size,
            color=page_style.LIGHT[role],
            markeredgecolor=page_style.LIGHT["page"],
            label=name,
        )
    for phase in dict.fromkeys(dot.phase for dot in dots):
        begun = min(dot.minutes for dot in dots if dot.phase == phase)
        axes.axvline(begun, color=page_style.LIGHT["limit"], linestyle=":", linewidth=1.3, zorder=1)
        axes.annotate(
            phase,
            (begun, 1.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(3, 2),
            textcoords="offset points",
            fontsize=9,
            color=page_style.LIGHT["limit"],
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("minutes of load")
    axes.set_ylabel("slowest tenth, ms")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, borderaxespad=0)


def _name(dot: Dot, result: Result) -> str:
    if dot.candidate == result.baseline:
        return "the plan"
    return "the winner" if dot.candidate == result.winner else "other candidates"


def main() -> None:
    """Writes the picture."""
    FILE.write_text(drawn(*searched(read(SURFACE), _SEED)))
    print(FILE)
