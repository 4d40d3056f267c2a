"""House rules for the CRD schemas, and proof that each rule can fail."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

CRDS = sorted((Path(__file__).parents[2] / "crds").glob("*.yaml"))

# Kubernetes' own condition status: written by machines only, and always as quoted text.
CONDITION_STATUS = ["True", "False", "Unknown"]
# Bounds above these would let one object fill a good part of etcd's 1.5 MiB or make CEL too expensive.
MOST_CHARACTERS = 8192
MOST_ITEMS = 8192


def lint(schema: dict[str, Any], path: str, *, in_atomic: bool = False) -> Iterator[str]:
    """What is wrong with a structural schema, as `path: complaint`; nothing when it keeps the rules."""
    if len(schema.get("description", "").split()) < 2:
        yield f"{path}: no description"
    if schema.get("x-kubernetes-int-or-string"):
        yield f"{path}: int-or-string explains as <Object>"
    if "type" not in schema:
        yield f"{path}: no type"
    yield from lint_enum(schema, path)
    in_atomic = in_atomic or schema.get("x-kubernetes-map-type") == "atomic"
    match schema.get("type"):
        case "string":
            if "enum" not in schema and not 0 < schema.get("maxLength", 0) <= MOST_CHARACTERS:
                yield f"{path}: string without maxLength up to {MOST_CHARACTERS}"
        case "integer" | "number" as kind:
            if "minimum" not in schema:
                yield f"{path}: {kind} without minimum"
        case "array":
            yield from lint_list(schema, path, in_atomic=in_atomic)
        case "object":
            yield from lint_object(schema, path, in_atomic=in_atomic)


def lint_enum(schema: dict[str, Any], path: str) -> Iterator[str]:
    if schema.get("enum") == CONDITION_STATUS and path.endswith(".conditions[].status"):
        return
    for word in schema.get("enum", []):
        if not isinstance(word, str) or not isinstance(yaml.safe_load(word), str):
            yield f"{path}: enum value {word!r} is not text in YAML 1.1 when it is not quoted"


def lint_list(schema: dict[str, Any], path: str, *, in_atomic: bool) -> Iterator[str]:
    if not 0 < schema.get("maxItems", 0) <= MOST_ITEMS:
        yield f"{path}: list without maxItems up to {MOST_ITEMS}"
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("set", "map") and not (kind == "atomic" and in_atomic):
        yield f"{path}: list type must be set or map (atomic only inside an atomic map), it is {kind}"
    yield from lint(schema["items"], f"{path}[]", in_atomic=in_atomic)


def lint_object(schema: dict[str, Any], path: str, *, in_atomic: bool) -> Iterator[str]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        yield f"{path}: unknown fields are kept"
    values = schema.get("additionalProperties")
    if values is not None:
        if not 0 < schema.get("maxProperties", 0) <= MOST_ITEMS:
            yield f"{path}: map without maxProperties up to {MOST_ITEMS}"
        yield from lint(values, f"{path}{{}}", in_atomic=in_atomic)
    elif "properties" not in schema:
        yield f"{path}: an object without properties loses everything in it"
    for name, field in schema.get("properties", {}).items():
        if holds_default(field) and "default" not in field and name not in schema.get("required", []):
            yield f"{path}.{name}: fields in it have defaults, which do nothing unless it has `default: {{}}` itself"
        yield from lint(field, f"{path}.{name}", in_atomic=in_atomic)


def holds_default(schema: dict[str, Any]) -> bool:
    """Whether a field below this one, reached without passing a list or map, has a default."""
    return any("default" in field or holds_default(field) for field in schema.get("properties", {}).values())


def rules(schema: Any) -> Iterator[dict[str, Any]]:
    """Every CEL rule in a schema."""
    if isinstance(schema, dict):
        yield from schema.get("x-kubernetes-validations", [])
        for value in schema.values():
            yield from rules(value)


def versions(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    crd = yaml.safe_load(path.read_text())
    for version in crd["spec"]["versions"]:
        yield f"{crd['spec']['names']['kind']}.{version['name']}", version


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_every_schema_keeps_the_rules(path):
    assert [
        complaint for name, version in versions(path) for complaint in lint(version["schema"]["openAPIV3Schema"], name)
    ] == []


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_every_kind_has_a_status_subresource_and_an_age_column(path):
    for _, version in versions(path):
        assert version["subresources"] == {"status": {}}
        assert {"Age"} <= {column["name"] for column in version["additionalPrinterColumns"]}


@pytest.mark.parametrize("path", CRDS, ids=lambda path: path.stem)
def test_every_rule_says_what_to_do_when_it_refuses(path):
    for _, version in versions(path):
        for rule in rules(version["schema"]["openAPIV3Schema"]):
            message = rule["message"]
            assert any(
                word in message for word in ("must", "remove", "use", "set", "add", "choose", "write", "need")
            ), message
            assert len(message) <= 240, message
            assert not message.endswith("."), message


def test_the_four_kinds_are_there():
    names = ["clusterinferencethreadings", "inferencethreadings", "inferencetunings", "nodecputopologies"]
    assert [path.stem for path in CRDS] == names


GOOD_STRING = {"type": "string", "description": "Some text.", "maxLength": 5}
SOME_LIST = {"type": "array", "description": "Some list.", "items": GOOD_STRING}
ATOMIC_LIST = SOME_LIST | {"maxItems": 3, "x-kubernetes-list-type": "atomic"}
SOME_OBJECT = {"type": "object", "description": "Some object."}
BAD = {
    "a string without a bound": ({"type": "string", "description": "Some text."}, "maxLength"),
    "a string with a huge bound": (GOOD_STRING | {"maxLength": 1_000_000}, "maxLength"),
    "a field without a description": ({"type": "string", "maxLength": 5}, "no description"),
    "a field without a type": ({"description": "Some thing."}, "no type"),
    "int-or-string": ({"x-kubernetes-int-or-string": True, "description": "A count."}, "int-or-string"),
    "an integer without a minimum": ({"type": "integer", "description": "A count."}, "minimum"),
    "a number without a minimum": ({"type": "number", "description": "Some rate."}, "minimum"),
    "a list without a bound": (SOME_LIST | {"x-kubernetes-list-type": "set"}, "maxItems"),
    "a list without a list type": (SOME_LIST | {"maxItems": 3}, "list type"),
    "an atomic list that several may write": (ATOMIC_LIST, "list type"),
    "a map without a bound": (SOME_OBJECT | {"additionalProperties": GOOD_STRING}, "maxProperties"),
    "a map with bad values": (
        SOME_OBJECT | {"maxProperties": 3, "additionalProperties": {"type": "string"}},
        "maxLength",
    ),
    "an object without fields": (SOME_OBJECT, "without properties"),
    "kept unknown fields": (
        SOME_OBJECT | {"properties": {}, "x-kubernetes-preserve-unknown-fields": True},
        "unknown fields",
    ),
    "a default that its parent hides": (
        SOME_OBJECT
        | {"properties": {"threads": SOME_OBJECT | {"properties": {"mode": GOOD_STRING | {"default": "a"}}}}},
        "default",
    ),
} | {
    f"the enum value {word}": (GOOD_STRING | {"enum": ["Auto", word]}, "YAML 1.1")
    for word in ("Off", "on", "No", "YES", "true", "False", "Null", "~", "12", "0x1f", "1.5", ".inf")
}


@pytest.mark.parametrize("case", BAD)
def test_the_lint_refuses(case):
    schema, complaint = BAD[case]
    assert [found for found in lint(schema, "field") if complaint in found], list(lint(schema, "field"))


def test_the_lint_accepts_what_keeps_the_rules():
    values = ATOMIC_LIST | {"items": GOOD_STRING | {"enum": ["Auto", "Disable", "None"]}}
    selector = SOME_OBJECT | {"x-kubernetes-map-type": "atomic", "properties": {"values": values}}
    assert list(lint(selector, "field")) == []
