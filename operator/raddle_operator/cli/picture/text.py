"""A picture as lines of text for a terminal or a pipe.

`draw` is pure: it gives lines of (text, style) spans that fit a width. Of four grades of detail it takes the first that
is short enough: a frame around each core, each core's threads side by side (0/128), a list of CPUs in each box, and
boxes that are alike drawn as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Final

from raddle.cpus import cpuset
from raddle_operator.cli.picture import detail
from raddle_operator.cli.picture.frames import ASCII, UNICODE, Drawing, Glyphs, Line
from raddle_operator.cli.picture.model import Box, Picture

MIN_WIDTH: Final = 40
# Of each grade: the most lines that its boxes may have. A screen or two can be read; the last grade has no bound.
FRAMED_LINES: Final = 40
INLINE_LINES: Final = 64
LISTED_LINES: Final = 80
# Levels within each other: socket, NUMA node, die, L3, core type, L2.
_DEPTH: Final = 6
_FACT_WIDTH: Final = 14
_TO_ASCII: Final = str.maketrans({"·": "-", "–": "-", "×": "x", "µ": "u", "≥": ">", "≤": "<"})


def draw(picture: Picture, width: int, *, ascii_only: bool = False) -> list[Line]:
    """The lines of the whole picture, none wider than `width` (at least MIN_WIDTH)."""
    width = max(width, MIN_WIDTH)
    lines: list[Line] = [((text, "title"),) for text in wrap(picture.title, width)]
    lines += [((text, ""),) for text in wrap(picture.subtitle, width)]
    lines += _facts(picture.facts, width)
    lines.append(())
    lines += boxes(picture.boxes, width, ASCII if ascii_only else UNICODE)
    lines += _legend(picture, width)
    lines += _distances(picture, width)
    if ascii_only:
        return [tuple((_ascii(text), style) for text, style in line) for line in lines]
    return lines


STYLES: Final[Mapping[str, str]] = {
    "title": "bold",
    "fact": "bold",
    "name.socket": "bold",
    "name.numa": "bold cyan",
    "name.memory": "bold cyan",
    "name.die": "magenta",
    "name.l3": "green",
    "name.l2": "green",
    "name.type": "yellow",
    "name.pool": "bold green",
    "frame.numa": "cyan",
    "frame.memory": "cyan",
    "frame.die": "magenta",
    "frame.l3": "green",
    "frame.l2": "green",
    "frame.type": "yellow",
    "frame.pool": "green",
    "frame.offline": "dim",
    "grid": "dim",
    "note": "dim",
    "worker": "bold black on green",
    "pool": "bold green",
    "caller": "bold black on yellow",
    "idle": "blue",
    "outside": "dim",
    "reserved": "red",
    "offline": "dim strike",
    "isolated": "magenta",
    "quiet": "green",
    "used": "black on yellow",
    "busy": "bold white on red",
    "shared": "bold magenta",
}
"""What a style looks like on a terminal, in rich's words; one that is absent is plain."""


def style_of(name: str) -> str:
    """How a style looks, "" for plain. A CPU's number looks as its sign."""
    return STYLES.get(name.removeprefix("cpu."), "")


def plain(lines: Sequence[Line]) -> str:
    """The lines without styles, each ended by a line feed."""
    return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in lines)


def _ascii(text: str) -> str:
    return text.translate(_TO_ASCII).encode("ascii", "replace").decode()


def boxes(result: Sequence[Box], width: int, glyphs: Glyphs = UNICODE) -> list[Line]:
    """The boxes' lines in the first grade of detail that is short enough."""
    for framed, most_lines in ((True, FRAMED_LINES), (False, INLINE_LINES)):
        drawing = Drawing(result, width, glyphs, framed=framed)
        if drawing.height <= most_lines and drawing.width <= width:
            return drawing.lines()
    for depth in range(-1, _DEPTH):
        fewer = detail.merged(result, depth) if depth >= 0 else result
        drawing = Drawing([detail.summarised(box) for box in fewer], width, glyphs, framed=False)
        if drawing.height <= LISTED_LINES:
            break
    return drawing.lines()


def _facts(facts: Sequence[tuple[str, str]], width: int) -> Iterator[Line]:
    for name, text in facts:
        # The blanks are places to break a line.
        parts = wrap(text.replace(",", ", ").replace(",  ", ", "), width - _FACT_WIDTH, break_on_hyphens=False) or [""]
        yield (name.ljust(_FACT_WIDTH), "fact"), (parts[0], "")
        for part in parts[1:]:
            yield (" " * _FACT_WIDTH, ""), (part, "")


def _legend(picture: Picture, width: int) -> Iterator[Line]:
    line: list[tuple[str, str]] = []
    for sign, meaning, style in picture.legend:
        entry = [(sign, style), (f" {meaning}", "note")]
        used = sum(len(text) for text, _ in line)
        if line and used + 3 + len(sign) + 1 + len(meaning) > width:
            yield tuple(line)
            line = []
        line += [("   ", ""), *entry] if line else entry
    if line:
        yield tuple(line)


def _distances(picture: Picture, width: int) -> Iterator[Line]:
    """Yields the table of distances, or a line per node where the table would be too wide."""
    if not picture.distances:
        return
    ids = [node for node, _ in picture.distances]
    cell = max(len(str(number)) for node, row in picture.distances for number in (node, *row)) + 2
    yield ()
    if 6 + cell * len(ids) <= width:
        yield (("NUMA distances", "fact"),)
        yield ((" " * 6 + "".join(str(node).rjust(cell) for node in ids), "note"),)
        for node, row in picture.distances:
            yield (str(node).rjust(6), "note"), ("".join(str(far).rjust(cell) for far in row), "")
        return
    yield (("NUMA distances", "fact"),)
    for node, row in picture.distances:
        groups: dict[int, list[int]] = {}
        for other, far in zip(ids, row, strict=True):
            groups.setdefault(far, []).append(other)
        text = "; ".join(f"{far} to {_ids(to)}" for far, to in sorted(groups.items()))
        yield from _facts([(f"from node {node}", text)], width)


def _ids(nodes: Sequence[int]) -> str:
    return cpuset.format_list(cpuset.of(list(nodes)))
