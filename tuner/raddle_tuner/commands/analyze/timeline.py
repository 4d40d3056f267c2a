"""A graph's nodes as bars in time, as one self-contained SVG: the critical path above, below it what can run beside it.

Each node begins as early as it can, as if there were a thread for all that are ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from raddle_operator.cli.picture import style
from raddle_operator.cli.picture.flow import folded
from raddle_tuner.analysis import graph as graphs
from raddle_tuner.analysis.graph import Graph

WIDTH: Final = 1080
MAX_LANES: Final = 24
"""Rows below the critical path; what would need more is counted."""

_MARGIN, _LANE, _LINE = 20, 24, 17
# What is narrower can't be seen.
_LEAST_PIXELS: Final = 0.2
# Colours that colour-blind readers tell apart too (Okabe and Ito), for the largest kinds; the last is all others'.
_COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a94a6")


def draw(title: str, facts: Sequence[str], graph: Graph) -> str:
    """The SVG document."""
    inner = WIDTH - 2 * _MARGIN
    scale = inner / graph.length if graph.length else 0.0
    out: list[str] = []
    y = _MARGIN + 18
    out.append(f'<text class="title" x="{_MARGIN}" y="{y}">{escape(title)}</text>')
    for line in (line for fact in facts for line in folded(fact, int(inner / style.SANS_EM))):
        y += _LINE
        out.append(f'<text x="{_MARGIN}" y="{y}">{escape(line)}</text>')
    colours = _colours(graph)
    y = _axis(out, graph, scale, y + 26)
    begun = graphs.starts(graph.nodes, graph.weights)
    out.append(f'<text class="note" x="{_MARGIN}" y="{y + 13}">critical path</text>')
    y += 18
    out += (_bar(graph, index, begun[index], scale, y, colours) for index in graph.path)
    y += _LANE + 6
    lanes, left_out = _lanes(graph, begun, scale)
    if lanes:
        out.append(f'<text class="note" x="{_MARGIN}" y="{y + 13}">beside it</text>')
        y += 18
    for lane in lanes:
        out += (_bar(graph, index, begun[index], scale, y, colours) for index in lane)
        y += _LANE
    if left_out:
        out.append(f'<text class="note" x="{_MARGIN}" y="{y + 13}">and {left_out} more nodes</text>')
        y += _LINE
    y = _legend(out, colours, y + 8)
    return style.document(width=WIDTH, height=y + _MARGIN, title=title, description=". ".join(facts), elements=out)


def _colours(graph: Graph) -> dict[str, str]:
    """Kind -> its colour, those that take most first; all beyond the last colour but one share the last."""
    whole: dict[str, float] = {}
    for node, weight in zip(graph.nodes, graph.weights, strict=True):
        whole[node.kind] = whole.get(node.kind, 0.0) + weight
    kinds = sorted(whole, key=lambda kind: (-whole[kind], kind))
    return {kind: _COLOURS[min(place, len(_COLOURS) - 1)] for place, kind in enumerate(kinds)}


def _axis(out: list[str], graph: Graph, scale: float, y: int) -> int:
    """Draws the times of both ends and the middle; returns where the bars begin."""
    for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        x = _MARGIN + part * graph.length * scale
        said = f"{part * graph.length:.3g} {'ms' if graph.timed else 'nodes'}"
        out.append(f'<text class="note" x="{x:.1f}" y="{y}" style="text-anchor:{anchor}">{said}</text>')
    out.append(f'<path class="hatch" d="M{_MARGIN} {y + 5}H{WIDTH - _MARGIN}"/>')
    return y + 8


def _bar(graph: Graph, index: int, start: float, scale: float, y: int, colours: dict[str, str]) -> str:
    node, weight = graph.nodes[index], graph.weights[index]
    x, wide = _MARGIN + start * scale, weight * scale
    took = f", {weight:.3f} ms" if graph.timed else ""
    # A page's background between two bars that touch, where they are wide enough for it.
    shown = wide - 1 if wide > 3 else wide
    name = ""
    if style.sans(node.kind) + 6 <= wide:
        name = (
            f'<text x="{x + 4:.1f}" y="{y + 15}" style="fill:#fff;paint-order:stroke;stroke:#0f172a;stroke-width:2px">'
        )
        name += f"{escape(node.kind)}</text>"
    return (
        f"<g><title>{escape(f'{node.kind} {node.name}{took}')}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{shown:.2f}" height="{_LANE - 3}" style="fill:{colours[node.kind]}"/>'
        f"{name}</g>"
    )


def _lanes(graph: Graph, begun: Sequence[float], scale: float) -> tuple[list[list[int]], int]:
    """The nodes off the critical path in rows in which none overlaps, and how many are not drawn."""
    lanes: list[list[int]] = []
    ends: list[float] = []
    left_out = 0
    for index in sorted(_beside(graph), key=lambda index: (begun[index], index)):
        end = begun[index] + graph.weights[index]
        place = next((place for place, free in enumerate(ends) if free <= begun[index] + 1e-9), len(lanes))
        if graph.weights[index] * scale < _LEAST_PIXELS or place == MAX_LANES:
            left_out += 1
            continue
        if place == len(lanes):
            lanes.append([])
            ends.append(0.0)
        lanes[place].append(index)
        ends[place] = end
    return lanes, left_out


def _beside(graph: Graph) -> Iterator[int]:
    path = set(graph.path)
    yield from (index for index in range(len(graph.nodes)) if index not in path)


def _legend(out: list[str], colours: dict[str, str], y: int) -> int:
    shown = list(colours.items())[: len(_COLOURS) - 1]
    if len(colours) > len(shown):
        shown.append(("others", _COLOURS[-1]))
    x = _MARGIN
    for kind, colour in shown:
        wide = 24 + style.sans(kind) + 14
        if x > _MARGIN and x + wide > WIDTH - _MARGIN:
            x, y = _MARGIN, y + 22
        out.append(f'<rect x="{x}" y="{y}" width="16" height="13" style="fill:{colour}"/>')
        out.append(f'<text x="{x + 22}" y="{y + 11}">{escape(kind)}</text>')
        x += wide
    return y + 14
