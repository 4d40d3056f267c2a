"""The kinds of fields that a policy's spec has: how each is read, and what it takes.

A field is one row of `raddle.planning.policy.Policy`, made by one of the functions at the end. All that spells a field
elsewhere is made from its row: the CRDs, the keys of RADDLE_PLAN and their bounds in both languages, the switches of
ONNX Runtime that the shims set, the API reference.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Mapping, NamedTuple, Optional, Tuple

from raddle.planning import entries, templates

_MAX_NAME = 63
_NAME = "[a-z0-9][-a-z0-9]*"
_MAX_DURATION = 32
_DURATION = r"([0-9]{1,10}([.][0-9]{1,3})?(h|m|s|ms|us)){1,4}"
_DURATION_PART = re.compile(r"([0-9.]+)([a-z]+)")
_UNITS_US = {"h": 3600 * 10**6, "m": 60 * 10**6, "s": 10**6, "ms": 1000, "us": 1}
_CPUS = r"([0-9]{1,4}([.][0-9]{1,3})?|[0-9]{1,7}m)"
# No sign but in -1, no leading zeros.
_WHOLE = re.compile(r"-1|0|[1-9][0-9]{0,18}")


class PolicyError(ValueError):
    """A field that can't be used. `path` is dotted from spec, `value` what was there, `allowed` what may be."""

    def __init__(self, path: str, value: object, allowed: str) -> None:
        super().__init__(f"{path}: {value!r} is not allowed; it must be {allowed}")
        self.path = path
        self.value = value
        self.allowed = allowed


class Switch(NamedTuple):
    """How a session of ONNX Runtime is told on or off.

    attribute   of Python's SessionOptions
    setters     functions of OrtApi with their places in it: one that takes the value, or the one for off and for on
    initial     what a session has where the code says nothing
    since       the minor version of 1.x whose OrtApi has them; 0: it is older than any that the native shim meets
    """

    attribute: str
    setters: Tuple[Tuple[str, int], ...]
    initial: bool
    since: int = 0


class Field(NamedTuple):
    """One field of the spec that decides a plan.

    path      its place below spec, dotted
    text      what it means: for `kubectl explain` and the API reference
    read      (path, value of the spec, allowed) -> value of the Policy; raises PolicyError
    allowed   the words, or (lowest, highest), or a table of `entries`
    schema    its OpenAPI schema, without description and default
    default   as a JSON value; None: the API server fills nothing in
    initial   the Policy's own value where the spec says nothing
    in_plan   RADDLE_PLAN has it as it is; False: the planner decides with it
    switch    for a switch of ONNX Runtime's sessions that the shims set
    """

    path: str
    text: str
    read: Callable[[str, Any, Any], Any]
    allowed: Any
    schema: Mapping[str, Any]
    default: Any
    initial: Any
    in_plan: bool = False
    switch: Optional[Switch] = None


def _read_word(path: str, value: Any, allowed: Tuple[str, ...]) -> str:
    if value not in allowed:
        raise PolicyError(path, value, "one of " + ", ".join(allowed))
    return str(value)


def read_count(path: str, value: Any, allowed: Tuple[int, int]) -> int:
    """A whole number within the bounds. Raises PolicyError."""
    low, high = allowed
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise PolicyError(path, value, f"an integer from {low} to {high}")
    return value


def read_duration_us(path: str, value: Any, allowed: Tuple[int, int]) -> int:
    """The microseconds of a duration such as 33ms. Raises PolicyError."""
    low, high = allowed
    if isinstance(value, str) and len(value) <= _MAX_DURATION and re.fullmatch(_DURATION, value):
        duration_us = sum(float(number) * _UNITS_US[unit] for number, unit in _DURATION_PART.findall(value))
        if low <= duration_us <= high:
            return round(duration_us)
    raise PolicyError(path, value, "a duration from 1us to 1h, such as 33ms")


def read_rate(path: str, value: Any, allowed: Tuple[int, int]) -> float:
    """A number above the lower bound, at most the upper. Raises PolicyError."""
    low, high = allowed
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low < value <= high:
        raise PolicyError(path, value, f"a number above {low}, at most {high}")
    return float(value)


