"""Follows the policies and waits until every status is right."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final, NamedTuple

from raddle_operator.kube import CLUSTER_INFERENCE_THREADINGS, INFERENCE_THREADINGS, PODS, Kube, Object
from raddle_operator.kube.informer import Informer, Key
from scale import truth
from scale.truth import Counts, PodRow, PolicyKey, PolicyRow

WAIT_S: Final = 600.0
"""Many times the budget, because other work may have the machine: a status that is wrong then stays wrong."""


class Followed(NamedTuple):
    """A policy as it is on the server."""

    row: PolicyRow
    status: Mapping[str, Any]


class WrongStatusError(Exception):
    """Statuses that did not become right in time."""


class Policies:
    """All policies, live."""

    def __init__(self, kube: Kube) -> None:
        self.followed: dict[PolicyKey, Followed] = {}
        self.changes = 0
        """How many changes have arrived, status writes among them."""
        self._changed = asyncio.Event()
        self._informers = [
            Informer(
                kube,
                resource,
                lambda obj, kind=resource.kind: Followed(truth.policy_row(obj, kind), obj.get("status") or {}),  # type: ignore[misc]
                on_change=self._take,
            )
            for resource in (INFERENCE_THREADINGS, CLUSTER_INFERENCE_THREADINGS)
        ]

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the API server inside the block."""
        tasks = [asyncio.create_task(informer.run()) for informer in self._informers]
        try:
            for informer in self._informers:
                await informer.synced.wait()
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _take(self, key: Key, _old: Followed | None, new: Followed | None) -> None:
        if new is None:
            self.followed.pop(key, None)
        else:
            self.followed[key] = new
        self.changes += 1
        self._changed.set()

    async def right(self, pods: Iterable[PodRow], changed: Mapping[PolicyKey, int], start_s: float) -> float:
        """Wait until every status is right for these pods; return the seconds since `start_s` (monotonic).

        `changed` are policies that were just written, with the generation they have now. Raises WrongStatusError.
        """
        rows = list(pods)
        wanted: dict[PolicyKey, Counts] = {}
        known: list[PolicyRow] = []
        while True:
            self._changed.clear()
            if all(self.followed[key].row.generation >= generation for key, generation in changed.items()):
                present = [followed.row for followed in self.followed.values()]
                if present != known:  # a status alone changes no row
                    known, wanted = present, truth.expected(rows, present)
                wrong = self._wrong(wanted)
                if not wrong:
                    return time.monotonic() - start_s
            else:
                wrong = [f"{key} has not arrived" for key in changed]
            left_s = start_s + WAIT_S - time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, left_s)):
                    await self._changed.wait()
            except TimeoutError:
                shown = "; ".join(wrong[:3])
                raise WrongStatusError(f"{len(wrong)} statuses are wrong after {WAIT_S:.0f} s: {shown}") from None

    def _wrong(self, wanted: Mapping[PolicyKey, Counts]) -> list[str]:
        return [
            f"{'/'.join(key)} says {dict(self.followed[key].status)}, and {counts} is right"
            for key, counts in wanted.items()
            if not truth.is_right(self.followed[key].status, counts, self.followed[key].row.generation)
        ]


async def pod_rows(kube: Kube) -> list[PodRow]:
    """List all pods of the tenants, plainly."""
    result: list[PodRow] = []
    async for page in kube.pages(PODS, metadata_only=True):
        result += [truth.pod_row(obj) for obj in page.items if _is_tenant(obj)]
    return result


def _is_tenant(obj: Object) -> bool:
    return str(obj["metadata"]["namespace"]).startswith("tenant-")
