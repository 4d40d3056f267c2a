"""A real Prometheus that scrapes the real processes: rules that load, panels that show something, few series."""

import contextlib
import json
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from http import HTTPStatus

import pytest
import yaml
from prometheus_client import CONTENT_TYPE_LATEST
from tests.support import nodereports

from cluster.components import free_port
from cluster.objects import container, pod, policy
from cluster.waiting import NotInTimeError, wait
from generate import chart, dashboard
from raddle_operator.agent.served import Served
from raddle_operator.agent.server import Server

PROGRAM = shutil.which("prometheus")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed (Debian's package prometheus)")
# What the Prometheus Operator puts on what it scrapes.
TARGET_LABELS = {"namespace": "raddle-system", "pod": "raddle-0", "container": "raddle", "service": "metrics"}
RUNNING = "/apis/raddle.dev/v1alpha1/nodecputopologies/hybrid/status"
# Panels of what does not happen in a healthy cluster: their lines are filtered by "> 0", or there is no such object.
MAY_BE_EMPTY = ("> 0", "raddle_missed_pods")


class Prometheus:
    """Asks a running Prometheus."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path, **query):
        url = f"{self.url}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        return self.get("/api/v1/query", query=expression)["result"]


@pytest.fixture(scope="module")
def agent():
    """The port of an agent that has seen a container with sixteen threads at a limit of two."""
    told = Served()
    told.update(nodereports.report("hybrid", nodereports.sixteen()))
    with Server(0, {"/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE_LATEST, told.metrics())}, "127.0.0.1") as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def prometheus(raddle, agent, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prometheus")
    targets = [
        {"targets": [process.health_url.removeprefix("http://")], "labels": {**TARGET_LABELS, "pod": name}}
        for name, process in (("webhook", raddle.webhook), ("controller", raddle.controller))
    ]
    agents = [{"targets": [f"127.0.0.1:{agent}"], "labels": {**TARGET_LABELS, "pod": "agent"}}]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(chart.CHART / "files" / "monitoring" / "alerts.yaml")],
        "scrape_configs": [
            {"job_name": "raddle", "static_configs": targets},
            # As the chart's monitors have it: what an agent says is of other pods than its own.
            {"job_name": "raddle-agent", "honor_labels": True, "static_configs": agents},
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    with (folder / "log").open("w") as log:
        options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
        command = [PROGRAM, *options, f"--web.listen-address=127.0.0.1:{port}"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        found = Prometheus(port)
        scraped = lambda: len(found.query("up == 1")) == 3  # noqa: E731
        wait(scraped, "all three processes are scraped", 60, refusals=(OSError,))
        yield found
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def busy(space, raddle, prometheus):
    """A few pods with values, one with drift, seen by the controller and by Prometheus."""
    space.apply(policy("fast"))
    for number in range(3):
        space.create(pod(container(cpu="1"), name=f"p{number}"))
        space.bound(f"p{number}")
    causes = [{"cause": "CodeSetsIt", "containers": 1}]
    reference = f"InferenceThreading/{space.name}/fast"
    seen = {"policies": [{"policy": reference, "containers": 3, "drifted": 1, "causes": causes}], "worst": []}
    raddle.cluster.client.merge(RUNNING, {"status": {"running": seen}})
    wait(lambda: prometheus.query("sum(raddle_injected_pods) >= 3"), "the controller has counted them", 60)
    wait(lambda: prometheus.query("sum(raddle_policy_containers_drifted) >= 1"), "it has summed up what runs", 60)
    wait(lambda: prometheus.query("rate(raddle_container_cpu_delay_seconds_total[20s])"), "the agent's counters do")
    wait(lambda: prometheus.query("namespace:raddle_container_throttled_by_threads:count"), "its rules are recorded")
    changed = 'rate(raddle_webhook_requests_total{path="pods",decision="changed"}[20s]) > 0'
    # A counter that is first seen with all that it will ever count has no rate.
    wait(lambda: space.probe(pod(container(cpu="1"))) and prometheus.query(changed), "the reviews show")
    yield space
    raddle.cluster.client.merge(RUNNING, {"status": {"running": None}})


def test_every_panel_shows_something(busy, prometheus):
    def empty():
        return [
            (panel.title, query)
            for row in dashboard.ROWS
            for panel in row.panels
            for _, query in panel.queries
            if not any(part in query for part in MAY_BE_EMPTY)
            and not prometheus.query(query.replace("$__rate_interval", "20s"))
        ]

    with contextlib.suppress(NotInTimeError):  # what is still empty says more
        wait(lambda: not empty(), "every panel shows something", 30)
    assert empty() == []


def test_every_rule_is_loaded_and_none_of_them_fires(busy, prometheus):
    def rules():
        return [rule for group in prometheus.get("/api/v1/rules")["groups"] for rule in group["rules"]]

    wait(lambda: all(rule["health"] != "unknown" for rule in rules()), "every rule has been tried", 60)
    assert {rule["name"]: rule["lastError"] for rule in rules() if rule["health"] != "ok"} == {}
    alerts = [rule for rule in rules() if rule["type"] == "alerting"]
    critical = [rule["name"] for rule in alerts if rule["labels"]["severity"] == "critical"]
    assert critical == ["RaddleWebhookDown"]
    assert [rule["name"] for rule in alerts if rule["state"] == "firing" and rule["name"] in critical] == []


def test_a_container_with_sixteen_threads_and_a_policy_with_drift_raise_the_two_alerts(busy, prometheus):
    def pending():
        return {
            (one["labels"]["alertname"], one["labels"].get("namespace"))
            for one in prometheus.get("/api/v1/alerts")["alerts"]
        }

    expected = {("RaddleThrottledByThreads", "models"), ("RaddleDrift", None)}
    wait(lambda: expected <= pending(), "both wait for their time to be over", 60)


def test_no_label_of_ours_has_to_give_way_to_one_of_the_target(busy, prometheus):
    assert not [name for name in prometheus.get("/api/v1/labels") if name.startswith("exported_")]


def test_a_process_has_few_series(busy, prometheus):
    for found in prometheus.query('count by (pod) ({__name__=~"raddle_.+"})'):
        assert int(found["value"][1]) < 300, found["metric"]