def read_cpus(path: str, value: Any, allowed: Tuple[int, int]) -> float:
    """The CPUs of a quantity of Kubernetes, such as 200m or "0.5". Raises PolicyError."""
    low, high = allowed
    if isinstance(value, str) and re.fullmatch(_CPUS, value):
        cpus = int(value[:-1]) / 1000 if value.endswith("m") else float(value)
        if low <= cpus <= high:
            return cpus
    raise PolicyError(path, value, f'a CPU quantity as text, up to {high}, such as 200m, "1" or "0.5"')


def _read_words(path: str, value: Any, allowed: Tuple[str, ...]) -> Tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise PolicyError(path, value, "a list of " + ", ".join(allowed))
    chosen = {_read_word(path, item, allowed) for item in value}
    return tuple(item for item in allowed if item in chosen)


def _read_name(path: str, value: Any, allowed: Tuple[str, ...]) -> str:
    is_name = isinstance(value, str) and len(value) <= _MAX_NAME and re.fullmatch(_NAME, value)
    if value not in allowed and not is_name:
        raise PolicyError(path, value, f"{', '.join(allowed)} or the name of an object")
    return str(value)


def _read_names(path: str, value: Any, allowed: Tuple[str, ...]) -> Tuple[str, ...]:
    return _read_words(path, value, allowed) if value != [] else ()


def _read_flag(path: str, value: Any, allowed: Tuple[bool, bool]) -> bool:
    if value not in allowed or not isinstance(value, bool):
        raise PolicyError(path, value, "true or false")
    return value


def _read_entries(path: str, value: Any, allowed: Mapping[str, entries.Entry]) -> Tuple[Tuple[str, str], ...]:
    """The entries sorted by key."""
    if not isinstance(value, Mapping):
        raise PolicyError(path, value, "a mapping of " + ", ".join(allowed))
    for key, text in value.items():
        if key not in allowed:
            raise PolicyError(path, key, "one of " + ", ".join(allowed))
        if not isinstance(text, str):
            raise PolicyError(f"{path}.{key}", text, "text: put it in quotes")
        _check_entry(f"{path}.{key}", text, allowed[key].allowed)
    return tuple(sorted(value.items()))


def _read_variables(path: str, value: Any, allowed: Tuple[str, str]) -> Tuple[Tuple[str, str], ...]:
    """Name and template of each variable, sorted by name."""
    if not isinstance(value, Mapping):
        raise PolicyError(path, value, "a mapping of names to values")
    names, values = allowed
    for name, template in value.items():
        if not isinstance(name, str) or not templates.is_name(name):
            raise PolicyError(path, name, f"a name: {names}")
        if not isinstance(template, str) or not templates.is_value(template):
            raise PolicyError(f"{path}.{name}", template, values)
    return tuple(sorted(value.items()))


def _check_entry(path: str, text: str, allowed: Tuple[Any, ...]) -> None:
    if isinstance(allowed[0], str):
        _read_word(path, text, allowed)
        return
    low, high = allowed
    if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
        raise PolicyError(path, text, f'a whole number from "{low}" to "{high}"')


def _read_providers(
    path: str, value: Any, allowed: Mapping[str, entries.Provider]
) -> Tuple[Tuple[str, Tuple[Tuple[str, str], ...]], ...]:
    if not isinstance(value, Mapping):
        raise PolicyError(path, value, "a mapping of " + ", ".join(allowed))
    for name in value:
        if name not in allowed:
            raise PolicyError(path, name, "one of " + ", ".join(allowed))
    return tuple(sorted((name, _read_entries(f"{path}.{name}", value[name], allowed[name].options)) for name in value))


def word(
    path: str,
    allowed: Tuple[str, ...],
    default: Optional[str],
    text: str,
    *,
    in_plan: bool = False,
    filled_in: bool = True,
) -> Any:
    """One of the words; None where the application's own stays. `filled_in` as for `count`."""
    schema = {"type": "string", "enum": list(allowed)}
    return Field(path, text, _read_word, allowed, schema, default if filled_in else None, default, in_plan)


