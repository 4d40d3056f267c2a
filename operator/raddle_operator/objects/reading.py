"""Reading parts of JSON objects that may have any shape: a typed error with a path, never another exception."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
_SHOWN: Final = 64


class SpecError(ValueError):
    """A part of an object that can't be used. `path` is dotted from the object's root or from its spec."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


def mapping(parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """The object at `key`; empty when absent or null. Raises SpecError for anything else."""
    value = parent.get(key)
    if value is None:
        return EMPTY
    if not isinstance(value, dict):
        raise _wrong(path, key, value, "an object")
    return value


def sequence(parent: Mapping[str, Any], key: str, path: str) -> Sequence[Any]:
    """The list at `key`; empty when absent or null. Raises SpecError for anything else."""
    value = parent.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _wrong(path, key, value, "a list")
    return value


def text(parent: Mapping[str, Any], key: str, path: str) -> str:
    """The text at `key`; "" when absent or null. Raises SpecError for anything else."""
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _wrong(path, key, value, "text")
    return value


def texts(parent: Mapping[str, Any], key: str, path: str) -> tuple[str, ...]:
    """The list of texts at `key`; empty when absent or null. Raises SpecError for anything else."""
    values = sequence(parent, key, path)
    for value in values:
        if not isinstance(value, str):
            raise _wrong(path, key, value, "a list of texts")
    return tuple(values)


def text_map(parent: Mapping[str, Any], key: str, path: str) -> Mapping[str, str]:
    """The object of texts at `key`, such as labels; empty when absent or null. Raises SpecError for anything else."""
    values = mapping(parent, key, path)
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise _wrong(f"{path}.{key}", str(name)[:_SHOWN], value, "text")
    return values


def as_object(value: Any, path: str) -> Mapping[str, Any]:
    """The value itself, known to be an object. Raises SpecError."""
    if not isinstance(value, dict):
        raise SpecError(path, f"is of type {type(value).__name__}, must be an object")
    return value


def _wrong(path: str, key: str, value: Any, allowed: str) -> SpecError:
    return SpecError(f"{path}.{key}" if path else key, f"is of type {type(value).__name__}, must be {allowed}")
