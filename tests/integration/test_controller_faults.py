"""What must not stop the controller: missing rights, an API server that goes away, other people's kopf, lost events.

It runs with the rights that the chart gives it and no others.
"""

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import time

import aiohttp
import kopf
import pytest
from support import controllers
from support.controllers import ControllerThread
from support.waiting import until

from cluster import Cluster, objects
from cluster.components import free_port
from raddle_operator.controller.reconcile import Reconciler
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.kube import (
    CONFIG_MAPS,
    EVENTS,
    INFERENCE_THREADINGS,
    LEASES,
    NAMESPACES,
    Forbidden,
    NotFound,
    Resource,
    Unavailable,
)
from raddle_operator.kube.events import Recorder
from raddle_operator.kube.leader import Timing

pytestmark = pytest.mark.cluster

SYSTEM = "raddle-system"
_numbers = itertools.count()
soon = functools.partial(until, seconds=40, refusals=(Unavailable, NotFound, Forbidden, aiohttp.ClientConnectionError))


@pytest.fixture(scope="module")
def cluster():
    with Cluster(scheduler=False, controller_manager=False) as running:
        controllers.install_chart(running)
        yield running


@pytest.fixture(scope="module")
def account(cluster):
    return controllers.account(cluster)


@pytest.fixture
async def namespace(kube):
    name = f"shop-{next(_numbers)}"
    await kube.create(NAMESPACES, objects.namespace(name))
    return name


@pytest.fixture
def settings(account):
    port = free_port()
    return ControllerSettings(
        namespace=SYSTEM,
        kubeconfig=account,
        identity=f"test-{next(_numbers)}",
        host="127.0.0.1",
        port=port,
        election=Timing(lease_s=30, renew_deadline_s=25, retry_s=0.5),
        status_interval_s=0.2,
        tally_interval_s=0.05,
        resync_s=600,
    )


@contextlib.asynccontextmanager
async def running(settings):
    started = ControllerThread(settings)
    try:
        yield started
        assert started.is_running, f"the controller has ended: {started.error!r}"
    finally:
        await started.stop()


async def has_status(kube, name, namespace):
    async def probe():
        return (await kube.get(INFERENCE_THREADINGS, name, namespace)).get("status")

    return await soon(probe)


async def new_policy(kube, name, namespace):
    return await kube.create(INFERENCE_THREADINGS, objects.policy(name, namespace))


async def is_ready(settings):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{settings.port}/readyz") as response:
        return response.status == 200


async def works(settings):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{settings.port}/metrics") as response:
        return 'raddle_controller_resyncs_total{outcome="done"}' in await response.text() and await is_ready(settings)


async def test_the_charts_rights_are_enough_for_status_events_lease_and_shim(kube, settings, namespace):
    async with running(settings):
        await new_policy(kube, "p", namespace)
        await has_status(kube, "p", namespace)
        await soon(lambda: nonempty(kube, EVENTS, namespace))
        await soon(lambda: nonempty(kube, CONFIG_MAPS, namespace))
        lease = await kube.get(LEASES, "raddle-controller", SYSTEM)
        assert lease["spec"]["holderIdentity"] == settings.identity


async def test_without_rights_on_tunings_all_else_works(kube, settings, namespace):
    tuning = dataclasses.replace(settings, tuning=True, tuner_image="registry.example/raddle-tuner:1")
    async with running(tuning):
        await new_policy(kube, "p", namespace)
        await has_status(kube, "p", namespace)
        await soon(lambda: is_ready(tuning))


async def nonempty(kube, resource, namespace):
    return (await kube.list(resource, namespace)).items


async def test_rights_that_are_missing_for_a_while_do_not_end_it(cluster, kube, settings, namespace):
    roles = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False, kind="ClusterRole")
    role = await kube.get(roles, "raddle-controller")
    rules = role["rules"]
    await kube.replace(roles, {**role, "rules": []})
    async with running(settings) as started:
        await new_policy(kube, "p", namespace)
        await asyncio.sleep(3)  # several attempts of every watch and of kopf's own
        assert started.is_running
        assert not await is_ready(settings)
        role = await kube.get(roles, "raddle-controller")
        await kube.replace(roles, {**role, "rules": rules})
        await has_status(kube, "p", namespace)
        # kopf, too, has gone on: nothing else tells of a new policy between resyncs.
        await new_policy(kube, "q", namespace)
        await has_status(kube, "q", namespace)


async def test_a_deletion_that_nobody_was_told_of_is_found_by_the_resync(cluster, kube, namespace):
    made = await new_policy(kube, "ghost", namespace)
    settings = ControllerSettings(namespace=SYSTEM, identity="direct", keep_shim=False)
    recorder = Recorder(kube, controller="raddle.dev/controller", instance="direct")
    reconciler = Reconciler(kube, settings, recorder, on_rewind=pytest.fail)
    reconciler.state.deliver(INFERENCE_THREADINGS, (namespace, "ghost"), made)
    assert (namespace, "ghost") in reconciler.state.policies["InferenceThreading"]
    await kube.delete(INFERENCE_THREADINGS, "ghost", namespace)
    await reconciler.resync()
    assert (namespace, "ghost") not in reconciler.state.policies["InferenceThreading"]


async def test_an_object_that_cannot_be_read_costs_that_object_only(kube, namespace):
    made = await new_policy(kube, "good", namespace)
    settings = ControllerSettings(namespace=SYSTEM, identity="direct", keep_shim=False)
    reconciler = Reconciler(
        kube, settings, Recorder(kube, controller="raddle.dev/controller", instance="direct"), on_rewind=pytest.fail
    )
    reconciler.state.deliver(INFERENCE_THREADINGS, (namespace, "bad"), {"metadata": {"resourceVersion": "1"}})
    reconciler.state.deliver(INFERENCE_THREADINGS, (namespace, "good"), made)
    assert set(reconciler.state.policies["InferenceThreading"]) == {(namespace, "good")}


async def test_handlers_of_others_in_kopfs_global_registry_do_not_run(kube, settings, namespace):
    called = []

    @kopf.on.event("raddle.dev", "v1alpha1", "inferencethreadings", id=f"foreign-{next(_numbers)}")
    async def foreign(name, **_):
        called.append(name)

    async with running(settings):
        await new_policy(kube, "p", namespace)
        await has_status(kube, "p", namespace)
    assert called == []


async def test_a_foreign_peering_object_does_not_pause_it(cluster, kube, settings, namespace):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterkopfpeerings.kopf.dev"},
        "spec": {
            "group": "kopf.dev",
            "scope": "Cluster",
            "names": {"plural": "clusterkopfpeerings", "kind": "ClusterKopfPeering"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    cluster.client.apply(definition)
    cluster.kubectl("wait", "--for=condition=Established", "crd/clusterkopfpeerings.kopf.dev", "--timeout=30s")
    now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    peer = {"priority": 1_000_000, "lastseen": now, "lifetime": 3600}
    peering = Resource("kopf.dev", "v1", "clusterkopfpeerings", namespaced=False, kind="ClusterKopfPeering")
    await kube.create(peering, {"metadata": {"name": "default"}, "status": {"someone-else": peer}})
    async with running(settings):
        await soon(lambda: works(settings))
        await new_policy(kube, "p", namespace)
        await has_status(kube, "p", namespace)
