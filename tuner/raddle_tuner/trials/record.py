"""A file with every block of a tuning, so that one that was ended goes on where it was.

The first line is the question, each other one a request with its answer, as JSON.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Self

import raddle
from raddle_operator.results import codec
from raddle_operator.results.codec import DocumentError
from raddle_operator.results.key import Key
from raddle_tuner.search.blocks import Block, Failure, MeasurementRequest
from raddle_tuner.search.space import Space

_VERSION: Final = 1
_START: Final = "startS"
_ABSENT: Final = object()
_SHOWN: Final = 60


class RecordError(ValueError):
    """The file can't be written, is no record, or one of another question; the message says which, for people."""


def question(name: str, asked: str, key: Key, space: Space, *, budget_s: float, trials: int) -> dict[str, Any]:
    """What the answers are valid for. `name` is the subject's, `asked` a digest of what it is asked with."""
    return {
        "version": _VERSION,
        "raddle": raddle.__version__,
        "name": name,
        "asked": asked,
        "key": codec.to_json(key),
        "budgetS": budget_s,
        "trials": trials,
        "spec": dict(space.case.spec),
        "space": {axis.name: [value for value, _ in axis.choices] for axis in space.axes},
    }


@dataclass(slots=True)
class Record:
    """The file, open: `answers` are those that it had, `spent_s` the seconds of the budget that they took.

    `start_s` is what a program's start took when the file was begun: the search is planned by it.
    """

    file: IO[bytes]
    answers: tuple[tuple[MeasurementRequest, Block | Failure], ...]
    spent_s: float
    start_s: float = 0.0

    @classmethod
    def of(cls, path: Path, asked: Mapping[str, Any], start_s: float = 0.0) -> Record:
        """The record of this question in the file, which is made where it isn't there. Raises RecordError."""
        if path.exists() and not path.is_file():
            raise RecordError(f"{path}: is not a regular file")
        try:
            file = path.open("a+b", buffering=0)
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}") from None
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RecordError(f"{path}: another raddle tune is writing it") from None
            file.seek(0)
            head = {**asked, _START: round(start_s, 3)}
            whole = _whole(path, file.read(), head)
            lines = whole.splitlines()
            result = list(_read(path, lines, head))
            spent_s = result[-1][2] if result else 0.0
            begun_s = json.loads(lines[0]).get(_START, start_s) if lines else head[_START]
            record = cls(file, tuple((request, answer) for request, answer, _ in result), spent_s, begun_s)
            file.truncate(len(whole))
            if not whole:
                record.write(head)
        except BaseException:
            file.close()
            raise
        return record

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def add(self, request: MeasurementRequest, answer: Block | Failure, spent_s: float) -> None:
        """Writes the answer, and the seconds of the budget that are spent with it. Raises RecordError."""
        kind = "failure" if isinstance(answer, Failure) else "block"
        self.write({"request": codec.to_json(request), kind: codec.to_json(answer), "spentS": round(spent_s, 3)})

    def write(self, line: Mapping[str, Any]) -> None:
        """Writes one line, at once. Raises RecordError."""
        try:
            self.file.write(_line(line))
        except OSError as error:
            raise RecordError(f"{self.file.name}: {error.strerror}") from None


def _line(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document) + "\n").encode()


def _whole(path: Path, content: bytes, asked: Mapping[str, Any]) -> bytes:
    """Its whole lines: the last one of a program that was killed may be cut in two. Raises RecordError."""
    whole, end, cut = content.rpartition(b"\n")
    if not end and not _line(asked).startswith(cut):
        raise _no_record(path)
    return whole + end


def _no_record(path: Path) -> RecordError:
    return RecordError(f"{path}:1: is not a record of raddle tune, version {_VERSION}")


def _read(
    path: Path, lines: list[bytes], asked: Mapping[str, Any]
) -> Iterator[tuple[MeasurementRequest, Block | Failure, float]]:
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
            if number > 1:
                yield _answer(line)
                continue
        except ValueError as error:
            raise (RecordError(f"{path}:{number}: {error}") if number > 1 else _no_record(path)) from None
        if not isinstance(line, dict) or line.get("version") != _VERSION:
            raise _no_record(path)
        if not isinstance(line.setdefault(_START, asked[_START]), float):
            raise _no_record(path)
        differences = "; ".join(_differences("", line, {**json.loads(json.dumps(asked)), _START: line[_START]}))
        if differences:
            raise RecordError(f"{path} is of a different tuning: {differences}")


def _answer(line: Any) -> tuple[MeasurementRequest, Block | Failure, float]:
    if not isinstance(line, dict):
        raise DocumentError("line", line, "an object")
    request = codec.from_json(MeasurementRequest, line.get("request"), "request")
    spent_s = codec.from_json(float, line.get("spentS"), "spentS")
    if "failure" in line:
        return request, codec.from_json(Failure, line["failure"], "failure"), spent_s
    return request, codec.from_json(Block, line.get("block"), "block"), spent_s


def _differences(path: str, there: Any, now: Any) -> Iterator[str]:
    if isinstance(there, dict) and isinstance(now, dict):
        for name in dict.fromkeys([*there, *now]):
            below = f"{path}.{name}" if path else name
            yield from _differences(below, there.get(name, _ABSENT), now.get(name, _ABSENT))
    elif there != now:
        yield f"{path} is {_shown(there)} there, {_shown(now)} now"


def _shown(value: Any) -> str:
    text = "absent" if value is _ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
