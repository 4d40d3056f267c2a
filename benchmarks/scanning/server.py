"""An API server of canned answers: N pods by pages, their nodes, and what the kubelets measure. Nothing is kept.

python -m scanning.server PODS NODES      # prints its port, serves until its stdin ends
"""

from __future__ import annotations

import sys

import orjson
from aiohttp import web

import canned
from canned import NOW
from scale import objects

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
        obj["metadata"]["managedFields"] = canned.MANAGED_FIELDS
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

    def node(number: int) -> bytes:
        return orjson.dumps({"metadata": {"name": f"node-{number}"}, "status": {"capacity": {"cpu": "64"}}})

    async def several(request: web.Request) -> web.Response:
        return canned.page(request, pods, pod)

    async def all_nodes(request: web.Request) -> web.Response:
        return canned.page(request, nodes, node)

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


if __name__ == "__main__":
    canned.serve(application(int(sys.argv[1]), int(sys.argv[2])))
