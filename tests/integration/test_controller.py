"""The controller as a whole against a real API server: kopf's watches, the informers, status, events, the shim."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import socket
import sys

import aiohttp
import pytest
from support.controllers import ControllerThread
from support.waiting import until

from cluster import objects
from cluster.components import free_port
from raddle import delivery
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.kube import (
    CLUSTER_INFERENCE_THREADINGS,
    CONFIG_MAPS,
    EVENTS,
    INFERENCE_THREADINGS,
    LEASES,
    NAMESPACES,
    NODE_CPU_TOPOLOGIES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    NotFound,
)
from raddle_operator.kube.leader import Timing

pytestmark = pytest.mark.cluster

WITHIN_S = 20
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(api_server):
    return api_server


def settings_for(cluster, **changes):
    number = next(_numbers)
    defaults = {
        "kubeconfig": cluster.kubeconfig,
        "identity": f"test-{number}",
        "lease": f"controller-{number}",
        "host": "127.0.0.1",
        "port": free_port(),
        "election": Timing(lease_s=6, renew_deadline_s=4, retry_s=0.5),
        "status_interval_s": 0.5,
        "tally_interval_s": 0.05,
        "issue_certificates": False,
    }
    return ControllerSettings(**{**defaults, **changes})


async def get_text(settings, path):
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{settings.port}{path}") as response:
        return response.status, await response.text()


@contextlib.asynccontextmanager
async def running(settings, *, ready=True):
    started = ControllerThread(settings)
    try:
        if ready:
            await until(lambda: leads(settings))
        yield started
    finally:
        await started.stop()


async def leads(settings):
    try:
        status, _ = await get_text(settings, "/readyz")
        _, metrics = await get_text(settings, "/metrics")
    except aiohttp.ClientConnectionError:
        return False
    return status == 200 and "raddle_controller_leader 1.0" in metrics


@pytest.fixture
async def controller(cluster):
    async with running(settings_for(cluster)) as task:
        yield task


async def new_namespace(kube, inject="enabled"):
    name = f"shop-{next(_numbers)}"
    await kube.create(NAMESPACES, objects.namespace(name, {"raddle.dev/inject": inject}))
    await kube.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": name}})
    return name


@pytest.fixture
async def namespace(kube):
    return await new_namespace(kube)


def policy(name, namespace, *, app="resnet", **spec):
    return objects.policy(name, namespace, podSelector={"matchLabels": {"app": app}}, **spec)


def pod(name, namespace, *, labels=None, annotations=None, limits=None):
    container = objects.container(resources={"limits": {"cpu": "2"} if limits is None else limits})
    given = {"app": "resnet", **(labels or {})}
    return objects.pod(container, name=name, namespace=namespace, labels=given, annotations=annotations)


def injected_pod(name, namespace, settings_hash, node="n1", **values):
    plan = json.dumps({"v": 1, "set": values, "node": node}, separators=(",", ":"))
    annotations = {"raddle.dev/settings-hash": settings_hash, "plan.raddle.dev/serve": plan}
    return pod(name, namespace, labels={"raddle.dev/injected": "true"}, annotations=annotations)


def condition(obj, kind):
    found = [item for item in obj.get("status", {}).get("conditions", []) if item["type"] == kind]
    return found[0] if found else {"status": "Absent", "reason": "Absent"}


async def status_says(kube, name, namespace, check, resource=INFERENCE_THREADINGS):
    async def probe():
        obj = await kube.get(resource, name, namespace)
        return obj if obj.get("status") and check(obj) else None

    return await until(probe)


async def events_about(kube, name, namespace, reason):
    async def probe():
        page = await kube.list(EVENTS, namespace)
        return [item for item in page.items if item["regarding"]["name"] == name and item["reason"] == reason]

    return await until(probe)


async def next_second():
    """Creation times are whole seconds, and a pod of the policy's own second counts as older than it."""
    await asyncio.sleep(1.1)


