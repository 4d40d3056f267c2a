"""How boxes of different sizes are put into rows, and text into lines, in characters or in pixels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Final, TypeVar

from raddle_operator.cli.picture.model import Box, Core

_Item = TypeVar("_Item")

Place = tuple[tuple[str, int], ...]
"""Where a box is: of the outermost box around it, and so on to itself, the kind and how many are in a row."""

# Between the parts of a title.
SEPARATOR: Final = " · "
_BLANK: Final = "\N{NO-BREAK SPACE}"
# Boxes beside each other that are tried.
BESIDE: Final = (1, 2, 3, 4, 5, 6, 8)
# Cores in a row: more can't be counted at a look.
MAX_CORES_A_ROW: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How something comes out: its width and height, and how many boxes or cores are in each of its rows."""

    width: int
    height: int
    beside: int


class Arrangement:
    """How boxes in boxes are put into rows, in some unit, so that those of one kind are of one width wherever they are.

    `gap` is what is between boxes, across and down, `sides` what a box's own sides take of its width. `measured` tells
    how a box comes out in some room, `least` how much it needs at least.
    """

    def __init__(
        self,
        *,
        gap: tuple[int, int],
        sides: int,
        measured: Callable[[Box, int], Size],
        least: Callable[[Box], int],
    ) -> None:
        self._gap = gap
        self._sides = sides
        self._measured = measured
        self._least = least
        self._sizes: dict[tuple[int, int], Size] = {}
        self._widths: dict[Place, int] = {}

    def size(self, box: Box, most: int) -> Size:
        """How a box comes out in so much room."""
        key = (id(box), most)
        if key not in self._sizes:
            self._sizes[key] = self._measured(box, most)
        return self._sizes[key]

    def flow(self, boxes: Sequence[Box], most: int) -> Size:
        """The flattest way to put boxes into rows of `most` width, and the narrowest of these.

        No box is given less room than it needs, except where there is one per row. All boxes are as wide as the widest.
        The boxes of one row are as high as its highest.
        """
        result: Size | None = None
        enough = max(map(self._least, boxes))
        across, down = self._gap
        for beside in BESIDE:
            room = self._room(most, beside)
            if result is not None and (beside > len(boxes) or room < enough):
                break
            sizes = [self.size(box, room) for box in boxes]
            width = max(one.width for one in sizes)
            if result is not None and width > room:
                continue
            heights = [max(one.height for one in row) for row in rows(sizes, beside)]
            height = sum(heights) + down * (len(heights) - 1)
            if result is None or height < result.height:
                result = Size(width=beside * (width + across) - across, height=height, beside=beside)
        assert result is not None
        return result

    def _room(self, most: int, beside: int) -> int:
        """The room that each of so many boxes in a row has."""
        return (most + self._gap[0]) // beside - self._gap[0]

    def settle(self, boxes: Sequence[Box], most: int, within: Place = ()) -> None:
        """Finds the width of the widest box of each place, before `laid` tells of them."""
        beside = self.flow(boxes, most).beside
        place, room = (*within, (boxes[0].kind, beside)), self._room(most, beside)
        self._widths[place] = max(self._widths.get(place, 0), *(self.size(box, room).width for box in boxes))
        for box in boxes:
            if box.boxes:
                self.settle(box.boxes, room - self._sides, place)

    def laid(self, boxes: Sequence[Box], most: int, within: Place) -> Iterator[tuple[Row, Sequence[Box]]]:
        """Yields the rows of boxes within a place."""
        beside = self.flow(boxes, most).beside
        place, room = (*within, (boxes[0].kind, beside)), self._room(most, beside)
        for row in rows(boxes, beside):
            height = max(self.size(box, room).height for box in row)
            yield Row(place=place, room=room, width=self._widths[place], height=height), row


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of boxes: where it is, and the room, width and height that each of them has."""

    place: Place
    room: int
    width: int
    height: int


def cores_a_row(count: int, fit: int) -> int:
    """How many of these cores to put into a row that has room for `fit`: rows that come out even, if any do."""
    fit = max(1, min(MAX_CORES_A_ROW, fit, count))
    return next((n for n in range(fit, fit // 2, -1) if count % n == 0), fit)


def threads(cores: Sequence[Core]) -> int:
    """The most threads that one of the cores has."""
    return max(len(core) for core in cores)


def rows(items: Sequence[_Item], beside: int) -> Iterator[Sequence[_Item]]:
    """Yields the items row by row."""
    for start in range(0, len(items), beside):
        yield items[start : start + beside]


def unbroken(names: Sequence[str]) -> str:
    """The names in one text that `folded` breaks between two names only, unless one is longer than a line."""
    return SEPARATOR.join(names).replace(" ", _BLANK).replace(f"·{_BLANK}", "· ")


def folded(text: str, width: int) -> list[str]:
    """The text as lines of so many characters; [] for an empty one."""
    lines = wrap(text, width, break_on_hyphens=False)
    return [line.replace(_BLANK, " ").removesuffix(SEPARATOR.rstrip()) for line in lines]
