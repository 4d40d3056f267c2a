"""An InferenceTuning on a real node: its Job, what takes orders in the workload's container, and what the tuner says."""

import pytest
from support import real_pods as pods

from cluster import objects
from e2e.images import APP_IMAGE, PYTHON
from e2e.scenarios import HOST, HOSTNAME, SECONDS
from e2e.waiting import wait

pytestmark = [pytest.mark.e2e, pytest.mark.flaky(reruns=1, rerun_except="E2EError"), pytest.mark.timeout(3600)]

# Three minutes of it are measuring.
TUNED_SECONDS = 900.0
# Of the policy: more than the limit, so that there is something to be found.
THREADS_BEFORE = 2
POLICY = {"objective": "Throughput", "threads": {"intraOp": THREADS_BEFORE}, "tuning": "Auto"}


def test_a_model_in_a_deployments_container_is_tuned_on_its_node(host, record_property):
    resources = {"limits": {"cpu": "400m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "512Mi"}}
    serving = objects.container(
        "app", image=APP_IMAGE, command=[PYTHON, "/app/app.py", "/app/model.onnx"], resources=resources
    )
    tuning = {
        "apiVersion": objects.API,
        "kind": "InferenceTuning",
        "spec": {
            "workload": {"kind": "Deployment", "name": "app"},
            "model": "/app/model.onnx",
            "nodeClasses": {"selector": {"matchLabels": {HOSTNAME: HOST}}, "nodesPerClass": 1},
            "objective": {"type": "Throughput"},
            "budget": {"minutes": 3},
            "space": ["threads.intraOp"],
        },
    }
    with pods.governed(host, "tuning", **POLICY) as space:
        pods.wait_for_shim(space, objects.pod(serving))
        # The emulated node beside it is another class, where what was found does not count.
        app = objects.deployment("app", 1, serving, namespace=space.name, nodeSelector={HOSTNAME: HOST})
        space.client.apply(app)
        old = wait(lambda: application(space), "the application has made its session", SECONDS)
        assert pods.look(space, old)["threads"] == THREADS_BEFORE
        tuning["metadata"] = {"name": "app", "namespace": space.name}
        space.client.apply(tuning)

        def ended():
            status = space.client.get(space.client.path_of(tuning)).get("status") or {}
            states = {node["state"] for one in status.get("classes", []) for node in one.get("nodes", [])}
            return status if "verdict" in status or "Failed" in states else None

        try:
            status = wait(ended, "the tuning has ended", TUNED_SECONDS)
            # On a busy machine it may be that nothing is certain; the plan has been measured at least.
            assert status.get("verdict") in {"Better", "NoDifference", "Inconclusive"}, status
        except Exception as error:
            error.add_note(space.cluster.kubectl("-n", space.name, "describe", "pods", check=False).stdout[-3000:])
            raise
        space.delete(old["metadata"]["name"])
        new = wait(lambda: application(space, old), "another pod has made its session", SECONDS)
        (found,) = status["classes"]
        better = {one["path"]: one["value"] for one in found["winner"]} if status["verdict"] == "Better" else {}
        wanted = int(better.get("threads.intraOp", THREADS_BEFORE))
        assert objects.threads(new, "app") == wanted
        assert pods.look(space, new)["threads"] == wanted
    assert found["trials"] > 0
    assert found["key"]["cpus"] == "0.4"
    told = f"{found['nodeClass']}: {found['verdict']} after {found['trials']} candidates"
    record_property("e2e tuning", f"{told}; {THREADS_BEFORE} threads before, {wanted} in a new pod")


def application(space, before=None):
    """The Deployment's pod, another one than before, once its application has said what it sees; None until then."""
    own = [one for one in space.list() if "pod-template-hash" in one["metadata"].get("labels", {})]
    uid = before["metadata"]["uid"] if before else ""
    return next((one for one in own if one["metadata"]["uid"] != uid and pods.look(space, one)), None)
