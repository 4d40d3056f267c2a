"""The Headlamp plugin in Headlamp's own pages and a real Chromium, with what a real API server answers.

The agent is a server of ours at an address that stands in its pod's status; the API server's proxy reaches it there.
"""

import contextlib
import json
import re
import subprocess
import threading
from http import HTTPStatus
from pathlib import Path

import pytest
import yaml
from support import watched
from support.picture_browser import BROWSER
from support.reliability.replicas import own_addresses

from cluster import Cluster, objects
from cluster.waiting import wait
from raddle.cpus import cpuset
from raddle_operator.agent.server import TEXT, Server
from runtimes import headlamp
from runtimes.fetching import tool
from unavailable import UnavailableError

pytestmark = [pytest.mark.runtime, pytest.mark.cluster, pytest.mark.timeout(1200)]
RADDLE, AGENT_PORT = "raddle-system", 8082
DOCS = Path(__file__).parents[2] / "docs"
PAGE, PICTURES = DOCS / "how-to" / "headlamp.md", DOCS / "images" / "headlamp"
MOST_PICTURE_BYTES = 150_000
CLUSTER_POLICY = "everywhere"
NOT_YET = "no window of two looks yet\n"


@pytest.fixture(scope="module")
def folder():
    """The plugin, built beside its packages."""
    with headlamp.workspace() as found:
        headlamp.npm(found, "headlamp-plugin", "build")
        yield found


def test_its_types_and_its_own_tests_hold(folder):
    with headlamp.once(folder, "checked") as new:
        if new:
            headlamp.npm(folder, "tsc", "--noEmit", "-p", ".")
            assert re.search(r"Tests .*\d+ passed", headlamp.npm(folder, "headlamp-plugin", "test"))


# --- the cluster ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def agent(address):
    """An agent's port at an address. Yields what it answers of its report: a document, or None while it has none yet."""
    told = {"report": None}

    def answer():
        if told["report"] is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, NOT_YET.encode()
        return HTTPStatus.OK, "application/json", json.dumps(told["report"]).encode()

    with Server(AGENT_PORT, {"/v1/report": answer}, address) as server:
        thread = threading.Thread(target=server.serve_forever, name="agent", daemon=True)
        thread.start()
        yield told
        server.shutdown()
        thread.join()


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
# User -> the roles of the page on Headlamp that it has.
USERS = {"stranger": (), "reader": ("ClusterRole",), "operator": ("ClusterRole", "Role")}


