"""What `raddle explain` and `raddle top` make of a real API server: pods by what people name, agents through its proxy."""

import contextlib
import json
from dataclasses import replace

import pytest
import yaml
from click.testing import CliRunner
from support import nodereports
from support.rights import grant, rule, user

from cluster.objects import deployment, namespace, topology
from raddle_operator import cli
from raddle_operator.cli import reports

pytestmark = pytest.mark.cluster

SPACE = "watching"
POLICY = f"""
apiVersion: raddle.dev/v1alpha1
kind: InferenceThreading
metadata: {{name: serving, namespace: {SPACE}}}
spec: {{podSelector: {{}}}}
"""
AGENT_LABELS = {"app.kubernetes.io/name": "raddle", "app.kubernetes.io/component": "agent"}


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """What the webhook would make of a pod."""
    folder = tmp_path_factory.mktemp("plan")
    (folder / "policy.yaml").write_text(POLICY)
    container = {"name": "serve", "image": "x", "resources": {"limits": {"cpu": "2"}}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": SPACE}}
    (folder / "pod.yaml").write_text(yaml.safe_dump({**pod, "spec": {"containers": [container]}}))
    done = CliRunner().invoke(cli.main, ["plan", "-f", str(folder), "-o", "yaml"])
    assert done.exit_code == 0, done.stderr
    return yaml.safe_load(done.stdout)


# First: the other tests have an agent that listens there.
def test_an_agent_that_does_not_listen_is_told_from_one_that_says_why(api_server):
    address = nodereports.own_address()
    if not address:
        pytest.skip("this machine has no address but loopback's, to which an API server does not proxy")
    client, path = api_server.client, f"/api/v1/namespaces/{reports.NAMESPACE}/pods"
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    client.apply({**account, "metadata": {"name": "default", "namespace": reports.NAMESPACE}})
    metadata = {"name": "raddle-agent-silent", "namespace": reports.NAMESPACE, "labels": AGENT_LABELS}
    spec = {"containers": [{"name": "agent", "image": "x"}], "nodeName": "silent"}
    client.post(path, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    try:
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        client.merge(f"{path}/raddle-agent-silent/status", {"status": status})
        done = CliRunner(env=api_server.environment()).invoke(cli.main, ["top", "nodes"])
    finally:
        client.request("DELETE", f"{path}/raddle-agent-silent", {"gracePeriodSeconds": 0})
    assert (done.exit_code, done.stderr) == (1, f"Error: node silent: {reports.SILENT}\n")


@pytest.fixture(scope="module")
def world(api_server, planned):
    """A Deployment with two pods on node n1, a StatefulSet with one on n2, a stock pod; and an agent on n1."""
    address = nodereports.own_address()
    if not address:
        pytest.skip("this machine has no address but loopback's, to which an API server does not proxy")
    client = api_server.client
    client.apply(namespace(SPACE))
    for place in (SPACE, reports.NAMESPACE):
        client.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": place}}
        )
    client.apply(yaml.safe_load(POLICY))
    ended = contextlib.ExitStack()

    def create(name, node, labels, *, place=SPACE, base=None, **status):
        pod = base or {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}}
        spec = {"containers": [{"name": "serve", "image": "x"}], **pod["spec"], "nodeName": node}
        spec.pop("volumes", None)
        for one in spec["containers"]:
            one.pop("volumeMounts", None)
        metadata = {**pod["metadata"], "name": name, "namespace": place}
        metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
        path = f"/api/v1/namespaces/{place}/pods"
        found = client.post(path, {**pod, "metadata": metadata, "spec": spec})
        ended.callback(client.request, "DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})
        client.merge(f"{path}/{name}/status", {"status": {"phase": "Running", **status}})
        return found["metadata"]["uid"]

    with ended:
        web = deployment("web", 2, namespace=SPACE)
        client.apply(web)
        stateful = {**web, "kind": "StatefulSet", "metadata": {"name": "db", "namespace": SPACE}}
        labels = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]}
        template = {**web["spec"]["template"], "metadata": {"labels": {"app": "db"}}}
        client.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        client.apply(topology("n1"))
        client.apply({**stateful, "spec": {"serviceName": "db", "selector": labels, "template": template}})
        uids = [create(f"web-{number}", "n1", {"app": "web"}, base=planned) for number in range(2)]
        create("db-0", "n2", {"app": "db"}, base=planned)
        create("stock", "n1", {"app": "stock"})
        ips = {"podIP": address, "podIPs": [{"ip": address}]}
        create("raddle-agent-1", "n1", AGENT_LABELS, place=reports.NAMESPACE, **ips)
        shown = [
            replace(nodereports.sixteen("web-0"), namespace=SPACE, uid=uids[0]),
            nodereports.container("web-1", namespace=SPACE, uid=uids[1]),
        ]
        ended.enter_context(nodereports.agent(address, reports.PORT, nodereports.report("n1", *shown)))
        yield api_server


