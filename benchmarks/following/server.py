"""An API server of canned answers: N objects of one kind, which never change, and a count of what is written to them.

python -m following.server KIND COUNT      # prints its port, serves until its stdin ends
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import orjson
from aiohttp import web

import canned
from canned import NOW
from scale import objects

SIZE = objects.Size(pods=20_000, nodes=5_000, policies=200)


def made(kind: str, number: int) -> dict[str, Any]:
    """An object as it is stored: a pod of about 6 kB, or a node of about 10 kB."""
    if kind == "nodes":
        obj = objects.node(number, NOW)
    else:
        obj = objects.pod("shop", number % objects.APPS, number, "7d4b9c6f5")
        obj |= objects.running(obj, NOW)
    stored = {"uid": f"uid-{number}", "resourceVersion": "1", "creationTimestamp": NOW}
    return {**obj, "metadata": {**obj["metadata"], **stored, "managedFields": canned.MANAGED_FIELDS}}


def application(kind: str, count: int) -> web.Application:
    """The server. `/writes` says how many PATCHes there were."""
    whole = [made(kind, number) for number in range(count)]
    full = [orjson.dumps(obj) for obj in whole]
    slim = [orjson.dumps({"metadata": obj["metadata"]}) for obj in whole]
    writes: set[str] = set()

    async def versions(_: web.Request) -> web.Response:
        return web.json_response({"versions": ["v1"]})

    async def groups(_: web.Request) -> web.Response:
        return web.json_response({"groups": []})

    async def silent(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        await asyncio.sleep(3600)
        return stream

    async def kinds(_: web.Request) -> web.Response:
        result = [
            {"name": name, "singularName": name[:-1], "kind": name[:-1].capitalize(), "namespaced": name == "pods"}
            for name in (kind, "namespaces")  # which kopf looks for
        ]
        verbs = ["get", "list", "watch", "patch"]
        return web.json_response({"groupVersion": "v1", "resources": [{**one, "verbs": verbs} for one in result]})

    async def several(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            return await silent(request)
        result = slim if "PartialObjectMetadata" in request.headers.get("Accept", "") else full
        return canned.page(request, count, result.__getitem__)

    async def patched(request: web.Request) -> web.Response:
        await request.read()
        writes.add(request.path)
        number = next(n for n, obj in enumerate(whole) if request.path.endswith(obj["metadata"]["name"]))
        return web.Response(body=full[number], content_type="application/json")

    async def written(_: web.Request) -> web.Response:
        return web.json_response(len(writes))

    served = web.Application()
    routes = {"/api": versions, "/apis": groups, "/api/v1": kinds, f"/api/v1/{kind}": several, "/writes": written}
    served.add_routes([web.get(path, answer) for path, answer in routes.items()])
    served.add_routes([web.patch("/api/v1/{rest:.*}", patched)])
    return served


if __name__ == "__main__":
    canned.serve(application(sys.argv[1], int(sys.argv[2])))
