"""The chart's ValidatingAdmissionPolicies on a real API server: who may write what, and what is left in peace."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from support.attackers import Caller
from support.controllers import install_chart
from support.rights import account, grant, rule, user

from cluster import Cluster
from cluster.namespaces import TOPOLOGIES
from cluster.objects import namespace, topology
from cluster.waiting import wait

pytestmark = pytest.mark.cluster

NAMESPACE = "raddle-system"
FORBIDDEN_ANNOTATION = "is written by Raddle when the pod is created and stays as it is"

# Everything about pods, for somebody who is none of Raddle's own accounts, and for one who is.
EDITS_PODS = [
    rule("", "pods pods/status pods/ephemeralcontainers pods/resize pods/binding", "*"),
    rule("raddle.dev", "*", "*"),
]


@pytest.fixture(scope="module")
def cluster():
    # Real service accounts and tokens; without the webhook's processes every call of it is ignored.
    with Cluster(scheduler=False, name="policies") as cluster:
        install_chart(cluster)
        grant(cluster.client, "edits-pods", EDITS_PODS, user("mallory"), account("raddle-controller", NAMESPACE))
        for name, state in (("models", "enabled"), ("picky", "labelled"), ("plain", None)):
            cluster.client.apply(namespace(name, {"raddle.dev/inject": state} if state else {}))
            metadata = {"name": "default", "namespace": name}
            cluster.client.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        for node in ("worker-a", "worker-b"):
            cluster.register_node(node, cpus=4)
        pod = new_pod(cluster, "models")
        # A policy is in force some 100 ms after it was created; each try has to change something.
        with Somebody.user(cluster, "mallory") as mallory:
            await_refusal(
                lambda: mallory.annotate(pod, {"raddle.dev/probe": str(next(_numbers))}), FORBIDDEN_ANNOTATION
            )
        with Somebody.account(cluster, "raddle-agent", NAMESPACE) as agent:
            await_refusal(lambda: agent.publish(topology("nowhere")), "its own node only")
        yield cluster


def await_refusal(attempt: Callable[[], str], text: str) -> None:
    """Try until it is refused with this text, for 30 s at most."""
    wait(lambda: text in attempt(), f"{text!r} is in force")


class Somebody(Caller):
    """A caller whose changes return the API server's message where it refuses them, and "" where it takes them."""

    def patch(self, pod: Pod, patch: dict[str, Any], subresource: str | None = None) -> str:
        return self.merge(pod.path + (f"/{subresource}" if subresource else ""), patch).message

    def annotate(self, pod: Pod, annotations: dict[str, str | None], subresource: str | None = None) -> str:
        return self.patch(pod, {"metadata": {"annotations": annotations}}, subresource)

    def publish(self, manifest: dict[str, Any]) -> str:
        return self.apply(f"{TOPOLOGIES}/{manifest['metadata']['name']}", manifest).message


_numbers = itertools.count()
INJECTED = {"threads.raddle.dev/serve": "4", "raddle.dev/governed-by": "InferenceThreading/latency", "team": "a"}


class Pod:
    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self.path = f"/api/v1/namespaces/{namespace}/pods/{name}"


def new_pod(cluster: Cluster, namespace: str, **metadata: Any) -> Pod:
    pod = Pod(namespace, f"pod-{next(_numbers)}")
    given = {"name": pod.name, "annotations": INJECTED, "labels": {"raddle.dev/injected": "true"}, **metadata}
    spec = {"containers": [{"name": "serve", "image": "serve"}]}
    cluster.client.post(f"/api/v1/namespaces/{namespace}/pods", {"metadata": given, "spec": spec})
    return pod


@pytest.fixture
def mallory(cluster):
    with Somebody.user(cluster, "mallory") as caller:
        yield caller


@pytest.fixture
def pod(cluster):
    return new_pod(cluster, "models")


# --- Annotations and the label stay as they are -----------------------------------------------------------------------


@pytest.mark.parametrize("namespace", ["models", "picky"])
@pytest.mark.parametrize("subresource", [None, "status"])
@pytest.mark.parametrize(
    "annotations",
    [
        {"threads.raddle.dev/serve": "1024"},
        {"threads.raddle.dev/serve": None},
        {"shim.raddle.dev/serve": "v=1;intra_op=1024"},
        {"raddle.dev/governed-by": "InferenceThreading/other"},
        {"raddle.dev/anything": ""},
        {"later.plan.raddle.dev/serve": "{}"},
    ],
    ids=str,
)
def test_nobody_changes_adds_or_removes_an_annotation(cluster, mallory, namespace, subresource, annotations):
    pod = new_pod(cluster, namespace)
    (name,) = annotations
    refused = mallory.annotate(pod, annotations, subresource)
    assert f"annotation {name} {FORBIDDEN_ANNOTATION}" in refused
    assert "leave it out of this update, or change the pod template" in refused
    assert cluster.client.get(pod.path)["metadata"]["annotations"] == INJECTED