def raddle(world, *arguments):
    done = CliRunner(env=world.environment()).invoke(cli.main, [*arguments, "-n", SPACE])
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("chosen", "pods"),
    [
        (["deployment/web"], {"web-0", "web-1"}),
        (["deploy/web"], {"web-0", "web-1"}),
        (["statefulsets/db"], {"db-0"}),
        (["-l", "app in (web,stock)"], {"web-0", "web-1", "stock"}),
        ([], {"web-0", "web-1", "db-0", "stock"}),
    ],
)
def test_what_people_name_stands_for_its_pods(world, chosen, pods):
    found = json.loads(raddle(world, "explain", *chosen, "-o", "json"))
    assert {pod for group in found["groups"] for pod in group["pods"]} == {f"{SPACE}/{pod}" for pod in pods}


def test_several_pods_are_lines_of_equal_answers_with_what_their_nodes_agent_says(world):
    lines = raddle(world, "explain", "deployment/web").splitlines()
    assert [line.split()[:5] for line in lines[:3]] == [
        ["PODS", "CONTAINER", "THREADS", "EFFECTIVE", "FINDING"],
        ["1", "serve", "2", "16", "CodeSetsIt"],
        ["1", "serve", "2", "2", "-"],
    ]
    assert f"CodeSetsIt in 1 pod, as {SPACE}/web-0" in lines
    everything = raddle(world, "explain")
    assert "what runs is not known for all pods: node n2: no agent observes containers there" in everything


def test_one_pod_is_explained_with_what_runs_in_it(world):
    text = raddle(world, "explain", "pod/web-0")
    assert "governed by InferenceThreading/serving" in text
    assert "  serve: 16 threads, 2 planned; 2.00 of 2 CPUs used" in text
    assert "fix: remove the count from the code" in text
    assert raddle(world, "explain", "statefulset/db").startswith(f"pod/db-0 in {SPACE}, node n2")


def test_what_is_not_there_is_one_line_and_exit_code_one(world):
    for chosen, said in (
        (["deployment/nothing"], f"deployment/nothing not found in namespace {SPACE}"),
        (["-l", "app=nothing"], f"no pods of namespace {SPACE} with labels app=nothing"),
    ):
        done = CliRunner(env=world.environment()).invoke(cli.main, ["explain", *chosen, "-n", SPACE])
        assert (done.exit_code, done.stderr) == (1, f"Error: {said}\n")


def test_without_the_right_to_ask_agents_the_plans_are_shown(world):
    rules = [rule("", "pods namespaces", "get list"), rule("raddle.dev apps", "*", "get list")]
    grant(world.client, "plans-only", rules, user("plans-only"))
    text = raddle(world, "explain", "deployment/web", "--kubeconfig", str(world.user("plans-only")))
    assert text.splitlines()[1].split()[:4] == ["2", "serve", "2", "-"]
    assert "you can't query its agent: that requires permission to get pods/proxy there" in text


def test_top_shows_the_containers_of_what_was_chosen_and_names_the_nodes_that_say_nothing(world):
    done = CliRunner(env=world.environment()).invoke(cli.main, ["top", "pods", "-n", SPACE, "--sort-by", "name"])
    assert done.exit_code == 0, done.stderr
    header, *lines = (line.split() for line in done.stdout.splitlines())
    assert header == ["NAMESPACE", "POD", "CONTAINER", "CPUS", "THREADS", "CPU", "THROTTLED", "DELAY", "FINDING"]
    assert [line[1:5] for line in lines] == [["web-0", "serve", "2", "2/16"], ["web-1", "serve", "2", "2/2"]]
    assert done.stderr == "node n2 is not shown: no agent observes containers there\n"
    named = raddle(world, "top", "pods", "pod/web-1", "--no-headers")
    assert [line.split()[1] for line in named.splitlines()] == ["web-1"]
    everywhere = CliRunner(env=world.environment()).invoke(cli.main, ["top", "pods", "-A", "-o", "json"])
    assert [one["pod"] for one in json.loads(everywhere.stdout)["items"]] == ["web-0", "web-1"]


def test_top_sums_nodes_and_draws_one(world):
    def top(*arguments):
        done = CliRunner(env={**world.environment(), "COLUMNS": "100"}).invoke(cli.main, ["top", *arguments])
        assert done.exit_code == 0, done.stderr
        return done.stdout

    assert top("nodes").splitlines()[1].split() == [
        "n1",
        "4",
        "2",
        "4/18",
        "3.50",
        "83%",
        "13.50",
        "1",
        "CodeSetsIt",
        "1",
    ]
    drawn = top("node", "n1")
    assert f"A             {SPACE}/web-0 serve: 16 threads, 2 planned" in drawn
    assert all(f"{cpu}A" in drawn for cpu in range(4))
    assert 'data-cpu="3"' in top("node", "n1", "-o", "svg")
    assert json.loads(top("node", "n1", "-o", "json"))["cpus"][0]["threads"] == {"A": 1}


def test_top_reads_policies_from_their_statuses(world):
    status = {"matchedPods": 3, "injectedPods": 3}
    path = f"/apis/raddle.dev/v1alpha1/namespaces/{SPACE}/inferencethreadings/serving/status"
    world.client.merge(path, {"status": status})
    line = raddle(world, "top", "policies").splitlines()[1]
    assert line.split()[:4] == [SPACE, "serving", "3", "3"]


def test_top_of_a_node_that_is_not_there_is_one_line_and_exit_code_one(world):
    done = CliRunner(env=world.environment()).invoke(cli.main, ["top", "node", "nowhere"])
    assert (done.exit_code, done.stderr) == (1, "Error: nodecputopology/nowhere not found\n")
