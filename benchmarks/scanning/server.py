"""An API server of canned answers: N pods by pages, their nodes, and what the kubelets measure. Nothing is kept.

python -m scanning.server PODS NODES      # prints its port, serves until its stdin ends
"""

from __future__ import annotations

import asyncio
import sys

import orjson
from aiohttp import web

from scale import objects

NOW = "2026-01-01T00:00:00Z"
REPLICAS = 20
# Three of four pods run a known runtime, by its image or a variable.
IMAGES = ("ollama/ollama:0.32.0", "nvidia/tritonserver:25.10-py3", "example.test/ranker:1", "example.test/shop:1")
# Of a real kubelet, a container has some hundred lines.
LINES = 100


def templates() -> list[bytes]:
    """A pod of 6 kB for each image, with marks where its names belong."""
    made = []
    for image in IMAGES:
        obj = objects.pod("NAMESPACE", 0, 0, "7d4b9c6f5")
        obj |= objects.running(obj, NOW)
        obj["metadata"] |= {"name": "POD", "uid": "UID", "resourceVersion": "1", "creationTimestamp": NOW}
        fields: dict[str, object] = {f"f:field-{number}": {} for number in range(40)}
        obj["metadata"]["managedFields"] = [
            {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:spec": fields}}
        ]
        obj["metadata"]["ownerReferences"][0]["name"] = "WORKLOAD-7d4b9c6f5"
        obj["spec"]["nodeName"] = "NODE"
        first = obj["spec"]["containers"][0]
        first["image"] = image
        del first["command"]
        if "ranker" in image:
            first["env"].append({"name": "HF_HOME", "value": "/models"})
        made.append(orjson.dumps(obj))
    return made


def application(pods: int, nodes: int) -> web.Application:
    """The server."""
    kinds = templates()

    def pod(number: int) -> bytes:
        workload = number // REPLICAS
        made = kinds[workload % len(kinds)]
        for mark, name in (
            (b'"NAMESPACE"', f'"team-{workload // 50}"'),
            (b"WORKLOAD", f"app-{workload}"),
            (b'"POD"', f'"app-{workload}-7d4b9c6f5-{number}"'),
            (b'"UID"', f'"uid-{number}"'),
            (b'"NODE"', f'"node-{number % nodes}"'),
        ):
            made = made.replace(mark, name.encode())
        return made

    async def several(request: web.Request) -> web.Response:
        first, limit = int(request.query.get("continue") or 0), int(request.query["limit"])
        last = min(pods, first + limit)
        metadata: dict[str, object] = {"resourceVersion": "1"}
        if last < pods:
            metadata |= {"continue": str(last), "remainingItemCount": pods - last}
        items = b",".join(map(pod, range(first, last)))
        return _json(b'{"kind":"PodList","metadata":' + orjson.dumps(metadata) + b',"items":[' + items + b"]}")

    async def all_nodes(request: web.Request) -> web.Response:
        first, limit = int(request.query.get("continue") or 0), int(request.query["limit"])
        last = min(nodes, first + limit)
        items = [{"metadata": {"name": f"node-{n}"}, "status": {"capacity": {"cpu": "64"}}} for n in range(first, last)]
        metadata = {"continue": str(last)} if last < nodes else {}
        return _json(orjson.dumps({"metadata": metadata, "items": items}))

    async def metrics(request: web.Request) -> web.Response:
        node = int(request.match_info["node"].removeprefix("node-"))
        return web.Response(text="".join(_lines(number) for number in range(node, pods, nodes)))

    async def none(_: web.Request) -> web.Response:
        return web.json_response({"reason": "NotFound", "message": "there is none"}, status=404)

    served = web.Application()
    served.add_routes(
        [
            web.get("/api/v1/pods", several),
            web.get("/api/v1/nodes", all_nodes),
            web.get("/api/v1/nodes/{node}/proxy/metrics/cadvisor", metrics),
            web.get("/{rest:.*}", none),
        ]
    )
    return served


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _lines(number: int) -> str:
    """What a kubelet says of one pod's first container."""
    workload = number // REPLICAS
    labels = f'container="serve",namespace="team-{workload // 50}",pod="app-{workload}-7d4b9c6f5-{number}"'
    samples = {
        "container_cpu_usage_seconds_total": 1e9,
        "container_start_time_seconds": 1,
        "container_cpu_cfs_periods_total": 1000,
        "container_cpu_cfs_throttled_periods_total": 400,
        **{f"container_memory_figure_{number}": 1 for number in range(LINES)},
    }
    return "".join(f"{name}{{{labels}}} {value}\n" for name, value in samples.items())


async def _serve(pods: int, nodes: int) -> None:
    runner = web.AppRunner(application(pods, nodes), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), int(sys.argv[2])))
