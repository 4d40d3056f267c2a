"""The page that shows `raddle top` and `raddle explain` shows what they print now, of the example that its pictures are of."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner
from support import nodereports

from generate.docs import watchpictures
from raddle_operator.cli import main
from raddle_operator.objects import nodereport, nodetopology

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "watch-a-cluster.md"
BLOCKS = re.compile(r"(```console\n\$ kubectl raddle ([^\n]*)\n)(.*?)```", re.DOTALL)
REPORTS = watchpictures.reports()


POLICY = {"apiVersion": "raddle.dev/v1alpha1", "kind": "InferenceThreading", "spec": {"podSelector": {}}}
POLICY["metadata"] = {"name": "serving", "namespace": "models"}
WORKLOAD = {"selector": {"matchLabels": {"app": "resnet"}}}


def annotations(folder):
    """What a container's plan is at a limit of 2, as the webhook writes it."""
    container = {"name": "serve", "image": "x", "resources": {"limits": {"cpu": "2"}}}
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "models"}}
    for name, obj in (("policy", POLICY), ("pod", {**plain, "spec": {"containers": [container]}})):
        (folder / f"{name}.json").write_text(json.dumps(obj))
    command = ["plan", "-f", str(folder / "policy.json"), "-f", str(folder / "pod.json"), "-o", "yaml"]
    return yaml.safe_load(CliRunner().invoke(main, command).stdout)["metadata"]["annotations"]


def pod(node, container, planned):
    metadata = {"name": container.pod, "namespace": container.namespace, "uid": container.uid}
    containers = [{"name": container.name, "resources": {"limits": {"cpu": f"{container.limit_cpus:g}"}}}]
    return {
        "metadata": {**metadata, "annotations": planned},
        "spec": {"nodeName": node, "containers": containers},
        "status": {"phase": "Running"},
    }


AGENTS = [
    {"metadata": {"name": f"agent-of-{node}"}, "spec": {"nodeName": node}, "status": {"phase": "Running"}}
    for node in REPORTS
]
TOPOLOGIES = {node: nodetopology.to_object(watchpictures.machine(), node, "uid") for node in REPORTS}
RUNNING = {
    "containers": 4,
    "drifted": 3,
    "worst": [{"cause": "CodeSetsIt", "namespace": "models", "pod": "resnet-5d8c9bb7f4-tq6xn"}],
}
STATUS = {"matchedPods": 4, "injectedPods": 4, "threads": "2-4", "running": RUNNING}


def answers(planned):
    """The handler of a stand-in for an API server that knows the example."""
    found = [(node, one) for node, report in REPORTS.items() for one in report.containers]
    pods = [pod(node, one, planned) for node, one in found if one.namespace == "models"]
    api = "/apis/raddle.dev/v1alpha1"
    lists = {
        "/api/v1/namespaces/raddle-system/pods": AGENTS,
        f"{api}/nodecputopologies": list(TOPOLOGIES.values()),
        f"{api}/namespaces/models/inferencethreadings": [{**POLICY, "status": STATUS}],
        f"{api}/clusterinferencethreadings": [],
    }
    objects = {
        "/apis/apps/v1/namespaces/models/deployments/resnet": {"spec": WORKLOAD},
        "/api/v1/namespaces/models": {"metadata": {"name": "models", "labels": {"raddle.dev/inject": "enabled"}}},
        **{f"{api}/nodecputopologies/{node}": one for node, one in TOPOLOGIES.items()},
    }

    async def answer(request):
        if asked := re.search(r"/pods/agent-of-(.*):8082/proxy/v1/report", request.path):
            return web.json_response(nodereport.to_document(REPORTS[asked[1]]))
        if request.path == "/api/v1/namespaces/models/pods":
            name = "resnet" if "app=resnet" in request.query.get("labelSelector", "") else ""
            return web.json_response({"items": [one for one in pods if one["metadata"]["name"].startswith(name)]})
        if request.path in lists:
            return web.json_response({"items": lists[request.path]})
        return web.json_response(objects.get(request.path, {}), status=200 if request.path in objects else 404)

    return answer


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory):
    """Of that stand-in."""
    folder = tmp_path_factory.mktemp("kube")
    with nodereports.served(answers(annotations(folder))) as port:
        config = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path = folder / "config"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **config}))
        yield path


def printed(command, kubeconfig):
    done = CliRunner(env={"COLUMNS": "100"}).invoke(main, [*shlex.split(command), "--kubeconfig", str(kubeconfig)])
    assert done.exit_code == 0, done.output
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())


def test_what_the_page_shows_is_what_is_printed(kubeconfig, request):
    text = PAGE.read_text()
    made = BLOCKS.sub(lambda block: f"{block[1]}{printed(block[2], kubeconfig)}```", text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(made)
    assert len(BLOCKS.findall(text)) >= 3
    assert made == PAGE.read_text(), "run pytest --update-golden and read the diff"


def test_the_picture_of_the_page_is_what_is_drawn(kubeconfig):
    committed = (PAGE.parents[1] / "images" / "watch" / "node.svg").read_text()
    drawn = printed(f"top node {watchpictures.NODE} -o svg", kubeconfig)
    # A NodeCPUTopology has not all that /sys says: sizes of caches are left out.
    cpus = re.compile(r'<g class="cpu [^"]*" data-cpu="\d+"><title>[^<]*</title>')
    assert cpus.findall(drawn) == cpus.findall(committed)
    assert cpus.findall(drawn)
