"""Copies of pods, written into etcd beside the API server: through it 150,000 would take an hour here.

What is copied was created through the API, webhook and all, and the API server reads what it is given: etcd may hold
JSON in place of protobuf. Copies differ where replicas do: name, UID, node, address, containers' ids, time of creation.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import random
import uuid
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self

import aiohttp
import orjson

from cluster import flags
from scale import objects
from scale.objects import Object, Size

FLAGS: Final = ("--quota-backend-bytes=8589934592",)
"""etcd's: 2 GiB, which it holds by default, are less than 150,000 pods."""
AT_ONCE: Final = 100
"""So many pods of 10 kB fit into one request: etcd takes 1.5 MiB, and 128 operations."""

BUSY_S: Final = 1.0
"""etcd says that it is unavailable where the disk takes seconds."""


def of(template: Object, number: int, replicas: range, size: Size) -> Iterator[Object]:
    """Yields some replicas of an app, whose first pod is the template; `number` is the app's, over all namespaces.

    Each is on a node of the make that the template's plan was made for, as many on each node as may be.
    """
    metadata, status = template["metadata"], template["status"]
    shape = int(template["spec"]["nodeName"].rpartition("-")[2]) % objects.SHAPES
    turn = number // objects.SHAPES * size.replicas
    created = dt.datetime.fromisoformat(metadata["creationTimestamp"])
    for replica in replicas:
        node = shape + objects.SHAPES * ((turn + replica) % (size.nodes // objects.SHAPES))
        yield {
            **template,
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **{key: value for key, value in metadata.items() if key != "resourceVersion"},
                "name": f"{metadata['name'].rpartition('-')[0]}-{replica:05}",
                "uid": str(uuid.uuid4()),
                # Else replicas would be one object to the controller, which is more than a cluster gives it.
                "creationTimestamp": (created - dt.timedelta(seconds=replica)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            },
            "spec": {**template["spec"], "nodeName": objects.node_name(node)},
            "status": {
                **status,
                "podIP": f"10.{replica >> 8}.{replica & 255}.{number & 255}",
                "containerStatuses": [
                    {**one, "containerID": f"containerd://{random.randbytes(32).hex()}"}
                    for one in status["containerStatuses"]
                ],
            },
        }


class Etcd:
    """The etcd of a cluster that runs in a directory."""

    def __init__(self, directory: Path) -> None:
        socket = directory / flags.ETCD_CLIENTS.removeprefix("unix://")
        self._session = aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket)))

    async def __aenter__(self) -> Self:
        """Itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connections."""
        await self._session.close()

    async def put(self, pods: Iterable[Object]) -> None:
        """Stores pods, `AT_ONCE` at most. Raises aiohttp.ClientResponseError where etcd refuses them."""
        puts = [{"requestPut": {"key": _text(_key(pod)), "value": _text(orjson.dumps(pod))}} for pod in pods]
        body = orjson.dumps({"success": puts})
        while True:
            async with self._session.post("http://etcd/v3/kv/txn", data=body) as answer:
                if answer.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    answer.raise_for_status()
                    return
            await asyncio.sleep(BUSY_S)


def _key(pod: Object) -> bytes:
    return f"/registry/pods/{pod['metadata']['namespace']}/{pod['metadata']['name']}".encode()


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
