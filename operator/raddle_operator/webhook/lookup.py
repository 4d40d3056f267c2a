"""Finding what a review is about when the watch has not shown it yet: wait a moment, then ask, whichever is first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum, unique
from typing import Final, TypeVar

from raddle import env
from raddle_operator.injection import binding, claims
from raddle_operator.injection.claims import Claimed
from raddle_operator.kube import NAMESPACES, PODS, RESOURCE_CLAIMS, Kube, KubeError, NotFound
from raddle_operator.kube.informer import Key
from raddle_operator.objects.reading import SpecError
from raddle_operator.webhook.caches import Caches
from raddle_operator.webhook.settings import WebhookSettings
from raddle_operator.webhook.sources import Unbound, read_labels, read_unbound
from raddle_operator.webhook.waiters import Waiters

MAX_LOOKUPS: Final = 64
"""Requests to the API server that may run at once; more would only make it slower for all."""

T = TypeVar("T")


@unique
class LookupFailure(StrEnum):
    """Why something can't be found. For a pod that is being bound, BindingOutcome has the same words after "Pod"."""

    NOT_SEEN = "NotSeen"
    NOT_FOUND = "NotFound"
    ANOTHER_UID = "AnotherUID"
    LOOKUP_FAILED = "LookupFailed"
    TOO_MANY_LOOKUPS = "TooManyLookups"


class LookupFailedError(Exception):
    """It can't be found in time."""

    def __init__(self, reason: LookupFailure) -> None:
        super().__init__(reason)
        self.reason: Final = reason


class Lookup:
    """Caches first, then a short wait for the watch, then one GET beside it. ``kube`` None: no GET."""

    def __init__(self, settings: WebhookSettings, caches: Caches, kube: Kube | None) -> None:
        self._settings: Final = settings
        self._caches: Final = caches
        self._kube: Final = kube
        self._running = 0

    async def namespace(self, name: str) -> Mapping[str, str]:
        """A namespace's labels. Raises LookupFailedError."""
        labels = self._caches.namespace_labels(name)
        if labels is not None:
            return labels

        async def fetch(kube: Kube) -> Mapping[str, str]:
            return read_labels(await kube.get(NAMESPACES, name, metadata_only=True))

        return await self._late(("", name), self._caches.namespace_waiters, lambda _: True, fetch)

    async def unbound(self, namespace: str, name: str, uid: str) -> Unbound | None:
        """The injected pod that is being bound; None where the pod is not injected. Raises LookupFailedError.

        ``uid`` "" (the binder did not say) takes the pod of that name. One that awaits CPUs is asked for once more,
        and taken as it was seen where that fails.
        """

        def is_ready(pod: Unbound | None) -> bool:
            return pod is not None and uid in ("", pod.uid) and not binding.awaits_cpus(pod.annotations)

        result = self._caches.unbound(namespace, name)
        if is_ready(result):
            return result

        async def fetch(kube: Kube) -> Unbound | None:
            obj = await kube.get(PODS, name, namespace, metadata_only=True)
            if (obj["metadata"].get("labels") or {}).get(env.INJECTED_LABEL) != "true":
                return None
            pod = read_unbound(obj)
            if uid not in ("", pod.uid):
                raise LookupFailedError(LookupFailure.ANOTHER_UID)
            return pod

        waiters: Waiters[Unbound | None] = self._caches.unbound_waiters  # type: ignore[assignment]
        try:
            return await self._late((namespace, name), waiters, is_ready, fetch)
        except LookupFailedError:
            if result is None or uid not in ("", result.uid):
                raise
            return result

    async def claimed(self, namespace: str, name: str) -> Mapping[str, Claimed]:
        """The CPUs that ResourceClaims give the containers of a pod that is being bound. Raises LookupFailedError.

        Two questions one after the other, the second for all of its claims at once: nothing of them is followed, for
        few pods have any, and what is bound must be read as it is now.
        """

        async def fetch(kube: Kube) -> Mapping[str, Claimed]:
            pod = await kube.get(PODS, name, namespace)
            try:
                used = claims.references(pod)
            except SpecError:
                return {}
            names = sorted({one.name for of_container in used.values() for one in of_container})[: claims.MAX_CLAIMS]
            result = await asyncio.gather(*(kube.get(RESOURCE_CLAIMS, one, namespace) for one in names))
            return claims.claimed(pod, dict(zip(names, result, strict=True)))

        return await self._fetch(fetch)

    async def _late(
        self, key: Key, waiters: Waiters[T], wanted: Callable[[T], bool], fetch: Callable[[Kube], Awaitable[T]]
    ) -> T:
        arriving = asyncio.ensure_future(waiters.next(key, wanted))
        tasks: list[asyncio.Future[T]] = [arriving]
        try:
            await asyncio.wait(tasks, timeout=self._settings.arrival_wait_s)
            if not arriving.done():
                tasks.append(asyncio.ensure_future(self._fetch(fetch)))
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return next(task for task in tasks if task.done()).result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _fetch(self, fetch: Callable[[Kube], Awaitable[T]]) -> T:
        if self._kube is None:
            raise LookupFailedError(LookupFailure.NOT_SEEN)
        if self._running >= MAX_LOOKUPS:
            # Only the question is not asked: the watch, which is waited for beside it, may still show the pod.
            await asyncio.sleep(self._settings.lookup_timeout_s)
            raise LookupFailedError(LookupFailure.TOO_MANY_LOOKUPS)
        self._running += 1
        try:
            async with asyncio.timeout(self._settings.lookup_timeout_s):
                return await fetch(self._kube)
        except NotFound:
            raise LookupFailedError(LookupFailure.NOT_FOUND) from None
        except (TimeoutError, KubeError):
            raise LookupFailedError(LookupFailure.LOOKUP_FAILED) from None
        finally:
            self._running -= 1
