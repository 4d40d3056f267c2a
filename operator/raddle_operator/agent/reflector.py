"""Objects of the API server, kept up to date by a watch in a thread of its own."""

from __future__ import annotations

import http.client
import logging
import random
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from raddle_operator.agent import client as agent_client
from raddle_operator.agent.client import FAILURES, AgentClient, ApiError

log = logging.getLogger(__name__)

# A server that ends its watches sooner is in trouble: asking again at once would add to it.
SHORT_WATCH_S = 10.0
# By so much may a server's clock for the end of a watch differ from ours.
EARLY_S = 2.0
# A watch from it begins with all objects that there are.
FROM_ANY: Final = "0"

Kept = TypeVar("Kept")


class Backoff:
    """Pauses that double, each between half and the whole of its length."""

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s, self._most_s = least_s, most_s
        self._next_s = least_s

    def pause_s(self) -> float:
        """The next pause."""
        pause_s = self._next_s * random.uniform(0.5, 1.0)  # noqa: S311 (spreads retries, guards nothing)
        self._next_s = min(self._next_s * 2, self._most_s)
        return pause_s

    def reset(self) -> None:
        """Starts over: something worked."""
        self._next_s = self._least_s


class Reflector(Generic[Kept]):
    """Objects of one kind, kept as they are on the server by a watch: of each what `keep` makes of it, if anything.

    They are listed first. `streamed`: they are not, as the answer may be too large to hold; a watch from version 0
    gives them one by one, from the server's cache. When it has to start over, some are missing for a moment.
    """

    def __init__(
        self,
        client: AgentClient,
        path: str,
        selector: str,
        *,
        keep: Callable[[dict[str, Any]], Kept | None],
        changed: Callable[[], None],
        backoff: Backoff,
        metadata_only: bool = False,
        streamed: bool = False,
    ) -> None:
        self._client = client
        self._path = path
        self._query = {"fieldSelector": selector}
        self._keep = keep
        self._accepts = (
            (agent_client.METADATA_LIST, agent_client.METADATA) if metadata_only else ("application/json",) * 2
        )
        self._changed = changed
        self._backoff = backoff
        self._streamed = streamed
        self._kept: dict[str, Kept] = {}
        self.synced = False

    @property
    def values(self) -> list[Kept]:
        """What is kept of each object that there is."""
        return list(self._kept.values())

    @property
    def value(self) -> Kept | None:
        """What is kept of the only object; None while it does not exist."""
        return next(iter(self.values), None)

    def run(self) -> None:
        """Follows the objects for ever; the thread that runs it is a daemon."""
        while True:
            try:
                version = self._list()
                while version:
                    started = time.monotonic()
                    version = self._watch(version)
                    if time.monotonic() - started > SHORT_WATCH_S:
                        self._backoff.reset()
                    else:
                        time.sleep(self._backoff.pause_s())
            # The last three: an answer of a shape that no API server gives. The thread must outlive it.
            except (*FAILURES, AttributeError, KeyError, TypeError) as error:
                pause_s = self._backoff.pause_s()
                log.warning("mirror failed path=%s retry_s=%.1f error=%r", self._path, pause_s, str(error))
                time.sleep(pause_s)

    def _list(self) -> str:
        if self._streamed:
            return FROM_ANY
        answer = self._client.get(self._path, self._query, self._accepts[0])
        kept: dict[str, Kept] = {}
        for obj in answer.get("items") or []:
            self._note(kept, obj)
        self._kept = kept
        self._tell()
        return str(answer["metadata"]["resourceVersion"]) if isinstance(answer.get("metadata"), dict) else ""

    def _watch(self, version: str) -> str:
        """Follows the objects until the server ends the watch; the version to go on from, "" to list again.

        A server that ends it before its time stops, and may come back with etcd restored from a backup. Its versions
        are lower then, and a watch from ours would be silent until they reach it.
        """
        timeout_s = random.randint(240, 480)  # noqa: S311 (spreads the nodes' reconnects)
        started = time.monotonic()
        query = self._query | {"resourceVersion": version}
        starts_over = version == FROM_ANY
        for event in self._client.watch(self._path, query, self._accepts[1], timeout_s=timeout_s):
            kind, obj = event.get("type"), event.get("object")
            if not isinstance(obj, dict):
                return ""
            if kind == "ERROR":
                if obj.get("code") != http.client.GONE:
                    raise ApiError(int(obj.get("code") or 0), str(obj.get("message")))
                return ""
            if starts_over:
                starts_over, self._kept = False, {}
            version = str(obj.get("metadata", {}).get("resourceVersion", version))
            if kind in ("ADDED", "MODIFIED"):
                self._note(self._kept, obj)
            elif kind == "DELETED":
                self._kept.pop(_key(obj), None)
            else:
                continue
            self._tell()
        return version if time.monotonic() - started > timeout_s - EARLY_S else ""

    def _note(self, kept: dict[str, Kept], obj: dict[str, Any]) -> None:
        value = self._keep(obj)
        if value is None:
            kept.pop(_key(obj), None)
        else:
            kept[_key(obj)] = value

    def _tell(self) -> None:
        self.synced = True
        self._changed()


def _key(obj: dict[str, Any]) -> str:
    metadata = obj.get("metadata") or {}
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
