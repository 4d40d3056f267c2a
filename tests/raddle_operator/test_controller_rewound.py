"""The reconciler on an API server that comes back with an older past, as after a restore of etcd."""

import asyncio

import pytest

from raddle_operator.controller.process import anew_when_rewound
from raddle_operator.controller.reconcile import HistoryRewoundError, Reconciler
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.kube import NAMESPACES, NODES, PODS, Page, Unreachable
from raddle_operator.kube.events import Recorder


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


async def test_work_begins_anew_and_ends_by_being_cancelled_even_while_it_is_torn_down():
    started, tearing_down, may_end = [], asyncio.Event(), asyncio.Event()

    async def rewind():
        raise HistoryRewoundError

    async def slow_to_end(number):
        try:
            await asyncio.Event().wait()
        finally:
            if number == 2:
                tearing_down.set()
                await may_end.wait()

    async def work():
        started.append(len(started) + 1)
        async with asyncio.TaskGroup() as group:
            group.create_task(slow_to_end(started[-1]))
            if started[-1] < 3:
                group.create_task(rewind())

    async with asyncio.timeout(10):
        leading = asyncio.create_task(anew_when_rewound(work))
        await tearing_down.wait()
        leading.cancel()
        await asyncio.sleep(0)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await leading
    assert started == [1, 2]
