"""API calls by account, verb and kind, counted in the API server's audit log.

apiserver_request_total names no account; the audit log does. A watch counts when it is answered, anything else when it
is done, so that each request counts once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from cluster.local_raddle import NAMESPACE

ACCOUNTS: Final = ("controller", "webhook")
_PREFIX: Final = f"system:serviceaccount:{NAMESPACE}:raddle-"


class Call(NamedTuple):
    """A kind of request."""

    account: str
    verb: str
    what: str


def policy() -> dict[str, Any]:
    """An audit policy that keeps one line a stage of our accounts' requests, and nothing of others'."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "Metadata", "users": [_PREFIX + account for account in ACCOUNTS]},
            {"level": "None"},
        ],
    }


def count(lines: Iterable[str]) -> Counter[Call]:
    """How often each kind of request is in these lines of the log."""
    result: Counter[Call] = Counter()
    for line in lines:
        event = json.loads(line)
        if event["stage"] != ("ResponseStarted" if event["verb"] == "watch" else "ResponseComplete"):
            continue
        account = event["user"]["username"].removeprefix(_PREFIX)
        target = event.get("objectRef") or {}
        what = "/".join(filter(None, (target.get("resource"), target.get("subresource"))))
        result[Call(account, event["verb"], what or event["requestURI"].partition("?")[0])] += 1
    return result


class Log:
    """An audit log that grows."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self) -> int:
        """Where the log ends now."""
        return self._path.stat().st_size if self._path.exists() else 0

    def since(self, mark: int) -> Counter[Call]:
        """The calls whose lines were written whole since a mark."""
        with self._path.open("rb") as file:
            file.seek(mark)
            text = file.read().decode()
        return count(line for line in text.splitlines(keepends=True) if line.endswith("\n"))
