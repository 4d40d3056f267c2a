"""The Headlamp plugin in Headlamp's own pages and a real Chromium, with what a real API server answers.

The agent is a server of ours at an address that stands in its pod's status; the API server's proxy reaches it there.
"""

import contextlib
import json
import re
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from support import watched
from support.picture_browser import BROWSER
from support.reliability.replicas import own_addresses

from cluster import Cluster, objects
from cluster.waiting import wait
from raddle.cpus import cpuset
from runtimes import headlamp
from runtimes.fetching import tool
from unavailable import UnavailableError

pytestmark = [pytest.mark.runtime, pytest.mark.cluster, pytest.mark.timeout(1200)]
RADDLE, AGENT_PORT = "raddle-system", 8082
PICTURES = Path(__file__).parents[2] / "docs" / "images" / "headlamp"
MOST_PICTURE_BYTES = 150_000
CLUSTER_POLICY = "everywhere"


@pytest.fixture(scope="module")
def folder():
    """The plugin, built beside its packages."""
    with headlamp.workspace() as found:
        headlamp.npm(found, "headlamp-plugin", "build")
        yield found


def test_its_types_and_its_own_tests_hold(folder):
    headlamp.npm(folder, "tsc", "--noEmit", "-p", ".")
    assert re.search(r"Tests .*\d+ passed", headlamp.npm(folder, "headlamp-plugin", "test"))


# --- the cluster ------------------------------------------------------------------------------------------------------


class Agent:
    """Answers as the agent of one node does; `report` is what it tells, `asked` the paths that it was asked for."""

    def __init__(self, address):
        self.report, self.asked = {}, []
        agent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                agent.asked.append(self.path)
                known = self.path == "/v1/report"
                body = json.dumps(agent.report).encode() if known else b"not found\n"
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", "application/json" if known else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer((address, AGENT_PORT), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="agent", daemon=True)
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def proxied(cluster, kubeconfig):
    """The address of a `kubectl proxy`, by which a page has the rights of the kubeconfig's user."""
    command = ["kubectl", "--kubeconfig", str(kubeconfig), "proxy", "--port=0"]
    with subprocess.Popen(command, env=cluster.environment(), stdout=subprocess.PIPE, text=True) as running:
        try:
            address = re.search(r"127\.0\.0\.1:\d+", running.stdout.readline())
            yield f"http://{address[0]}"
        finally:
            running.terminate()


def run_pod(cluster, manifest, ip=None):
    """The pod as it is stored, running, at an address where one is given."""
    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    stored = cluster.client.apply(manifest)
    cluster.mark_running(namespace, name)
    if ip:
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        cluster.client.merge(path, {"status": {"podIP": ip, "podIPs": [{"ip": ip}]}})
    return stored


def agent_pod(node):
    made = objects.pod(objects.container("agent"), name=f"raddle-agent-{node}", namespace=RADDLE)
    made["metadata"]["labels"] = {"app.kubernetes.io/name": "raddle", "app.kubernetes.io/component": "agent"}
    made["spec"]["nodeName"] = node
    return made


CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Accepted",
    "message": "The policy is in use.",
    "lastTransitionTime": "2026-11-20T10:00:00Z",
}
# Who may look at pods and nodes, and may not reach into Raddle's pods.
READABLE = ["pods", "nodes", "namespaces", "deployments", "nodecputopologies", "inferencethreadings"]


@pytest.fixture(scope="module")
def cluster(pytestconfig):
    """Two nodes, one with an agent that answers; four governed pods, one of which runs otherwise than planned."""
    with own_addresses(1) as (address,), contextlib.closing(Agent(address)) as agent, Cluster(scheduler=False) as made:
        crds = str(pytestconfig.rootpath / "crds")
        made.kubectl("apply", "--server-side", "-f", crds)
        made.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", crds)
        for name in (watched.NAMESPACE, RADDLE):
            made.client.apply(objects.namespace(name))
            account = f"/api/v1/namespaces/{name}/serviceaccounts"
            wait(lambda path=account: made.client.get(path)["items"], "pods may be made")
        for node in watched.MACHINES:
            online = watched.machine(node).online
            made.register_node(node, cpus=cpuset.count(online), topology=watched.topology(node))
        run_pod(made, agent_pod(watched.WATCHED), address)
        stored = [run_pod(made, watched.pod(name)) for name in watched.PODS]
        agent.report = watched.report_of({pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in stored})

        selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["ranker", "embedder"]}]}
        for policy, plural in (
            (objects.policy("rankers", watched.NAMESPACE, podSelector=selector), "inferencethreadings"),
            (objects.policy(CLUSTER_POLICY, kind="ClusterInferenceThreading"), "clusterinferencethreadings"),
        ):
            path = made.client.path_of(made.client.apply(policy))
            counts = {"matchedPods": 4, "injectedPods": 4} if plural == "inferencethreadings" else {"matchedPods": 0}
            made.client.merge(f"{path}/status", {"status": {**counts, "conditions": [CONDITION]}})
        made.client.apply(objects.deployment("ranker", 0, objects.container(cpu="2"), namespace=watched.NAMESPACE))
        made.client.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": "reader"},
                "rules": [
                    {"apiGroups": ["", "apps", "raddle.dev"], "resources": READABLE, "verbs": ["get", "list", "watch"]}
                ],
            }
        )
        made.kubectl("create", "clusterrolebinding", "reader", "--clusterrole=reader", "--user=reader")
        yield made


