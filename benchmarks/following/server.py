"""An API server of canned answers: N objects of one kind, which never change, and a count of what is written to them.

python -m following.server KIND COUNT      # prints its port, serves until its stdin ends
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import orjson
from aiohttp import web

from scale import objects

NOW = "2026-01-01T00:00:00Z"
SIZE = objects.Size(pods=20_000, nodes=5_000, policies=200)


def made(kind: str, number: int) -> dict[str, Any]:
    """An object as it is stored: a pod of about 6 kB, or a node of about 10 kB."""
    if kind == "nodes":
        obj = objects.node(number, NOW)
    else:
        obj = objects.pod("shop", number % objects.APPS, number, "7d4b9c6f5")
        obj |= objects.running(obj, NOW)
    fields: dict[str, Any] = {f"f:field-{n}": {} for n in range(40)}
    stored = {"uid": f"uid-{number}", "resourceVersion": "1", "creationTimestamp": NOW}
    managed = [{"manager": "kubelet", "operation": "Update", "time": NOW, "fieldsV1": {"f:spec": fields}}]
    return {**obj, "metadata": {**obj["metadata"], **stored, "managedFields": managed}}


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
        found = [
            {"name": name, "singularName": name[:-1], "kind": name[:-1].capitalize(), "namespaced": name == "pods"}
            for name in (kind, "namespaces")  # which kopf looks for
        ]
        verbs = ["get", "list", "watch", "patch"]
        return web.json_response({"groupVersion": "v1", "resources": [{**one, "verbs": verbs} for one in found]})

    async def several(request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            return await silent(request)
        first, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or count)
        found = slim if "PartialObjectMetadata" in request.headers.get("Accept", "") else full
        rest = str(first + limit) if first + limit < count else ""
        metadata = orjson.dumps({"resourceVersion": "1", "continue": rest})
        items = b",".join(found[first : first + limit])
        body = b'{"apiVersion":"v1","kind":"List","metadata":' + metadata + b',"items":[' + items + b"]}"
        return web.Response(body=body, content_type="application/json")

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


async def _serve(kind: str, count: int) -> None:
    runner = web.AppRunner(application(kind, count), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], int(sys.argv[2])))
