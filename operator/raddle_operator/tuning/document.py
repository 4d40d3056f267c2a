"""A tuning as JSON: what `raddle tune -o json` prints, what a report is drawn from, what the cluster keeps.

An object has the fields of its type here, in camelCase; a candidate is its settings, path to value. Absent facts are
null. docs/reference/tuning-report.md explains each key.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from itertools import chain, pairwise, repeat
from statistics import fmean
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from raddle.machine.fields import DocumentError
from raddle.planning.kinds import PolicyError
from raddle_operator.tuning.candidate import Candidate
from raddle_operator.tuning.figure import FIGURES
from raddle_operator.tuning.key import Key
from raddle_operator.tuning.measured import Block
from raddle_operator.tuning.result import Result

__all__ = [
    "MOST_LATENCIES",
    "VERSION",
    "DocumentError",
    "Tuning",
    "as_json",
    "from_document",
    "from_written",
    "read",
    "to_document",
    "written",
]

VERSION: Final = 1
# A block's latencies are written as they came up to so many. Of more, so many means are, of requests that took about as
# long: 300 blocks stay well below a ConfigMap's 1 MiB.
MOST_LATENCIES: Final = 200

# A document from elsewhere must not take more memory than so many latencies do.
_MOST_REQUESTS: Final = 10_000_000

_T = TypeVar("_T")
_MEANS: Final = "latencyMeansMs"
_OPTIONAL: Final = (Union, types.UnionType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """A result with what it is of: `name` for people (a model's file, a server's command), `finished` in RFC 3339.

    `planned` is what the plan decides where it is left to it; paths of which that isn't known are absent.
    """

    name: str
    finished: str
    key: Key
    result: Result
    planned: Candidate


def to_document(tuning: Tuning) -> dict[str, Any]:
    """The JSON document of a tuning. `from_document` makes the same of it, but for the latencies of large blocks.

    Those come back in ascending order, as many, each as the mean of those beside it: of a thousandth of all in the
    slowest tenth, so that its mean is exact and p99 nearly so, of nine thousandths in the rest.
    """
    return written(tuning)


def from_document(document: Any) -> Tuning:
    """The tuning that a document holds; unknown fields are ignored, and those with a default may be absent.

    Raises DocumentError, naming the field, for anything that is no tuning of this version.
    """
    found = from_written(Tuning, document)
    if found.result.figure not in FIGURES:
        raise DocumentError("result.figure", found.result.figure, "one of " + ", ".join(FIGURES))
    return found


def written(value: Any) -> dict[str, Any]:
    """The JSON object of a dataclass of this package's types, with the version that `from_written` asks for."""
    return {"version": VERSION, **_written(value)}


def from_written(kind: type[_T], document: Any) -> _T:
    """What `written` wrote of such a dataclass. Raises DocumentError, naming the field, as `from_document` does."""
    if not isinstance(document, Mapping):
        raise DocumentError("document", document, "an object")
    if document.get("version") != VERSION:
        raise DocumentError("version", document.get("version"), f"{VERSION}, the one that this Raddle reads")
    return read(kind, document, "")


def as_json(value: Any) -> Any:
    """A value of one of the types that a tuning has, as in its document, but with all latencies. `read` reads it."""
    return _written(value, shortened=False)


def read(kind: type[_T], value: Any, path: str) -> _T:
    """The value as this type. Raises DocumentError, naming the field from `path` on."""
    found = _Reader().read(kind, value, path)
    assert isinstance(found, kind)
    return found


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join("CPUs" if other == "cpus" else other.capitalize() for other in others)


@cache
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _is_map(kind: Any) -> bool:
    """Whether a type is tuple[tuple[str, X], ...], which is an object in JSON."""
    item = get_args(kind)[0] if get_origin(kind) is tuple else None
    return get_origin(item) is tuple and get_args(item)[0] is str


# --- writing --------------------------------------------------------------------------------------------------------


def _written(value: Any, kind: Any = None, *, shortened: bool = True) -> Any:
    def below(item: Any, kind: Any = None) -> Any:
        return _written(item, kind, shortened=shortened)

    if isinstance(value, Candidate):
        return dict(value.settings)
    if is_dataclass(value):
        kinds = get_type_hints(type(value))
        made = {_camel(one.name): below(getattr(value, one.name), kinds[one.name]) for one in fields(value)}
        return _shortened(made) if shortened and isinstance(value, Block) else made
    if isinstance(value, tuple):
        if _is_map(kind):
            return {name: below(item) for name, item in value}
        return [below(item) for item in value]
    return value.value if isinstance(value, StrEnum) else value


