"""A controller in a thread and an event loop of its own, as kopf wants it: at its end it ends all that is in its loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from cluster.local_raddle import NAMESPACE, WITHOUT_WORKLOADS
from generate import chart
from raddle_operator.controller import process

STOP_SECONDS = 20


def install_chart(cluster, *options):
    """The chart's objects without its processes, and a webhook that nobody answers for; options are Helm's."""
    cluster.helm(
        *("install", "raddle", str(chart.CHART), "--namespace", NAMESPACE, "--create-namespace"),
        *("--set", "webhook.url=https://127.0.0.1:1", *WITHOUT_WORKLOADS, *options),
    )
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


def account(cluster):
    """A kubeconfig with the rights that the chart gives to the controller."""
    name = f"system:serviceaccount:{NAMESPACE}:raddle-controller"
    return cluster.user(name, groups=["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}"])


class ControllerThread:
    """A running controller. `error` is what it ended with, None while it runs and after an end in order."""

    def __init__(self, settings):
        self.error = None
        self._settings = settings
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name=settings.identity, daemon=True)
        self._thread.start()
        self._begun.wait()

    @property
    def is_running(self):
        return self._thread.is_alive()

    def _run(self):
        try:
            asyncio.run(self._serve())
        except Exception as error:  # noqa: BLE001 (whatever it is, a test will ask)
            self.error = error

    async def _serve(self):
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await process.serve(self._settings)

    async def stop(self):
        """Cancel it and wait until it has released its Lease."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended
            self._loop.call_soon_threadsafe(self._task.cancel)
        await self.end()

    async def end(self):
        """Wait until it has ended by itself."""
        await asyncio.to_thread(self._thread.join, STOP_SECONDS)
        assert not self.is_running, "the controller does not end"
