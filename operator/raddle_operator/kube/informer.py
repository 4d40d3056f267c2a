"""A cache of one kind of object that follows the API server: list, then watch; a re-list replaces what was there.

The store holds what ``transform`` makes of each object, so it is as small as its user needs. Objects that vanished
while no watch was open are found by the next list and reported like any other deletion. No error ends an informer:
it keeps what it knows, says how old that is, and tries again.

A server that could not be reached may come back restored from a backup, with a past in which our version never was: a
watch from there would be silent until it is reached again. So after such a gap it lists again, and where a watch ended
before its time it first asks which version the server has come to.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, NoReturn, TypeVar

from raddle_operator.kube import (
    WATCH_TIMEOUT_S,
    Gone,
    Kube,
    KubeError,
    Object,
    Page,
    Resource,
    Unavailable,
    Unreachable,
)

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-scoped objects."""

T = TypeVar("T")

CHUNK_SIZE: Final = 200
"""One chunk, parsed, is what a list costs in memory; 500 pods' metadata with managed fields are above 20 MB."""
BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MOST_S: Final = 10.0
EARLY_S: Final = 2.0
"""By so much may a server's clock for the end of a watch differ from ours."""
STEADY_S: Final = 5.0
"""A stream that brought something after so long was a good one; the next is opened without a pause."""


@dataclass(frozen=True, slots=True)
class CacheState:
    """One cache as metrics show it. ``age_s`` is the time since the API server was last heard, None before."""

    kind: str
    objects: int
    age_s: float | None


def key_of(obj: Object) -> Key:
    """The key of an object."""
    metadata = obj["metadata"]
    return sys.intern(metadata.get("namespace") or ""), metadata["name"]


def backoffs(first_s: float = BACKOFF_FIRST_S, most_s: float = BACKOFF_MOST_S) -> Iterator[float]:
    """Yields pauses that double up to a cap, without end, each somewhere in the upper half of its step."""
    step_s = first_s
    while True:
        yield step_s * (0.5 + random.random() / 2)  # noqa: S311 (spreads retries, guards nothing)
        step_s = min(step_s * 2, most_s)


