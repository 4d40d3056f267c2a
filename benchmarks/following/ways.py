"""One way to follow N objects, in a process of its own: `python -m following.ways WAY KIND COUNT PORT KUBECONFIG`.

Prints a line of JSON: CPU seconds until every object is known, the most memory above that of the start in MB, and how
many of the objects were written to.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import kopf

from raddle_operator.controller.facts import PodReader, read_node
from raddle_operator.controller.handlers import configure
from raddle_operator.kube import NODES, PODS, Kube
from raddle_operator.kube.informer import Informer

Follow = Callable[[str, int, Path, Callable[[str], None]], Coroutine[Any, Any, None]]
"""``follow(kind, port, kubeconfig, note)`` follows the objects and notes the name of each."""
WRITES_S = 60.0


async def informer(kind: str, _: int, config: Path, note: Callable[[str], None]) -> None:
    """Our own, as the controller and the webhook use it: of pods the metadata only."""
    async with await Kube.from_settings(config) as kube:

        def changed(key: Any, *_: Any) -> None:
            note(key[1])

        if kind == "pods":
            await Informer(kube, PODS, PodReader().read, metadata_only=True, on_change=changed).run()
        await Informer(kube, NODES, read_node, on_change=changed).run()


def _kopf(decorate: Callable[..., Any], **options: Any) -> Follow:
    async def follow(kind: str, port: int, _: Path, note: Callable[[str], None]) -> None:
        registry = kopf.OperatorRegistry()
        keeps_state = decorate is not kopf.on.event and decorate is not kopf.index

        @kopf.on.startup(registry=registry)  # type: ignore[untyped-decorator]
        async def start(settings: kopf.OperatorSettings, **rest: Any) -> None:
            stored = settings.persistence.diffbase_storage
            await configure(settings=settings, **rest)
            if keeps_state:
                settings.persistence.diffbase_storage = stored

        @kopf.on.login(registry=registry)  # type: ignore[untyped-decorator]
        async def login(**_: Any) -> kopf.ConnectionInfo:
            return kopf.ConnectionInfo(server=f"http://127.0.0.1:{port}")

        async def handler(name: str, body: Any, **_: Any) -> Any:
            note(name)
            if decorate is kopf.index:
                return {name: PodReader().read(body) if kind == "pods" else read_node(body)}
            if decorate is kopf.daemon:
                await asyncio.Event().wait()
            return None

        decorate("", "v1", kind, registry=registry, **options)(handler)
        await kopf.operator(registry=registry, standalone=True, clusterwide=True, identity="bench")

    return follow


WAYS: dict[str, Follow] = {
    "informer": informer,
    "kopf.on.event": _kopf(kopf.on.event),
    "kopf.index": _kopf(kopf.index),
    "kopf.on.create": _kopf(kopf.on.create),
    "kopf.daemon": _kopf(kopf.daemon, cancellation_timeout=0.1),
}
WRITING = ("kopf.on.create", "kopf.daemon")


async def _measure(way: str, kind: str, count: int, port: int, config: Path) -> dict[str, float]:
    known: set[str] = set()
    complete = asyncio.Event()

    def note(name: str) -> None:
        known.add(name)
        if len(known) == count:
            complete.set()

    began_mb, began_s = _memory_mb("VmRSS"), time.process_time()
    following = asyncio.create_task(WAYS[way](kind, port, config, note))
    waiting = asyncio.create_task(complete.wait())
    await asyncio.wait((following, waiting), return_when=asyncio.FIRST_COMPLETED)
    if following.done():
        following.result()
    writes = 0
    if way in WRITING:
        async with aiohttp.ClientSession() as session, asyncio.timeout(WRITES_S):
            while writes < count:
                await asyncio.sleep(0.2)
                async with session.get(f"http://127.0.0.1:{port}/writes") as answer:
                    writes = await answer.json()
    result = {"cpu_s": time.process_time() - began_s, "memory_mb": _memory_mb("VmHWM") - began_mb, "writes": writes}
    following.cancel()
    return result


def _memory_mb(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":")) * 1024 / 1e6


async def _main() -> None:
    way, kind, count, port, config = sys.argv[1:]
    result = await _measure(way, kind, int(count), int(port), Path(config))
    print(json.dumps(result), flush=True)
    os._exit(0)  # what is still followed would be waited for


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(_main())
