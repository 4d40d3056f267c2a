"""Puts a large cluster into the API server through its API: many requests at a time, with progress.

Pods are created and bound by requests as a ReplicaSet's controller and a scheduler send them, so the webhook writes
what it writes; then each gets the status that a kubelet would write. No kubelet, scheduler or node lease is there.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from cluster.progress import Progress
from raddle_operator.kube import (
    CLUSTER_INFERENCE_THREADINGS,
    INFERENCE_THREADINGS,
    NAMESPACES,
    NODE_CPU_TOPOLOGIES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    Kube,
    NotFound,
)
from scale import objects
from scale.objects import Object, Size

REQUESTS_AT_ONCE: Final = 16
HEARTBEAT_S: Final = 300.0
"""A kubelet writes its node's status so often while nothing changes."""

T = TypeVar("T")


class Filler:
    """Fills one cluster."""

    def __init__(self, kube: Kube, size: Size, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        """How long each step took, by its name."""
        self._kube = kube
        self._size = size
        self._progress = progress
        self._bound = 0

    async def namespaces(self) -> None:
        """Make the namespaces; each has its ServiceAccount `default` when this returns."""
        await self.each("namespaces", self._size.namespaces, self._namespace)

    async def _namespace(self, name: str) -> None:
        await self._kube.create(NAMESPACES, objects.namespace(name))
        while True:
            try:
                await self._kube.get(SERVICE_ACCOUNTS, "default", name)
            except NotFound:
                await asyncio.sleep(0.1)
            else:
                return

    async def policies(self) -> None:
        """Make the policies, `fleet` among them."""
        await self._kube.create(CLUSTER_INFERENCE_THREADINGS, objects.fleet())
        result = list(objects.policies(self._size))
        await self.each("policies", result, lambda policy: self._kube.create(INFERENCE_THREADINGS, policy))

    async def nodes(self) -> None:
        """Make the nodes, each with its NodeCPUTopology."""
        await self.each("nodes with topologies", range(self._size.nodes), self._node)

    async def _node(self, number: int) -> None:
        made = await self._kube.create(NODES, objects.node(number, now()), field_manager="kubelet")
        topology = objects.topology(number, made["metadata"]["uid"])
        await self._kube.apply(NODE_CPU_TOPOLOGIES, topology, field_manager="raddle-agent")

    async def pods(self, result: list[Object], what: str = "pods") -> None:
        """Create pods, bind each to the next node, and let it run."""
        await self.each(f"{what} created", result, lambda pod: self._kube.create(PODS, pod))
        await self.each(f"{what} bound", result, self._bind)
        await self.each(f"{what} running", result, self._run)

    async def _bind(self, pod: Object) -> None:
        node = objects.node_name(self._bound % self._size.nodes)
        self._bound += 1
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        await self._kube.request("POST", PODS.path(namespace, name, "binding"), body=objects.binding(pod, node))

    async def _run(self, pod: Object) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        status = objects.running(pod, now())
        await self._kube.patch(PODS, name, status, namespace, subresource="status", field_manager="kubelet")

    async def delete(self, result: list[Object]) -> None:
        """Delete pods at once, as a kubelet does when their containers have ended."""
        await self.each("pods deleted", result, self._delete)

    async def _delete(self, pod: Object) -> None:
        path = PODS.path(pod["metadata"]["namespace"], pod["metadata"]["name"])
        await self._kube.request("DELETE", path, query={"gracePeriodSeconds": "0"})

    async def beat(self) -> None:
        """Write every node's status once in five minutes, evenly, until cancelled."""
        number, due_s = 0, time.monotonic()
        while True:
            name = objects.node_name(number % self._size.nodes)
            patch = objects.heartbeat(now())
            await self._kube.patch(NODES, name, patch, subresource="status", field_manager="kubelet")
            number += 1
            due_s += HEARTBEAT_S / self._size.nodes
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def each(self, what: str, items: Iterable[T], do: Callable[[T], Awaitable[Any]]) -> None:
        """Do something with each item, some at a time; raises what the first failure raised."""
        start_s = time.monotonic()
        waiting = list(items)
        total = len(waiting)
        left = iter(waiting)
        done = 0

        async def work() -> None:
            nonlocal done
            for item in left:
                await do(item)
                done += 1
                self._progress.tick(f"{what} {done}/{total}")

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(REQUESTS_AT_ONCE):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        self.seconds[what] = time.monotonic() - start_s
        self._progress.say(f"{total} {what} in {self.seconds[what]:.0f} s")


def now() -> str:
    """The time as Kubernetes writes it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