async def test_a_policy_that_selects_nothing_says_so_in_status_and_event(kube, controller, namespace):
    await kube.create(INFERENCE_THREADINGS, policy("lonely", namespace))
    found = await status_says(kube, "lonely", namespace, lambda obj: condition(obj, "Ready")["status"] == "False")
    assert condition(found, "Ready")["reason"] == "NoPodsMatched"
    assert condition(found, "Accepted")["status"] == "True"
    assert condition(found, "Degraded")["status"] == "False"
    assert found["status"]["observedGeneration"] == 1
    [event] = await events_about(kube, "lonely", namespace, "NoPodsMatched")
    assert event["type"] == "Normal"


async def test_neither_finalizers_nor_annotations_are_written_to_our_objects(kube, controller, namespace):
    await kube.create(INFERENCE_THREADINGS, policy("clean", namespace))
    found = await status_says(kube, "clean", namespace, lambda _: True)
    assert "finalizers" not in found["metadata"]
    assert "annotations" not in found["metadata"]
    managers = {entry["manager"] for entry in found["metadata"]["managedFields"]}
    assert managers == {"raddle", "raddle-controller"}  # this test's client and the status writer
    place = await kube.get(NAMESPACES, namespace)
    assert not {"annotations", "finalizers"} & place["metadata"].keys()
    await kube.delete(INFERENCE_THREADINGS, "clean", namespace)
    with pytest.raises(NotFound):
        await kube.get(INFERENCE_THREADINGS, "clean", namespace)


async def test_pods_are_counted_by_what_they_carry(kube, controller, namespace):
    made = await kube.create(INFERENCE_THREADINGS, policy("p", namespace))
    from raddle_operator.objects.policy import policy_from_object

    present = policy_from_object({**made, "kind": "InferenceThreading"}).settings_hash
    await next_second()
    await kube.create(PODS, injected_pod("fresh", namespace, present))
    await kube.create(PODS, injected_pod("safe", namespace, present, node=None))
    await kube.create(PODS, injected_pod("stale", namespace, "0123456789"))
    await kube.create(PODS, pod("missed", namespace))
    await kube.create(PODS, pod("unbounded", namespace, labels={"tier": "batch"}, limits={}))
    await kube.create(PODS, pod("other", namespace, labels={"app": "other"}))
    found = await status_says(kube, "p", namespace, lambda obj: len(obj["status"].get("skippedPods", [])) == 2)
    assert found["status"]["matchedPods"] == 5
    counts = {name: found["status"][name] for name in ("injectedPods", "safeValuePods", "stalePods")}
    assert counts == {"injectedPods": 3, "safeValuePods": 1, "stalePods": 1}
    reasons = {item["reason"]: item["count"] for item in found["status"]["skippedPods"]}
    assert reasons == {"WebhookMissed": 1, "NoCPUBound": 1}
    degraded = condition(found, "Degraded")
    assert degraded["reason"] == "WebhookMissed"
    assert f"{namespace}/missed" in degraded["message"]
    [event] = await events_about(kube, "p", namespace, "WebhookMissed")
    assert event["type"] == "Warning"


async def test_the_advice_for_throughput_is_counted_by_layout(kube, controller, namespace):
    await kube.create(INFERENCE_THREADINGS, policy("p", namespace, objective="Throughput"))
    # The last one's layout stands before the others.
    for number, (workers, threads) in enumerate([(16, 4), (16, 4), (2, 3)]):
        layout = {"workers": workers, "threads": threads}
        await kube.create(PODS, injected_pod(f"advised-{number}", namespace, "0123456789", layout=layout))
        await status_says(
            kube,
            "p",
            namespace,
            lambda obj, n=number + 1: sum(one["pods"] for one in obj["status"].get("layouts", [])) == n,
        )
    found = await status_says(kube, "p", namespace, lambda obj: len(obj["status"].get("layouts", [])) == 2)
    assert found["status"]["layouts"] == [
        {"layout": "2x3", "workers": 2, "threads": 3, "pods": 1},
        {"layout": "16x4", "workers": 16, "threads": 4, "pods": 2},
    ]


