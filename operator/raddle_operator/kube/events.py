"""Kubernetes events about our objects: repetitions and floods are dropped, and no caller ever fails.

``post`` only puts the event in a bounded queue; ``run`` is the task that writes. The same event about one object is
written once in ten minutes. An object gets a burst of ten different events, then one per minute.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NoReturn, TypeVar

from raddle_operator.kube import EVENTS, Kube, KubeError, Object, Resource

log = logging.getLogger(__name__)

NOTE_CHARACTERS: Final = 1024
"""The API server refuses longer notes."""
REPEATED_AFTER_S: Final = 600.0
BURST: Final = 10
REFILL_S: Final = 60.0
REMEMBERED: Final = 4096
QUEUED: Final = 1000

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The object that an event is about. ``namespace`` is empty for cluster-scoped ones."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, resource: Resource, obj: Object) -> Reference:
        """The reference to an object of a known kind."""
        metadata = obj["metadata"]
        return cls(
            api_version=resource.api_version,
            kind=resource.kind,
            namespace=metadata.get("namespace") or "",
            name=metadata["name"],
            uid=metadata.get("uid") or "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What there is to say. Two equal ones are the same event."""

    regarding: Reference
    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at_s: float


class Recorder:
    """Writes events of one controller. ``now_s`` is a monotonic clock."""

    def __init__(
        self,
        kube: Kube,
        *,
        controller: str,
        instance: str,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dropped = 0
        self._kube = kube
        self._controller = controller
        self._instance = instance[:128]
        self._now_s = now_s
        self._queue: asyncio.Queue[Event] = asyncio.Queue(QUEUED)
        self._written_s: OrderedDict[Event, float] = OrderedDict()
        self._buckets: OrderedDict[Reference, _Bucket] = OrderedDict()

    def post(
        self,
        regarding: Reference,
        *,
        reason: str,
        note: str,
        action: str = "Reconcile",
        warning: bool = False,
    ) -> None:
        """Says something about an object. Returns at once; what can't be queued is counted in ``dropped``."""
        kind: Literal["Normal", "Warning"] = "Warning" if warning else "Normal"
        event = Event(
            regarding=regarding, type=kind, reason=reason[:128], action=action[:128], note=note[:NOTE_CHARACTERS]
        )
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> NoReturn:
        """Writes what is posted until cancelled."""
        while True:
            await self.write(await self._queue.get())

    async def write(self, event: Event) -> None:
        """Writes one event now, or drops it. Never raises for anything that the API server says."""
        now_s = self._now_s()
        written_s = self._written_s.get(event)
        repeated = written_s is not None and now_s - written_s < REPEATED_AFTER_S
        if repeated or not self._admits(event.regarding, now_s):
            self.dropped += 1
            return
        try:
            await self._kube.create(EVENTS, self._body(event))
        except KubeError as error:
            self.dropped += 1
            log.warning("event %s on %s %s: %s", event.reason, event.regarding.kind, event.regarding.name, error)
        else:
            self._written_s[event] = now_s
            self._written_s.move_to_end(event)
            _trim(self._written_s)

    def _body(self, event: Event) -> Object:
        regarding = event.regarding
        name = f"{regarding.name[:200]}.{secrets.token_hex(8)}"
        return {
            # The API server wants events about cluster-scoped objects in "default".
            "metadata": {"name": name, "namespace": regarding.namespace or "default"},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": event.action,
            "reason": event.reason,
            "type": event.type,
            "note": event.note,
            "regarding": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "name": regarding.name,
                **({"namespace": regarding.namespace} if regarding.namespace else {}),
                **({"uid": regarding.uid} if regarding.uid else {}),
            },
        }

    def _admits(self, regarding: Reference, now_s: float) -> bool:
        bucket = self._buckets.setdefault(regarding, _Bucket(BURST, now_s))
        self._buckets.move_to_end(regarding)
        _trim(self._buckets)
        bucket.tokens = min(BURST, bucket.tokens + (now_s - bucket.filled_at_s) / REFILL_S)
        bucket.filled_at_s = now_s
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def _trim(remembered: OrderedDict[K, V]) -> None:
    while len(remembered) > REMEMBERED:
        remembered.popitem(last=False)