def _shortened(block: dict[str, Any]) -> dict[str, Any]:
    latencies_ms = block["latenciesMs"]
    if len(latencies_ms) <= MOST_LATENCIES:
        return block
    ascending = sorted(latencies_ms)
    del block["latenciesMs"]
    means_ms = [ascending[0]]
    for first, last in pairwise(_ranks(len(ascending))):
        # A group of a small block may be empty.
        means_ms.append(_mean(ascending[first:last]) if first < last else means_ms[-1])
    return {"requests": len(ascending), _MEANS: means_ms[1:], **block}


def _mean(ascending: Sequence[float]) -> float:
    # Whatever a division rounds to, it stays among them.
    return min(max(fmean(ascending), ascending[0]), ascending[-1])


def _ranks(count: int) -> list[int]:
    """Where the groups of so many ascending values begin, and where the last one ends."""
    half = MOST_LATENCIES // 2
    tenth = round(count / 10)
    return [
        *((count - tenth) * step // half for step in range(half)),
        *(count - tenth + tenth * step // half for step in range(half + 1)),
    ]


# --- reading --------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads the parts of one document. Raises DocumentError."""

    def __init__(self) -> None:
        self._requests = 0

    def read(self, kind: Any, value: Any, path: str) -> Any:
        """The value as this type."""
        if get_origin(kind) in _OPTIONAL:
            return self._one_of(get_args(kind), value, path)
        if kind is Candidate:
            return self._candidate(value, path)
        if is_dataclass(kind):
            return self._object(kind, value, path)
        if _is_map(kind):
            return self._map(kind, value, path)
        if get_origin(kind) is tuple:
            if not isinstance(value, list):
                raise DocumentError(path, value, "a list")
            return tuple(self.read(get_args(kind)[0], item, f"{path}[{index}]") for index, item in enumerate(value))
        if isinstance(kind, type) and issubclass(kind, StrEnum):
            if value not in list(kind):
                raise DocumentError(path, value, "one of " + ", ".join(kind))
            return kind(value)
        return _plain(kind, value, path)

    def _candidate(self, value: Any, path: str) -> Candidate:
        found = Candidate.of(dict(self._map(_types(Candidate)["settings"], value, path)))
        try:
            found.spec()
        except PolicyError as error:
            raise DocumentError(f"{path}.{error.path}", error.value, error.allowed) from None
        return found

    def _one_of(self, kinds: tuple[Any, ...], value: Any, path: str) -> Any:
        """The value as the one of these types that it is."""
        if value is None and types.NoneType in kinds:
            return None
        rest = [kind for kind in kinds if kind is not types.NoneType]
        if len(rest) == 1:
            return self.read(rest[0], value, path)
        if type(value) not in rest:
            raise DocumentError(path, value, "a text, a number, true or false")
        return _plain(type(value), value, path)

    def _map(self, kind: Any, value: Any, path: str) -> tuple[tuple[str, Any], ...]:
        item = get_args(get_args(kind)[0])[1]
        return tuple((name, self.read(item, one, f"{path}.{name}")) for name, one in _object(value, path).items())

    def _object(self, kind: Any, value: Any, path: str) -> Any:
        given = _object(value, path)
        if kind is Block and _MEANS in given:
            short = {**given, "latenciesMs": []}
            del short[_MEANS]
            return replace(self._object(Block, short, path), latencies_ms=self._lengthened(given, path))
        found = {}
        for one in fields(kind):
            name = _camel(one.name)
            # What has no default and is absent is read as null, which few types take.
            if name in given or one.default is MISSING:
                at = f"{path}.{name}" if path else name
                found[one.name] = self.read(_types(kind)[one.name], given.get(name), at)
        return kind(**found)

    def _lengthened(self, block: Mapping[str, Any], path: str) -> tuple[float, ...]:
        """As many latencies as there were, each the mean of its group."""
        requests = _plain(int, block.get("requests"), f"{path}.requests")
        at = f"{path}.{_MEANS}"
        means_ms = self.read(tuple[float, ...], block[_MEANS], at)
        if len(means_ms) != MOST_LATENCIES or list(means_ms) != sorted(means_ms):
            raise DocumentError(at, f"{len(means_ms)} numbers", f"{MOST_LATENCIES} numbers in ascending order")
        self._requests += requests
        if requests <= MOST_LATENCIES or self._requests > _MOST_REQUESTS:
            allowed = f"from {MOST_LATENCIES + 1} on, and at most {_MOST_REQUESTS} in all blocks together"
            raise DocumentError(f"{path}.requests", requests, allowed)
        sizes = [last - first for first, last in pairwise(_ranks(requests))]
        return tuple(chain.from_iterable(map(repeat, means_ms, sizes)))


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise DocumentError(path or "document", value, "an object")
    return value


def _plain(kind: Any, value: Any, path: str) -> Any:
    """A text, a number, true or false."""
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    if type(value) is kind and kind is not float:
        return value
    raise DocumentError(path, value, {float: "a number", int: "an integer", str: "a text"}.get(kind, "true or false"))
