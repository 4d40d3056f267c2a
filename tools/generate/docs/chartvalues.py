"""Makes docs/reference/chart-values.md: every value of the chart, from the comments and the schema of its values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

from generate.chart import CHART

HEADER = """\
<!-- Made by `make generate` (tools/generate/docs/chartvalues.py) from
charts/raddle/values.yaml and its schema: edit those. -->

# Values of the chart

Helm rejects misspelt and invalid values, and names the value and what is allowed. The names of objects are fixed
(raddle-controller, raddle-webhook, raddle-agent), so a cluster can have only one installation of Raddle.
"""
# Kubernetes' own fields, passed on as they are; they need no comment of their own.
WELL_KNOWN: Final = {
    "nodeSelector": "Labels of the nodes that the pods run on, beside `kubernetes.io/os: linux`.",
    "tolerations": "Taints that the pods tolerate.",
    "affinity": "Affinity of the pods.",
    "podAnnotations": "More annotations of the pods.",
    "podLabels": "More labels of the pods.",
}
WHOLE: Final = {"resources"}
"""Maps that are one value to their reader."""


class Value(NamedTuple):
    """One value: its dotted path, its default, what the schema allows, its comment in one line."""

    path: str
    default: Any
    allowed: str
    description: str


def comments(text: str) -> dict[str, str]:
    """The comment above each key of a values.yaml, by dotted path, as one line; keys without one are not in."""
    result: dict[str, str] = {}
    parents: list[tuple[int, str]] = []
    above: list[str] = []
    for line in text.splitlines():
        content = line.strip()
        indent = len(line) - len(line.lstrip())
        if content.startswith("#"):
            above.append(content.lstrip("# "))
        elif not content or content.startswith("-"):
            above = []
        else:
            parents = [(depth, name) for depth, name in parents if depth < indent] + [(indent, content.split(":")[0])]
            if above:
                result[".".join(name for _, name in parents)] = " ".join(above)
            above = []
    return result


def values(defaults: Any, schema: Any, described: dict[str, str]) -> list[Value]:
    """Every value in the order of `defaults`."""
    return [
        Value(path, default, allowed(_of(schema, path), schema), described.get(path) or WELL_KNOWN.get(_last(path), ""))
        for path, default in _leaves(defaults, "")
    ]


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, value in node.items():
        here = f"{path}.{name}".lstrip(".")
        if isinstance(value, dict) and value and name not in WHOLE and "labels" not in name:
            yield from _leaves(value, here)
        else:
            yield here, value


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _of(schema: Any, path: str) -> Any:
    node = schema
    for name in path.split("."):
        node = _resolved(node["properties"][name], schema)
    return node


def _resolved(node: Any, schema: Any) -> Any:
    reference = node.get("$ref")
    return schema["definitions"][reference.rpartition("/")[2]] if reference else node


def allowed(node: Any, schema: Any) -> str:
    """What a schema takes, in words: `2 to 30`, `A, B or C`, `true or false`, or the name of its type."""
    if "enum" in node:
        *rest, last = [f"`{value}`" for value in node["enum"]]
        return f"{', '.join(rest)} or {last}"
    kind = node.get("type")
    if kind == "boolean":
        return "`true` or `false`"
    if kind == "integer":
        return f"{node['minimum']} to {node['maximum']}"
    if kind == "array":
        of = _resolved(node.get("items", {}), schema).get("type", "object")
        return f"list of {of}s"
    return {"string": "text", "object": "map"}[kind]


def render() -> str:
    """The page."""
    text = (CHART / "values.yaml").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    lines = [HEADER]
    section = ""
    for value in values(yaml.safe_load(text), schema, comments(text)):
        first = value.path.partition(".")[0]
        if first != section:
            section = first
            lines += [f"\n## {section}\n\n| value | default | allowed | what it says |\n|---|---|---|---|\n"]
        default = json.dumps(value.default, ensure_ascii=False)
        description = value.description.replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| `{value.path}` | `{default}` | {value.allowed} | {description} |\n")
    return "".join(lines)
