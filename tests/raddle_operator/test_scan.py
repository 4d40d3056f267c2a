"""`raddle scan` as people use it: its outputs, exit codes, and what it asks an API server by pages."""

import csv
import io
import json
import re

import click
import pytest
import yaml
from aiohttp import web
from click.testing import CliRunner
from support import nodereports
from support.api_server import answering
from support.html_page import Page

from cluster import objects
from raddle_operator.cli import main
from raddle_operator.cli.scan import reading, words
from raddle_operator.objects import nodereport
from raddle_operator.scanning.assess import Cause

WORKLOADS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: ollama, namespace: chat}
spec:
  replicas: 3
  template: {spec: {containers: [{name: ollama, image: "ollama/ollama:0.32.0", resources: {limits: {cpu: "4"}}}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: triton, namespace: models}
spec:
  template:
    spec:
      containers:
        - name: triton
          image: nvidia/tritonserver:25.10-py3
          env: [{name: OMP_NUM_THREADS, value: "16"}]
          resources: {limits: {cpu: "8"}}
        - {name: web, image: nginx}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: score, namespace: models}
spec:
  template:
    spec:
      containers:
        - name: score
          image: score
          command: [gunicorn, -w, "4", app]
          env: [{name: HF_HOME, value: /models}]
          resources: {limits: {cpu: "4"}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: transcribe, namespace: audio}
spec:
  jobTemplate:
    spec:
      template:
        spec: {containers: [{name: whisper, image: "ggml-org/whisper.cpp:main", resources: {limits: {cpu: "2"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: ray, namespace: models}
spec: {containers: [{name: ray, image: rayproject/ray, resources: {limits: {cpu: "8"}}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: embed, namespace: models}
spec:
  template:
    spec: {containers: [{name: tei, image: "huggingface/text-embeddings-inference:c", resources: {limits: {cpu: "8"}}}]}
"""


@pytest.fixture
def scan(tmp_path):
    """scan("-o", "csv", text=...): the command's result for a file with this text."""

    def run(*arguments, text=WORKLOADS):
        (tmp_path / "app.yaml").write_text(text)
        return CliRunner().invoke(main, ["scan", "-f", str(tmp_path / "app.yaml"), *arguments])

    return run


@pytest.mark.parametrize(
    ("form", "file"),
    [("table", "scan.txt"), ("wide", "scan-wide.txt"), ("json", "scan.json"), ("markdown", "scan.md.txt"), ("csv", "scan.csv")],
)  # fmt: skip
def test_an_output(scan, golden, form, file):
    done = scan("-o", form)
    assert done.exit_code == 0, done.output
    golden(file, "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines()))


def test_the_forms_for_programs_say_the_same(scan):
    document = json.loads(scan("-o", "json").stdout)
    assert yaml.safe_load(scan("-o", "yaml").stdout) == document
    rows = list(csv.DictReader(io.StringIO(scan("-o", "csv").stdout)))
    assert [row["workload"] for row in rows] == [one["workload"] for one in document["workloads"]]
    assert [row["gives_back_cpus"] for row in rows] == [str(one["givesBackCpus"]) for one in document["workloads"]]


def test_the_page_is_one_file_with_every_row(scan):
    named = WORKLOADS.replace("name: score\n          image", 'name: "<b>|"\n          image')
    text = scan("-o", "html", text=named).stdout
    page = Page(text)
    assert not [name for name, _ in page.values if name in {"src", "href"} or name.startswith("on")]
    assert "script" not in page.tags
    assert "url(" not in text
    assert "@import" not in text
    told = " ".join(page.words)
    for part in ("deployment/ollama", "statefulset/triton", "<b>|", "64 → 4", "nodes of 64 CPUs are assumed"):
        assert part in told


def test_a_table_of_120_columns_folds_no_number(scan):
    lines = scan().stdout.splitlines()
    header = next(line for line in lines if line.startswith("NAMESPACE"))
    assert len(header.rstrip()) <= 120
    assert all(len(line.rstrip()) <= 120 for line in lines[: lines.index("")])


@pytest.mark.parametrize("form", ["table", "wide", "csv", "markdown", "html"])
def test_no_name_of_a_manifest_steers_a_terminal_or_a_spreadsheet(scan, form):
    hostile = WORKLOADS.replace("namespace: models", r'namespace: "\e[2Jm"').replace(
        "namespace: chat", r'namespace: "\t=1+1"'
    )
    text = scan("-o", form, text=hostile).stdout
    assert all(char.isprintable() or char == "\n" for char in text)


def test_nothing_is_a_sentence(scan):
    done = scan(text="{kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: nginx}]}}")
    assert done.stdout.startswith("Nothing to show for 1 pod.\n")
    assert scan("-o", "json", text="{kind: Pod, spec: {containers: [{name: a}]}}").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ((), 0), (("--exit-code", "3"), 3), (("--exit-code", "3", "-n", "models"), 3),
        (("--exit-code", "3", "-n", "elsewhere"), 0), (("--exit-code", "3", "--min-saving", "100"), 0),
        (("--exit-code", "3", "-n", "elsewhere", "-A"), 3), (("-l", "a=b"), 2), (("--cpus", "0"), 2),
    ],
)  # fmt: skip
def test_the_exit_code_is_chosen_by_who_asks(scan, arguments, status):
    assert scan(*arguments).exit_code == status


def test_the_nodes_cpus_are_as_told(scan):
    document = json.loads(scan("--cpus", "8", "-n", "chat", "-o", "json").stdout)
    (row,) = document["workloads"]
    assert (row["threads"], row["planned"]) == ({"least": 8, "most": 8}, {"least": 4, "most": 4})


def test_a_file_without_workloads_is_bad_input(scan):
    done = scan(text="{kind: ConfigMap, metadata: {name: a}}")
    assert (done.exit_code, "hold no workload" in done.stderr) == (2, True)


NODE = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "64"}}}
LABELS = 'container="serve",namespace="ns",pod="app-{}"'


def stored(number):
    found = objects.pod(objects.container("serve", cpu="2", image="ollama/ollama"), name=f"app-{number}", nodeName="n")
    owner = {"kind": "ReplicaSet", "name": "app-1a", "controller": True}
    found["metadata"] |= {"namespace": "ns", "ownerReferences": [owner], "labels": {"pod-template-hash": "1a"}}
    return found


class Server:
    """An API server with some pods on one node, by pages of two; `refused` are paths that the user may not read.

    `expired`: tokens that it has forgotten -> those that it gives for the rest as it is now; `others` are objects that
    it has too, by path.
    """

    def __init__(self, pods, refused=(), metrics="", expired=None, others=None):
        self.pods, self.refused, self.metrics, self.others, self.asked = pods, refused, metrics, others or {}, []
        self.expired = expired or {}

    async def answer(self, request):
        path = request.path
        self.asked.append((path, dict(request.query)))
        if any(path.startswith(refused) for refused in self.refused):
            return web.json_response({"message": "no", "reason": "Forbidden"}, status=403)
        if path == "/api/v1/pods":
            token = request.query.get("continue", "0")
            if token in self.expired:
                status = {"reason": "Expired", "message": "too old", "metadata": {"continue": self.expired[token]}}
                return web.json_response(status, status=410)
            first = int(token.removeprefix("now-"))
            rest = len(self.pods) - first - 2
            metadata = {"continue": str(first + 2), "remainingItemCount": rest} if rest > 0 else {}
            return web.json_response({"metadata": metadata, "items": self.pods[first : first + 2]})
        if path == "/api/v1/nodes":
            return web.json_response({"items": [NODE]})
        if path == "/api/v1/nodes/n/proxy/metrics/cadvisor":
            return web.Response(text=self.metrics)
        if path == "/api/v1/namespaces":
            return web.json_response({"items": [{"metadata": {"name": "ns"}}]})
        if path in self.others:
            return web.json_response(self.others[path])
        return web.json_response({"message": "no such", "reason": "NotFound"}, status=404)


async def found(server, tmp_path, **asked):
    async with answering(server.answer, tmp_path):
        scanned = await reading.scan(reading.Asked(**asked), tmp_path / "kubeconfig", None)
    return scanned.gathered.rows(), scanned.notes


async def test_pods_are_read_by_pages_and_are_one_row_without_raddle_there(tmp_path):
    server = Server([stored(number) for number in range(5)])
    ((row,), _) = await found(server, tmp_path, selector="app=x")
    assert (row.pods, row.seen.workload, row.seen.threads, row.seen.cause) == (5, "deployment/app", 64, Cause.NODE_CPUS)
    pages = [query for path, query in server.asked if path == "/api/v1/pods"]
    assert len(pages) == 3
    assert {query["labelSelector"] for query in pages} == {"app=x"}
    assert {query["fieldSelector"] for query in pages} == {reading.RUNNING}


async def test_pods_that_are_read_for_longer_than_the_server_remembers_are_counted_once_each(tmp_path):
    server = Server([stored(number) for number in range(5)], expired={"2": "now-2", "4": "now-4"})
    ((row,), _) = await found(server, tmp_path)
    assert row.pods == 5
    tokens = [query.get("continue", "") for path, query in server.asked if path == "/api/v1/pods"]
    assert tokens == ["", "2", "now-2", "4", "now-4"]


@pytest.mark.parametrize("token", ["", "2"])
async def test_a_server_that_gives_no_other_token_for_the_rest_ends_the_scan(tmp_path, token):
    with pytest.raises(click.ClickException, match="410 Expired"):
        await found(Server([stored(number) for number in range(5)], expired={"2": token}), tmp_path)


async def test_what_the_kubelets_measure_takes_the_limits_place(tmp_path):
    metrics = "".join(
        f"{name}{{{LABELS.format(0)}}} {value}\n"
        for name, value in (
            ("container_cpu_usage_seconds_total", 1e9),
            ("container_start_time_seconds", 1),
            ("container_cpu_cfs_periods_total", 100),
            ("container_cpu_cfs_throttled_periods_total", 97),
        )
    )
    ((row,), notes) = await found(Server([stored(0)], metrics=metrics), tmp_path)
    assert row.throttled_share == 0.97
    assert 0 < row.used_cpus < 1
    assert notes == ("measured by the kubelets, since each container's start",)


async def test_what_one_may_not_read_is_said_and_the_rest_is_shown(tmp_path):
    refused = ("/api/v1/nodes", "/api/v1/namespaces", "/apis")
    ((row,), notes) = await found(Server([stored(0)], refused), tmp_path, cpus=16)
    assert (row.seen.threads, row.used_cpus) == (16, None)
    assert re.search(r"nodes: 16 CPUs are assumed .*nodes/proxy", " ".join(notes))


AGENTS = "/api/v1/namespaces/raddle-system/pods"
REPORT = f"{AGENTS}/agent-1:8082/proxy/v1/report"


def watched(*containers, drifted=True):
    """What an API server has of a node whose agent reports these containers."""
    worst = {"policy": "InferenceThreading/ns/p", "namespace": "ns", "pod": "app-0", "container": "serve"}
    running = {"worst": [{**worst, "cause": "CodeSetsIt", "detail": "16"}] if drifted else []}
    agent = {"metadata": {"name": "agent-1"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
    topology = {**objects.topology("n"), "status": {"running": running}}
    return {
        "/apis/raddle.dev/v1alpha1/nodecputopologies": {"items": [topology]},
        AGENTS: {"items": [agent]},
        REPORT: nodereport.to_document(nodereports.report("n", *containers)),
    }


async def test_what_an_agent_has_seen_to_run_takes_the_place_of_what_a_pod_lets_expect(tmp_path):
    pods = [stored(0), stored(1)]
    for number, one in enumerate(pods):
        one["metadata"]["uid"] = f"uid-app-{number}"
    server = Server(pods, others=watched(nodereports.sixteen("app-0"), nodereports.container("app-1")))
    ((row,), _) = await found(server, tmp_path, usage=False)
    assert (row.pods, row.threads, row.seen.cause) == (2, (4, 16), nodereport.Cause.CODE_SETS_IT)
    (finding,) = nodereports.sixteen().findings
    assert row.seen.fix.text == finding.fix
    ((name, text),) = words.advice(words.Scan(rows=[row], pods=2, notes=()))
    assert name.endswith("serve")
    assert text == f"its node's agent: {finding.detail}; fix: {finding.fix}"
    assert [query for path, query in server.asked if path == AGENTS]


async def test_of_drift_that_takes_no_cpus_it_is_not_said_that_there_are_too_many_threads(tmp_path):
    resized = nodereport.Finding(cause=nodereport.Cause.RESIZED, detail="the limit is 1 now", fix="restart")
    pod = stored(0)
    pod["metadata"]["uid"] = "uid-app-0"
    server = Server([pod], others=watched(nodereports.container("app-0", effective_threads=1, findings=(resized,))))
    (rows, _) = await found(server, tmp_path, usage=False)
    assert [words.cells(row)["saves"] for row in rows] == [""]
    told = words.sentence(words.Scan(rows=rows, pods=1, notes=()))
    assert told == "1 of 1 container with a known runtime runs too many threads, or not as planned, in 1 of 1 pod."


async def test_agents_are_asked_only_of_nodes_that_tell_of_drift_and_a_silent_one_is_said(tmp_path):
    server = Server([stored(0)], others=watched(drifted=False))
    await found(server, tmp_path)
    assert AGENTS not in [path for path, _ in server.asked]
    ((row,), notes) = await found(Server([stored(0)], (REPORT,), others=watched()), tmp_path, usage=False)
    assert row.seen.cause is Cause.NODE_CPUS
    assert "differ from their plan are not known: node n: you can't query" in notes[0]


async def test_no_kubelet_is_asked_where_nobody_wants_it_or_nothing_was_found(tmp_path):
    for server, usage in ((Server([stored(0)]), False), (Server([]), True)):
        await found(server, tmp_path, usage=usage)
        assert not [path for path, _ in server.asked if "proxy" in path]


async def test_prometheus_is_asked_in_the_kubelets_place(tmp_path):
    said = []

    async def answer(request):
        query = (await request.post())["query"]
        said.append((request.path, query))
        labels = {"namespace": "ns", "pod": "app-0", "container": "serve"}
        value = "0.5" if "usage" in query else "30" if "throttled" in query else "60"
        return web.json_response({"data": {"result": [{"metric": labels, "value": [1, value]}]}})

    (tmp_path / "prometheus").mkdir()
    async with answering(answer, tmp_path / "prometheus"):
        config = json.loads((tmp_path / "prometheus" / "kubeconfig").read_text())
        url = config["clusters"][0]["cluster"]["server"]
        server = Server([stored(0)])
        ((row,), notes) = await found(server, tmp_path, prometheus=url)
    assert (row.used_cpus, row.throttled_share) == (0.5, 0.5)
    assert [path for path, _ in said] == ["/api/v1/query"] * 3
    assert 'namespace=~"ns"' in said[0][1]
    assert notes == ("measured by Prometheus, the last 1h",)
    assert not [path for path, _ in server.asked if "proxy" in path]


def test_the_examples_are_scanned_as_ci_would(request):
    folder = request.config.rootpath / "examples"
    done = CliRunner().invoke(main, ["scan", "-f", str(folder), "-o", "json", "--exit-code", "3"])
    document = json.loads(done.stdout)
    # Their policies govern them: what is not governed would be a finding.
    assert (done.exit_code, document["total"]["findings"]) == (0, 0)
    assert {"vllm/deployment/vllm-cpu"} <= {f"{one['namespace']}/{one['workload']}" for one in document["workloads"]}