async def test_of_two_equal_policies_the_younger_is_told_of_the_conflict(kube, controller, namespace):
    await kube.create(INFERENCE_THREADINGS, policy("older", namespace))
    await next_second()
    await kube.create(INFERENCE_THREADINGS, policy("younger", namespace))
    await kube.create(PODS, pod("a", namespace))
    found = await status_says(kube, "younger", namespace, lambda obj: condition(obj, "Accepted")["status"] == "False")
    assert condition(found, "Accepted")["reason"] == "Conflict"
    assert "InferenceThreading/older" in condition(found, "Accepted")["message"]
    older = await status_says(kube, "older", namespace, lambda obj: obj["status"]["matchedPods"] == 1)
    assert condition(older, "Accepted")["status"] == "True"
    await kube.delete(INFERENCE_THREADINGS, "older", namespace)
    await status_says(kube, "younger", namespace, lambda obj: condition(obj, "Accepted")["status"] == "True")


async def test_a_cluster_policy_counts_the_pods_of_every_namespace_that_it_selects(kube, controller):
    names = [await new_namespace(kube) for _ in range(2)] + [await new_namespace(kube, inject="disabled")]
    app = f"spread-{next(_numbers)}"
    body = objects.policy(app, kind="ClusterInferenceThreading", podSelector={"matchLabels": {"app": app}})
    await kube.create(CLUSTER_INFERENCE_THREADINGS, body)
    for name in names:
        await kube.create(PODS, pod("a", name, labels={"app": app}))
    await status_says(kube, app, "", lambda obj: obj["status"]["matchedPods"] == 2, CLUSTER_INFERENCE_THREADINGS)
    await kube.patch(NAMESPACES, names[2], {"metadata": {"labels": {"raddle.dev/inject": "enabled"}}})
    await status_says(kube, app, "", lambda obj: obj["status"]["matchedPods"] == 3, CLUSTER_INFERENCE_THREADINGS)
    await kube.delete(CLUSTER_INFERENCE_THREADINGS, app)


async def test_a_status_that_somebody_else_changes_is_set_right(kube, controller, namespace):
    await kube.create(INFERENCE_THREADINGS, policy("p", namespace))
    await status_says(kube, "p", namespace, lambda _: True)
    await kube.patch(INFERENCE_THREADINGS, "p", {"status": {"matchedPods": 77}}, namespace, subresource="status")
    await status_says(kube, "p", namespace, lambda obj: obj["status"]["matchedPods"] == 0)


async def test_an_unchanged_world_causes_no_writes(kube, cluster, namespace):
    settings = settings_for(cluster, resync_s=0.5)
    async with running(settings):
        await kube.create(INFERENCE_THREADINGS, policy("p", namespace))
        await next_second()
        await kube.create(PODS, pod("missed", namespace))
        found = await status_says(kube, "p", namespace, lambda obj: condition(obj, "Degraded")["status"] == "True")
        before = found["metadata"]["resourceVersion"]
        _, text = await get_text(settings, "/metrics")
        resyncs = resyncs_in(text)

        async def three_more_resyncs():
            _, text = await get_text(settings, "/metrics")
            return resyncs_in(text) >= resyncs + 3

        await until(three_more_resyncs)
        after = await kube.get(INFERENCE_THREADINGS, "p", namespace)
        assert after["metadata"]["resourceVersion"] == before


def resyncs_in(text):
    lines = [line for line in text.splitlines() if line.startswith('raddle_controller_resyncs_total{outcome="done"}')]
    return float(lines[0].split()[-1]) if lines else 0.0


