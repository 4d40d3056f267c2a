"""Leader election on a Lease, by client-go's rules, for one piece of work that must run once in the cluster.

A candidate takes the Lease when it is free or when it has not changed for a lease duration *as this process saw it*
(a monotonic clock; no two machines' clocks are compared), by compare-and-swap on the resource version. The leader
renews it, and stops leading well before anybody else may start: ``renew deadline`` < ``lease duration``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from raddle_operator.kube import LEASES, AlreadyExists, Conflict, Kube, KubeError, NotFound, Object
from raddle_operator.kube.ownership import Owners, nobody

log = logging.getLogger(__name__)

JITTER: Final = 0.2


class LeadershipLostError(Exception):
    """The Lease could not be renewed in time. Another process may lead soon: this one has to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """client-go's three periods. ``lease_s`` > ``renew_deadline_s`` > ``retry_s``."""

    lease_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease_s > self.renew_deadline_s > self.retry_s * (1 + JITTER) > 0:
            raise ValueError(
                f"election timing: lease {self.lease_s} s, renew deadline {self.renew_deadline_s} s,"
                f" retry {self.retry_s} s; each must be longer than the next",
            )


class Elector:
    """A candidate for one Lease. ``identity`` must differ between processes: pod name and something random.

    ``owners`` are whom a Lease that it makes goes with.
    """

    def __init__(
        self,
        kube: Kube,
        *,
        namespace: str,
        name: str,
        identity: str,
        timing: Timing | None = None,
        owners: Owners = nobody,
    ) -> None:
        self.identity: Final = identity
        self._owners = owners
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._timing = timing or Timing()
        self._observed: Object | None = None
        self._observed_at_s = 0.0
        self._stored: Object | None = None  # the whole Lease as our last write left it
        self._renewed_at_s: float | None = None
        self._holder: str | None = None

    @property
    def is_leader(self) -> bool:
        """Whether this process may act now. False already when a renewal is overdue, before anybody says so."""
        renewed_at_s = self._renewed_at_s
        return renewed_at_s is not None and time.monotonic() < renewed_at_s + self._timing.renew_deadline_s

    @property
    def holder(self) -> str | None:
        """The identity that was last seen on the Lease; empty when released, None when never read."""
        return self._holder

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Waits for the Lease, runs ``lead()`` while it is held, then releases it.

        Returns when ``lead()`` does. Raises what ``lead()`` raises, and LeadershipLostError when the Lease could not be
        renewed: then ``lead()`` is cancelled but not waited for longer than the Lease is still ours, and the caller
        should end the process. Cancelling this cancels ``lead()``, waits for it, and releases.
        """
        await self._acquire()
        leading = asyncio.ensure_future(lead())
        renewing = asyncio.create_task(self._renew_until_lost())
        try:
            await asyncio.wait((leading, renewing), return_when=asyncio.FIRST_COMPLETED)
            if leading.done():
                leading.result()
                return
            leading.cancel()
            left_s = (self._timing.lease_s - self._timing.renew_deadline_s) / 2
            await asyncio.wait((leading,), timeout=left_s)
            raise LeadershipLostError(f"lease {self._namespace}/{self._name} was not renewed in time")
        finally:
            if not renewing.done():  # still ours: whether lead() ended by itself or we are cancelled
                leading.cancel()
                await asyncio.gather(leading, return_exceptions=True)
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            await self._release()

    async def _acquire(self) -> None:
        while not await self._try():
            expires_in_s = self._observed_at_s + self._duration_s() - time.monotonic()
            pause_s = _jittered(self._timing.retry_s)
            # Neither later than the expiry that we wait for, nor in a busy loop after it.
            await asyncio.sleep(max(min(pause_s, expires_in_s), self._timing.retry_s / 10))
        log.info("%s leads (lease %s/%s)", self.identity, self._namespace, self._name)

    async def _renew_until_lost(self) -> None:
        while self.is_leader:
            await asyncio.sleep(_jittered(self._timing.retry_s))
            if not await self._try() and self._holder not in (self.identity, None):
                log.error("lease %s/%s is held by %r now", self._namespace, self._name, self._holder)
                break
        self._renewed_at_s = None

    async def _try(self) -> bool:
        """Takes or renews the Lease once; every failure to do so is False."""
        try:
            async with asyncio.timeout(self._timing.renew_deadline_s / 2):
                return await self._take()
        except TimeoutError:
            log.warning("lease %s/%s: no response in time", self._namespace, self._name)
        except (AlreadyExists, Conflict):
            log.debug("lease %s/%s: another candidate acquired it", self._namespace, self._name)
        except KubeError as error:
            log.warning("lease %s/%s: %s", self._namespace, self._name, error)
        return False

    async def _take(self) -> bool:
        asked_at_s = time.monotonic()  # the Lease runs from before the write, never from after it
        if await self._renew(asked_at_s):
            return True
        try:
            lease = await self._kube.get(LEASES, self._name, self._namespace)
        except NotFound:
            owners = await self._owners()
            metadata = {"name": self._name, "namespace": self._namespace, "ownerReferences": owners}
            spec = self._record(None)
            self._wrote(await self._kube.create(LEASES, {"metadata": metadata, "spec": spec}), asked_at_s)
        else:
            self._observe(lease, time.monotonic())
            spec = lease.get("spec") or {}
            holder = spec.get("holderIdentity") or ""
            if holder not in ("", self.identity) and time.monotonic() < self._observed_at_s + self._duration_s():
                return False
            self._wrote(await self._kube.replace(LEASES, {**lease, "spec": self._record(spec)}), asked_at_s)
        return True

    async def _renew(self, asked_at_s: float) -> bool:
        """Renews without a look, as client-go does. False when the version says that somebody else has written."""
        stored, self._stored = self._stored, None
        if stored is None or not self.is_leader:
            return False
        try:
            renewed = await self._kube.replace(LEASES, {**stored, "spec": self._record(stored.get("spec"))})
        except (Conflict, NotFound):
            return False
        self._wrote(renewed, asked_at_s)
        return True

    def _wrote(self, lease: Object, asked_at_s: float) -> None:
        self._stored = lease
        self._observe(lease, asked_at_s)
        self._renewed_at_s = asked_at_s

    def _observe(self, lease: Object, at_s: float) -> None:
        """Notes the record, and the time only when it differs from the last one: that is how age is measured."""
        spec = lease.get("spec") or {}
        if self._observed is None or spec != self._observed:
            self._observed = spec
            self._observed_at_s = at_s
        self._holder = str(spec.get("holderIdentity") or "")

    def _duration_s(self) -> float:
        if not self._observed or not self._observed.get("holderIdentity"):
            return 0.0
        return float(self._observed.get("leaseDurationSeconds") or self._timing.lease_s)

    def _record(self, previous: Object | None) -> dict[str, Any]:
        now = _micro_time()
        previous = previous or {}
        ours = previous.get("holderIdentity") == self.identity
        transitions = int(previous.get("leaseTransitions") or 0)
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self._timing.lease_s)),
            "acquireTime": previous.get("acquireTime") or now if ours else now,
            "renewTime": now,
            "leaseTransitions": transitions if ours or not previous else transitions + 1,
        }

    async def _release(self) -> None:
        """Gives the Lease up where it is still ours, so that the next leader need not wait for it to run out."""
        if not self.is_leader:
            return
        self._renewed_at_s = None
        with contextlib.suppress(KubeError, TimeoutError):
            async with asyncio.timeout(self._timing.renew_deadline_s / 2):
                lease = await self._kube.get(LEASES, self._name, self._namespace)
                spec = lease.get("spec") or {}
                if spec.get("holderIdentity") == self.identity:
                    spec = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro_time()}
                    await self._kube.replace(LEASES, {**lease, "spec": spec})
                    log.info("%s has released lease %s/%s", self.identity, self._namespace, self._name)


def _jittered(period_s: float) -> float:
    return period_s * (1 + random.random() * JITTER)  # noqa: S311 (spreads candidates, guards nothing)


def _micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
