"""The reconciler on an API server that comes back with an older past, as after a restore of etcd."""

import asyncio

from raddle_operator.controller.reconcile import Reconciler
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.kube import PODS, Page, Unreachable
from raddle_operator.kube.events import Recorder


class Restored:
    """Stands in for Kube: lists are at version 100; the watch of one kind breaks, and its next list is at 50."""

    def __init__(self, broken):
        self.broken = broken
        self.listed = 0

    async def pages(self, resource, *_, **__):
        self.listed += resource is self.broken
        yield Page("100" if self.listed < 2 else "50", [])

    async def watch(self, resource, *_, **__):
        if resource is self.broken and self.listed < 2:
            raise Unreachable(0, "NoAnswer", "refused")
        await asyncio.Event().wait()
        yield


async def test_it_says_so_and_writes_nothing_any_more():
    kube = Restored(broken=PODS)
    settings = ControllerSettings(namespace="raddle-system", identity="a", keep_shim=False)
    recorder, rewound = Recorder(kube, controller="raddle.dev/controller", instance="a"), asyncio.Event()
    reconciler = Reconciler(kube, settings, recorder, on_rewind=rewound.set)
    working = asyncio.create_task(reconciler.run())
    async with asyncio.timeout(10):
        await rewound.wait()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