# --- the pages --------------------------------------------------------------------------------------------------------

UNWATCHED = f"No agent of Raddle runs on {watched.SILENT} (looked for in {RADDLE})"
FINDING = "the program sets 16 threads in its code, 2 were planned"
PAGES = {
    "policies": {"path": "/raddle/policies", "texts": ["rankers", CLUSTER_POLICY, "Ready"], "picture": True},
    "policy": {
        "path": "/raddle/policies/models/rankers",
        "texts": ["4 with values", "The policy is in use.", "2 → 16", FINDING, "embedder-0", "far-0", UNWATCHED],
        "picture": True,
    },
    "cluster-policy": {"path": f"/raddle/clusterpolicies/{CLUSTER_POLICY}", "texts": ["No container here has values"]},
    "nodes": {
        "path": "/raddle/nodes",
        "texts": ["16 CPUs, 8 cores, 2 NUMA nodes", "32 CPUs, 16 cores"],
        "picture": True,
    },
    "node": {
        "path": f"/raddle/nodes/{watched.WATCHED}",
        "texts": ["NUMA node 1", "ranker-1/serve", "2 → 16", "47 %"],
        "picture": True,
    },
    "node-without-agent": {"path": f"/raddle/nodes/{watched.SILENT}", "texts": ["NUMA node 0", UNWATCHED]},
    "pod": {
        "path": "/pods/models/ranker-1",
        "texts": [
            "Governed by InferenceThreading/rankers.",
            "2 → 16",
            "47 %",
            "CodeSetsIt",
            "existingValues: Override",
        ],
        "picture": True,
    },
    "pod-as-planned": {"path": "/pods/models/ranker-0", "texts": ["limits.cpu is 2", "0.2 %"]},
    "pod-without-agent": {"path": "/pods/models/far-0", "texts": [UNWATCHED]},
    "pods": {"path": "/pods", "texts": ["Threads", "2 → 16", "embedder-0"]},
    "deployment": {"path": "/deployments/models/ranker", "texts": ["ranker-0", "ranker-1", "far-0", FINDING]},
    "nodes-own-page": {"path": f"/nodes/{watched.WATCHED}", "texts": ["L3 1", "ranker-1/serve", "2 → 16"]},
}
# The last, since it changes what the others ask for.
SETTINGS = {
    "settings": {
        "path": "/settings/plugins/raddle",
        "fill": {"Raddle's namespace": "elsewhere", "Seconds between two looks": "3"},
        "press": ["Save"],
        "stored": "elsewhere",
        "texts": ["Plugins"],
        "everywhere": True,
    },
    "pod-elsewhere": {
        "path": "/pods/models/ranker-1",
        "texts": [f"No agent of Raddle runs on {watched.WATCHED} (looked for in elsewhere)"],
    },
}
FORBIDDEN = {
    "pod-of-a-reader": {"path": "/pods/models/ranker-1", "texts": [f"You may not get pods/proxy in {RADDLE}"]},
    "policies-of-a-reader": {
        "path": "/raddle/policies",
        "texts": ["rankers", "ClusterInferenceThreadings can't be listed"],
    },
}


def look(folder, cluster, kubeconfig, pages, pictures):
    """What was seen of each page."""
    asked = []
    for name, page in pages.items():
        prefix = "" if page.get("everywhere") else "/c/main"
        picture = {"picture": str(pictures / f"{name}.png")} if page.get("picture") else {}
        asked.append({**page, "path": prefix + page["path"], "picture": None, **picture})
    with proxied(cluster, kubeconfig) as api:
        done = subprocess.run(
            [tool("node"), folder / "host" / "look.mjs", BROWSER, headlamp.frontend(folder), folder, api],
            check=False,
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(pages, json.loads(done.stdout), strict=True))


@pytest.fixture(scope="module")
def seen(folder, cluster, pytestconfig, tmp_path_factory):
    if BROWSER is None:
        raise UnavailableError("no Chromium here; tools/scripts/packages installs it")
    pictures = PICTURES if pytestconfig.getoption("--update-golden") else tmp_path_factory.mktemp("pictures")
    pictures.mkdir(exist_ok=True)
    reader = cluster.user("reader")
    found = look(folder, cluster, cluster.kubeconfig, PAGES | SETTINGS, pictures)
    return found | look(folder, cluster, reader, FORBIDDEN, pictures)


@pytest.mark.parametrize("page", [*PAGES, *SETTINGS, *FORBIDDEN])
def test_a_page_says_what_runs_or_why_it_does_not_know(page, seen):
    answer = seen[page]
    assert not answer["missing"], answer["text"]
    assert not answer["errors"]
    assert not answer["outside"]  # nothing is fetched from the internet


def test_the_docs_pictures_are_small():
    sizes = {picture.name: picture.stat().st_size for picture in PICTURES.glob("*.png")}
    assert set(sizes) == {f"{name}.png" for name, page in PAGES.items() if page.get("picture")}
    assert max(sizes.values()) < MOST_PICTURE_BYTES
