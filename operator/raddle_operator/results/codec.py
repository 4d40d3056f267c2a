"""Results as JSON: an object has the fields of its type here, in camelCase; a candidate is its settings, path to value.

Absent facts are null. docs/reference/tuning-report.md explains each key.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

from raddle.machine.fields import DocumentError
from raddle.planning.kinds import PolicyError
from raddle_operator.results.candidate import Candidate

__all__ = ["VERSION", "DocumentError", "from_json", "from_versioned", "to_json", "to_versioned"]

VERSION: Final = 1

_T = TypeVar("_T")
_OPTIONAL: Final = (Union, types.UnionType)


def to_versioned(value: Any) -> dict[str, Any]:
    """The JSON object of a dataclass of a result's types, with the version that `from_versioned` asks for."""
    return {"version": VERSION, **to_json(value)}


def from_versioned(kind: type[_T], document: Any) -> _T:
    """What `to_versioned` wrote of such a dataclass. Unknown fields are ignored; those with a default may be absent.

    Raises DocumentError, naming the field, for anything else.
    """
    if not isinstance(document, Mapping):
        raise DocumentError("document", document, "an object")
    if document.get("version") != VERSION:
        raise DocumentError("version", document.get("version"), f"{VERSION}, the one that this Raddle reads")
    return from_json(kind, document, "")


def from_json(kind: type[_T], value: Any, path: str) -> _T:
    """The value as this type. Raises DocumentError, naming the field from `path` on."""
    read = _read(kind, value, path)
    assert isinstance(read, kind)
    return read


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


def to_json(value: Any, kind: Any = None) -> Any:
    """A value of one of the types that a result has, in JSON; `kind` is its type where a tuple may be an object."""
    if isinstance(value, Candidate):
        return dict(value.settings)
    if is_dataclass(value) and not isinstance(value, type):
        kinds = _types(type(value))
        return {_camel(one.name): to_json(getattr(value, one.name), kinds[one.name]) for one in fields(value)}
    if isinstance(value, tuple):
        if _is_map(kind):
            return {name: to_json(item) for name, item in value}
        return [to_json(item) for item in value]
    return value.value if isinstance(value, StrEnum) else value


# --- reading --------------------------------------------------------------------------------------------------------


def _read(kind: Any, value: Any, path: str) -> Any:
    if get_origin(kind) in _OPTIONAL:
        return _read_union(get_args(kind), value, path)
    if kind is Candidate:
        return _read_candidate(value, path)
    if is_dataclass(kind):
        return _read_dataclass(kind, value, path)
    if _is_map(kind):
        return _read_map(kind, value, path)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise DocumentError(path, value, "a list")
        return tuple(_read(get_args(kind)[0], item, f"{path}[{index}]") for index, item in enumerate(value))
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        if value not in list(kind):
            raise DocumentError(path, value, "one of " + ", ".join(kind))
        return kind(value)
    return _plain(kind, value, path)


def _read_candidate(value: Any, path: str) -> Candidate:
    candidate = Candidate.of(dict(_read_map(_types(Candidate)["settings"], value, path)))
    try:
        candidate.spec()
    except PolicyError as error:
        raise DocumentError(f"{path}.{error.path}", error.value, error.allowed) from None
    return candidate


def _read_union(kinds: tuple[Any, ...], value: Any, path: str) -> Any:
    """The value as the one of these types that it is."""
    if value is None and types.NoneType in kinds:
        return None
    rest = [kind for kind in kinds if kind is not types.NoneType]
    if len(rest) == 1:
        return _read(rest[0], value, path)
    if type(value) not in rest:
        raise DocumentError(path, value, "a text, a number, true or false")
    return _plain(type(value), value, path)


def _read_map(kind: Any, value: Any, path: str) -> tuple[tuple[str, Any], ...]:
    item = get_args(get_args(kind)[0])[1]
    return tuple((name, _read(item, one, f"{path}.{name}")) for name, one in _object(value, path).items())


def _read_dataclass(kind: Any, value: Any, path: str) -> Any:
    given = _object(value, path)
    values = {}
    for one in fields(kind):
        name = _camel(one.name)
        # What has no default and is absent is read as null, which few types take.
        if name in given or one.default is MISSING:
            at = f"{path}.{name}" if path else name
            values[one.name] = _read(_types(kind)[one.name], given.get(name), at)
    return kind(**values)


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
