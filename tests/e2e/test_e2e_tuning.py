"""An InferenceTuning on a real node: its Job measures in a copy of the workload's container, and a new pod has the value."""

import json

import pytest
from support import real_pods as pods

from cluster.objects import API, threads
from e2e.scenarios import HOST, HOSTNAME, LABEL, SECONDS, Container, Scenario
from e2e.waiting import wait
from raddle_operator.jobs.run import TUNER, TUNING_LABEL
from raddle_operator.tuning import summary

pytestmark = [pytest.mark.e2e, pytest.mark.flaky(reruns=1, rerun_except="E2EError"), pytest.mark.timeout(3600)]

NAME = "tuned"
# Of the policy: more than fit into half a CPU, so that there is something to be found.
THREADS_BEFORE = 2
MINUTES = 1
TUNED_SECONDS = 60.0 * MINUTES + 600


def tuning():
    spec = {
        "workload": {"kind": "Deployment", "name": NAME},
        "model": "/app/model.onnx",
        "nodeClasses": {"nodesPerClass": 1, "selector": {"matchLabels": {HOSTNAME: HOST}}},
        "objective": {"type": "Latency", "requestsPerSecond": 20},
        "budget": {"minutes": MINUTES, "trials": 4},
        "space": ["threads.intraOp"],
    }
    return {"apiVersion": API, "kind": "InferenceTuning", "metadata": {"name": NAME}, "spec": spec}


@pytest.fixture
def space(host):
    with pods.governed(host, NAME, threads={"intraOp": THREADS_BEFORE}, tuning="Auto") as made:
        yield made


def test_a_new_pod_has_the_threads_that_a_job_has_found_on_the_node(host, space, record_property):
    container = Container(request="100m", limit="500m", threads=THREADS_BEFORE)
    scenario = Scenario(name=NAME, why="", qos="Burstable", containers=(container,), kind="Deployment")
    manifest = scenario.manifest(space.name)
    pods.wait_for_shim(
        space, {"apiVersion": "v1", "kind": "Pod", **manifest["spec"]["template"], "metadata": {"name": "p"}}
    )
    with pods.running(space, scenario) as before:
        (old,) = before.values()
        assert pods.look(space, old)["threads"] == THREADS_BEFORE
        space.store(tuning())
        status = wait(lambda: finished(space), "the tuning has a verdict", TUNED_SECONDS)
        (job_pod,) = space.client.get(space.pods_path, labelSelector=f"{TUNING_LABEL}={NAME}")["items"]
        (found,) = status["classes"]
        (terminated,) = (one["state"]["terminated"] for one in job_pod["status"]["containerStatuses"])
        assert LABEL not in job_pod["metadata"]["labels"], "a Service of the workload would find it"
        assert job_pod["status"]["phase"] == "Succeeded"
        said = summary.from_text(terminated["message"])
        assert (said.verdict, said.trials) == (found["verdict"], status["trials"])
        assert json.loads(pods.log(space, job_pod, TUNER).splitlines()[-1])["result"]["verdict"] == found["verdict"]
        space.delete(old["metadata"]["name"])
        new = wait(lambda: successor(space, scenario, old), "another pod has made its session", SECONDS)
        wanted = int(said.winner.get("threads.intraOp") or THREADS_BEFORE)
        assert threads(new, "app") == wanted
        assert pods.look(space, new)["threads"] == wanted
        record_property("e2e tuning", f"{found['verdict']}: {THREADS_BEFORE} -> {wanted} threads, {status.get('gain')}")


def finished(space):
    path = space.client.path_of({**tuning(), "metadata": {"name": NAME, "namespace": space.name}})
    status = space.client.get(path).get("status", {})
    return status if status.get("verdict") else None


def successor(space, scenario, old):
    """The Deployment's pod after this one, once its application has said what it sees."""
    found = pods.answered(space, scenario) or {}
    return next((one for one in found.values() if one["metadata"]["uid"] != old["metadata"]["uid"]), None)
