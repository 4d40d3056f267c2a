"""The controller process: probes and metrics at once, work only while it leads.

Losing the Lease ends the process: nothing that was under way can then collide with the next leader, and a restart
begins from the API server's state.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from raddle_operator.certificates import CertificateSettings, ensure
from raddle_operator.controller import metrics
from raddle_operator.controller.handlers import KopfThread
from raddle_operator.controller.reconcile import HistoryRewoundError, Reconciler
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.kube import Kube, KubeError, Object, Resource
from raddle_operator.kube.events import Recorder
from raddle_operator.kube.informer import Key, backoffs
from raddle_operator.kube.leader import Elector, LeadershipLostError
from raddle_operator.kube.ownership import account

log = logging.getLogger(__name__)

COLLECTED_AFTER: Final = (10_000, 10, 10)
"""Parsing lists makes objects by the hundred thousand and no cycles; by default a third of a start is collection."""


@dataclass(slots=True)
class _Process:
    """What the probes and the metrics look at. ``reconciler`` is None while another process leads."""

    elector: Elector
    reconciler: Reconciler | None = None
    recorder: Recorder | None = None
    kopf: KopfThread | None = None

    def not_ready(self) -> str:
        """Return what is missing, empty when the process is ready to lead or leads with complete lists."""
        if self.elector.holder is None:
            return "the lease has not been read yet"
        if self.reconciler is not None and self.reconciler.unsynced():
            return "not listed yet: " + ", ".join(self.reconciler.unsynced())
        return ""

    def measure(self) -> None:
        """Bring the gauges up to date."""
        metrics.LEADER.set(self.elector.is_leader)
        if self.reconciler is not None:
            self.reconciler.measure()
        if self.recorder is not None:
            metrics.READINGS.events_dropped = self.recorder.dropped
        if self.kopf is not None:
            metrics.READINGS.kopf_restarts = self.kopf.restarts


async def serve(settings: ControllerSettings) -> None:
    """Run the controller until cancelled; then its Lease is released.

    Raises ConfigError where there are no credentials, LeadershipLostError when the Lease is lost (end the process).
    """
    async with await Kube.from_settings(settings.kubeconfig, settings.context) as kube:
        elector = Elector(
            kube,
            namespace=settings.namespace,
            name=settings.lease,
            identity=settings.identity,
            timing=settings.election,
            owners=account(kube, settings.namespace, settings.account),
        )
        process = _Process(elector)
        async with _serving(process, settings):
            await elector.run(functools.partial(_lead, kube, settings, process))


async def _lead(kube: Kube, settings: ControllerSettings, process: _Process) -> NoReturn:
    await anew_when_rewound(functools.partial(_work, kube, settings, process))


async def anew_when_rewound(work: Callable[[], Coroutine[Any, Any, NoReturn]]) -> NoReturn:
    """Do ``work()`` until cancelled, from the beginning each time it raises a group with HistoryRewoundError."""
    ours = asyncio.current_task()
    while True:
        # A task of its own: before Python 3.13 a group that fails while it is cancelled loses the cancellation.
        working = asyncio.create_task(work())
        try:
            await working
        except* HistoryRewoundError:
            # kopf's watches, too, are at versions that are not there yet.
            log.warning("the API server went back in time, as after a restore: everything is read anew")
        if ours is not None and ours.cancelling():
            raise asyncio.CancelledError


async def _work(kube: Kube, settings: ControllerSettings, process: _Process) -> NoReturn:
    """Do the leader's work from what the API server says now, until cancelled or rewound."""
    loop = asyncio.get_running_loop()
    recorder = Recorder(kube, controller="raddle.dev/controller", instance=settings.identity)
    reconciler = Reconciler(kube, settings, recorder)

    def deliver(resource: Resource, key: Key, obj: Object, deleted: bool) -> None:
        loop.call_soon_threadsafe(functools.partial(reconciler.deliver, resource, key, obj, deleted=deleted))

    kopf = KopfThread(deliver, kube.connection)
    process.reconciler, process.recorder, process.kopf = reconciler, recorder, kopf
    async with asyncio.TaskGroup() as group:
        group.create_task(recorder.run())
        group.create_task(reconciler.run())
        group.create_task(kopf.run())
        if settings.issue_certificates:
            group.create_task(_keep_certificates(kube, settings))
    raise AssertionError("the leader's work never ends")


async def _keep_certificates(kube: Kube, settings: ControllerSettings) -> NoReturn:
    certificates = CertificateSettings(
        namespace=settings.namespace,
        secret=settings.webhook_secret,
        service=settings.webhook_service,
        configuration=settings.webhook_configuration,
        extra_names=settings.webhook_names,
        owners=account(kube, settings.namespace, settings.account),
    )
    pauses = backoffs()
    while True:
        try:
            wait_s = await ensure(kube, certificates)
        except KubeError as error:
            wait_s = next(pauses)
            metrics.CERTIFICATE_CHECKS.labels("failed").inc()
            log.warning("webhook certificates: %s; again in %.1f s", error, wait_s)
        else:
            pauses = backoffs()
            metrics.CERTIFICATE_CHECKS.labels("done").inc()
        await asyncio.sleep(wait_s)


@contextlib.asynccontextmanager
async def _serving(process: _Process, settings: ControllerSettings) -> AsyncIterator[None]:
    async def live(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")  # that the loop answers is what is asked

    async def ready(_: web.Request) -> web.Response:
        missing = process.not_ready()
        return web.Response(text=f"{missing or 'ok'}\n", status=503 if missing else 200)

    async def measured(_: web.Request) -> web.Response:
        process.measure()
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


def run(settings: ControllerSettings) -> int:
    """Run the controller until SIGTERM or SIGINT; return the exit status."""
    gc.set_threshold(*COLLECTED_AFTER)
    try:
        asyncio.run(_until_signalled(settings))
    except LeadershipLostError as error:
        log.error("%s; this process ends", error)  # noqa: TRY400 (no bug, no traceback)
        return 1
    except KubeError as error:
        log.error("%s", error)  # noqa: TRY400
        return 1
    return 0


async def _until_signalled(settings: ControllerSettings) -> None:
    running = asyncio.ensure_future(serve(settings))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await running
