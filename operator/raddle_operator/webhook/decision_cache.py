"""Answers to pods of one template, kept while nothing that decides has changed: a rollout creates many equal pods.

Two pods of one ReplicaSet differ only in what the API server adds: the random name of the token volume, and the times
in managedFields. Both are taken out of the review first, on the way to the decision too, so that equal keys mean equal
inputs. Pods with a name of their own (StatefulSets) are decided one by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

import orjson

T = TypeVar("T")

TOKEN_VOLUME: Final = "kube-api-access-"  # noqa: S105 (a prefix of names)
_RENAMED: Final = "~token"
"""No volume can have this name."""
KEPT: Final = 256


class DecisionCache(Generic[T]):
    """A bounded map from key to value that is emptied when the version changes."""

    def __init__(self) -> None:
        self._version = -1
        self._values: dict[bytes, T] = {}

    def get(self, key: bytes, version: int) -> T | None:
        """What was kept for the key at this version."""
        return self._values.get(key) if version == self._version else None

    def put(self, key: bytes, version: int, value: T) -> None:
        """Keeps a value. The oldest goes where there are too many."""
        if version != self._version:
            self._values.clear()
            self._version = version
        elif len(self._values) >= KEPT:
            del self._values[next(iter(self._values))]
        self._values[key] = value


def template_key(namespace: str, pod: Any) -> bytes | None:
    """A key that pods of one template share; None for a pod that is to be decided by itself.

    Takes the parts that differ out of `pod`. JSON of any shape is looked at and none raises: what is no pod is
    decided by itself.
    """
    metadata, spec = pod.get("metadata"), pod.get("spec")
    if not isinstance(metadata, dict) or not isinstance(spec, dict) or metadata.get("name"):
        return None
    metadata.pop("managedFields", None)
    token = next((name for name in _names(spec, "volumes") if name.startswith(TOKEN_VOLUME)), None)
    if token is not None:
        _rename(spec, "volumes", token)
        for field in ("containers", "initContainers"):
            for container in _objects(spec, field):
                _rename(container, "volumeMounts", token)
    try:
        data = orjson.dumps(pod)
    except orjson.JSONEncodeError:
        return None  # it reads what is nested deeper than it writes
    return hashlib.blake2b(data, digest_size=16, key=namespace.encode()[:64]).digest()


def _objects(parent: dict[str, Any], field: str) -> Iterator[dict[str, Any]]:
    result = parent.get(field)
    if isinstance(result, list):
        for item in result:
            if isinstance(item, dict):
                yield item


def _names(parent: dict[str, Any], field: str) -> Iterator[str]:
    for item in _objects(parent, field):
        name = item.get("name")
        if isinstance(name, str):
            yield name


def _rename(parent: dict[str, Any], field: str, name: str) -> None:
    for item in _objects(parent, field):
        if item.get("name") == name:
            item["name"] = _RENAMED
