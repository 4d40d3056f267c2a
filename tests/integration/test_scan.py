"""`raddle scan` against a real API server without anything of Raddle, by users with the rights to read only.

The node's kubelet is a stand-in that answers /metrics/cadvisor, through the API server's own proxy.
"""

import ipaddress
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest
from click.testing import CliRunner
from support import rights
from support.rights import rule

from cluster import Cluster, objects
from cluster.components import free_port
from cluster.waiting import wait
from raddle_operator import certificates
from raddle_operator.cli import main

pytestmark = pytest.mark.cluster

SERIES = 'container="serve",namespace="chat",pod="ollama-1a-0"'
METRICS = f"""\
container_cpu_usage_seconds_total{{cpu="total",{SERIES}}} 4e8
container_start_time_seconds{{{SERIES}}} 1.6e9
container_cpu_cfs_periods_total{{{SERIES}}} 1000
container_cpu_cfs_throttled_periods_total{{{SERIES}}} 970
"""


class Kubelet(BaseHTTPRequestHandler):
    """Answers as a kubelet does."""

    def do_GET(self):
        body = METRICS.encode() if self.path == "/metrics/cadvisor" else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture(scope="module")
def kubelet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kubelet")
    certificates.local_issue(folder, ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    with ThreadingHTTPServer((_address(), 0), Kubelet) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address
        server.shutdown()


def _address():
    """One of this machine's own that is no loopback address, which the API server's proxy would refuse."""
    found = [one.address for all_of in psutil.net_if_addrs().values() for one in all_of if one.family == socket.AF_INET]
    usable = [one for one in found if not (ipaddress.ip_address(one).is_loopback or one.startswith("169.254."))]
    if not usable:
        pytest.skip("the machine has loopback addresses only")
    return usable[0]


@pytest.fixture(scope="module")
def cluster(kubelet):
    """A node of 48 CPUs; in chat two pods of Ollama, in models one that fits, one that has ended, one without a node."""
    with Cluster(scheduler=False, controller_manager=False, name="scan") as made:
        made.client.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "here"}})
        status = {
            "addresses": [{"type": "InternalIP", "address": kubelet[0]}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet[1]}},
            "capacity": {"cpu": "48"},
        }
        made.client.merge("/api/v1/nodes/here/status", {"status": status})
        for name in ("chat", "models"):
            made.client.apply(objects.namespace(name))
            account = {"name": "default", "namespace": name}
            made.client.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
        for number in range(2):
            _create(
                made, "chat", f"ollama-1a-{number}", "ollama/ollama", labels={"pod-template-hash": "1a", "app": "a"}
            )
        omp = [{"name": "OMP_NUM_THREADS", "value": "2"}]
        _create(made, "models", "fits", "registry.test/app", env=omp)
        _create(made, "models", "ended", "ollama/ollama")
        made.client.merge("/api/v1/namespaces/models/pods/ended/status", {"status": {"phase": "Succeeded"}})
        _create(made, "models", "pending", "ollama/ollama", node="")
        yield made


def _create(made, namespace, name, image, *, labels=None, node="here", env=()):
    serve = {**objects.container("serve", cpu="2"), "image": image, "env": [*env]}
    body = objects.pod(serve, name=name, labels=labels or {}, **({"nodeName": node} if node else {}))
    if labels:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "ollama-1a", "uid": "u", "controller": True}
        body["metadata"]["ownerReferences"] = [owner]
    body["metadata"]["namespace"] = namespace
    made.client.post(f"/api/v1/namespaces/{namespace}/pods", body)


@pytest.fixture
def user(cluster):
    """user("name", *rules, namespace=...): the kubeconfig of a user with these rights and no others."""

    def make(name, *rules, namespace=""):
        rights.grant(cluster.client, name, rules, rights.user(name), namespace=namespace)
        kubeconfig = cluster.user(name)
        space = ("-n", namespace) if namespace else ()
        # The API server learns of roles by a watch of its own.
        wait(lambda: scan(kubeconfig, "--no-usage", *space).exit_code == 0, f"{name} may list pods")
        return kubeconfig

    return make


def scan(kubeconfig, *arguments):
    return CliRunner().invoke(main, ["scan", "--kubeconfig", str(kubeconfig), *arguments])


def rows(kubeconfig, *arguments):
    done = scan(kubeconfig, "-o", "json", *arguments)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    found = {(one["namespace"], one["workload"]): one for one in document["workloads"]}
    return found, " ".join(document["notes"])


