"""A client of an API server that is a handler of the test's."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from aiohttp import web

from raddle_operator.kube import Kube


@contextlib.asynccontextmanager
async def answering(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], tmp_path: Path, token: str = "first"
) -> AsyncIterator[tuple[Kube, Path]]:
    """A Kube whose server is `handler`; its token is read from the returned file."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    token_file = tmp_path / "token"
    token_file.write_text(token)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"tokenFile": str(token_file)}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    try:
        async with await Kube.from_settings(path) as client:
            yield client, token_file
    finally:
        await runner.cleanup()
