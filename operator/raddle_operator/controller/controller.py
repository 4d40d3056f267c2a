"""What the controller process does: probes and metrics answer at once, and work is done only while it leads.

Losing the Lease ends the process: nothing that was under way can then collide with the next leader, and a restart
begins from the API server's state. So does an API server that went back in time: what is known is of another past.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final, NoReturn, Self

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from raddle_operator.certificates import CertificateSettings, ensure
from raddle_operator.controller import metrics
from raddle_operator.controller.reconcile import HistoryRewoundError, Reconciler
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.kube import Connection, Kube, KubeError, Object, Resource
from raddle_operator.kube.events import Recorder
from raddle_operator.kube.informer import Key, backoffs
from raddle_operator.kube.leader import Elector
from raddle_operator.kube.ownership import account

log = logging.getLogger(__name__)


class Controller:
    """What kopf's handlers start, feed and stop. ``error`` says what ended the work, None while nothing has."""

    def __init__(self, kube: Kube, settings: ControllerSettings) -> None:
        self.error: BaseException | None = None
        self.ended: Final = asyncio.Event()
        self._kube = kube
        self._settings = settings
        self._elector = Elector(
            kube,
            namespace=settings.namespace,
            name=settings.lease,
            identity=settings.identity,
            timing=settings.election,
            owners=account(kube, settings.namespace, settings.account),
        )
        self._leads = asyncio.Event()
        self._reconciler: Reconciler | None = None
        self._recorder = Recorder(kube, controller="raddle.dev/controller", instance=settings.identity)
        self._until_stopped = contextlib.AsyncExitStack()

    def __copy__(self) -> Self:
        """Itself: kopf keeps a copy of its memo for every object."""
        return self

    async def start(self) -> None:
        """Answers probes and waits until this process leads. Raises OSError where the port is taken."""
        await self._until_stopped.enter_async_context(_serving(self, self._settings))
        electing = asyncio.create_task(self._elector.run(self._lead))
        electing.add_done_callback(lambda done: self._end(None if done.cancelled() else done.exception()))
        self._until_stopped.push_async_callback(_cancelled, electing)
        await self._leads.wait()

    async def stop(self) -> None:
        """Ends all work, releases the Lease, and answers no more probes."""
        self.ended.set()  # else kopf's own wait for it would hold up its end
        await self._until_stopped.aclose()

    async def credentials(self) -> Connection:
        """The credentials of now."""
        return await self._kube.connection()

    def notify(self, resource: Resource, key: Key, obj: Object, change: str | None) -> None:
        """Notes an object as it is now, or was when it was deleted (see Reconciler.notify)."""
        if self._reconciler is not None:
            self._reconciler.notify(resource, key, obj, change)

    def not_ready(self) -> str:
        """What is missing, empty when the process is ready to lead or leads with complete lists."""
        if self._elector.holder is None:
            return "the lease has not been read yet"
        if self._reconciler is not None and self._reconciler.state.unsynced():
            return "not listed yet: " + ", ".join(self._reconciler.state.unsynced())
        return ""

    def measure(self) -> None:
        """Brings the gauges up to date."""
        metrics.LEADER.set(self._elector.is_leader)
        metrics.READINGS.events_dropped = self._recorder.dropped
        if self._reconciler is not None:
            self._reconciler.measure()

    def _end(self, error: BaseException | None) -> None:
        self.error = self.error or error
        self.ended.set()

    async def _lead(self) -> NoReturn:
        """Does the leader's work from what the API server says now, until cancelled."""
        rewound = HistoryRewoundError("the API server returned older versions, as after a restore from backup")
        self._reconciler = Reconciler(self._kube, self._settings, self._recorder, on_rewind=lambda: self._end(rewound))
        self._leads.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._recorder.run())
            group.create_task(self._reconciler.run())
            if self._settings.issue_certificates:
                group.create_task(_keep_certificates(self._kube, self._settings))
        raise AssertionError("the leader's work never ends")


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _keep_certificates(kube: Kube, settings: ControllerSettings) -> NoReturn:
    certificates = CertificateSettings(
        namespace=settings.namespace,
        owners=account(kube, settings.namespace, settings.account),
    )
    pauses = backoffs()
    while True:
        try:
            wait_s = await ensure(kube, certificates)
        except KubeError as error:
            wait_s = next(pauses)
            metrics.CERTIFICATE_CHECKS.labels("failed").inc()
            log.warning("webhook certificates: %s; retrying in %.1f s", error, wait_s)
        else:
            pauses = backoffs()
            metrics.CERTIFICATE_CHECKS.labels("done").inc()
        await asyncio.sleep(wait_s)


@contextlib.asynccontextmanager
async def _serving(controller: Controller, settings: ControllerSettings) -> AsyncIterator[None]:
    async def live(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")  # that the loop answers is what is asked

    async def ready(_: web.Request) -> web.Response:
        missing = controller.not_ready()
        return web.Response(text=f"{missing or 'ok'}\n", status=503 if missing else 200)

    async def measured(_: web.Request) -> web.Response:
        controller.measure()
        return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.add_routes([web.get("/livez", live), web.get("/readyz", ready), web.get("/metrics", measured)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, settings.host, settings.port).start()
        yield
    finally:
        await runner.cleanup()