def grant(cluster):
    """Gives the users the roles that the page shows."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    roles = [role for block in blocks for role in yaml.safe_load_all(block) if "rules" in role]
    for role in roles:
        cluster.client.apply(role)
        namespace = role["metadata"].get("namespace")
        bound = [user for user, kinds in USERS.items() if role["kind"] in kinds]
        cluster.client.apply(
            {
                "apiVersion": role["apiVersion"],
                "kind": f"{role['kind']}Binding",
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": role["kind"],
                    "name": role["metadata"]["name"],
                },
                "subjects": [{"kind": "User", "name": user} for user in bound],
                "metadata": {"name": "granted", **({"namespace": namespace} if namespace else {})},
            }
        )


@pytest.fixture(scope="module")
def cluster(pytestconfig):
    """Four nodes, one with an agent that tells; four governed pods, one of which runs otherwise than planned."""
    with (
        own_addresses(3) as addresses,
        agent(addresses[0]) as told,
        agent(addresses[1]),
        Cluster(scheduler=False) as made,
    ):
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
        for node, address in zip((watched.WATCHED, watched.STARTING, watched.CLOSED), addresses, strict=True):
            run_pod(made, agent_pod(node), address)
        stored = [run_pod(made, watched.pod(name)) for name in watched.PODS]
        told["report"] = watched.report_of({pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in stored})

        running = watched.statuses()
        topology = made.client.path_of(watched.topology(watched.WATCHED))
        made.client.merge(f"{topology}/status", {"status": {"running": running["node"]}})
        selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["ranker", "embedder"]}]}
        counts = {"matchedPods": 4, "injectedPods": 4, "stalePods": 1, "threads": "2-4", "running": running["policy"]}
        for policy, status in (
            (objects.policy("rankers", watched.NAMESPACE, podSelector=selector), counts),
            (objects.policy(CLUSTER_POLICY, kind="ClusterInferenceThreading"), {"matchedPods": 0}),
        ):
            path = made.client.path_of(made.client.apply(policy))
            made.client.merge(f"{path}/status", {"status": {**status, "conditions": [CONDITION]}})
        made.client.apply(objects.deployment("ranker", 0, objects.container(cpu="2"), namespace=watched.NAMESPACE))
        grant(made)
        yield made


# --- the pages --------------------------------------------------------------------------------------------------------

UNWATCHED = f"No agent of Raddle runs on {watched.AGENTLESS} (searched in {RADDLE})"
FINDING = next(one.findings[0] for one in watched.report().containers if one.pod == "ranker-1")
PAGES = {
    "policies": {
        "path": "/raddle/policies",
        "texts": ["rankers", CLUSTER_POLICY, "Ready", "2-4", "1 of 3"],
        "picture": True,
    },
    "policy": {
        "path": "/raddle/policies/models/rankers",
        "texts": ["4 with values", "The policy is in use.", "2 → 16", FINDING.detail, "embedder-0", "far-0", UNWATCHED],
        "picture": True,
    },
    "cluster-policy": {"path": f"/raddle/clusterpolicies/{CLUSTER_POLICY}", "texts": ["No container here has values"]},
    "nodes": {
        "path": "/raddle/nodes",
        "texts": ["16 CPUs, 8 cores, 2 NUMA nodes", "32 CPUs, 16 cores", "1 of 3 containers drifted"],
        "picture": True,
    },
    "node": {
        "path": f"/raddle/nodes/{watched.WATCHED}",
        "texts": ["NUMA node 1", "ranker-1/serve", "2 → 16", "47 %", "In the 15 s to 2026-11-20T10:00:00Z"],
        "picture": True,
    },
    "node-without-agent": {"path": f"/raddle/nodes/{watched.AGENTLESS}", "texts": ["NUMA node 0", UNWATCHED]},
    "node-without-report": {
        "path": f"/raddle/nodes/{watched.STARTING}",
        "texts": [f"Raddle's agent on {watched.STARTING} says: {NOT_YET.strip()}"],
    },
    "node-not-watched": {
        "path": f"/raddle/nodes/{watched.CLOSED}",
        "texts": [f"Raddle's agent on {watched.CLOSED} does not answer", "agent.watch"],
    },
    "pod": {
        "path": "/pods/models/ranker-1",
        "texts": ["Governed by InferenceThreading/rankers.", "2 → 16", "47 %", FINDING.cause, FINDING.fix],
        "picture": True,
    },
    "pod-as-planned": {"path": "/pods/models/ranker-0", "texts": ["limits.cpu is 2", "0.2 %"]},
    "pod-without-agent": {"path": "/pods/models/far-0", "texts": [UNWATCHED]},
    "pods": {"path": "/pods", "texts": ["Threads", "2 → 16", "embedder-0"], "picture": True},
    "deployment": {"path": "/deployments/models/ranker", "texts": ["ranker-0", "ranker-1", "far-0", FINDING.detail]},
    "nodes-own-page": {"path": f"/nodes/{watched.WATCHED}", "texts": ["L3 1", "ranker-1/serve", "2 → 16"]},
}
# The last, since it changes what the others ask for.
SETTINGS = {
    "settings": {
        "path": "/settings/plugins/raddle",
        "fill": {"Raddle's namespace": "elsewhere", "Refresh interval in seconds": "3"},
        "press": ["Save"],
        "stored": "elsewhere",
        "texts": ["Plugins"],
        "everywhere": True,
    },
    "pod-elsewhere": {
        "path": "/pods/models/ranker-1",
        "texts": [f"No agent of Raddle runs on {watched.WATCHED} (searched in elsewhere)"],
    },
}
# With the rights of one user each.
LIMITED = {
    "stranger": {
        "policies-of-a-stranger": {
            "path": "/raddle/policies",
            "texts": ["InferenceThreadings can't be listed", "ClusterInferenceThreadings can't be listed"],
        },
        "node-of-a-stranger": {
            "path": f"/raddle/nodes/{watched.WATCHED}",
            "texts": ["The node's CPUs are not known", f"You may not list pods in {RADDLE}"],
        },
    },
    "reader": {
        "policy-of-a-reader": {"path": "/raddle/policies/models/rankers", "texts": ["1 of 3", "ranker-1"]},
        "pod-of-a-reader": {"path": "/pods/models/ranker-1", "texts": [f"You may not get pods/proxy in {RADDLE}"]},
    },
    "operator": {
        "node-of-an-operator": {"path": f"/raddle/nodes/{watched.WATCHED}", "texts": ["ranker-1/serve", "2 → 16"]}
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


# One of each kind of page, and what the test of pictures needs; `make matrix` looks at the others, too.
TYPICAL = ("policy", "node", "node-without-report", "pod", "nodes-own-page", *SETTINGS, "node-of-a-stranger")


@pytest.fixture(scope="module")
def seen(request, folder, cluster, pytestconfig, tmp_path_factory):
    """What was seen of the pages that the chosen tests are about."""
    if BROWSER is None:
        raise UnavailableError("no Chromium here; tools/scripts/packages installs it")
    pictures = PICTURES if pytestconfig.getoption("--update-golden") else tmp_path_factory.mktemp("pictures")
    pictures.mkdir(exist_ok=True)
    chosen = {item.callspec.params.get("page") for item in request.session.items if hasattr(item, "callspec")}
    chosen |= {"node", "nodes-own-page"}
    kubeconfigs = {cluster.kubeconfig: PAGES | SETTINGS, **{cluster.user(user): LIMITED[user] for user in LIMITED}}
    found = {}
    for kubeconfig, pages in kubeconfigs.items():
        if wanted := {name: page for name, page in pages.items() if name in chosen}:
            found |= look(folder, cluster, kubeconfig, wanted, pictures)
    return found


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=() if page in TYPICAL else pytest.mark.matrix)
        for page in (*PAGES, *SETTINGS, *(page for pages in LIMITED.values() for page in pages))
    ],
)
def test_a_page_says_what_runs_or_why_it_does_not_know(page, seen):
    answer = seen[page]
    assert not answer["missing"], answer["text"]
    assert not answer["errors"]
    assert not answer["outside"]  # nothing is fetched from the internet


def test_a_nodes_picture_has_each_container_on_the_cpus_where_its_threads_ran(seen):
    wanted = {cpu: set() for cpu in cpuset.ids(watched.machine(watched.WATCHED).online)}
    for one in watched.report().containers:
        for pool in (pool for process in one.processes for pool in process.pools):
            for cpu in pool.last_cpus:
                wanted[cpu].add(f"{one.namespace}/{one.pod}/{one.name}")
    for page in ("node", "nodes-own-page"):
        drawn = {int(cpu): set(re.findall(r"\S+/\S+", said)) for cpu, said in seen[page]["cpus"].items()}
        assert drawn == wanted


def test_the_docs_pictures_are_small():
    sizes = {picture.name: picture.stat().st_size for picture in PICTURES.glob("*.png")}
    assert set(sizes) == {f"{name}.png" for name, page in PAGES.items() if page.get("picture")}
    assert max(sizes.values()) < MOST_PICTURE_BYTES
