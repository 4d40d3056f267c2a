"""Makes docs/reference/api.md from the CRDs: every field with its type, default, what is allowed, and its meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from generate import crds

KINDS = ("inferencethreadings", "clusterinferencethreadings", "inferencetunings", "nodecputopologies")

HEADER = """\
<!-- Made by `make generate` (tools/generate/docs/apireference.py) from crds/: edit those, not this page. -->

# API reference

Group `raddle.dev`, version `v1alpha1`. The schemas are [`crds/`](../../crds); `kubectl explain` prints the same texts.

| kind | scope | short | |
|---|---|---|---|
"""


def render(result: list[dict[str, Any]] | None = None) -> str:
    """The page for these CRDs, or for the project's, as Markdown."""
    result = load() if result is None else result
    return HEADER + "".join(_kind_row(crd) for crd in result) + "".join(_kind_section(crd) for crd in result)


def load() -> list[dict[str, Any]]:
    """The project's CRDs, in the page's order."""
    return [crds.read(kind) for kind in KINDS]


def _kind_row(crd: dict[str, Any]) -> str:
    names = crd["spec"]["names"]
    (version,) = crd["spec"]["versions"]
    meaning = version["schema"]["openAPIV3Schema"]["description"].split(". ", 1)[0]
    link = f"[{names['kind']}](#{names['kind'].lower()})"
    return f"| {link} | {crd['spec']['scope']} | `{names['shortNames'][0]}` | {_cell(meaning)}. |\n"


def _kind_section(crd: dict[str, Any]) -> str:
    (version,) = crd["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    text = f"\n## {crd['spec']['names']['kind']}\n\n{schema['description']}\n"
    for part in ("spec", "status"):
        text += f"\n### {crd['spec']['names']['kind']}: {part}\n\n{schema['properties'][part]['description']}\n\n"
        text += "| field | type | default | allowed | meaning |\n|---|---|---|---|---|\n"
        text += "".join(_field_row(*field) for field in _fields(schema["properties"][part], ""))
    refusals = list(dict.fromkeys(rule["message"] for rule in _rules(schema)))
    if refusals:
        text += "\nThe API server refuses, beside values that are not allowed:\n\n"
        text += "".join(f"- {message}\n" for message in refusals)
    return text


def _fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Every field below a schema as (path, its schema, whether it is required), parents before children."""
    for name, field in schema.get("properties", {}).items():
        dotted = f"{path}.{name}" if path else name
        yield dotted, field, name in schema.get("required", [])
        yield from _fields(field, dotted)
        yield from _fields(field.get("items", {}), f"{dotted}[]")


def _field_row(path: str, field: dict[str, Any], required: bool) -> str:
    default = "required" if required else _literal(field["default"]) if field.get("default", {}) != {} else ""
    return f"| `{path}` | {_type(field)} | {default} | {_allowed(field)} | {_cell(field['description'])} |\n"


def _type(field: dict[str, Any]) -> str:
    if field["type"] == "array":
        return f"list of {_type(field['items'])}"
    if "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}"
    return str(field["type"])


def _allowed(field: dict[str, Any]) -> str:
    """The enum, bounds or pattern of a field or of its items, in words."""
    inner = field.get("items") or field.get("additionalProperties")
    result = []
    if "enum" in field:
        result.append(", ".join(_literal(word) for word in field["enum"]))
    result += _span(field, "minimum", "maximum", "")
    if field.get("exclusiveMinimum"):
        result[-1] = f"above {result[-1]}"
    result += _span(field, "minItems", "maxItems", " items")
    result += _span(field, "minProperties", "maxProperties", " entries")
    if "enum" not in field:
        result += _span(field, "minLength", "maxLength", " characters")
    if "pattern" in field:
        result.append(_code(field["pattern"]))
    if inner and inner["type"] != "object" and (of_inner := _allowed(inner)):
        result.append(f"each {of_inner}")
    return "; ".join(result)


def _code(text: str) -> str:
    """Code in a table's cell, which ends at every bar, in backticks too, but not at its entity."""
    if "|" not in text:
        return f"`{text}`"
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("*", "&#42;").replace("|", "&#124;")
    return f"<code>{escaped}</code>"


def _span(field: dict[str, Any], low: str, high: str, unit: str) -> list[str]:
    least, most = field.get(low), field.get(high)
    if least is None and most is None:
        return []
    if most is None:
        return [f"at least {least}{unit}"]
    return [f"at most {most}{unit}" if least in (None, 0) and unit else f"{least or 0} to {most}{unit}"]


def _rules(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield from schema.get("x-kubernetes-validations", [])
        for value in schema.values():
            yield from _rules(value)


def _literal(value: Any) -> str:
    return f"`{value}`" if isinstance(value, str) else f"`{str(value).lower()}`"


def _cell(text: str) -> str:
    return text.replace("|", "&#124;").replace("<", "&lt;")
