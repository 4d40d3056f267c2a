"""The reconciler on an API server that comes back with an older past, as after a restore of etcd."""

import asyncio

import pytest

from raddle_operator.controller.reconcile import HistoryRewoundError, Reconciler
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.events import Recorder
from raddle_operator.kube import NAMESPACES, NODES, PODS, Page, Unreachable


class Restored:
    """Stands in for Kube: lists are at version 100; the watch of one kind breaks, and its next list is at 50."""

    def __init__(self, broken):
        self.broken = broken
        self.listed = 0

    async def list(self, resource, *_, **__):
        return Page("100", [])

    async def pages(self, resource, *_, **__):
        self.listed += resource is self.broken
        yield Page("100" if self.listed < 2 else "50", [])

    async def watch(self, resource, *_, **__):
        if resource is self.broken and self.listed < 2:
            raise Unreachable(0, "NoAnswer", "refused")
        await asyncio.Event().wait()
        yield


@pytest.mark.parametrize("kind", [NAMESPACES, NODES, PODS], ids=lambda kind: kind.plural)
async def test_it_ends_so_that_everything_is_read_anew(kind):
    kube = Restored(broken=kind)
    settings = ControllerSettings(namespace="raddle-system", identity="a", keep_shim=False)
    reconciler = Reconciler(kube, settings, Recorder(kube, controller="raddle.dev/controller", instance="a"))
    with pytest.raises(ExceptionGroup) as raised:
        async with asyncio.timeout(10):
            await reconciler.run()
    assert raised.value.subgroup(HistoryRewoundError) is not None
