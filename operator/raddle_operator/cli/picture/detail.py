"""Less of a picture where all of it would be too long: lists of CPUs in place of cores, boxes that are alike as one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from raddle.cpus import cpuset
from raddle_operator.cli.picture.model import Box, Cell, Core, plural

# A list of ids, or a number that may have a fraction; the 3 of L3 is neither.
_NUMBER: Final = re.compile(r"(?<![A-Za-z0-9.])(?:\d+(?:[-,]\d+)+|\d+(?:\.\d+)?)")


def summarised(box: Box) -> Box:
    """The box with lines of text in place of its cores: all CPUs, and those of each sign."""
    names = (f"{box.alike} × {box.names[0]}", *box.names[1:]) if box.alike > 1 else box.names
    if not box.cores:
        return replace(box, names=names, boxes=tuple(summarised(inner) for inner in box.boxes))
    return replace(box, names=names, notes=(*box.notes, *_listed(box)), cores=())


def _listed(box: Box) -> Iterator[str]:
    cells = [cell for core in box.cores for cell in core]
    if any(cell.cpu is None for cell in cells):
        yield " ".join(cell.sign for cell in cells)
        return
    each = f", {len(box.cores) // box.alike} in each" if box.alike > 1 else ""
    yield f"{plural(len(box.cores), 'core')}{each}"
    yield f"CPUs {_cpus(cells)}"
    marked = sorted((cell for cell in cells if cell.sign), key=lambda cell: (len(cell.sign), cell.sign))
    for sign, group in groupby(marked, key=lambda cell: cell.sign):
        yield f"{sign} on {_cpus(list(group))}"


def _cpus(cells: Sequence[Cell]) -> str:
    # The blanks are places to break a line.
    return cpuset.format_list(cpuset.of([cell.cpu for cell in cells if cell.cpu is not None])).replace(",", ", ")


def merged(boxes: Sequence[Box], depth: int) -> tuple[Box, ...]:
    """The boxes with neighbours that are alike made one, among those with at most `depth` levels inside them."""
    inner = [replace(box, boxes=merged(box.boxes, depth)) if box.boxes else box for box in boxes]
    result: list[Box] = []
    for _, group in groupby(inner, key=lambda box: _shape(box) if _levels(box) <= depth else id(box)):
        alike = list(group)
        result.append(_one(alike) if len(alike) > 1 else alike[0])
    return tuple(result)


def _levels(box: Box) -> int:
    return 1 + max((_levels(inner) for inner in box.boxes), default=0) if box.boxes else 0


def _shape(box: Box) -> tuple[object, ...]:
    """What boxes that are alike have in common: everything but numbers and signs."""
    names = tuple(_NUMBER.sub("0", name) for name in box.names)
    threads = tuple(sorted({len(core) for core in box.cores}))
    each = len(box.cores) // box.alike
    # What has no cores is told apart by its text.
    own = box.names if not (box.cores or box.boxes) else ()
    return (box.kind, names, own, box.notes, each, threads, tuple(_shape(inner) for inner in box.boxes))


def _one(alike: Sequence[Box]) -> Box:
    """One box for all, the boxes in it made one each as well."""
    cores: tuple[Core, ...] = tuple(core for box in alike for core in box.cores)
    return replace(
        alike[0],
        names=tuple(_together(names) for names in zip(*(box.names for box in alike), strict=True)),
        cores=cores,
        boxes=tuple(_one(inner) for inner in zip(*(box.boxes for box in alike), strict=True)),
        alike=sum(box.alike for box in alike),
    )


def _together(names: Sequence[str]) -> str:
    """One name for all: "L3 0" and "L3 1" are "L3 0-1"; other numbers that differ are "a to b"."""
    if len(set(names)) == 1:
        return names[0]
    columns = list(zip(*(_NUMBER.findall(name) for name in names), strict=True))
    texts = []
    for place, column in enumerate(columns):
        if len(set(column)) == 1:
            texts.append(column[0])
        elif place == 0 and not any("." in text for text in column):
            texts.append(_ranges(column))
        else:
            texts.append(f"{min(column, key=_size)} to {max(column, key=_size)}")
    remaining = iter(texts)
    return _NUMBER.sub(lambda _: next(remaining), names[0])


def _ranges(texts: Sequence[str]) -> str:
    """The numbers and ranges as one list. They number sockets, dies and caches, which may be 65536 and more."""
    parts = (part.partition("-") for text in texts for part in text.split(","))
    result: list[tuple[int, int]] = []
    for first, last in sorted((int(first), int(last or first)) for first, _, last in parts):
        if result and first <= result[-1][1] + 1:
            first, last = result[-1][0], max(last, result.pop()[1])  # noqa: PLW2901
        result.append((first, last))
    return ",".join(f"{first}-{last}" if first < last else f"{first}" for first, last in result)


def _size(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