async def test_a_topology_is_fresh_while_boot_and_cpu_count_are_the_nodes(cluster, kube, controller):
    name = f"n{next(_numbers)}"
    node = cluster.register_node(name, cpus=16)
    body = {"metadata": {"name": name}, "spec": {"bootID": node.boot_id, "cpus": {"online": "0-15"}}}
    await kube.create(NODE_CPU_TOPOLOGIES, body)
    await fresh_is(kube, name, "True", "SameBoot")
    await kube.patch(NODE_CPU_TOPOLOGIES, name, {"spec": {**body["spec"], "bootID": "another"}})
    await fresh_is(kube, name, "False", "BootIDChanged")
    await kube.patch(NODE_CPU_TOPOLOGIES, name, {"spec": {**body["spec"], "cpus": {"online": "0-7"}}})
    await fresh_is(kube, name, "False", "CapacityChanged")
    node.delete()
    await fresh_is(kube, name, "False", "NodeGone")
    await kube.delete(NODE_CPU_TOPOLOGIES, name)


async def fresh_is(kube, name, status, reason):
    def is_so(obj):
        return (condition(obj, "Fresh")["status"], condition(obj, "Fresh")["reason"]) == (status, reason)

    await status_says(kube, name, "", is_so, NODE_CPU_TOPOLOGIES)


async def test_what_agents_say_is_summed_up_in_the_policys_status_with_events_and_metrics(kube, cluster, namespace):
    settings = settings_for(cluster)
    reference = f"InferenceThreading/{namespace}/p"

    def said(drifted, *pods):
        detail = "16 threads, 2 were planned"
        drift = {"policy": reference, "namespace": namespace, "container": "serve", "cause": "CodeSetsIt"}
        causes = [{"cause": "CodeSetsIt", "containers": drifted}] if drifted else []
        counts = {"policy": reference, "containers": 3, "drifted": drifted, "causes": causes}
        return {"policies": [counts], "worst": [{**drift, "pod": pod, "detail": detail} for pod in pods]}

    async def tell(name, **status):
        body = {"metadata": {"name": name}, "status": status}
        await kube.apply_status(NODE_CPU_TOPOLOGIES, body, field_manager="raddle-agent-running")

    async def heard_of(name, ready):
        conditions = [{"type": "Ready", "status": ready, "reason": "Test", "message": ""}]
        await kube.apply_status(
            NODES, {"metadata": {"name": name}, "status": {"conditions": conditions}}, field_manager="kubelet"
        )

    names = [f"n{next(_numbers)}" for _ in range(2)]
    async with running(settings):
        await kube.create(INFERENCE_THREADINGS, policy("p", namespace))
        for name in names:
            await kube.create(NODES, {"metadata": {"name": name}})
            await heard_of(name, "True")
            await kube.create(NODE_CPU_TOPOLOGIES, {"metadata": {"name": name}, "spec": {"cpus": {"online": "0-15"}}})
        assert "running" not in (await described(kube, namespace, lambda obj: True))["status"]
        await tell(names[0], running=said(0))
        first = await described(kube, namespace, lambda obj: "running" in obj["status"])
        assert condition(first, "Drifted")["status"] == "False"
        await tell(names[1], running=said(1, "bad"))
        found = await described(kube, namespace, lambda obj: obj["status"]["running"]["drifted"])
        assert (found["status"]["running"]["containers"], found["status"]["running"]["drifted"]) == (6, 1)
        [worst] = found["status"]["running"]["worst"]
        assert (worst["pod"], worst["node"], worst["cause"]) == ("bad", names[1], "CodeSetsIt")
        [event] = await events_about(kube, "p", namespace, "CodeSetsIt")
        assert (event["type"], "16 threads, 2 were planned" in event["note"]) == ("Warning", True)
        _, text = await get_text(settings, "/metrics")
        labels = f'policy="p",policy_kind="InferenceThreading",policy_namespace="{namespace}"'
        assert f"raddle_policy_containers_running{{{labels}}} 6.0" in text
        assert f'raddle_policy_containers_drifted{{cause="CodeSetsIt",{labels}}} 1.0' in text
        # What the agent said is not the controller's to take away.
        assert (await kube.get(NODE_CPU_TOPOLOGIES, names[1]))["status"]["running"]["worst"]

        def without_the_second(obj):
            return obj["status"]["running"] == {"containers": 3, "drifted": 0, "worst": []}

        # Nobody hears of the node; what its agent has said stays, and counts again when it is back.
        await heard_of(names[1], "Unknown")
        await described(kube, namespace, without_the_second)
        await heard_of(names[1], "True")
        await described(kube, namespace, lambda obj: obj["status"]["running"]["drifted"])
        await kube.delete(NODES, names[1])
        await described(kube, namespace, without_the_second)
        await kube.delete(NODE_CPU_TOPOLOGIES, names[1])
        await tell(names[0])
        await described(kube, namespace, lambda obj: "running" not in obj["status"])
        await kube.delete(NODE_CPU_TOPOLOGIES, names[0])
        await kube.delete(NODES, names[0])


