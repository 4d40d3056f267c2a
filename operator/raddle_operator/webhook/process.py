"""The webhook process: certificate, caches and listeners put together, and a stop that no request notices."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Coroutine
from typing import Any, Final, NoReturn

import uvloop

from raddle_operator.kube import ConfigError, Kube
from raddle_operator.webhook.admission import Admission
from raddle_operator.webhook.caches import Caches
from raddle_operator.webhook.decision_log import DecisionLog
from raddle_operator.webhook.metrics import WebhookMetrics
from raddle_operator.webhook.server import BINDING_PATH, PODS_PATH, Server
from raddle_operator.webhook.settings import WebhookSettings
from raddle_operator.webhook.sources import Sources, informers
from raddle_operator.webhook.tls import CertificateError, ServingCertificate

log = logging.getLogger(__name__)

COLLECTED_AFTER: Final = (10_000, 10, 10)
_TICK_S: Final = 0.5
_LAG_TICKS: Final = 20


class Webhook:
    """One webhook: ``start`` it, ``serve`` until cancelled, ``stop`` it. ``kube`` None: nothing is ever looked up."""

    def __init__(self, settings: WebhookSettings, sources: Sources, kube: Kube | None) -> None:
        self.metrics: Final = WebhookMetrics()
        self.addresses: dict[str, int] = {}
        """The ports by name (https, health), once they are open."""
        self.ready: Final = asyncio.Event()
        self._settings: Final = settings
        self._caches: Final = Caches(sources)
        self._certificate: Final = ServingCertificate(settings.tls_dir, settings.client_ca_file)
        self._stopping = False
        decision_log = DecisionLog(settings.decision_logs_per_s)
        admission = Admission(settings, self._caches, kube, self.metrics, decision_log)
        answers = {PODS_PATH: ("pods", admission.pod), BINDING_PATH: ("binding", admission.binding)}
        self._server: Final = Server(
            settings, answers, unready=self.unready, metrics=self.metrics, decision_log=decision_log
        )
        self.metrics.watch(self._caches)

    def unready(self) -> str:
        """Why the process is not ready; "" when it is."""
        if self._stopping:
            return "stopping"
        if self._certificate.loaded is None:
            authorities = self._settings.client_ca_file
            return f"no certificate yet in {self._settings.tls_dir}" + (f", or no {authorities}" if authorities else "")
        if not self._caches.synced:
            missing = [state.kind for state in self._caches.states() if state.age_s is None]
            return f"caches not complete yet: {', '.join(missing)}"
        if "https" not in self.addresses:
            return "not listening yet"
        return ""

    async def serve(self) -> None:
        """Opens the listeners as soon as each can serve, and keeps the certificate fresh, until cancelled."""
        if self._settings.health_port is not None:
            self.addresses["health"] = await self._server.listen(self._settings.health_port)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_certificate())
            group.create_task(self._measure_lag())
            group.create_task(self._become_ready())

    async def stop(self) -> None:
        """Fails readiness, goes on serving for the delay, then drains."""
        self._stopping = True
        self._server.draining = True
        self.metrics.ready.set(0)
        log.info("stopping: not ready, serving for %.0f s more", self._settings.drain_delay_s)
        await asyncio.sleep(self._settings.drain_delay_s)
        await self.close()
        log.info("stopped")

    async def close(self) -> None:
        """Closes the listeners, and lets requests under way finish. Needed on every way out: uvloop waits for them."""
        self._stopping = True
        await self._server.close()

    async def _become_ready(self) -> None:
        await self._caches.until_synced()
        while reason := self.unready():
            log.debug("not ready: %s", reason)
            await asyncio.sleep(0.05)
        # What is there now stays: without this each full collection walks all of it, in the middle of a request.
        gc.collect()
        gc.freeze()
        # A review makes thousands of objects, which go with it, and by default each 700 of them are looked through.
        gc.set_threshold(*COLLECTED_AFTER)
        self.metrics.ready.set(1)
        self.ready.set()
        log.info("ready: %s", ", ".join(f"{name} on port {port}" for name, port in self.addresses.items()))

    async def _follow_certificate(self) -> None:
        while True:
            self._load_certificate()
            if self._certificate.loaded is not None and "https" not in self.addresses:
                port = await self._server.listen(self._settings.port, self._certificate.context)
                self.addresses["https"] = port
            # The first one is waited for impatiently.
            await asyncio.sleep(self._settings.certificate_check_s if self.addresses.get("https") else 0.2)

    def _load_certificate(self) -> None:
        try:
            new = self._certificate.load()
        except CertificateError as error:
            self.metrics.certificate_loads.labels("failed").inc()
            log.warning("certificate not loaded: %s", error)
            return
        loaded = self._certificate.loaded
        if new and loaded is not None:
            self.metrics.certificate_loads.labels("loaded").inc()
            self.metrics.certificate_expiry.set(loaded.expires_at_s)
            log.info("certificate loaded from %s", self._settings.tls_dir)

    async def _measure_lag(self) -> None:
        loop = asyncio.get_running_loop()
        lags_s: list[float] = []
        while True:
            due_s = loop.time() + _TICK_S
            await asyncio.sleep(_TICK_S)
            lags_s = [*lags_s[1 - _LAG_TICKS :], loop.time() - due_s]
            self.metrics.loop_lag.set(max(lags_s))


async def serve_until(stop: asyncio.Event, webhook: Webhook, *others: Coroutine[Any, Any, Any]) -> None:
    """Runs a webhook, with what feeds it, until ``stop`` is set; then drains. Raises what ends any of them early."""
    tasks = [asyncio.create_task(work) for work in (webhook.serve(), *others)]
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((stopping, *tasks), return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                _raise_what_ended(task)
        await webhook.stop()  # the caches are followed until the last request
    finally:
        for task in (stopping, *tasks):
            task.cancel()
        await asyncio.gather(stopping, *tasks, return_exceptions=True)
        await webhook.close()


def _raise_what_ended(task: asyncio.Task[Any]) -> NoReturn:
    try:
        task.result()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    raise RuntimeError("a task of the webhook ended unexpectedly")


async def _main(settings: WebhookSettings) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with await Kube.from_settings(settings.kubeconfig, settings.context) as kube:
        sources, followers = informers(kube, settings)
        webhook = Webhook(settings, sources, kube)
        await serve_until(stop, webhook, *(follower.run() for follower in followers))


def run(settings: WebhookSettings) -> None:
    """Runs the webhook until SIGTERM or SIGINT, then drains and returns.

    Raises ConfigError where there are no credentials, OSError where a port is taken.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(settings))


__all__ = ["ConfigError", "Webhook", "run", "serve_until"]
