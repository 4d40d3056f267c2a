"""When the reconciler writes a policy's status, and what does not hold it up."""

import asyncio

import pytest
from support.waiting import until

from raddle_operator.controller.reconcile import Reconciler
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.kube import INFERENCE_THREADINGS, NAMESPACES, NODE_CPU_TOPOLOGIES, PODS, Page, WatchEvent
from raddle_operator.kube.events import Recorder

INTERVAL_S = 3600.0
KEY = ("shop", "front")


class Server:
    """Stands in for Kube: one opted-in namespace, pods that a test announces, statuses that it keeps.

    The write of a topology's status is never answered.
    """

    def __init__(self):
        self.pods = asyncio.Queue()
        self.written = asyncio.Queue()
        self.version = 1000
        self.listed = "100"

    async def pages(self, resource, *_, **__):
        metadata = {"name": "shop", "labels": {"raddle.dev/inject": "enabled"}, "resourceVersion": "1"}
        namespace = {"metadata": {**metadata, "creationTimestamp": "2026-01-01T00:00:00Z"}}
        yield Page(self.listed, [namespace] if resource is NAMESPACES else [])

    async def watch(self, resource, *_, **__):
        while True:
            if resource is not PODS:
                await asyncio.Event().wait()
            yield WatchEvent("ADDED", await self.pods.get())

    async def apply_status(self, resource, body, *, field_manager):
        if resource is NODE_CPU_TOPOLOGIES:
            await asyncio.Event().wait()
        self.version += 1
        self.written.put_nowait(body["status"])
        return stored(body["status"]["observedGeneration"], self.version, {**body["status"]})

    async def create(self, *_):
        """Take an event."""


def stored(generation, version, status=None):
    metadata = {"name": KEY[1], "namespace": KEY[0], "uid": "u", "creationTimestamp": "2026-01-02T00:00:00Z"}
    return {
        "metadata": {**metadata, "generation": generation, "resourceVersion": str(version)},
        "spec": {"podSelector": {"matchLabels": {"app": "resnet"}}, "priority": generation},
        **({"status": status} if status else {}),
    }


def pod(number):
    metadata = {"name": f"resnet-{number}", "namespace": "shop", "labels": {"app": "resnet"}}
    created = {"creationTimestamp": "2026-01-01T12:00:00Z", "resourceVersion": str(200 + number)}
    return {"metadata": {**metadata, **created}}


@pytest.fixture
def server():
    return Server()


@pytest.fixture
async def reconciler(server):
    settings = ControllerSettings(identity="a", keep_shim=False, status_interval_s=INTERVAL_S, tally_interval_s=0.0)
    reconciler = Reconciler(
        server, settings, Recorder(server, controller="raddle.dev/controller", instance="a"), on_rewind=pytest.fail
    )
    running = asyncio.create_task(reconciler.run())
    yield reconciler
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def nothing_is_written(server):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await server.written.get()


async def test_a_policy_that_was_just_changed_says_so_at_once(server, reconciler):
    async with asyncio.timeout(10):
        for generation in (1, 2, 3):
            reconciler.state.deliver(INFERENCE_THREADINGS, KEY, stored(generation, server.version + 1))
            assert (await server.written.get())["observedGeneration"] == generation


async def test_pods_that_come_and_go_are_told_once_in_the_interval(server, reconciler):
    async with asyncio.timeout(10):
        reconciler.state.deliver(INFERENCE_THREADINGS, KEY, stored(1, server.version))
        assert (await server.written.get())["matchedPods"] == 0
        server.pods.put_nowait(pod(1))
        await nothing_is_written(server)
        # A new generation takes along what has waited.
        reconciler.state.deliver(INFERENCE_THREADINGS, KEY, stored(2, server.version + 1))
        assert (await server.written.get())["matchedPods"] == 1


async def test_somebody_who_writes_the_status_too_starts_no_race(server, reconciler):
    async with asyncio.timeout(10):
        reconciler.state.deliver(INFERENCE_THREADINGS, KEY, stored(1, server.version))
        await server.written.get()
        reconciler.state.deliver(INFERENCE_THREADINGS, KEY, stored(1, server.version + 1, {"observedGeneration": 99}))
        await nothing_is_written(server)


async def test_topologies_hold_up_no_policy(server, reconciler):
    async with asyncio.timeout(10):
        for number in range(100):
            metadata = {"name": f"node-{number}", "uid": "u", "generation": 1, "resourceVersion": str(number + 1)}
            reconciler.state.deliver(NODE_CPU_TOPOLOGIES, ("", metadata["name"]), {"metadata": metadata, "spec": {}})
        reconciler.state.deliver(INFERENCE_THREADINGS, KEY, stored(1, server.version))
        assert (await server.written.get())["observedGeneration"] == 1


async def test_kopfs_second_list_of_a_kind_calls_for_our_own_which_finds_what_is_gone(server, reconciler):
    gone = ("shop", "gone")
    async with asyncio.timeout(10):
        await reconciler.state.listed.wait()
        policies = reconciler.state.policies["InferenceThreading"]
        reconciler.notify(INFERENCE_THREADINGS, gone, stored(1, server.version), None)
        reconciler.notify(INFERENCE_THREADINGS, KEY, stored(1, 3000), "ADDED")
        assert set(policies) == {KEY, gone}
        server.listed = "2000"
        reconciler.notify(INFERENCE_THREADINGS, KEY, stored(1, 3000), None)
        await until(lambda: gone not in policies)
        assert set(policies) == {KEY}
