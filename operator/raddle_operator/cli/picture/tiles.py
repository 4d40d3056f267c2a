"""Many nodes as one picture: a tile for each, in rows. Pure; 5,000 are still a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from raddle_operator.cli.picture import style
from raddle_operator.cli.picture.model import State

WIDTH: Final = 1080
NAMED: Final = 72
"""Up to so many tiles have their names in them."""
_MARGIN: Final = 20
_NAMED_SIZE: Final = (168, 26)
_SIDES: Final = (30, 26, 22, 18, 15, 12, 10, 8)
_MOST_HEIGHT: Final = 760
_NAME_LENGTH: Final = 20

MEANINGS: Final = {
    State.FREE: "nothing governed runs there",
    State.IDLE: "not throttled",
    State.QUIET: "throttled below 10%",
    State.USED: "throttled below 30%",
    State.BUSY: "throttled 30% and more",
    State.OFFLINE: "no report",
}
RING: Final = "something is not as planned"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One node: its state, whether something is not as planned there (`ringed`), and what a reader is told of it."""

    name: str
    state: State
    ringed: bool = False
    said: str = ""


def draw(title: str, subtitle: str, tiles: Sequence[Tile]) -> str:
    """The SVG document. Each tile is an element `g.tile` with its node's name in `data-node`."""
    room = WIDTH - 2 * _MARGIN
    wide, high = _size(len(tiles), room)
    beside = max(1, room // wide)
    y = _MARGIN + 20
    found = [f'<text class="title" x="{_MARGIN}" y="{y}">{escape(title)}</text>']
    y += 21
    found.append(f'<text x="{_MARGIN}" y="{y}">{escape(subtitle)}</text>')
    y += 16
    for place, tile in enumerate(tiles):
        found.append(_tile(tile, _MARGIN + place % beside * wide, y + place // beside * high, wide, high))
    y += -(-len(tiles) // beside) * high + 14
    elements, y = style.legend(_legend(tiles), _MARGIN, y, room)
    return style.document(width=WIDTH, height=y + 6, title=title, description=subtitle, elements=[*found, *elements])


def _size(count: int, room: int) -> tuple[int, int]:
    """How wide and high a tile is, with the gap beside it: as large as still fits a screen."""
    if count <= NAMED:
        return _NAMED_SIZE
    fits = (side for side in _SIDES if -(-count // (room // side)) * side <= _MOST_HEIGHT)
    side = next(fits, _SIDES[-1])
    return side, side


def _tile(tile: Tile, x: int, y: int, wide: int, high: int) -> str:
    gap = 3 if wide > 10 else 2
    text = ""
    if wide == _NAMED_SIZE[0]:
        name = tile.name if len(tile.name) <= _NAME_LENGTH else f"{tile.name[: _NAME_LENGTH - 1]}…"
        text = f'<text x="{x + (wide - gap) // 2}" y="{y + 16}">{escape(name)}</text>'
    kind = f"tile {tile.state}{' shared' * tile.ringed}"
    said = f"{tile.name}: {tile.said}" if tile.said else tile.name
    node = escape(tile.name, {'"': "&quot;"})
    return (
        f'<g class="{kind}" data-node="{node}"><title>{escape(said)}</title>'
        f'<rect x="{x}" y="{y}" width="{wide - gap}" height="{high - gap}" rx="2"/>{text}</g>'
    )


def _legend(tiles: Sequence[Tile]) -> list[tuple[str, str, str]]:
    """What the colours mean, with how many nodes have each."""
    counts = Counter(tile.state for tile in tiles)
    found = [("", f"{text}: {counts[state]}", str(state)) for state, text in MEANINGS.items() if counts[state]]
    ringed = sum(tile.ringed for tile in tiles)
    return [*found, ("", f"{RING}: {ringed}", "shared")] if ringed else found
