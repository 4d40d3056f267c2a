"""All nodes as one picture, SVG or one HTML page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from raddle_operator.cli import html
from raddle_operator.cli.picture import tiles
from raddle_operator.cli.picture.model import State, plural, printable
from raddle_operator.cli.picture.tiles import Tile
from raddle_operator.cli.top import rows
from raddle_operator.cli.top.rows import Node

TITLE: Final = "What runs, node by node"
LISTED: Final = 100
"""Nodes that the page has a line for, the worst first: the picture has all."""
_SHADES: Final = ((0.3, State.BUSY), (0.1, State.USED), (0.01, State.QUIET), (0.0, State.IDLE))
"""From which throttled share on a tile has which shade, the largest first."""
_SHEET: Final = """
main>svg{display:block;width:100%;height:auto;margin-bottom:1.5rem}
th:last-child,td:last-child{text-align:left;white-space:normal}
"""


def svg(found: Sequence[Node]) -> str:
    """The picture: a tile for each node, by name, so that a node stays in its place."""
    return tiles.draw(TITLE, summary(found), [_tile(one) for one in sorted(found, key=lambda one: one.name)])


def summary(found: Iterable[Node]) -> str:
    """The whole cluster in a line."""
    nodes = list(found)
    containers, drifted = (
        sum(values) for values in zip(*((one.containers, one.drifted) for one in nodes), strict=True)
    )
    planned = sum(one.planned_threads for one in nodes)
    effective = sum(one.effective_threads for one in nodes)
    return (
        f"{plural(len(nodes), 'node')}, {plural(containers, 'governed container')}, {drifted} of them not as planned;"
        f" {planned} threads planned, {effective} running"
    )


def _tile(one: Node) -> Tile:
    if one.problem:
        return Tile(name=one.name, state=State.OFFLINE, said=printable(one.problem))
    share = one.throttled_share
    said = f"{plural(one.containers, 'container')}, {plural(one.planned_threads, 'thread')} planned"
    said += f", {one.effective_threads} running"
    said += f", throttled up to {share:.0%}" * bool(one.containers)
    said += f"; {one.drifted} not as planned: {rows.counted(one.causes)}" * bool(one.drifted)
    state = next(state for least, state in _SHADES if share >= least) if one.containers else State.FREE
    return Tile(name=one.name, state=state, ringed=bool(one.drifted), said=said)


def page(found: Sequence[Node]) -> str:
    """One HTML page with the picture and the worst nodes; nothing in it is from elsewhere."""
    listed = rows.nodes(found, "worst")
    header = "".join(f"<th>{escape(name)}</th>" for name in rows.NODES)
    lines = "\n".join(_line(row.cells) for row in listed[:LISTED])
    parts = [
        svg(found),
        f'<div class="wide"><table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table></div>',
    ]
    parts += [f'<p class="soft">and {len(listed) - LISTED:,} more nodes</p>'] * (len(listed) > LISTED)
    return html.page(TITLE, parts, accent="plan", more=_SHEET)


def _line(cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(printable(cell))}</td>" for cell in cells) + "</tr>"