class Informer(Generic[T]):
    """A live mapping from key to ``transform(object)``; ``None`` from ``transform`` leaves an object out.

    ``run`` is to be a task of the caller; ``synced`` is set after the first complete list. Change callbacks get
    ``(key, old, new)``, with None for what was or is not there, after the store has changed; they must not block.
    A transform or a callback that raises is logged and costs that object or that call only.
    """

    def __init__(
        self,
        kube: Kube,
        resource: Resource,
        transform: Callable[[Object], T | None],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        metadata_only: bool = False,
        on_change: Callable[[Key, T | None, T | None], None] | None = None,
        on_rewind: Callable[[], None] | None = None,
        chunk_size: int = CHUNK_SIZE,
        relist_every_s: float | None = None,
        first_pause_s: float = BACKOFF_FIRST_S,
    ) -> None:
        """``relist_every_s``: list again so often although the watch is well; None only when the server says so.

        ``on_rewind``: called, before the store changes, when a list is older than what the server has said before.
        ``first_pause_s``: the pause after a first failure; it doubles with each further one, up to 10 s.
        """
        self.resource: Final = resource
        self.synced: Final = asyncio.Event()
        self.errors = 0
        self.relists = 0
        self._kube = kube
        self._transform = transform
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._metadata_only = metadata_only
        self._chunk_size = chunk_size
        self._relist_every_s = relist_every_s
        self._first_pause_s = first_pause_s
        self._objects: dict[Key, T] = {}
        self._callbacks = [] if on_change is None else [on_change]
        self._version: str | None = None
        self._newest = ""
        self._ended_early = False
        self._on_rewind = on_rewind
        self._listed_at_s: float | None = None
        self._heard_at_s: float | None = None
        self._relist_wanted = asyncio.Event()
        self._said = ""
        self.store: Final[Mapping[Key, T]] = MappingProxyType(self._objects)

    def subscribe(self, callback: Callable[[Key, T | None, T | None], None]) -> None:
        """Calls ``callback(key, old, new)`` for every change from now on."""
        self._callbacks.append(callback)

    def relist(self) -> None:
        """List again as soon as possible, even while the watch is well."""
        self._relist_wanted.set()

    @property
    def age_s(self) -> float | None:
        """The seconds since the server was last heard (list, change, bookmark); None before the first list."""
        return None if self._heard_at_s is None else time.monotonic() - self._heard_at_s

    @property
    def list_age_s(self) -> float | None:
        """The seconds since the last complete list; None before the first."""
        return None if self._listed_at_s is None else time.monotonic() - self._listed_at_s

    async def run(self) -> NoReturn:
        """Follows the API server until cancelled."""
        pauses = backoffs(self._first_pause_s)
        while True:
            started_at_s = time.monotonic()
            try:
                if self._version is not None and self._ended_early and await self._is_rewound():
                    self._version = None
                if self._version is None:
                    await self._list()
                await self._watch(self._version or "")
            except Gone:
                log.info("%s: the resource version is too old, listing again", self.resource.plural)
                self._version = None
            except KubeError as error:
                self.errors += 1
                # A kind that is not installed would fill the log with one line.
                level = logging.DEBUG if str(error) == self._said else logging.WARNING
                self._said = str(error)
                log.log(level, "%s: %s", self.resource.plural, error)
                if not _is_passing(error):
                    self._version = None  # as client-go does: a version from the future is one such refusal
            except Exception:  # a malformed answer must not end the process that lives on this cache
                self.errors += 1
                self._version = None
                log.exception("%s: unexpected error, listing again", self.resource.plural)
            if (self._heard_at_s or 0.0) > started_at_s + STEADY_S:
                pauses = backoffs(self._first_pause_s)
            else:  # even after a clean end: a proxy that closes streams at once must not make a busy loop
                await asyncio.sleep(next(pauses))

    async def _is_rewound(self) -> bool:
        """Asks by the smallest list whether the server is behind what it has said before."""
        pages = self._pages(chunk_size=1)
        async with contextlib.aclosing(pages):
            page = await anext(pages)
        return _is_older(page.resource_version, self._newest)

    def _pages(self, *, chunk_size: int) -> AsyncGenerator[Page, None]:
        return self._kube.pages(
            self.resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            metadata_only=self._metadata_only,
            chunk_size=chunk_size,
        )

    async def _list(self) -> None:
        result: dict[Key, T] = {}
        version = ""
        self._relist_wanted.clear()
        pages = self._pages(chunk_size=self._chunk_size)
        async with contextlib.aclosing(pages):
            async for page in pages:
                version = page.resource_version
                for obj in page.items:
                    value = self._transformed(obj)
                    if value is not None:
                        result[key_of(obj)] = value
                await asyncio.sleep(0)  # a chunk is some milliseconds of work: let requests through
        self._note_rewind(version)
        self._replace(result)
        self._version = version
        self._listed_at_s = self._heard_at_s = time.monotonic()
        self._said = ""
        self.relists += 1
        self.synced.set()

    async def _watch(self, version: str) -> None:
        """Applies changes until the stream ends; then the version is kept, or dropped where a list is due."""
        following = asyncio.create_task(self._follow(version))
        waiting = asyncio.create_task(self._until_relist_is_due())
        try:
            await asyncio.wait((following, waiting), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                self._version = None
            if following.done():
                following.result()
        finally:
            following.cancel()
            waiting.cancel()
            await asyncio.gather(following, waiting, return_exceptions=True)

    async def _until_relist_is_due(self) -> None:
        left_s = None
        if self._relist_every_s is not None:
            left_s = max(0.0, self._relist_every_s - (self.list_age_s or 0.0))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._relist_wanted.wait(), left_s)

    async def _follow(self, version: str) -> None:
        timeout_s = int(WATCH_TIMEOUT_S * (0.75 + random.random() / 4))  # noqa: S311 (spreads reconnections)
        started_at_s = time.monotonic()
        self._ended_early = True
        events = self._kube.watch(
            self.resource,
            self._namespace,
            resource_version=version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            metadata_only=self._metadata_only,
            timeout_seconds=timeout_s,
        )
        async with contextlib.aclosing(events):
            async for event in events:
                if event.type != "BOOKMARK":
                    gone = event.type == "DELETED"
                    self._set(key_of(event.object), None if gone else self._transformed(event.object))
                self._version = event.resource_version
                self._newest = event.resource_version
                self._heard_at_s = time.monotonic()
        self._ended_early = time.monotonic() - started_at_s < timeout_s - EARLY_S

    def _note_rewind(self, listed: str) -> None:
        """Tells of a list that is older than what the server had said before: it has lost its past."""
        known, self._newest = self._newest, listed
        if _is_older(listed, known):
            log.warning(
                "%s: the server's resource version decreased from %s to %s", self.resource.plural, known, listed
            )
            if self._on_rewind is not None:
                self._on_rewind()

    def _transformed(self, obj: Object) -> T | None:
        try:
            return self._transform(obj)
        except Exception:
            log.exception("%s %s can't be read and is ignored", self.resource.kind, "/".join(key_of(obj)))
            return None

    def _replace(self, result: dict[Key, T]) -> None:
        """Makes the store equal to ``result`` in one step, then reports each difference."""
        changes: list[tuple[Key, T | None, T | None]] = [
            (key, old, None) for key, old in self._objects.items() if key not in result
        ]
        changes += [(key, self._objects.get(key), new) for key, new in result.items()]
        for key, _, new in changes:
            self._put(key, new)
        for key, old, new in changes:
            self._report(key, old, new)

    def _set(self, key: Key, new: T | None) -> None:
        old = self._objects.get(key)
        self._put(key, new)
        self._report(key, old, new)

    def _put(self, key: Key, new: T | None) -> None:
        if new is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = new

    def _report(self, key: Key, old: T | None, new: T | None) -> None:
        if old == new:
            return
        for callback in self._callbacks:
            try:
                callback(key, old, new)
            except Exception:
                log.exception("an update of %s %s could not be handled", self.resource.kind, "/".join(key))


def _is_older(version: str, known: str) -> bool:
    """Compares two resource versions, which are etcd's revisions; False where one is not a number."""
    return version.isdecimal() and known.isdecimal() and int(version) < int(known)


def _is_passing(error: KubeError) -> bool:
    """Whether it is a broken connection or 429, after which the same watch may go on: all else calls for a list."""
    return isinstance(error, Unavailable) and not isinstance(error, Unreachable) and error.status in (0, 429)
