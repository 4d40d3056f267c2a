"""kopf, and the only module that knows it: it watches our own kinds and hands every change to the controller's queue.

kopf waits for the CRDs, follows them when they change, logs in, and keeps the watches alive. It runs in a thread and an
event loop of its own, because it cancels all that is in its loop when it ends. Only ``on.event`` handlers: they write
neither finalizers nor annotations. Retries are the queue's business, and what kopf may miss (a deletion while it had
no watch) is found by the controller's resync.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import kopf

from raddle_operator.kube import (
    CLUSTER_INFERENCE_THREADINGS,
    INFERENCE_THREADINGS,
    NODE_CPU_TOPOLOGIES,
    Connection,
    Object,
    Resource,
)
from raddle_operator.kube.informer import Key, backoffs

log = logging.getLogger(__name__)
# It warns at each start that it can't handle signals in a thread, which is not its business here.
logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
# It writes a line for every event of every object.
logging.getLogger("kopf.objects").setLevel(logging.WARNING)

WATCHED: Final = (INFERENCE_THREADINGS, CLUSTER_INFERENCE_THREADINGS, NODE_CPU_TOPOLOGIES)
STOP_WITHIN_S: Final = 5.0

Deliver = Callable[[Resource, Key, Object, bool], None]
"""``deliver(resource, key, object, deleted)``, called from kopf's thread."""
Connect = Callable[[], Awaitable[Connection]]
"""Returns the credentials of now; awaited in kopf's thread at each login."""


class NoDiffBase(kopf.DiffBaseStorage):  # type: ignore[misc]
    """Keeps nothing: without state-keeping handlers nobody asks what has changed, and a deep copy an event is dear."""

    def build(self, **_: Any) -> Any:
        """Return nothing to compare."""
        return {}

    def fetch(self, **_: Any) -> Any:
        """Return nothing stored."""
        return None

    def store(self, **_: Any) -> None:
        """Write nothing into the user's object."""


class CappedForever:
    """Pauses between attempts, without end: by default kopf gives up after 54 s of 5xx or 403, and ends."""

    def __iter__(self) -> Iterator[float]:
        """Return a fresh series; kopf takes one for each request."""
        return backoffs(1.0, 30.0)


def new_registry(deliver: Deliver, connect: Connect) -> kopf.OperatorRegistry:
    """Return handlers of our kinds in a registry of their own (the global one belongs to whoever else imports kopf)."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry, id="login")  # type: ignore[untyped-decorator]
    async def login(**_: Any) -> kopf.ConnectionInfo:
        connection = await connect()
        scheme, _space, token = (connection.authorization or "").partition(" ")
        return kopf.ConnectionInfo(
            server=connection.server,
            ca_path=connection.ca_path,
            insecure=not connection.verify_tls,
            scheme=scheme or None,
            token=token or None,
            certificate_path=connection.certificate_path,
            private_key_path=connection.private_key_path,
            proxy_url=connection.proxy,
            trust_env=True,
        )

    for resource in WATCHED:
        _register(registry, resource, deliver)
    return registry


def _register(registry: kopf.OperatorRegistry, resource: Resource, deliver: Deliver) -> None:
    of_kind = (resource.group, resource.version, resource.plural)

    @kopf.on.event(*of_kind, registry=registry, id=f"on-{resource.plural}")  # type: ignore[untyped-decorator]
    async def changed(event: Mapping[str, Any], namespace: str | None, name: str, **_: Any) -> None:
        deliver(resource, (namespace or "", name), dict(event["object"]), event["type"] == "DELETED")


def new_settings() -> kopf.OperatorSettings:
    """Return settings with which kopf writes nothing, keeps little, and does not give up."""
    settings = kopf.OperatorSettings()
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.persistence.finalizer = "raddle.dev/finalizer"  # never used; never kopf's own name in users' objects
    settings.posting.enabled = False
    settings.queueing.idle_timeout = 0.5
    settings.watching.chunk_size = 500
    settings.networking.error_backoffs = CappedForever()
    return settings


@dataclass(slots=True)
class _Run:
    """One life of kopf. ``wanted`` is read in its thread, the rest is set there."""

    wanted: bool = True
    loop: asyncio.AbstractEventLoop | None = None
    stop: asyncio.Event | None = None

    def end(self) -> None:
        """Ask kopf to stop, whether it runs already or not yet."""
        self.wanted = False
        if self.loop is not None and self.stop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped
                self.loop.call_soon_threadsafe(self.stop.set)


class KopfThread:
    """Runs kopf in a thread, and starts it again with a pause should it end by itself."""

    def __init__(self, deliver: Deliver, connect: Connect) -> None:
        self.restarts = 0
        self._deliver = deliver
        self._connect = connect

    async def run(self) -> NoReturn:
        """Keep kopf running until cancelled, then stop it (waiting 5 s at most: the thread is a daemon)."""
        pauses = backoffs(1.0, 60.0)
        while True:
            await self._once()
            self.restarts += 1
            pause_s = next(pauses)
            log.error("kopf has ended by itself; it starts again in %.1f s", pause_s)
            await asyncio.sleep(pause_s)

    async def _once(self) -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        run = _Run()

        def body() -> None:
            try:
                asyncio.run(self._operate(run))
            except Exception:
                log.exception("kopf failed")
            finally:
                with contextlib.suppress(RuntimeError):  # our loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=body, name="kopf", daemon=True).start()
        try:
            await ended.wait()
        finally:
            run.end()
            try:
                async with asyncio.timeout(STOP_WITHIN_S):
                    await ended.wait()
            except TimeoutError:
                log.warning("kopf did not stop within %.0f s", STOP_WITHIN_S)

    async def _operate(self, run: _Run) -> None:
        run.stop = asyncio.Event()
        run.loop = asyncio.get_running_loop()
        if not run.wanted:
            return
        await kopf.operator(
            registry=new_registry(self._deliver, self._connect),
            settings=new_settings(),
            # Nobody reads it without peering, but kopf would look for the user's name, which a container's may lack.
            identity="raddle",
            standalone=True,  # no peering: a foreign object named "default" could pause us
            clusterwide=True,
            stop_flag=run.stop,
        )
