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


def flow(
    boxes: Sequence[Box],
    most: int,
    *,
    gap: tuple[int, int],
    least: Callable[[Box], int],
    size: Callable[[Box, int], Size],
) -> Size:
    """Return the flattest way to put boxes into rows of `most` width, and the narrowest of these.

    `gap` is across and down; no box is given less room than `least`, except where there is one a row; `size` tells
    how a box comes out in some room. All boxes are as wide as the widest. The boxes of one row are as high as its
    highest.
    """
    found: Size | None = None
    enough = max(map(least, boxes))
    for beside in BESIDE:
        room = room_of(most, beside, gap[0])
        if found is not None and (beside > len(boxes) or room < enough):
            break
        sizes = [size(box, room) for box in boxes]
        width = max(one.width for one in sizes)
        if found is not None and width > room:
            continue
        heights = [max(one.height for one in row) for row in rows(sizes, beside)]
        height = sum(heights) + gap[1] * (len(heights) - 1)
        if found is None or height < found.height:
            found = Size(width=beside * (width + gap[0]) - gap[0], height=height, beside=beside)
    assert found is not None
    return found


def room_of(most: int, beside: int, gap: int) -> int:
    """Return the room that each of so many boxes in a row has."""
    return (most + gap) // beside - gap


def widths(
    boxes: Sequence[Box],
    most: int,
    *,
    flow: Callable[[Sequence[Box], int], Size],
    size: Callable[[Box, int], Size],
    gap: int,
    sides: int,
    within: Place = (),
) -> dict[Place, int]:
    """Return the width of the widest box of each place, so that boxes of one kind are of one width, wherever they are.

    `gap` is between boxes, `sides` what a box's own sides take of its room.
    """
    place, room = placed(boxes, flow(boxes, most).beside, most, gap=gap, within=within)
    found = {place: max(size(box, room).width for box in boxes)}
    for box in boxes:
        if box.boxes:
            inner = widths(box.boxes, room - sides, flow=flow, size=size, gap=gap, sides=sides, within=place)
            for key, width in inner.items():
                found[key] = max(found.get(key, 0), width)
    return found


def placed(boxes: Sequence[Box], beside: int, most: int, *, gap: int, within: Place) -> tuple[Place, int]:
    """Return the place of these boxes, and the room that each of them has."""
    return (*within, (boxes[0].kind, beside)), room_of(most, beside, gap)


def cores_a_row(count: int, fit: int) -> int:
    """Return how many of these cores to put into a row that has room for `fit`: rows that come out even, if any do."""
    fit = max(1, min(MAX_CORES_A_ROW, fit, count))
    return next((n for n in range(fit, fit // 2, -1) if count % n == 0), fit)


def threads(cores: Sequence[Core]) -> int:
    """Return the most threads that one of the cores has."""
    return max(len(core) for core in cores)


def rows(items: Sequence[_Item], beside: int) -> Iterator[Sequence[_Item]]:
    """Yield the items row by row."""
    for start in range(0, len(items), beside):
        yield items[start : start + beside]


def unbroken(names: Sequence[str]) -> str:
    """Return the names in one text that `folded` breaks between two names only, unless one is longer than a line."""
    return SEPARATOR.join(names).replace(" ", _BLANK).replace(f"·{_BLANK}", "· ")


def folded(text: str, width: int) -> list[str]:
    """Return the text as lines of so many characters; [] for an empty one."""
    lines = wrap(text, width, break_on_hyphens=False)
    return [line.replace(_BLANK, " ").removesuffix(SEPARATOR.rstrip()) for line in lines]
