"""What agents report: containers as tests and pictures need them, and an agent that serves a report."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from aiohttp import web

from raddle_operator.effective import compare
from raddle_operator.effective.planned import ContainerPlan
from raddle_operator.objects import nodereport
from raddle_operator.objects.nodereport import Container, Level, NodeReport, Pool, Process

PLANNED = ContainerPlan(threads=2, counts={"onnxruntime": 2}, limit_cpus=2.0, shim=True, runtimes=("onnxruntime",))


def container(pod: str, *, namespace: str = "models", name: str = "serve", **more: Any) -> Container:
    """A container of two planned threads that both run, at a limit of 2; `more` is what differs."""
    given: dict[str, Any] = {
        "uid": f"uid-{pod}",
        "limit_cpus": 2.0,
        "quota_cpus": 2.0,
        "used_cpus": 1.5,
        "throttled_share": 0.0,
        "waiting_share": 0.0,
        "planned_threads": 2,
        "effective_threads": 2,
        "policy": "InferenceThreading/models/serving",
    }
    return Container(namespace=namespace, pod=pod, name=name, **{**given, **more})


def process(last_cpus: Mapping[int, int], used_cpus: float = 1.5, delay_cpus: float = 0.25) -> Process:
    """A process with a pool of ONNX Runtime's whose threads were on these CPUs last."""
    ran = sum(last_cpus.values())
    pool = Pool(
        name="onnxruntime", threads=ran, ran=ran, used_cpus=used_cpus, delay_cpus=delay_cpus, last_cpus=last_cpus
    )
    return Process(pid=1, command="python", threads=ran + 1, runtimes=("onnxruntime",), pools=(pool,))


def sixteen(pod: str = "resnet-0", processes_on: Mapping[int, int] | None = None, **more: Any) -> Container:
    """A container whose code sets 16 threads at a limit of 2; `processes_on`: CPU -> how many of them were there."""
    given: dict[str, Any] = {"used_cpus": 2.0, "throttled_share": 0.83, "throttled_cpus": 5.2, "waiting_share": 0.91}
    session = nodereport.Session(runtime="onnxruntime", threads=16, source="code")
    of_code = process(processes_on or dict.fromkeys(range(16), 1), 2.0, 13.5)
    given["processes"] = (replace(of_code, sessions=(session,), listened=True),)
    made = container(pod, **{**given, **more})
    (found,) = compare.compared(report("n", made), {(made.uid, made.name): PLANNED}, {}).containers
    return found


def report(node: str, *containers: Container, level: Level = Level.PROCESSES) -> NodeReport:
    """A report of ten seconds."""
    return NodeReport(node=node, level=level, at="2026-11-24T00:00:00Z", window_s=10.0, containers=containers)


def own_address() -> str:
    """An address of this machine that an API server would proxy to: none of loopback's, "" where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            # Nothing is sent: the kernel chooses the address from which it would.
            asked.connect(("198.51.100.1", 9))
        except OSError:
            return ""
        found = str(asked.getsockname()[0])
    return "" if found.startswith("127.") else found


@contextlib.contextmanager
def agent(address: str, port: int, answer: NodeReport) -> Iterator[None]:
    """An agent's server at this address, which answers with the report."""

    async def handler(request: web.Request) -> web.Response:
        if request.path != "/v1/report":
            return web.Response(status=404)
        return web.json_response(nodereport.to_document(answer))

    with served(handler, address, port):
        yield


@contextlib.contextmanager
def served(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], address: str = "127.0.0.1", port: int = 0
) -> Iterator[int]:
    """A server in a thread of its own, for tests whose command has an event loop itself; yields its port."""

    async def start() -> web.AppRunner:
        application = web.Application()
        application.router.add_get("/{path:.*}", handler)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, address, port).start()
        return runner

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        runner = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
        yield runner.addresses[0][1]
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
