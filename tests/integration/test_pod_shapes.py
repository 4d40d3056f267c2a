"""A real API server takes what Raddle makes of a pod, under restricted Pod Security, and changes nothing that matters.

The stored pod has the server's defaults; deciding on it again must come to the same.
"""

import jsonpatch
import pytest

from raddle import delivery, env
from raddle.planning import families
from raddle_operator.injection.decide import Facts, Settings, decide_object
from raddle_operator.injection.matching import Policies
from raddle_operator.injection.volumes import ShimDelivery
from raddle_operator.objects.policy import policy_from_object

pytestmark = pytest.mark.cluster

NAMESPACE = "restricted"
SETTINGS = Settings(
    shim=ShimDelivery(
        config_map="raddle-shim-0123456789", items={name: delivery.items(name) for name in delivery.ARCHITECTURES}
    )
)
FACTS = Facts(architectures=frozenset({"x86_64"}))
EVERYTHING = {"runtimes": list(families.NAMES)}
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
GUARANTEED = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}}
BURSTABLE = {"limits": {"cpu": "1500m"}, "requests": {"cpu": "1", "memory": "64Mi"}}
OF_CONFIG_MAP = {"configMapKeyRef": {"name": "c", "key": "k"}}
BY_REFERENCE = [
    {"name": name, "valueFrom": OF_CONFIG_MAP}
    for name in ("PYTHONPATH", "NODE_OPTIONS", "LD_PRELOAD", "JAVA_TOOL_OPTIONS")
]


@pytest.fixture(scope="module")
def client(api_server):
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
    api_server.client.apply(namespace)
    return api_server.client


def pod(**container):
    first = {"name": "serve", "image": "example.test/serve:1", "securityContext": RESTRICTED, **container}
    second = {
        "name": "istio-proxy",
        "image": "example.test/proxy:1",
        "securityContext": RESTRICTED,
        "resources": GUARANTEED,
    }
    return {"metadata": {"name": "p"}, "spec": {"containers": [first, second]}}


def pod_of_one_limit():
    """The pod has the limit (1.34); what a server does not know yet it drops."""
    obj = pod()
    del obj["spec"]["containers"][1]["resources"]
    return {**obj, "spec": {**obj["spec"], "resources": GUARANTEED}}


def restarted_as_a_whole():
    """A container whose exit has all containers of the pod start again, init containers first (1.36)."""
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [88]}}
    return pod(resources=GUARANTEED, restartPolicy="Never", restartPolicyRules=[rule])


@pytest.mark.parametrize("more", [{}, EVERYTHING], ids=["default", "everything"])
@pytest.mark.parametrize("shim", ["Auto", "None"])
@pytest.mark.parametrize(
    ("obj", "qos"),
    [
        (pod(resources=GUARANTEED), "Guaranteed"),
        (pod(resources=BURSTABLE, env=BY_REFERENCE), "Burstable"),
        (pod(resources=BURSTABLE, env=[{"name": "PYTHONPATH", "value": "/mine"}]), "Burstable"),
        (pod_of_one_limit(), "Guaranteed"),
        (restarted_as_a_whole(), "Guaranteed"),
    ],
    ids=["guaranteed", "by-reference", "literal", "pod-level", "restarted-as-a-whole"],
)
def test_the_server_takes_the_pod_and_a_second_look_changes_nothing(client, shim, obj, qos, more):
    spec = {"podSelector": {}, "shim": shim, **more}
    policy = {"kind": "InferenceThreading", "metadata": {"name": "fast", "namespace": NAMESPACE}, "spec": spec}
    rest = NAMESPACE, {env.INJECT_LABEL: "enabled"}, Policies([policy_from_object(policy)]), FACTS, SETTINGS
    decision = decide_object(obj, *rest)
    assert decision.injected
    patched = jsonpatch.apply_patch(obj, decision.operations)
    stored = client.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", patched, query={"dryRun": "All"})
    assert stored["status"]["qosClass"] == qos
    again = decide_object(stored, *rest)
    assert again.operations == []
    assert again.containers == decision.containers
