"""An InferenceTuning on a real node: its Job, what takes orders in the workload's container, and what the tuner says."""

import pytest
from support import real_pods as pods

from cluster import objects
from e2e.images import APP_IMAGE, PYTHON
from e2e.scenarios import HOST
from e2e.waiting import wait

pytestmark = [pytest.mark.e2e, pytest.mark.flaky(reruns=1, rerun_except="E2EError"), pytest.mark.timeout(3600)]

# A minute of it is measuring.
TUNED_SECONDS = 900.0


def test_a_model_in_a_deployments_container_is_tuned_on_its_node(host, record_property):
    resources = {"limits": {"cpu": "400m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "512Mi"}}
    serving = objects.container("app", image=APP_IMAGE, command=[PYTHON, "/app/app.py"], resources=resources)
    tuning = {
        "apiVersion": objects.API,
        "kind": "InferenceTuning",
        "spec": {
            "workload": {"kind": "Deployment", "name": "app"},
            "model": "/app/model.onnx",
            "nodeClasses": {"selector": {"matchLabels": {"kubernetes.io/hostname": HOST}}, "nodesPerClass": 1},
            "objective": {"type": "Throughput"},
            "budget": {"minutes": 1},
            "space": ["threads.intraOp"],
        },
    }
    with pods.governed(host, "tuning") as space:
        space.client.apply(objects.deployment("app", 0, serving, namespace=space.name))
        tuning["metadata"] = {"name": "app", "namespace": space.name}
        space.client.apply(tuning)

        def ended():
            status = space.client.get(space.client.path_of(tuning)).get("status") or {}
            states = {node["state"] for one in status.get("classes", []) for node in one.get("nodes", [])}
            return status if "verdict" in status or "Failed" in states else None

        try:
            status = wait(ended, "the tuning has ended", TUNED_SECONDS)
            # In a minute on a busy machine it may be that nothing is certain; the plan has been measured at least.
            assert status.get("verdict") in {"Better", "NoDifference", "Inconclusive"}, status
        except Exception as error:
            error.add_note(space.cluster.kubectl("-n", space.name, "describe", "pods", check=False).stdout[-3000:])
            raise
    (found,) = status["classes"]
    assert found["trials"] > 0
    assert found["key"]["cpus"] == "0.4"
    record_property("e2e tuning", f"{found['nodeClass']}: {found['verdict']} after {found['trials']} candidates")