def test_a_cluster_without_raddle_is_scanned_with_what_its_kubelets_measure(cluster):
    found, notes = rows(cluster.kubeconfig)
    assert set(found) == {("chat", "deployment/ollama"), ("models", "pod/fits")}
    ollama = found["chat", "deployment/ollama"]
    assert (ollama["pods"], ollama["threads"]["most"], ollama["planned"]["most"]) == (2, 48, 2)
    assert (ollama["cause"], ollama["throttledShare"]) == ("NodeCPUs", 0.97)
    assert ollama["usedCpus"] > 0
    assert notes == "measured by the kubelets, since each container's start"
    assert found["models", "pod/fits"]["cause"] == "Fits"


def test_a_namespace_and_labels_choose_pods(cluster):
    assert set(rows(cluster.kubeconfig, "-n", "models")[0]) == {("models", "pod/fits")}
    assert set(rows(cluster.kubeconfig, "-l", "app=a")[0]) == {("chat", "deployment/ollama")}
    assert rows(cluster.kubeconfig, "-l", "app notin (a)", "-n", "chat")[0] == {}
    done = scan(cluster.kubeconfig, "-l", "=,=")
    assert (done.exit_code, done.stderr[:6]) == (1, "Error:")
    assert scan(cluster.kubeconfig, "--exit-code", "3").exit_code == 3


def test_reading_is_enough_and_every_right_that_is_missing_is_said(user):
    whole = user("reader", rule("", "pods nodes namespaces", "get list"), rule("", "nodes/proxy", "get"))
    found, notes = rows(whole)
    assert found["chat", "deployment/ollama"]["throttledShare"] == 0.97
    assert "measured by the kubelets" in notes
    tenant = user("tenant", rule("", "pods", "list"), namespace="chat")
    found, notes = rows(tenant, "-n", "chat", "--cpus", "32")
    assert found["chat", "deployment/ollama"]["threads"]["most"] == 32
    assert "no permission to read nodes: 32 CPUs are assumed" in notes
    assert "nodes/proxy" in notes
    assert "no permission to read policies and namespaces" in notes
    done = scan(tenant)
    assert done.exit_code == 1
    assert "pods" in done.stderr


@pytest.fixture
def prometheus(tmp_path):
    """The URL of a real Prometheus that has seen one of the pods half of its time throttled, for half an hour."""
    if shutil.which("promtool") is None:
        pytest.skip("Prometheus is not installed (Debian's package prometheus)")
    now = int(time.time())
    lines = []
    for name, per_s in (("usage_seconds", 1.5), ("cfs_periods", 10), ("cfs_throttled_periods", 5)):
        lines.append(f"# TYPE container_cpu_{name} counter")
        lines += [f"container_cpu_{name}_total{{{SERIES}}} {per_s * at} {now - 1800 + at}" for at in range(0, 1800, 30)]
    (tmp_path / "samples").write_text("\n".join([*lines, "# EOF", ""]))
    data = str(tmp_path / "data")
    making = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(tmp_path / "samples"), data]
    subprocess.run(making, check=True, capture_output=True)
    (tmp_path / "prometheus.yml").write_text("{}")
    port = free_port()
    options = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={data}"]
    command = ["prometheus", *options, f"--web.listen-address=127.0.0.1:{port}"]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        url = f"http://127.0.0.1:{port}"
        wait(lambda: urllib.request.urlopen(f"{url}/-/ready", timeout=5).status, "it is ready", refusals=(OSError,))
        yield url
        process.terminate()


def test_a_real_prometheus_says_what_it_costs(cluster, prometheus):
    found, notes = rows(cluster.kubeconfig, "--prometheus", prometheus)
    ollama = found["chat", "deployment/ollama"]
    assert ollama["throttledShare"] == 0.5
    # Of one pod it is known, and there are two; the first and the last five minutes are not full.
    assert ollama["usedCpus"] == pytest.approx(3.0, rel=0.15)
    assert notes == "measured by Prometheus, the last 1h"


def test_a_prometheus_that_is_none_is_an_error(cluster):
    done = scan(cluster.kubeconfig, "--prometheus", f"http://127.0.0.1:{free_port()}")
    assert (done.exit_code, "Prometheus at" in done.stderr) == (1, True)


def test_what_is_printed_for_people_is_a_row_for_each_workload(cluster):
    done = scan(cluster.kubeconfig)
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("chat  ")][:1]
    assert row[:5] == ["chat", "deploy/ollama", "ollama", "2", "2/48"]
    assert "97 %" in done.stdout
    assert "1 of 2 containers with a known runtime runs too many threads, in 2 of 3 pods." in done.stdout
