"""InferenceTunings with the chart's rights on a real control plane, whose kubelets these tests are."""

import contextlib
import functools
import itertools
import json
import re

import aiohttp
import pytest
from support import controllers
from support.controllers import ControllerThread
from support.measured import WINNER, outcome
from support.tunings import tuning
from support.waiting import until

from cluster import Cluster, objects
from cluster.components import free_port
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.jobs.run import job_name
from raddle_operator.kube import (
    DEPLOYMENTS,
    EVENTS,
    INFERENCE_TUNINGS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    Forbidden,
    NotFound,
    Resource,
    Unavailable,
)
from raddle_operator.kube.leader import Timing
from raddle_operator.results.summary import Failed, to_text
from raddle_operator.results.verdict import Verdict

pytestmark = pytest.mark.cluster

QUOTAS = Resource("", "v1", "resourcequotas", namespaced=True, kind="ResourceQuota")
_numbers = itertools.count()
soon = functools.partial(until, seconds=40, refusals=(Unavailable, NotFound, Forbidden, aiohttp.ClientConnectionError))


@pytest.fixture(scope="module")
def cluster():
    with Cluster() as running:
        controllers.install_chart(running, "--set", "tuning.enabled=true")
        yield running


@pytest.fixture(scope="module")
def settings(cluster):
    return ControllerSettings(
        kubeconfig=controllers.account(cluster),
        identity="tunings",
        host="127.0.0.1",
        port=free_port(),
        election=Timing(lease_s=6, renew_deadline_s=4, retry_s=0.5),
        status_interval_s=0.1,
        tally_interval_s=0.05,
        issue_certificates=False,
        tuning=True,
        tuner_image="registry.example/raddle-tuner:1",
    )


@contextlib.asynccontextmanager
async def running(settings):
    started = ControllerThread(settings)
    try:
        yield started
    finally:
        await started.stop()
        if started.error:
            raise started.error


