"""An API server of canned answers, in a process of its own: what is measured is who asks it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

NOW = "2026-01-01T00:00:00Z"
_FIELDS: dict[str, Any] = {f"f:field-{number}": {} for number in range(40)}
MANAGED_FIELDS = [{"manager": "kubelet", "operation": "Update", "time": NOW, "fieldsV1": {"f:spec": _FIELDS}}]
_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
"""


def serve(application: web.Application) -> None:
    """Print the port, and serve until standard input ends."""
    asyncio.run(_serve(application))


async def _serve(application: web.Application) -> None:
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


@contextlib.contextmanager
def server(module: str, *arguments: str) -> Iterator[tuple[int, Path]]:
    """A module's server: its port, and a kubeconfig, alone in its folder."""
    command = [sys.executable, "-m", module, *arguments]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        config = Path(folder) / "kubeconfig"
        config.write_text(_KUBECONFIG.format(port=port))
        yield port, config
        process.stdin.close()


def page(request: web.Request, count: int, item: Callable[[int], bytes]) -> web.Response:
    """The part of a list of so many items that `limit` and `continue` ask for."""
    first, limit = int(request.query.get("continue") or 0), int(request.query.get("limit") or count)
    last = min(count, first + limit)
    metadata: dict[str, Any] = {"resourceVersion": "1"}
    if last < count:
        metadata |= {"continue": str(last), "remainingItemCount": count - last}
    items = b",".join(map(item, range(first, last)))
    body = b'{"apiVersion":"v1","kind":"List","metadata":' + orjson.dumps(metadata) + b',"items":[' + items + b"]}"
    return web.Response(body=body, content_type="application/json")
