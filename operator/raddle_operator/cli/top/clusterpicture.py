"""All nodes as one picture, SVG or one HTML page. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

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
_SHEET: Final = """\
:root{color-scheme:light dark}
body{margin:0;background:#fff;color:#0f172a;font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1120px;margin:0 auto;padding:20px}
svg{display:block;width:100%;height:auto}
.wide{overflow-x:auto}
table{border-collapse:collapse;width:100%;margin-top:1.5rem;font-variant-numeric:tabular-nums}
th,td{padding:4px 14px 4px 0;text-align:left;border-bottom:1px solid #94a3b8;vertical-align:top;white-space:nowrap}
td:last-child{white-space:normal}
@media(prefers-color-scheme:dark){body{background:#0b1220;color:#e8edf5}}
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
    said = f"{plural(one.containers, 'container')}, {one.planned_threads} threads planned"
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
    more = f"<p>and {len(listed) - LISTED:,} more nodes</p>\n" if len(listed) > LISTED else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(TITLE)}</title>\n<style>\n{_SHEET}</style>\n</head>\n<body>\n<main>\n{svg(found)}"
        f'<div class="wide"><table>\n<thead><tr>{header}</tr></thead>\n<tbody>\n{lines}\n</tbody>\n</table></div>\n'
        f"{more}</main>\n</body>\n</html>\n"
    )


def _line(cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(printable(cell))}</td>" for cell in cells) + "</tr>"