class Shop:
    """A namespace with a Deployment, nodes of one class, and what a kubelet says of the pods of its tunings' Jobs."""

    def __init__(self, cluster, kube):
        self.cluster = cluster
        self.kube = kube
        self.namespace = f"shop-{next(_numbers)}"

    async def make(self):
        await self.kube.create(NAMESPACES, objects.namespace(self.namespace))
        serving = objects.guaranteed(command=["serve"])
        # None of its own pods: the nodes of the other tests would have them too.
        await self.kube.create(DEPLOYMENTS, objects.deployment("ranker", 0, serving, namespace=self.namespace))
        for name in ("a", "b"):
            self.add_node(name)
        return self

    def add_node(self, name):
        topology = objects.topology(self.node(name))
        self.cluster.register_node(self.node(name), cpus=8, labels={"shop": self.namespace}, topology=topology)

    def node(self, name):
        return f"{self.namespace}-{name}"

    async def tune(self, **spec):
        classes = {"selector": {"matchLabels": {"shop": self.namespace}}, **spec.pop("nodeClasses", {})}
        return await self.kube.create(INFERENCE_TUNINGS, tuning(namespace=self.namespace, nodeClasses=classes, **spec))

    async def jobs(self):
        return (await self.kube.list(JOBS, self.namespace)).items

    async def job_on(self, name, attempt="1"):
        """The Job for a node, once it is there."""

        async def made():
            for job in await self.jobs():
                said = job["metadata"]["annotations"]
                if (said["raddle.dev/tuning-node"], said["raddle.dev/tuning-try"]) == (self.node(name), attempt):
                    return job
            return None

        return await soon(made, f"a Job on {name}")

    async def forges(self, name, node, uid="", **metadata):
        """A Job that somebody here has made to look like the first one of a tuning, with this UID, for a node."""
        about = {"raddle.dev/tuning-node": node, "raddle.dev/tuning-generation": "1", "raddle.dev/tuning-try": "1"}
        owner = {"apiVersion": "raddle.dev/v1alpha1", "kind": "InferenceTuning", "name": "ranker", "controller": True}
        given = {
            "name": name,
            "namespace": self.namespace,
            "labels": {"raddle.dev/tuning": "ranker"},
            "annotations": about,
            "ownerReferences": [{**owner, "uid": uid}] if uid else [],
        }
        spec = {"template": {"spec": objects.pod_spec(objects.container(), restartPolicy="Never")}}
        made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {**given, **metadata}, "spec": spec}
        await self.kube.create(JOBS, made)

    async def pod_of(self, job):
        """The pod's name, once the scheduler has found its node."""
        node = job["metadata"]["annotations"]["raddle.dev/tuning-node"]

        async def bound():
            selector = f"job-name={job['metadata']['name']}"
            [*pods] = (await self.kube.list(PODS, self.namespace, label_selector=selector)).items
            return next((pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName") == node), None)

        return await soon(bound, "its pod is bound")

    async def kubelet_ends(self, pod):
        """The containers have ended, and the pod goes."""
        await self.kube.request("DELETE", PODS.path(self.namespace, pod), body={"gracePeriodSeconds": 0})

    async def says(self, pod, **status):
        await self.kube.patch(PODS, pod, {"status": status}, self.namespace, subresource="status")

    async def ends(self, pod, ended, code=0):
        said = {"exitCode": code, "reason": "Completed", "message": to_text(ended)}
        await self.says(pod, phase="Succeeded", containerStatuses=[_container("tuner", {"terminated": said})])

    async def status(self, kind, reason):
        """The tuning's status, as soon as the condition has this reason."""

        async def there():
            found = (await self.kube.get(INFERENCE_TUNINGS, "ranker", self.namespace)).get("status") or {}
            reasons = {one["type"]: one["reason"] for one in found.get("conditions", [])}
            return found if reasons.get(kind) == reason else None

        return await soon(there, f"{kind} is {reason}")

    async def event(self, reason, note=""):
        async def there():
            page = await self.kube.list(EVENTS, self.namespace)
            return next((one for one in page.items if one["reason"] == reason and note in one["note"]), None)

        return await soon(there, f"an event {reason}")


def _container(name, state):
    return {"name": name, "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": state}


def condition(status, kind):
    return next(one for one in status["conditions"] if one["type"] == kind)


@pytest.fixture
async def shop(cluster, kube):
    return await Shop(cluster, kube).make()


@pytest.fixture
async def controller(settings):
    async with running(settings) as started:
        yield started


async def test_one_node_searches_and_another_tries_its_winner_again(cluster, controller, shop):
    await shop.tune()
    first = await shop.job_on("a")
    pod = await shop.pod_of(first)
    running = {"running": {"startedAt": "2027-01-15T08:00:00Z"}}
    await shop.says(pod, phase="Running", containerStatuses=[_container("tuner", running)])
    status = await shop.status("Running", "Measuring")
    assert condition(status, "Running")["message"] == f"{shop.node('a')} searches"
    await shop.ends(pod, outcome(percent=-12.5))
    second = await shop.job_on("b")
    [told] = second["spec"]["template"]["spec"]["containers"][0]["env"]
    assert json.loads(told["value"])["confirm"] == dict(WINNER.settings)
    await shop.ends(await shop.pod_of(second), outcome(percent=-10.5))
    status = await shop.status("Valid", "Measured")
    gain = "slowest tenth -10.5 % [-12.5, -8.5]"
    assert (status["verdict"], status["gain"], status["trials"]) == ("Better", gain, 24)
    assert status["classes"][0]["decidedBy"] == shop.node("b")
    await shop.event("JobCreated", f"on node {shop.node('a')} searches")
    assert (await shop.event("Measured"))["type"] == "Normal"
    shown = cluster.kubectl("get", "inferencetuning", "-n", shop.namespace).stdout
    header, row = shown.splitlines()
    assert header.split() == ["NAME", "VERDICT", "GAIN", "NODE", "CLASS", "STATE", "AGE"]
    assert row.split()[:2] == ["ranker", "Better"]
    assert "Finished" in row
    described = cluster.kubectl("describe", "inferencetuning", "ranker", "-n", shop.namespace).stdout
    assert "Measured" in described


async def gone(shop):
    return not await shop.jobs()


async def test_a_result_outlives_its_job_and_a_restart_makes_nothing_twice(kube, settings, shop):
    async with running(settings):
        await shop.tune(nodeClasses={"nodesPerClass": 1})
        job = await shop.job_on("a")
    async with running(settings):
        await shop.ends(await shop.pod_of(job), outcome())
        await shop.status("Valid", "Measured")
        assert [one["metadata"]["uid"] for one in await shop.jobs()] == [job["metadata"]["uid"]]
    # Its time is over.
    await kube.delete(JOBS, job["metadata"]["name"], shop.namespace, propagation="Foreground")
    await soon(lambda: gone(shop), "the Job is gone")
    async with running(settings):
        status = await shop.status("Running", "Finished")
    assert status["verdict"] == "Better"
    assert await shop.jobs() == []


async def test_what_stays_as_it_is_is_not_written_again(kube, controller, settings, shop):
    await shop.tune(nodeClasses={"nodesPerClass": 1})
    await shop.ends(await shop.pod_of(await shop.job_on("a")), outcome(percent=-10))
    await shop.status("Running", "Finished")

    async def version():
        return (await kube.get(INFERENCE_TUNINGS, "ranker", shop.namespace))["metadata"]["resourceVersion"]

    # What was written last may be looked at once more.
    for _ in range(2):
        before = await version()
        await looked_at_again(kube, settings, shop)
    assert await version() == before


async def looked_at_again(kube, settings, shop):
    """Returns when tunings have been looked at after a change of a node that changes nothing for them."""

    async def looks():
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{settings.port}/metrics") as found,
        ):
            counts = re.findall(r'reconcile_duration_seconds_count{work="tuning"} (\S+)', await found.text())
            return float(counts[0])

    async def more():
        return await looks() > before

    before = await looks()
    await kube.patch(NODES, shop.node("b"), {"metadata": {"labels": {"at": str(before)}}})
    await soon(more, "it is looked at again")


async def test_a_changed_spec_begins_anew_when_the_old_pod_has_ended(kube, controller, shop):
    await shop.tune()
    old = await shop.job_on("a")
    pod = await shop.pod_of(old)
    await kube.patch(INFERENCE_TUNINGS, "ranker", {"spec": {"budget": {"minutes": 5}}}, shop.namespace)

    async def deadlines():
        return [
            (job["spec"]["activeDeadlineSeconds"], "deletionTimestamp" in job["metadata"]) for job in await shop.jobs()
        ]

    async def ends():
        return await deadlines() == [(old["spec"]["activeDeadlineSeconds"], True)]

    async def begun():
        return await deadlines() == [(5 * 60 + 1200, False)]

    await soon(ends, "the old Job ends, and it is the only one")
    await shop.kubelet_ends(pod)
    await soon(begun, "the new Job is the only one")


async def test_an_evicted_pod_is_made_again(controller, shop):
    await shop.tune()
    pod = await shop.pod_of(await shop.job_on("a"))
    await shop.says(pod, phase="Failed", reason="Evicted", message="low on memory")
    await shop.job_on("a", attempt="2")


async def test_a_node_that_fails_is_followed_by_the_next(controller, shop):
    shop.add_node("c")
    await shop.tune()
    pod = await shop.pod_of(await shop.job_on("a"))
    await shop.ends(pod, Failed("there is no model /models/ranker.onnx"), code=1)
    event = await shop.event("NodeFailed")
    note = f"node {shop.node('a')}: there is no model /models/ranker.onnx"
    assert (event["type"], event["note"]) == ("Warning", note)
    await shop.job_on("b")
    found = (await shop.status("Running", "Waiting"))["classes"][0]["nodes"]
    assert [(one["state"], one.get("message", "")) for one in found] == [
        ("Failed", "there is no model /models/ranker.onnx"),
        ("Pending", ""),
    ]


async def test_a_lost_nodes_job_is_deleted(kube, controller, shop):
    shop.add_node("c")
    await shop.tune()
    job = await shop.job_on("a")
    await kube.delete(NODES, shop.node("a"))
    await shop.job_on("b")
    await shop.event("JobDeleted", f"node {shop.node('a')} is lost")
    # It goes when its pod is collected, which the controller manager does after a minute.
    left = {one["metadata"]["name"]: "deletionTimestamp" in one["metadata"] for one in await shop.jobs()}
    assert left.get(job["metadata"]["name"], True)


async def test_an_image_that_can_not_be_pulled_is_a_warning(controller, shop):
    await shop.tune()
    pod = await shop.pod_of(await shop.job_on("a"))
    waits = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    await shop.says(pod, phase="Pending", initContainerStatuses=[_container("serve", waits)])
    status = await shop.status("Running", "Blocked")
    assert condition(status, "Running")["message"].endswith("waits: serve: ImagePullBackOff: not found")
    assert (await shop.event("Blocked"))["type"] == "Warning"


async def test_a_quota_that_refuses_the_job_is_named(kube, controller, shop):
    hard = {"count/jobs.batch": "0"}
    await kube.create(QUOTAS, {"metadata": {"name": "few", "namespace": shop.namespace}, "spec": {"hard": hard}})

    async def in_force():
        return (await kube.get(QUOTAS, "few", shop.namespace)).get("status", {}).get("hard") == hard

    await soon(in_force, "the quota holds")
    await shop.tune()
    status = await shop.status("Running", "Blocked")
    assert "exceeded quota: few" in condition(status, "Running")["message"]


async def test_without_its_workload_it_says_so(kube, controller, shop):
    await shop.tune(workload={"kind": "StatefulSet", "name": "ranker"})
    status = await shop.status("Accepted", "WorkloadNotFound")
    assert condition(status, "Accepted")["message"].startswith("there is no statefulset/ranker")
    assert (await shop.event("WorkloadNotFound"))["type"] == "Warning"
    assert await shop.jobs() == []


async def test_a_job_that_only_looks_like_a_tunings_keeps_no_node(cluster, kube, controller, shop):
    tenant = await Shop(cluster, kube).make()
    await tenant.forges("forged", shop.node("a"))
    await shop.tune()
    await shop.job_on("a")


async def test_a_job_on_a_node_that_its_tunings_status_does_not_name_keeps_nobody_off(cluster, kube, controller, shop):
    tenant = await Shop(cluster, kube).make()
    uid = (await tenant.tune())["metadata"]["uid"]
    name = job_name("ranker", uid, 1, shop.node("a"), 1)
    # It is deleted, and stays for its finalizer's sake.
    await tenant.forges(name, shop.node("a"), uid, finalizers=["shop.example/held"])
    await tenant.event("JobDeleted", name)
    await shop.tune()
    await shop.job_on("a")
    await kube.patch(JOBS, name, {"metadata": {"finalizers": None}}, tenant.namespace)


async def test_a_job_of_its_name_that_is_not_its_own_is_named(settings, shop):
    uid = (await shop.tune())["metadata"]["uid"]
    name = job_name("ranker", uid, 1, shop.node("a"), 1)
    await shop.forges(name, shop.node("a"))
    async with running(settings):
        status = await shop.status("Running", "Blocked")
        message = condition(status, "Running")["message"]
        assert f"job/{name} exists and does not belong to this tuning; delete it" in message


async def test_a_job_that_somebody_has_copied_is_neither_counted_nor_deleted(controller, shop):
    uid = (await shop.tune())["metadata"]["uid"]
    await shop.forges("copy", shop.node("b"), uid)
    job = await shop.job_on("a")
    await shop.ends(await shop.pod_of(job), outcome(Verdict.NO_DIFFERENCE))
    await shop.status("Valid", "Measured")
    assert "copy" in [one["metadata"]["name"] for one in await shop.jobs()]


async def test_a_node_where_a_tuning_of_another_namespace_measures_is_waited_for(cluster, kube, controller, shop):
    neighbour = await Shop(cluster, kube).make()
    await neighbour.tune(nodeClasses={"selector": {"matchLabels": {"shop": shop.namespace}}})
    [job] = await soon(neighbour.jobs, "the neighbour's Job")
    assert job["metadata"]["annotations"]["raddle.dev/tuning-node"] == shop.node("a")
    await shop.tune()
    status = await shop.status("Running", "Blocked")
    said = condition(status, "Running")["message"]
    assert "another tuning is measuring on it" in said
    assert neighbour.namespace not in said


async def test_a_node_is_waited_for_until_the_pod_of_a_stopped_job_has_ended(cluster, kube, controller, settings, shop):
    neighbour = await Shop(cluster, kube).make()
    await neighbour.tune(nodeClasses={"selector": {"matchLabels": {"shop": shop.namespace}}})
    [job] = await soon(neighbour.jobs, "the neighbour's Job")
    pod = await neighbour.pod_of(job)
    await shop.tune()
    await shop.status("Running", "Blocked")
    elsewhere = {"nodeClasses": {"selector": {"matchLabels": {"shop": "elsewhere"}}}}
    await kube.patch(INFERENCE_TUNINGS, "ranker", {"spec": elsewhere}, neighbour.namespace)
    await neighbour.event("JobDeleted")
    found = await kube.get(INFERENCE_TUNINGS, "ranker", neighbour.namespace)
    assert "classes" not in found["status"], "it no longer names the node"
    for _ in range(3):
        await looked_at_again(kube, settings, shop)
    assert await shop.jobs() == []
    await neighbour.kubelet_ends(pod)
    await shop.job_on("a")


async def test_nothing_better_than_the_plan_needs_no_second_node(controller, shop):
    await shop.tune()
    await shop.ends(await shop.pod_of(await shop.job_on("a")), outcome(Verdict.NO_DIFFERENCE))
    status = await shop.status("Running", "Finished")
    assert status["verdict"] == "NoDifference"
    assert len(await shop.jobs()) == 1
