"""Policies in files, checked as the API server would check them: the CRD's schema, and a hint at misspelt fields."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from raddle_operator.cli.manifests import Manifest

FILES = {
    "InferenceThreading": "inferencethreadings.yaml",
    "ClusterInferenceThreading": "clusterinferencethreadings.yaml",
    "InferenceTuning": "inferencetunings.yaml",
    "NodeCPUTopology": "nodecputopologies.yaml",
}

_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most"}


@cache
def schema(kind: str) -> dict[str, Any]:
    """The kind's schema, unknown fields forbidden (the API server would drop them with a warning)."""
    installed = resources.files("raddle_operator") / "crds" / FILES[kind]
    # An editable install reads the source of truth itself.
    file = installed if installed.is_file() else Path(__file__).parents[3] / "crds" / FILES[kind]
    crd = yaml.safe_load(file.read_text())
    result = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in ("apiVersion", "kind", "metadata"):
        result["properties"].setdefault(name, {})
    _close(result)
    assert isinstance(result, dict)
    return result


def _close(node: dict[str, Any]) -> None:
    if node.get("exclusiveMinimum") is True:
        # OpenAPI 3.0's switch: JSON Schema has the bound itself there, and takes true for 1.
        node["exclusiveMinimum"] = node.pop("minimum")
    properties = node.get("properties")
    if isinstance(properties, dict):
        if "additionalProperties" not in node and not node.get("x-kubernetes-preserve-unknown-fields"):
            node["additionalProperties"] = False
        for child in properties.values():
            _close(child)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            _close(node[key])


def check(manifest: Manifest) -> None:
    """Raises the ManifestError of the first field that the schema refuses, with its line and what is allowed."""
    validator = jsonschema.Draft202012Validator(schema(manifest.kind))
    errors = sorted(validator.iter_errors(manifest.obj), key=lambda error: manifest.line(_path(error.absolute_path)))
    for error in errors:
        path = _path(error.absolute_path)
        for name in _unknown(error):
            known = error.schema["properties"] if isinstance(error.schema, dict) else {}
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; known are {', '.join(sorted(known))}"
            raise manifest.error(f"{path}.{name}" if path else name, f"no such field{hint}")
        raise manifest.error(path or "(the object)", _message(error))


def _path(parts: Any) -> str:
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _unknown(error: jsonschema.ValidationError) -> Iterator[str]:
    if error.validator == "additionalProperties" and isinstance(error.schema, dict):
        assert isinstance(error.instance, dict)
        yield from (name for name in error.instance if name not in error.schema.get("properties", {}))


def _message(error: jsonschema.ValidationError) -> str:
    if error.validator == "enum":
        allowed = ", ".join(map(str, error.schema["enum"])) if isinstance(error.schema, dict) else ""
        return f"{error.instance!r} is not allowed; it must be one of {allowed}"
    if error.validator in _BOUNDS:
        return f"{error.instance!r} is not allowed; it must be {_BOUNDS[error.validator]} {error.validator_value}"
    return str(error.message)[:200]
