"""Makes what the shims know of RADDLE_PLAN: runtime/raddle/keys.py for Python, runtime/native/keys.h for C.

Their source are the rows of raddle.planning (`policy`, `entries`, `wire`), which containers don't have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from raddle import env
from raddle.planning import entries, wire
from raddle.planning.kinds import Switch
from raddle.planning.policy import FIELDS

# The plan's keys with what each may be, in its order: numbers, then words.
ALLOWED = {
    **{key.name: key.allowed for key in wire.NUMBERS},
    **{name: entry.allowed for name, entry in entries.PLAN_KEYS.items()},
    **{key.name: key.allowed for key in wire.WORDS},
}
NUMBERS = {name: allowed for name, allowed in ALLOWED.items() if not isinstance(allowed[0], str)}
WORDS = {name: allowed for name, allowed in ALLOWED.items() if isinstance(allowed[0], str)}
SWITCHES = [(name, field.path.rpartition(".")[2], field.switch) for name, field in FIELDS.items() if field.switch]


def python() -> str:
    """The text of raddle/keys.py."""
    parts = [
        '"""RADDLE_PLAN\'s keys. Made by `make generate` (tools/generate/keys.py) from raddle.planning: edit it."""\n',
        "# Key -> (lowest, highest).",
        _mapping("NUMBERS", NUMBERS),
        "# Key -> the words allowed.",
        _mapping("WORDS", WORDS),
        "# ONNX Runtime's configuration entry -> the version that brought it.",
        _mapping("ENTRIES", {name: entry.since for name, entry in entries.CONFIG_ENTRIES.items()}),
        "# Execution provider -> what its options begin with.",
        _mapping("PROVIDERS", {name: provider.prefix for name, provider in entries.PROVIDERS.items()}),
        "# Key, SessionOptions' attribute, name in records, and what a session has where the code says nothing.",
        "SWITCHES = (",
        *(f"    {_literal((key, one.attribute, name, one.initial))}," for key, name, one in SWITCHES),
        ")",
    ]
    return "\n".join(parts) + "\n"


def _mapping(name: str, values: Mapping[str, object]) -> str:
    return "\n".join([f"{name} = {{", *(f'    "{key}": {_literal(value)},' for key, value in values.items()), "}"])


def _literal(value: object) -> str:
    return repr(value).replace("'", '"')


def c() -> str:
    """The text of native/keys.h."""
    return "\n".join([*_c_lines(), ""])


def _c_lines() -> Iterator[str]:
    yield "/* RADDLE_PLAN's keys. Made by `make generate` (tools/generate/keys.py) from raddle.planning: edit it. */"
    yield "#ifndef RADDLE_KEYS_H"
    yield "#define RADDLE_KEYS_H"
    yield ""
    yield "/* X(key, name, lowest, highest, the words); a word's value is its place among them. */"
    rows = [_key_row(name, allowed) for name, allowed in ALLOWED.items()]
    rows += [f'X({_enumerator(name)}, "{name}", 0, 0, RD_LISTS)' for name in env.LISTS]
    yield from macro("RD_KEY_ROWS(X)", rows)
    yield ""
    yield "#define RD_ENUMERATOR(key, ...) key,"
    yield "enum rd_key { RD_KEY_ROWS(RD_ENUMERATOR) RD_KEYS };"
    yield ""
    yield from _span("CONFIG", entries.CONFIG_ENTRIES)
    for prefix, options in entries.PROVIDERS.values():
        yield from _span(prefix.rstrip(".").upper(), [prefix + name for name in options])
    yield from _span("LIST", env.LISTS)
    yield ""
    for name, allowed in WORDS.items():
        if "." not in name:
            yield f"enum {{ {', '.join(_enumerator(f'{name}_{word}') for word in allowed)} }};"
    yield ""
    yield ""
    yield "/* What sessions are told: PAIR(key, off, on, since 1.x), ONE(key, setter, ...) */"
    yield from macro("RD_SWITCHES(PAIR, ONE)", [_switch(key, one) for key, _, one in SWITCHES])
    yield ""
    yield f"enum {{ {', '.join(_enumerator(f'switch_{key}') for key, *_ in SWITCHES)}, RD_SWITCH_COUNT }};"
    yield ""
    yield "/* As in slots.h. */"
    yield "enum {"
    yield from (f"    SLOT_{name} = {slot}," for *_, one in SWITCHES for name, slot in one.setters)
    yield "};"
    yield ""
    yield "#endif"


def _enumerator(name: str) -> str:
    return "RD_" + re.sub(r"\W", "_", name).upper()


def _span(group: str, names: Iterable[str]) -> Iterator[str]:
    first, *_, last = [*names, *names]
    yield f"#define RD_{group}_FIRST {_enumerator(first)}"
    yield f"#define RD_{group}_LAST {_enumerator(last)}"


def _key_row(name: str, allowed: entries.Allowed) -> str:
    if isinstance(allowed[0], str):
        return f'X({_enumerator(name)}, "{name}", 0, 0, "{", ".join(map(str, allowed))}")'
    low, high = allowed
    return f'X({_enumerator(name)}, "{name}", {low}, {high}U, NULL)'


def _switch(key: str, switch: Switch) -> str:
    shape = "ONE" if len(switch.setters) == 1 else "PAIR"
    setters = ", ".join(name for name, _ in switch.setters)
    return f"{shape}({key.upper()}, {setters}, {switch.since})"


def macro(head: str, rows: Iterable[str]) -> Iterator[str]:
    """A macro of one row a line."""
    lines = [f"#define {head}", *(f"    {row}" for row in rows)]
    width = max(map(len, lines))
    yield from (f"{line.ljust(width)} \\" for line in lines[:-1])
    yield lines[-1]
