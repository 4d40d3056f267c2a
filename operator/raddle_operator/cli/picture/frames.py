"""Boxes as lines of characters: how wide and high each comes out in a given width, and its lines.

A core is a frame around its threads, or in less room its threads side by side: 0/128.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from raddle_operator.cli.picture.flow import (
    SEPARATOR,
    Arrangement,
    Place,
    Row,
    Size,
    cores_a_row,
    folded,
    rows,
    threads,
    unbroken,
)
from raddle_operator.cli.picture.model import Box, Cell, Core

Span = tuple[str, str]
Line = tuple[Span, ...]
"""Parts of a line, each with the name of its style."""

_SIDES: Final = 4  # "│ " and " │"


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """The characters of frames: corners ┌┐└┘, sides ─│, and where lines of a grid meet ┬┴├┤┼."""

    corners: tuple[str, ...]
    sides: tuple[str, ...]
    branches: tuple[str, ...]


UNICODE: Final = Glyphs(corners=tuple("┌┐└┘"), sides=tuple("─│"), branches=tuple("┬┴├┤┼"))
ASCII: Final = Glyphs(corners=tuple("++++"), sides=tuple("-|"), branches=tuple("+++++"))


class Drawing:
    """Boxes one below the other or side by side, `width` wide where that is possible; each core `framed` or not."""

    def __init__(self, boxes: Sequence[Box], width: int, glyphs: Glyphs, *, framed: bool) -> None:
        self._glyphs = glyphs
        self._framed = framed
        self._width = width
        self._boxes = Arrangement(gap=(1, 0), sides=_SIDES, measured=self._measured, least=_least)
        self._runs = [tuple(run) for _, run in groupby(boxes, key=lambda box: box.kind)]
        machine = [cell for box in boxes if box.kind not in {"offline", "pool"} for cell in box.cells()]
        self._id_width = max((len(str(cell.cpu)) for cell in machine if cell.cpu is not None), default=0)
        self._sign_width = max((len(cell.sign) for cell in machine), default=0)

    @property
    def height(self) -> int:
        """How many lines there are."""
        return sum(self._boxes.flow(run, self._width).height for run in self._runs)

    @property
    def width(self) -> int:
        """How long the longest line is: more than asked for where a core does not fit."""
        return max((self._boxes.flow(run, self._width).width for run in self._runs), default=0)

    def lines(self) -> list[Line]:
        """The lines."""
        result: list[Line] = []
        for run in self._runs:
            self._boxes.settle(run, self._width)
            result += self._row_lines(run, self._width)
        return result

    # --- how large --------------------------------------------------------------------------------------------------

    def _measured(self, box: Box, most: int) -> Size:
        inner = most - _SIDES
        title, body = self._text(box, most)
        text_width = max([len(title), *map(len, body)])
        if box.boxes:
            inside = self._boxes.flow(box.boxes, inner)
        elif box.cores:
            inside = self._grid(box.cores, inner, box)
        else:
            inside = Size(width=0, height=0, beside=1)
        return Size(
            width=max(text_width, inside.width) + _SIDES,
            height=inside.height + len(body) + 2,
            beside=inside.beside,
        )

    @staticmethod
    def _text(box: Box, most: int) -> tuple[str, list[str]]:
        """The part of the title that fits into the frame, and the lines inside for all else."""
        names = list(box.names)
        shown = names.pop(0)
        while names and len(shown + SEPARATOR + names[0]) + _SIDES <= most:
            shown += SEPARATOR + names.pop(0)
        if len(shown) + _SIDES > most:
            names, shown = [shown, *names], ""
        texts = ([unbroken(names)] if names else []) + list(box.notes)
        return shown, [line for text in texts for line in folded(text, max(8, most - _SIDES))]

    def _cell_width(self, box: Box) -> int:
        if box.kind not in {"offline", "pool"}:
            return self._id_width + self._sign_width
        return max(len(cell.sign) + (len(str(cell.cpu)) if cell.cpu is not None else 0) for cell in box.cells())

    def _grid(self, cores: Sequence[Core], inner: int, box: Box) -> Size:
        unit = self._core_width(box) + (3 if self._framed else 2)
        # A frame has one line more than cores, a row of cores one gap less.
        edge = 1 if self._framed else -2
        beside = cores_a_row(len(cores), (inner - edge) // unit)
        lines = -(-len(cores) // beside)
        height = lines * (threads(cores) + 1) + 1 if self._framed else lines
        return Size(width=beside * unit + edge, height=height, beside=beside)

    def _core_width(self, box: Box) -> int:
        width = self._cell_width(box)
        return width if self._framed else (width + 1) * threads(box.cores) - 1

    # --- lines ------------------------------------------------------------------------------------------------------

    def _row_lines(self, boxes: Sequence[Box], most: int, within: Place = ()) -> Iterator[Line]:
        for row, beside in self._boxes.laid(boxes, most, within):
            blocks = [self._box_lines(box, row) for box in beside]
            for parts in zip(*blocks, strict=True):
                line: list[Span] = []
                for part in parts:
                    line += [(" ", ""), *part] if line else part
                yield tuple(line)

    def _box_lines(self, box: Box, row: Row) -> list[Line]:
        width = row.width
        across, down = self._glyphs.sides
        upper_left, upper_right, lower_left, lower_right = self._glyphs.corners
        style, inner = f"frame.{box.kind}", width - _SIDES
        title, body = self._text(box, row.room)
        heading = f" {title} " if title else ""
        lines: list[Line] = [
            (
                (upper_left, style),
                (heading, f"name.{box.kind}"),
                (across * (width - 2 - len(heading)) + upper_right, style),
            )
        ]
        inside: list[Line] = [((text, "note"),) for text in body]
        if box.boxes:
            inside += self._row_lines(box.boxes, row.room - _SIDES, row.place)
        elif box.cores:
            inside += self._grid_lines(box, self._boxes.size(box, row.room).beside)
        inside += [()] * (row.height - 2 - len(inside))
        for line in inside:
            pad = inner - sum(len(text) for text, _ in line)
            lines.append(((f"{down} ", style), *line, (f"{' ' * pad} {down}", style)))
        lines.append(((lower_left + across * (width - 2) + lower_right, style),))
        return lines

    def _grid_lines(self, box: Box, beside: int) -> Iterator[Line]:
        ranks = list(rows(box.cores, beside))
        width = self._cell_width(box)
        if not self._framed:
            for row in ranks:
                yield self._inline(row, width, box)
            return
        for place, row in enumerate(ranks):
            yield ((self._rule(place, width + 2, len(row), len(ranks[place - 1])), "grid"),)
            for thread in range(threads(box.cores)):
                yield self._framed_cells([core[thread] if thread < len(core) else None for core in row], width, box)
        yield ((self._rule(len(ranks), width + 2, 0, len(ranks[-1])), "grid"),)

    def _rule(self, place: int, width: int, below: int, above: int) -> str:
        """The line of a grid above row `place`: `below` cores follow, `above` came before."""
        tee_down, tee_up, tee_right, tee_left, cross = self._glyphs.branches
        upper_left, upper_right, lower_left, lower_right = self._glyphs.corners
        across = self._glyphs.sides[0] * width
        if place == 0:
            return upper_left + tee_down.join([across] * below) + upper_right
        if below == 0:
            return lower_left + tee_up.join([across] * above) + lower_right
        if below == above:
            return tee_right + cross.join([across] * below) + tee_left
        # The last row is shorter.
        left = tee_right + cross.join([across] * below) + cross
        return left + tee_up.join([across] * (above - below)) + lower_right

    def _framed_cells(self, cells: Sequence[Cell | None], width: int, box: Box) -> Line:
        result: list[Span] = []
        down = self._glyphs.sides[1]
        for cell in cells:
            result += [(f"{down} ", "grid"), *self._cell(cell, width, box), (" ", "")]
        return (*result, (down, "grid"))

    def _inline(self, cores: Sequence[Core], width: int, box: Box) -> Line:
        result: list[Span] = []
        for core in cores:
            padded = [*core, *[None] * (threads(box.cores) - len(core))]
            for place, cell in enumerate(padded):
                between = "" if not place else "/" if cell is not None else " "
                result += [(between or "  " * bool(result), "grid"), *self._cell(cell, width, box)]
        return tuple(result)

    def _cell(self, cell: Cell | None, width: int, box: Box) -> list[Span]:
        if cell is None:
            return [(" " * width, "")]
        style = "isolated" if cell.isolated and cell.state == "free" else str(cell.state)
        number = "" if cell.cpu is None else str(cell.cpu)
        before = " " * (self._id_width - len(number)) if box.kind not in {"offline", "pool"} else ""
        after = " " * (width - len(before) - len(number) - len(cell.sign))
        return [(before, ""), (number, f"cpu.{style}"), (cell.sign, style), (after, "")]


def _least(box: Box) -> int:
    """The width in which the box and those in it have room for their first names."""
    return _SIDES + max([len(box.names[0]), *map(_least, box.boxes)])
