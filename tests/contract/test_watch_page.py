"""The page that shows `raddle top` and `raddle explain` shows what they print now, of the example that its pictures are of."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from aiohttp import web
from click.testing import CliRunner
from support import nodereports

from generate.docs import watchpictures
from raddle_operator.cli import main
from raddle_operator.objects import nodereport, nodetopology

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "watch-a-cluster.md"
BLOCKS = re.compile(r"(```console\n\$ kubectl raddle ([^\n]*)\n)(.*?)```", re.DOTALL)
REPORTS = watchpictures.reports()


def pod(node, container):
    metadata = {"name": container.pod, "namespace": container.namespace, "uid": container.uid}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": "Running"}}


PODS = [pod(node, one) for node, report in REPORTS.items() for one in report.containers]
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
POLICIES = [
    {
        "metadata": {"name": "serving", "namespace": "models"},
        "status": {"matchedPods": 4, "injectedPods": 4, "threads": "2-4", "running": RUNNING},
    }
]


async def answer(request):
    path = request.path
    if asked := re.search(r"/pods/agent-of-(.*):8082/proxy/v1/report", path):
        return web.json_response(nodereport.to_document(REPORTS[asked[1]]))
    lists = {
        "/api/v1/namespaces/raddle-system/pods": AGENTS,
        "/api/v1/namespaces/models/pods": [one for one in PODS if one["metadata"]["namespace"] == "models"],
        "/apis/raddle.dev/v1alpha1/nodecputopologies": list(TOPOLOGIES.values()),
        "/apis/raddle.dev/v1alpha1/namespaces/models/inferencethreadings": POLICIES,
        "/apis/raddle.dev/v1alpha1/clusterinferencethreadings": [],
    }
    if path in lists:
        return web.json_response({"items": lists[path]})
    if asked := re.search(r"/nodecputopologies/(.*)", path):
        return web.json_response(TOPOLOGIES[asked[1]])
    return web.json_response({}, status=404)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory):
    """Of a stand-in for an API server that knows the example."""
    with nodereports.served(answer) as port:
        config = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path = tmp_path_factory.mktemp("kube") / "config"
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
