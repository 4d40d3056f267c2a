"""Raddle on a real API server and scheduler, with three nodes of different shapes; a fresh namespace a test."""

import base64
import itertools
import json
import os
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import machines
from cluster import namespaces
from cluster.objects import container, env_of, pod, policy
from cluster.waiting import wait
from raddle import env
from raddle.cpus.topology import Kubelet
from raddle_operator.kube import Kube

STATIC = Kubelet(cpu_manager_policy="static", reserved_cpus=0)
NODES = {
    "two-sockets": ("2s16c32t", STATIC),
    "four-caches": ("1s2n4l3-8c16t", Kubelet()),
    "hybrid": ("hybrid-6p8e-20t", Kubelet()),
}
# What a decision is must not depend on how busy this machine is: by default a slow answer leaves the safe values.
# Certificates as by default, so that the controller has the rights of an ordinary installation; nobody issues any here.
PATIENT = {"webhook": {"timeoutSeconds": {"pods": 30, "bindings": 30}}, "certificates": {"source": "Raddle"}}
_numbers = itertools.count()


def pytest_collection_modifyitems(items):
    for item in items:
        if "integration" in item.path.parts:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def raddle(cluster):
    """Webhook and controller running with the chart's rights; nodes two-sockets (static CPU manager), four-caches, hybrid."""
    from cluster.local_raddle import LocalRaddle

    with LocalRaddle(cluster, values=PATIENT, webhook_options=["--lookup-timeout", "20"]) as running:
        for name, (shape, kubelet) in NODES.items():
            running.register_machine(name, machines.path(shape), kubelet=kubelet, labels={"node": name})
        running.webhook.wait(
            lambda: running.webhook.metric("raddle_webhook_cache_objects", kind="NodeCPUTopology") == len(NODES),
            "the webhook knows the nodes",
        )
        yield running


@pytest.fixture(scope="session")
def only_installed():
    """Raddle's objects on a control plane of their own and none of its processes: tests start agents and commands."""
    from cluster import Cluster
    from cluster.local_raddle import LocalRaddle

    values = {"agent": {"watch": "Processes"}}
    with Cluster(scheduler=False, name="only-installed") as own, LocalRaddle(own, start=(), values=values) as installed:
        yield installed


@pytest.fixture
def new_space(raddle):
    """new_space(): a new namespace, opted in (`enabled`)."""
    # Without a kubelet nobody confirms the end of a pod: they would hold their node's CPUs for ever.
    return lambda: namespaces.fresh(raddle, f"test-{os.getpid()}-{next(_numbers)}")


@pytest.fixture
def space(new_space):
    """A namespace of the test's own, opted in (`enabled`)."""
    with new_space() as made:
        made.wait_for_webhook()
        yield made


@pytest.fixture
def hostile(new_space):
    """The namespace of a tenant who means ill."""
    with new_space() as made:
        yield made


@pytest.fixture
async def kube(cluster):
    async with await Kube.from_settings(cluster.kubeconfig) as client:
        yield client


@pytest.fixture
def shimmed(space):
    """The namespace once the webhook has seen the shim's ConfigMap there: only then is anything mounted."""
    space.apply(policy("probe", podSelector={"matchLabels": {"probe": "yes"}}))
    probe = pod(container(cpu="1"), name="probe", labels={"probe": "yes"})
    wait(lambda: env.PLAN in env_of(space.probe(probe)), "the webhook has seen the shim")
    return space


class _Patches(BaseHTTPRequestHandler):
    """A foreign webhook: patches each pod with what the server's `patch` makes of it."""

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        patch = self.server.patch(review["request"]["object"])
        response = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch"}
        response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
        answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def foreign_webhook(cluster, tmp_path):
    """foreign_webhook(name, namespace, patch): one that patches that namespace's pods labelled second=yes from now on.

    The API server asks webhooks in the order of their configurations' names. `patch` makes JSON-patch operations of a
    pod; it has to change any pod.
    """
    from raddle_operator import certificates

    authority = certificates.local_issue(tmp_path, ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    started, names = [], []

    def install(name, namespace, patch):
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Patches)
        server.patch = patch
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        names.append(f"{name}-{os.getpid()}")
        url, bundle = f"https://127.0.0.1:{server.server_port}/", base64.b64encode(authority).decode()
        webhook = {
            "name": "second.example.com",
            "clientConfig": {"url": url, "caBundle": bundle},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "objectSelector": {"matchLabels": {"second": "yes"}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
        about = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration"}
        cluster.client.apply({**about, "metadata": {"name": names[-1]}, "webhooks": [webhook]})
        # The API server learns of a webhook configuration by a watch of its own.
        path = f"/api/v1/namespaces/{namespace}/pods"
        none, second = (
            pod(container(cpu="1"), name="probe", labels={"raddle.dev/inject": "disabled", **more})
            for more in ({}, {"second": "yes"})
        )
        unchanged = cluster.client.request("POST", path, none, query={"dryRun": "All"})
        wait(
            lambda: _shape(cluster.client.request("POST", path, second, query={"dryRun": "All"})) != _shape(unchanged),
            "the API server calls the other webhook",
        )

    yield install
    for name in names:
        cluster.kubectl("delete", "mutatingwebhookconfiguration", name, "--ignore-not-found")
    for server in started:
        server.shutdown()
        server.server_close()


def _shape(made):
    """What of a pod a foreign webhook of the tests changes."""
    (one,) = made["spec"]["containers"]
    return one["resources"], [mount["mountPath"] for mount in one.get("volumeMounts", [])]
