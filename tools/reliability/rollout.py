"""A Deployment that is rolled out: how long its pods take to be created and bound, and what they got."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from cluster.namespaces import TestNamespace
from cluster.objects import injected, planned_for
from cluster.waiting import wait
from reliability.world import deployment

# More than any failure here may cost; what it did cost is in the figures.
PATIENCE_SECONDS = 120.0


class Rollout:
    """`replicas` pods of one Deployment, made by the real ReplicaSet controller and bound by the real scheduler."""

    def __init__(self, space: TestNamespace, name: str, replicas: int) -> None:
        """Apply the Deployment; the clock starts now."""
        self._space, self._name, self._replicas = space, name, replicas
        self._began_s = time.monotonic()
        space.store(deployment(name, replicas))

    def until_created(self, count: int | None = None) -> float:
        """Wait until so many pods (all) are there; return the seconds since the start."""
        wanted = self._replicas if count is None else count
        wait(lambda: self._created() >= wanted, f"{wanted} pods of {self._name} are created", PATIENCE_SECONDS)
        return time.monotonic() - self._began_s

    def until_bound(self) -> float:
        """Wait until all pods are there and bound; return the seconds since the start."""
        self.until_created()
        unbound = {"fieldSelector": "spec.nodeName="}
        wait(
            lambda: not self._space.client.get(self._space.pods_path, **unbound)["items"],
            f"all pods of {self._name} are bound",
            PATIENCE_SECONDS,
        )
        return time.monotonic() - self._began_s

    def pods(self) -> list[dict[str, Any]]:
        """Return its pods as they are now."""
        return self._space.list()

    def remove(self) -> None:
        """Delete the Deployment and its pods."""
        self._space.remove_workloads()

    def _created(self) -> int:
        """Count without reading them all: the server tells how many remain after a page of one."""
        page = self._space.client.get(self._space.pods_path, limit="1")
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def became(pods: list[dict[str, Any]]) -> Counter[str]:
    """Count pods by what they got: `node` values, `safe` values, or `none`."""
    return Counter(_got(one) for one in pods)


def _got(one: Mapping[str, Any]) -> str:
    if not injected(one):
        return "none"
    return "node" if planned_for(one) else "safe"