async def described(kube, namespace, check):
    return await status_says(kube, "p", namespace, check)


async def test_the_threads_that_pods_were_given_are_in_the_status(kube, controller, namespace):
    await kube.create(INFERENCE_THREADINGS, policy("p", namespace))
    for threads in (4, 1):
        await kube.create(PODS, injected_pod(f"given-{threads}", namespace, "0123456789", intraOp=threads))
    await described(kube, namespace, lambda obj: obj["status"].get("threads") == "1-4")


async def test_the_shim_is_kept_in_opted_in_namespaces_only_and_comes_back(kube, controller, namespace):
    closed = await new_namespace(kube, inject="disabled")
    name = f"raddle-shim-{delivery.content_hash()}"

    async def probe():
        with contextlib.suppress(NotFound):
            return await kube.get(CONFIG_MAPS, name, namespace)

    found = await until(probe)
    assert found["immutable"] is True
    assert found["data"] == delivery.files()
    assert found["metadata"]["labels"]["raddle.dev/shim"] == delivery.content_hash()
    await kube.delete(CONFIG_MAPS, name, namespace)
    again = await until(probe)
    assert again["metadata"]["uid"] != found["metadata"]["uid"]
    with pytest.raises(NotFound):
        await kube.get(CONFIG_MAPS, name, closed)


@contextlib.asynccontextmanager
async def command(cluster, port):
    """The controller's command as a child process, which is killed at the end of the block where it still runs."""
    line = [sys.executable, "-m", "raddle_operator", "controller", "--port", str(port), "--host", "127.0.0.1"]
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "RADDLE_KUBECONFIG": str(cluster.kubeconfig)}
    child = await asyncio.create_subprocess_exec(*line, env=environment)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def test_the_command_ends_cleanly_on_sigterm_and_releases_its_lease(kube, cluster):
    async def held():
        with contextlib.suppress(NotFound):
            return (await kube.get(LEASES, "raddle-controller", "raddle-system"))["spec"].get("holderIdentity")

    async def stands_by():
        with contextlib.suppress(aiohttp.ClientConnectionError):
            return (await get_text(settings_for(cluster, port=other), "/readyz"))[0] == 200

    other = free_port()
    async with command(cluster, free_port()) as leader:
        await until(held)
        async with command(cluster, other) as standby:
            await until(stands_by)
            standby.send_signal(signal.SIGTERM)
            async with asyncio.timeout(WITHIN_S):
                assert await standby.wait() == 0
        assert await held()
        leader.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WITHIN_S):
            assert await leader.wait() == 0
    assert not await held()


async def test_the_process_ends_when_its_startup_fails(cluster):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        started = ControllerThread(settings_for(cluster, port=taken.getsockname()[1]))
        await started.end()
    assert isinstance(started.error.__cause__, OSError)


async def test_an_event_about_a_cluster_policy_stands_in_default(kube, controller):
    name = f"lonely-{next(_numbers)}"
    spec = {"podSelector": {"matchLabels": {"app": name}}}
    await kube.create(CLUSTER_INFERENCE_THREADINGS, {"metadata": {"name": name}, "spec": spec})
    [event] = await events_about(kube, name, "default", "NoPodsMatched")
    assert event["regarding"]["kind"] == "ClusterInferenceThreading"
    await kube.delete(CLUSTER_INFERENCE_THREADINGS, name)
