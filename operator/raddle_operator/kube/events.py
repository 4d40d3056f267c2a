"""Kubernetes events about our objects: repeated ones become a series, floods are dropped, and no caller ever fails.

``post`` only puts the event in a bounded queue; ``run`` is the task that writes. The same news about the same object
within ten minutes raises the count of the event that is there, at most once a minute. An object gets a burst of ten
different events, then one a minute.
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
from typing import Final, Literal, NoReturn

from raddle_operator.kube import EVENTS, Kube, KubeError, NotFound, Object, Resource

log = logging.getLogger(__name__)

NOTE_CHARACTERS: Final = 1024
"""The API server refuses longer notes."""
SERIES_WINDOW_S: Final = 600.0
SERIES_UPDATE_S: Final = 60.0
BURST: Final = 10
REFILL_S: Final = 60.0
REMEMBERED: Final = 4096
QUEUED: Final = 1000


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
        """Return the reference to an object of a known kind."""
        metadata = obj["metadata"]
        return cls(
            api_version=resource.api_version,
            kind=resource.kind,
            namespace=metadata.get("namespace") or "",
            name=metadata["name"],
            uid=metadata.get("uid") or "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What there is to say. Two equal ones are the same news."""

    regarding: Reference
    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


@dataclass(slots=True)
class _Series:
    name: str
    count: int
    began_at_s: float
    written_at_s: float


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
        self._queue: asyncio.Queue[News] = asyncio.Queue(QUEUED)
        self._series: OrderedDict[News, _Series] = OrderedDict()
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
        """Say something about an object. Returns at once; what can't be queued is counted in ``dropped``."""
        kind: Literal["Normal", "Warning"] = "Warning" if warning else "Normal"
        news = News(
            regarding=regarding, type=kind, reason=reason[:128], action=action[:128], note=note[:NOTE_CHARACTERS]
        )
        try:
            self._queue.put_nowait(news)
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> NoReturn:
        """Write what is posted until cancelled."""
        while True:
            await self.write(await self._queue.get())

    async def write(self, news: News) -> None:
        """Write one piece of news now, or drop it. Never raises for anything that the API server says."""
        now_s = self._now_s()
        series = self._series.get(news)
        try:
            if series is not None and now_s - series.began_at_s < SERIES_WINDOW_S:
                self._series.move_to_end(news)
                await self._repeat(news, series, now_s)
            elif self._admits(news.regarding, now_s):
                await self._begin(news, now_s)
            else:
                self.dropped += 1
        except KubeError as error:
            self.dropped += 1
            log.warning("event %s on %s %s: %s", news.reason, news.regarding.kind, news.regarding.name, error)

    async def _begin(self, news: News, now_s: float) -> None:
        regarding = news.regarding
        name = f"{regarding.name[:200]}.{secrets.token_hex(8)}"
        body: Object = {
            # The API server wants events about cluster-scoped objects in "default".
            "metadata": {"name": name, "namespace": regarding.namespace or "default"},
            "eventTime": _micro_time(),
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": news.action,
            "reason": news.reason,
            "type": news.type,
            "note": news.note,
            "regarding": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "name": regarding.name,
                **({"namespace": regarding.namespace} if regarding.namespace else {}),
                **({"uid": regarding.uid} if regarding.uid else {}),
            },
        }
        await self._kube.create(EVENTS, body)
        self._series[news] = _Series(name, 1, now_s, now_s)
        _trim(self._series)

    async def _repeat(self, news: News, series: _Series, now_s: float) -> None:
        series.count += 1
        if now_s - series.written_at_s < SERIES_UPDATE_S:
            return
        patch = {"series": {"count": series.count, "lastObservedTime": _micro_time()}}
        namespace = news.regarding.namespace or "default"
        try:
            await self._kube.patch(EVENTS, series.name, patch, namespace)
        except NotFound:  # its time to live is over, or somebody has deleted it
            del self._series[news]
        else:
            series.written_at_s = now_s

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


def _trim(remembered: OrderedDict[News, _Series] | OrderedDict[Reference, _Bucket]) -> None:
    while len(remembered) > REMEMBERED:
        remembered.popitem(last=False)


def _micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
