"""A picture as one self-contained SVG file: no scripts, fonts or links, light and dark by the reader's preference.

`draw` is pure. Each CPU is an element `g.cpu` with its number in `data-cpu` and what it is in a `title`. States differ
by pattern and sign as well as by colour. Text can't be measured here, so its width is bounded from above.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final
from xml.sax.saxutils import escape

from raddle_operator.cli.picture import style
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
from raddle_operator.cli.picture.model import ISOLATED, SYMBOLS, Box, Cell, Core, Picture, State

WIDTH: Final = 1080
"""Pixels that a picture has at most; a small machine takes less."""
MIN_WIDTH: Final = 460
MAX_DISTANCES: Final = 16
"""NUMA nodes up to which the table of distances is drawn."""

_MARGIN, _PAD, _GAP = 20, 10, 10
_TITLE, _LINE = 20, 17  # heights of a box's title and of a line of text
_CELL, _CORE_GAP, _CORE_PAD = 21, 5, 3
_FACT = 104  # width of a fact's name


def draw(picture: Picture) -> str:
    """The SVG document."""
    return _Sheet(picture).document()


class _Sheet:
    """The drawing: what is known of sizes, and the elements so far."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._boxes = Arrangement(gap=(_GAP, _GAP), sides=2 * _PAD, measured=self._measured, least=self._least)
        self._out: list[str] = []
        cells = [cell for box in picture.boxes for cell in box.cells()]
        ids = max((len(str(cell.cpu)) for cell in cells if cell.cpu is not None), default=1)
        signs = max((len(cell.sign) for cell in cells), default=0)
        self._cell_width = max(26, style.mono(ids + signs) + 9 + 3 * bool(signs))
        self._runs = [tuple(run) for _, run in groupby(picture.boxes, key=lambda box: box.kind)]

    def document(self) -> str:
        picture = self._picture
        most = WIDTH - 2 * _MARGIN
        inside = [self._boxes.flow(run, most) for run in self._runs]
        width = max(MIN_WIDTH - 2 * _MARGIN, self._distances_width(), *(size.width for size in inside))
        y = self._heading(width)
        for run, size in zip(self._runs, inside, strict=True):
            self._boxes.settle(run, most)
            self._rows(run, _MARGIN, y, most)
            y += size.height + _GAP
        y = self._legend(y + 6, width)
        y = self._distances(y)
        described = ". ".join([picture.subtitle, *(f"{name}: {text}" for name, text in picture.facts)])
        return style.document(
            width=width + 2 * _MARGIN,
            height=y + _MARGIN - _GAP,
            title=f"Topology of {picture.title}",
            description=described,
            elements=self._out,
        )

    # --- how large --------------------------------------------------------------------------------------------------

    def _least(self, box: Box) -> int:
        own = max(style.bold(box.names[0]), self._core_width() if box.cores else 0)
        return 2 * _PAD + max([own, *map(self._least, box.boxes)])

    def _measured(self, box: Box, most: int) -> Size:
        inner = most - 2 * _PAD
        inside = Size(width=0, height=0, beside=1)
        if box.boxes:
            inside = self._boxes.flow(box.boxes, inner)
        elif box.cores:
            unit = self._core_width() + _CORE_GAP
            beside = cores_a_row(len(box.cores), (inner + _CORE_GAP) // unit)
            high = self._core_height(box.cores) + _CORE_GAP
            lines = -(-len(box.cores) // beside)
            inside = Size(width=beside * unit - _CORE_GAP, height=lines * high - _CORE_GAP, beside=beside)
        title, body = _texts(box, inner)
        width = max(style.bold(title), inside.width, *map(style.sans, body), 0)
        height = _TITLE + len(body) * _LINE + inside.height + _PAD + (4 if inside.height else 0)
        return Size(width=width + 2 * _PAD, height=height, beside=inside.beside)

    def _core_width(self) -> int:
        return self._cell_width + 2 * _CORE_PAD

    @staticmethod
    def _core_height(cores: Sequence[Core]) -> int:
        return threads(cores) * _CELL + 2 * _CORE_PAD

    # --- the machine ------------------------------------------------------------------------------------------------

    def _rows(self, boxes: Sequence[Box], x: int, y: int, most: int, within: Place = ()) -> None:
        for row, beside in self._boxes.laid(boxes, most, within):
            for column, box in enumerate(beside):
                self._box(box, x + column * (row.width + _GAP), y, row)
            y += row.height + _GAP

    def _box(self, box: Box, x: int, y: int, row: Row) -> None:
        title, body = _texts(box, row.room - 2 * _PAD)
        self._out.append(
            f'<g class="box {box.kind}"><rect x="{x}" y="{y}" width="{row.width}" height="{row.height}" rx="6"/>'
            f'<text class="name" x="{x + _PAD}" y="{y + 15}">{escape(title)}</text>'
        )
        top = y + _TITLE
        for line in body:
            self._out.append(f'<text class="note" x="{x + _PAD}" y="{top + 12}">{escape(line)}</text>')
            top += _LINE
        top += 4
        if box.boxes:
            self._rows(box.boxes, x + _PAD, top, row.room - 2 * _PAD, row.place)
        elif box.cores:
            self._cores(box, x + _PAD, top, self._boxes.size(box, row.room).beside)
        self._out.append("</g>")

    def _cores(self, box: Box, x: int, y: int, beside: int) -> None:
        wide, high = self._core_width(), self._core_height(box.cores)
        for row in rows(box.cores, beside):
            for place, core in enumerate(row):
                left = x + place * (wide + _CORE_GAP)
                if box.kind not in {"offline", "pool"}:
                    corner = 9 if core[0].slow else 4
                    kind = "core slow" if core[0].slow else "core"
                    self._out.append(
                        f'<rect class="{kind}" x="{left}" y="{y}" width="{wide}" height="{high}" rx="{corner}"/>'
                    )
                for thread, cell in enumerate(core):
                    self._cell(cell, left + _CORE_PAD, y + _CORE_PAD + thread * _CELL)
            y += high + _CORE_GAP

    def _cell(self, cell: Cell, x: int, y: int) -> None:
        number = "" if cell.cpu is None else str(cell.cpu)
        kind = f"cpu {cell.state}{' isolated' * cell.isolated}{' shared' * cell.shared}"
        data = f' data-cpu="{number}"' if number else ""
        sign = f'<tspan class="sign" dx="{3 if number else 0}">{cell.sign}</tspan>' if cell.sign else ""
        self._out.append(
            f'<g class="{kind}"{data}><title>{escape(_described(cell))}</title>'
            f'<rect x="{x + 1}" y="{y + 1}" width="{self._cell_width - 2}" height="{_CELL - 2}" rx="3"/>'
            f'<text x="{x + self._cell_width // 2}" y="{y + 15}">{number}{sign}</text></g>'
        )

    # --- around it --------------------------------------------------------------------------------------------------

    def _heading(self, width: int) -> int:
        """Draws title and facts, and returns where the machine begins."""
        y = _MARGIN
        for line in _wrapped(self._picture.title, width, style.TITLE_EM):
            y += 20
            self._out.append(f'<text class="title" x="{_MARGIN}" y="{y}">{escape(line)}</text>')
        for line in _wrapped(self._picture.subtitle, width, style.SANS_EM):
            y += 19
            self._out.append(f'<text x="{_MARGIN}" y="{y}">{escape(line)}</text>')
        y += 5
        for name, text in self._picture.facts:
            for place, line in enumerate(_wrapped(text.replace(",", ", "), width - _FACT, style.SANS_EM)):
                y += _LINE
                if not place:
                    self._out.append(f'<text class="note" x="{_MARGIN}" y="{y}">{escape(name)}</text>')
                self._out.append(f'<text x="{_MARGIN + _FACT}" y="{y}">{escape(line)}</text>')
        return y + 14

    def _legend(self, y: int, width: int) -> int:
        elements, bottom = style.legend(self._picture.legend, _MARGIN, y, width)
        self._out += elements
        return bottom

    def _distances_width(self) -> int:
        count = len(self._picture.distances)
        return 56 + 44 * count if count <= MAX_DISTANCES else 0

    def _distances(self, y: int) -> int:
        table = self._picture.distances
        if not table or len(table) > MAX_DISTANCES:
            return y
        self._out.append(f'<text class="note" x="{_MARGIN}" y="{y + 14}">NUMA distances</text>')
        y += 24
        for column, (node, _) in enumerate(table):
            self._out.append(f'<text class="number note" x="{_MARGIN + 84 + 44 * column}" y="{y + 12}">{node}</text>')
        for place, (node, row) in enumerate(table):
            top = y + _LINE * (place + 1) + 12
            self._out.append(f'<text class="number note" x="{_MARGIN + 40}" y="{top}">{node}</text>')
            for column, far in enumerate(row):
                own = " own" if column == place else ""
                self._out.append(f'<text class="number{own}" x="{_MARGIN + 84 + 44 * column}" y="{top}">{far}</text>')
        return y + _LINE * (len(table) + 1) + _GAP


def _texts(box: Box, inner: int) -> tuple[str, list[str]]:
    """The part of the title that fits above, and the lines below it."""
    names = list(box.names)
    title = names.pop(0)
    while names and style.bold(title + SEPARATOR + names[0]) <= inner:
        title += SEPARATOR + names.pop(0)
    texts = ([unbroken(names)] if names else []) + list(box.notes)
    first, *more = _wrapped(title, inner, style.BOLD_EM)
    return first, [*more, *(line for text in texts for line in _wrapped(text, inner, style.SANS_EM))]


def _wrapped(text: str, width: int, em: float) -> list[str]:
    return folded(text, max(8, int(width / em))) or [""]


def _described(cell: Cell) -> str:
    """What a reader is told of a CPU."""
    parts = [] if cell.cpu is None else [f"CPU {cell.cpu}"]
    if cell.state is State.WORKER:
        number = cell.sign.removeprefix("w").rstrip(ISOLATED[0])
        parts.append(f"worker{'' if number.isdigit() else 's'} {number}")
    elif cell.state is not State.FREE and not cell.said:
        parts.append(SYMBOLS[cell.state][1])
    parts += [cell.said] * bool(cell.said)
    if cell.isolated:
        parts.append("isolated")
    return ", ".join(parts)
