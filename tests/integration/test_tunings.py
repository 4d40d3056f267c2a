"""InferenceTunings with the chart's rights on a real API server, whose Job controller and kubelets these tests are."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
from pathlib import Path

import aiohttp
import pytest
from support.controllers import ControllerThread
from support.measured import WINNER, outcome
from support.tunings import tuning
from support.waiting import until

from cluster import Cluster, objects
from cluster.components import free_port
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.kube import (
    DEPLOYMENTS,
    EVENTS,
    INFERENCE_TUNINGS,
    JOBS,
    NAMESPACES,
    NODE_CPU_TOPOLOGIES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    Forbidden,
    NotFound,
    Resource,
    Unavailable,
)
from raddle_operator.kube.leader import Timing
from raddle_operator.tuning.result import Verdict
from raddle_operator.tuning.summary import Failed, to_text

pytestmark = pytest.mark.cluster

SYSTEM = "raddle-system"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:raddle-controller"
QUOTAS = Resource("", "v1", "resourcequotas", namespaced=True, kind="ResourceQuota")
_numbers = itertools.count()
soon = functools.partial(until, seconds=40, refusals=(Unavailable, NotFound, Forbidden, aiohttp.ClientConnectionError))


@pytest.fixture(scope="module")
def cluster(request):
    chart = Path(request.config.rootpath) / "charts" / "raddle"
    with Cluster(scheduler=False, controller_manager=False) as running:
        running.helm(
            *("install", "raddle", str(chart), "--namespace", SYSTEM, "--create-namespace"),
            *("--set", "workloads.enabled=false", "--set", "webhook.url=https://127.0.0.1:1"),
            *("--set", "tuning.enabled=true"),
        )
        running.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield running


@pytest.fixture(scope="module")
def settings(cluster):
    account = cluster.user(ACCOUNT, groups=["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}"])
    return ControllerSettings(
        kubeconfig=account,
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

    def __init__(self, kube):
        self.kube = kube
        self.namespace = f"shop-{next(_numbers)}"

    async def make(self):
        await self.kube.create(NAMESPACES, objects.namespace(self.namespace))
        await self.kube.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": self.namespace}})
        serving = objects.guaranteed(command=["serve"])
        await self.kube.create(DEPLOYMENTS, objects.deployment("ranker", 2, serving, namespace=self.namespace))
        for name in ("a", "b"):
            await self.add_node(name)
        return self

    async def add_node(self, name):
        name = f"{self.namespace}-{name}"
        await self.kube.create(NODES, {"metadata": {"name": name, "labels": {"shop": self.namespace}}})
        ready = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T08:00:00Z"}]}
        await self.kube.patch(NODES, name, {"status": ready}, subresource="status")
        # As the node controller does when a node is Ready.
        await self.kube.patch(NODES, name, {"spec": {"taints": None}})
        await self.kube.create(NODE_CPU_TOPOLOGIES, objects.topology(name))

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

    async def pod_of(self, job):
        """The pod as the Job controller makes it."""
        template, name = job["spec"]["template"], f"{job['metadata']['name']}-x"
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
        metadata = {**template["metadata"], "name": name, "namespace": self.namespace, "ownerReferences": [owner]}
        await self.kube.create(PODS, {"metadata": metadata, "spec": template["spec"]})
        return name

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
async def shop(kube):
    return await Shop(kube).make()


@pytest.fixture
async def controller(settings):
    async with running(settings) as started:
        yield started


async def test_one_node_searches_and_another_tries_its_winner_again(cluster, controller, shop):
    await shop.tune()
    first = await shop.job_on("a")
    pod = await shop.pod_of(first)
    await shop.says(
        pod,
        phase="Running",
        containerStatuses=[_container("tuner", {"running": {"startedAt": "2027-01-15T08:00:00Z"}})],
    )
    status = await shop.status("Running", "Measuring")
    assert condition(status, "Running")["message"] == f"{shop.node('a')} searches"
    await shop.ends(pod, outcome(percent=-12.5))
    second = await shop.job_on("b")
    [told] = second["spec"]["template"]["spec"]["containers"][0]["env"]
    assert json.loads(told["value"])["confirm"] == dict(WINNER.settings)
    await shop.ends(await shop.pod_of(second), outcome(percent=-10.5))
    status = await shop.status("Valid", "Measured")
    assert (status["verdict"], status["gain"], status["trials"]) == ("Better", "-10.5 % [-12.5, -8.5]", 24)
    assert status["classes"][0]["decidedBy"] == shop.node("b")
    await shop.event("JobCreated", f"on node {shop.node('a')} searches")
    assert (await shop.event("Measured"))["type"] == "Normal"
    shown = cluster.kubectl("get", "inferencetuning", "-n", shop.namespace).stdout
    header, row = shown.splitlines()
    assert header.split() == ["NAME", "VERDICT", "GAIN", "NODE", "CLASS", "RUNNING", "AGE"]
    assert row.split()[:2] == ["ranker", "Better"]
    described = cluster.kubectl("describe", "inferencetuning", "ranker", "-n", shop.namespace).stdout
    assert "Measured" in described


async def test_a_result_outlives_its_job_and_a_restart_makes_nothing_twice(kube, settings, shop):
    async with running(settings):
        await shop.tune(nodeClasses={"nodesPerClass": 1})
        job = await shop.job_on("a")
    async with running(settings):
        await shop.ends(await shop.pod_of(job), outcome())
        await shop.status("Valid", "Measured")
        assert [one["metadata"]["uid"] for one in await shop.jobs()] == [job["metadata"]["uid"]]
    await kube.delete(JOBS, job["metadata"]["name"], shop.namespace, propagation="Background")  # its time is over
    async with running(settings):
        status = await shop.status("Running", "Finished")
    assert status["verdict"] == "Better"
    assert await shop.jobs() == []


async def test_a_changed_spec_begins_anew(kube, controller, shop):
    await shop.tune()
    old = await shop.job_on("a")
    patch = {"spec": {"budget": {"minutes": 5}}}
    await kube.patch(INFERENCE_TUNINGS, "ranker", patch, shop.namespace)

    async def replaced():
        [*jobs] = await shop.jobs()
        return [job for job in jobs if job["spec"]["activeDeadlineSeconds"] == 5 * 60 + 1200] and len(jobs) == 1

    await soon(replaced, "a Job of the new spec alone")
    assert old["metadata"]["uid"] not in {job["metadata"]["uid"] for job in await shop.jobs()}


async def test_an_evicted_pod_is_made_again(controller, shop):
    await shop.tune()
    pod = await shop.pod_of(await shop.job_on("a"))
    await shop.says(pod, phase="Failed", reason="Evicted", message="low on memory")
    await shop.job_on("a", attempt="2")


async def test_a_node_that_fails_is_followed_by_the_next(controller, shop):
    await shop.add_node("c")
    await shop.tune()
    pod = await shop.pod_of(await shop.job_on("a"))
    await shop.ends(pod, Failed("there is no model /models/ranker.onnx"), code=1)
    await shop.job_on("b")
    found = (await shop.status("Running", "Waiting"))["classes"][0]["nodes"]
    assert [(one["state"], one.get("message", "")) for one in found] == [
        ("Failed", "there is no model /models/ranker.onnx"),
        ("Pending", ""),
    ]


async def test_a_lost_nodes_job_is_deleted(kube, controller, shop):
    await shop.add_node("c")
    await shop.tune()
    job = await shop.job_on("a")
    await kube.delete(NODES, shop.node("a"))
    await shop.job_on("b")
    assert job["metadata"]["name"] not in {one["metadata"]["name"] for one in await shop.jobs()}


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
    # As the quota controller does.
    patch = {"status": {"hard": hard, "used": {"count/jobs.batch": "0"}}}
    await kube.patch(QUOTAS, "few", patch, shop.namespace, subresource="status")
    await shop.tune()
    status = await shop.status("Running", "Blocked")
    assert "exceeded quota: few" in condition(status, "Running")["message"]


async def test_without_its_workload_it_says_so(kube, controller, shop):
    await shop.tune(workload={"kind": "StatefulSet", "name": "ranker"})
    status = await shop.status("Accepted", "WorkloadNotFound")
    assert condition(status, "Accepted")["message"].startswith("there is no statefulset/ranker")
    assert (await shop.event("WorkloadNotFound"))["type"] == "Warning"
    assert await shop.jobs() == []


async def test_nothing_better_than_the_plan_needs_no_second_node(controller, shop):
    await shop.tune()
    await shop.ends(await shop.pod_of(await shop.job_on("a")), outcome(Verdict.NO_DIFFERENCE))
    status = await shop.status("Running", "Finished")
    assert status["verdict"] == "NoDifference"
    assert len(await shop.jobs()) == 1