def test_nobody_marks_a_pod_as_injected(cluster, mallory):
    pod = new_pod(cluster, "models", labels={}, annotations={})
    assert "label raddle.dev/injected" in mallory.patch(pod, {"metadata": {"labels": {"raddle.dev/injected": "true"}}})


@pytest.mark.parametrize("subresource", [None, "status"])
def test_other_annotations_are_free(cluster, mallory, pod, subresource):
    for change in (
        {"team": "b", "example.com/x": "1"},
        {"notraddle.dev/x": "1"},
        {"raddle.dev.example.com/x": "1"},
        {"team": None},
    ):
        assert mallory.annotate(pod, change, subresource) == ""


def test_a_pod_without_annotations_is_updated_as_ever(cluster, mallory):
    pod = new_pod(cluster, "models", labels={}, annotations={})
    assert mallory.patch(pod, {"metadata": {"labels": {"a": "b"}}}) == ""


def test_a_kubelet_writes_status(cluster, pod):
    cluster.mark_running(pod.namespace, pod.name)
    assert cluster.client.get(pod.path)["status"]["phase"] == "Running"


def test_status_without_our_annotations_is_free(mallory, pod):
    assert mallory.patch(pod, {"status": {"phase": "Running", "message": "hello"}}, "status") == ""


def test_a_namespace_that_is_not_opted_in_is_left_in_peace(cluster, mallory):
    pod = new_pod(cluster, "plain")
    assert mallory.annotate(pod, {"threads.raddle.dev/serve": "1024"}) == ""


def test_a_binding_still_changes_our_annotations(cluster, pod):
    metadata = {"name": pod.name, "annotations": {"threads.raddle.dev/serve": "8"}}
    target = {"apiVersion": "v1", "kind": "Node", "name": "worker-a"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    cluster.client.post(f"{pod.path}/binding", binding)
    bound = cluster.client.get(pod.path)
    assert bound["spec"]["nodeName"] == "worker-a"
    assert bound["metadata"]["annotations"]["threads.raddle.dev/serve"] == "8"


def test_raddles_controller_is_not_bound_by_it(cluster, pod):
    with Somebody.account(cluster, "raddle-controller", NAMESPACE) as controller:
        assert controller.annotate(pod, {"raddle.dev/governed-by": "x"}) == ""


@pytest.mark.parametrize("subresource", ["ephemeralcontainers", "resize"])
def test_other_subresources_change_no_annotation(cluster, mallory, pod, subresource):
    """They are not matched by the policy, because the API server takes no metadata from them."""
    pod_now = cluster.client.get(pod.path)
    pod_now["metadata"]["annotations"] = {"threads.raddle.dev/serve": "1024"}
    assert mallory.request("PUT", f"{pod.path}/{subresource}", pod_now).message == ""
    mallory.annotate(pod, {"threads.raddle.dev/serve": "1024"}, subresource)
    assert cluster.client.get(pod.path)["metadata"]["annotations"] == INJECTED


# --- An agent writes its own node's topology only ---------------------------------------------------------------------


@pytest.fixture
def worker(cluster):
    """The agent of worker-a by the token of its pod."""
    containers = [{"name": "agent", "image": "raddle"}]
    spec = {"serviceAccountName": "raddle-agent", "nodeName": "worker-a", "containers": containers}
    path, metadata = f"/api/v1/namespaces/{NAMESPACE}/pods", {"name": f"agent-{next(_numbers)}"}
    made = cluster.client.post(path, {"metadata": metadata, "spec": spec})
    with Somebody.account(cluster, "raddle-agent", NAMESPACE, bound_to=made) as caller:
        yield caller


def test_an_agent_writes_no_other_nodes_topology(cluster, worker):
    cluster.client.apply(topology("worker-b"))
    for node in ("worker-b", "worker-c"):
        assert f"NodeCPUTopology of its own node only, worker-a; not {node}" in worker.publish(topology(node))


def test_an_agents_token_that_names_no_node_writes_nothing(cluster):
    with Somebody.account(cluster, "raddle-agent", NAMESPACE) as nowhere:
        refused = nowhere.publish(topology("worker-a"))
    assert "this token names no node: use the token of a pod that is bound to its node" in refused


def test_an_agent_can_not_delete_a_topology_and_writes_the_status_of_its_own_nodes_only(cluster, worker):
    for name in ("worker-a", "worker-b"):
        cluster.client.apply(topology(name))
    assert "forbidden" in worker.request("DELETE", f"{TOPOLOGIES}/worker-a").message
    assert worker.merge(f"{TOPOLOGIES}/worker-a/status", {"status": {}}).message == ""
    refused = worker.merge(f"{TOPOLOGIES}/worker-b/status", {"status": {}}).message
    assert "an agent may write the NodeCPUTopology of its own node only, worker-a" in refused


def test_others_write_topologies_as_far_as_rbac_lets_them(mallory):
    assert mallory.publish(topology("worker-d")) == ""
