"""Manifests from files: YAML or JSON, many documents a file, each field's line known for error messages."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import yaml

Object = dict[str, Any]
SUFFIXES = (".yaml", ".yml", ".json")


class ManifestError(click.ClickException):
    """Bad input: `file:line: field: message`, exit code 2."""

    exit_code = 2


class _Loader(yaml.SafeLoader):
    """Kubernetes reads timestamps as text, so that they stay as they were written."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One object of a file. `file` is as it was given ("-": standard input)."""

    file: str
    obj: Object
    node: yaml.Node = field(repr=False)

    @property
    def kind(self) -> str:
        """The object's kind, "" where it has none."""
        return str(self.obj.get("kind", ""))

    @property
    def metadata(self) -> Object:
        """The object's metadata, {} where it has none."""
        result = self.obj.get("metadata")
        return result if isinstance(result, dict) else {}

    def error(self, path: str, message: str) -> ManifestError:
        """The error for a field, with the line of the deepest part of its dotted path that is there."""
        return ManifestError(f"{self.file}:{self.line(path)}: {path}: {message}")

    def line(self, path: str) -> int:
        """The 1-based line of a dotted path ("spec.threads.intraOp", "spec.containers[0].name")."""
        node = self.node
        for step in path.replace("[", ".").replace("]", "").split("."):
            child = _child(node, step)
            if child is None:
                break
            node = child
        return int(node.start_mark.line) + 1


def _child(node: yaml.Node, step: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if getattr(key, "value", None) == step), None)
    if isinstance(node, yaml.SequenceNode) and step.isdigit() and int(step) < len(node.value):
        result = node.value[int(step)]
        return result if isinstance(result, yaml.Node) else None
    return None


def load(sources: Sequence[str]) -> list[Manifest]:
    """The objects of these files and folders, Lists taken apart. Raises ManifestError."""
    result: list[Manifest] = []
    for source in sources:
        for name, text in _texts(source):
            result.extend(_parse(name, text))
    return result


def _texts(source: str) -> Iterator[tuple[str, str]]:
    if source == "-":
        yield "-", sys.stdin.read()
        return
    path = Path(source)
    try:
        files = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES) if path.is_dir() else [path]
    except OSError as error:
        raise ManifestError(f"{source}: can't be read: {error.strerror}") from None
    if not files:
        raise ManifestError(f"{source}: the folder holds no {', '.join(SUFFIXES)} file")
    for file in files:
        try:
            yield str(file), file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise ManifestError(f"{file}: can't be read: {reason}") from None


def _parse(name: str, text: str) -> Iterator[Manifest]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            obj = loader.construct_document(node)
            if node is not None and obj is not None:
                yield from _objects(name, obj, node)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ManifestError(f"{name}:{line}: not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ManifestError(f"{name}:1: not YAML: {error}") from None
    finally:
        loader.dispose()


def _objects(name: str, obj: Any, node: yaml.Node) -> Iterator[Manifest]:
    if not isinstance(obj, dict) or not isinstance(obj.get("kind"), str):
        line = node.start_mark.line + 1
        raise ManifestError(
            f"{name}:{line}: kind: this document is not a Kubernetes object; it needs apiVersion and kind"
        )
    if not isinstance(obj.get("metadata", {}), dict | None):
        raise Manifest(file=name, obj=obj, node=node).error("metadata", "is not a mapping")
    if obj["kind"].endswith("List") and isinstance(obj.get("items"), list):
        items = _child(node, "items")
        for index, item in enumerate(obj["items"]):
            child = _child(items, str(index)) if items is not None else None
            yield from _objects(name, item, child or node)
        return
    yield Manifest(file=name, obj=obj, node=node)