def name(path: str, word: str, text: str) -> Any:
    """The name of an object, or the word, which is none because of its capital; None: absent."""
    schema = {"type": "string", "maxLength": _MAX_NAME, "pattern": f"^({word}|{_NAME})$"}
    return Field(path, text, _read_name, (word,), schema, None, None)


def count(path: str, allowed: Tuple[int, int], default: Optional[int], text: str, *, filled_in: bool = True) -> Any:
    """A whole number. Unless it is filled in, the schema has no default: absent says more than the default does."""
    low, high = allowed
    schema = {"type": "integer", "format": "int32", "minimum": low, "maximum": high}
    return Field(path, text, read_count, allowed, schema, default if filled_in else None, default)


def flag(
    path: str, default: Optional[bool], text: str, *, in_plan: bool = False, switch: Optional[Switch] = None
) -> Any:
    """True or false; None where the application's own stays."""
    return Field(path, text, _read_flag, (False, True), {"type": "boolean"}, default, default, in_plan, switch)


def duration_us(path: str, text: str) -> Any:
    """Microseconds of a duration such as 33ms, from one microsecond to an hour; None: absent."""
    schema = {"type": "string", "maxLength": _MAX_DURATION, "pattern": f"^{_DURATION}$"}
    return Field(path, text, read_duration_us, (1, 3600 * 10**6), schema, None, None)


def rate(path: str, highest: int, text: str) -> Any:
    """A number above zero; None: absent."""
    schema = {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": highest}
    return Field(path, text, read_rate, (0, highest), schema, None, None)


def cpus(path: str, highest: int, text: str) -> Any:
    """CPUs, written as a quantity of Kubernetes; None: absent."""
    schema = {"type": "string", "maxLength": 8, "pattern": f"^{_CPUS}$"}
    return Field(path, text, read_cpus, (0, highest), schema, None, None)


def words(path: str, allowed: Tuple[str, ...], default: Tuple[str, ...], text: str, item: str) -> Any:
    """Some of the words, at least one, in the order of `allowed`; `item` is what one of them is."""
    return Field(path, text, _read_words, allowed, {**_set_of(allowed, item), "minItems": 1}, None, default)


def names(path: str, allowed: Tuple[str, ...], text: str, item: str) -> Any:
    """Some of the words, or none, in the order of `allowed`."""
    return Field(path, text, _read_names, allowed, _set_of(allowed, item), [], ())


def _set_of(allowed: Tuple[str, ...], item: str) -> Mapping[str, Any]:
    items = {"description": item, "type": "string", "enum": list(allowed)}
    return {"type": "array", "maxItems": max(16, len(allowed)), "x-kubernetes-list-type": "set", "items": items}


def config_entries(path: str, text: str) -> Any:
    """Key and value of each entry, both text, sorted."""
    schema = {"type": "object", "maxProperties": 64, "additionalProperties": _text("The entry's value", '"1"', 8192)}
    return Field(path, text, _read_entries, entries.CONFIG_ENTRIES, schema, None, ())


def provider_options(path: str, text: str) -> Any:
    """Each provider and its options, sorted."""
    options = {
        "description": "The options of one execution provider, option to value.",
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": _text("The option's value", '"0"', 1024),
    }
    schema = {"type": "object", "maxProperties": 16, "additionalProperties": options}
    return Field(path, text, _read_providers, entries.PROVIDERS, schema, None, ())


def variables(path: str, text: str) -> Any:
    """Name and template of each variable, sorted; see `templates`."""
    one = {
        "description": 'The value: one placeholder or one whole number, for example "{threads}".',
        "type": "string",
        "maxLength": templates.LONGEST_VALUE,
        "pattern": f"^({templates.VALUE})$",
    }
    schema = {"type": "object", "maxProperties": templates.MAX_VARIABLES, "additionalProperties": one}
    return Field(path, text, _read_variables, templates.listed(), schema, None, ())


def _text(what: str, example: str, longest: int) -> Mapping[str, Any]:
    return {"description": f"{what} as text, for example {example}.", "type": "string", "maxLength": longest}
