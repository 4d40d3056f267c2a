"""A real Prometheus that scrapes the real processes: rules that load, panels that show something, few series."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request

import pytest
import yaml

from cluster.components import free_port
from cluster.objects import container, pod, policy
from cluster.waiting import wait
from generate import chart, dashboard

PROGRAM = shutil.which("prometheus")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed (Debian's package prometheus)")
# What the Prometheus Operator puts on what it scrapes.
TARGET_LABELS = {"namespace": "raddle-system", "pod": "raddle-0", "container": "raddle", "service": "metrics"}
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
def prometheus(raddle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prometheus")
    targets = [
        {"targets": [process.health_url.removeprefix("http://")], "labels": {**TARGET_LABELS, "pod": name}}
        for name, process in (("webhook", raddle.webhook), ("controller", raddle.controller))
    ]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(chart.CHART / "files" / "monitoring" / "alerts.yaml")],
        "scrape_configs": [{"job_name": "raddle", "static_configs": targets}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [
                PROGRAM,
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        found = Prometheus(port)
        scraped = lambda: len(found.query("up{job='raddle'} == 1")) == 2  # noqa: E731
        wait(scraped, "both processes are scraped", 60, refusals=(OSError,))
        yield found
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def busy(space, raddle, prometheus):
    """A few pods with values, seen by the controller and by Prometheus."""
    space.apply(policy("fast"))
    for number in range(3):
        space.create(pod(container(cpu="1"), name=f"p{number}"))
        space.bound(f"p{number}")
    wait(lambda: prometheus.query("sum(raddle_injected_pods) >= 3"), "the controller has counted them", 60)
    wait(
        lambda: prometheus.query('rate(raddle_webhook_requests_total{path="pods",decision="changed"}[20s]) > 0'),
        "the reviews show",
    )
    return space


def test_every_panel_shows_something(busy, prometheus):
    empty = []
    for row in dashboard.ROWS:
        for panel in row.panels:
            for _, query in panel.queries:
                found = prometheus.query(query.replace("$__rate_interval", "20s"))
                if not found and not any(part in query for part in MAY_BE_EMPTY):
                    empty.append((panel.title, query))
    assert empty == []


def test_every_rule_is_loaded_and_none_of_them_fires(busy, prometheus):
    def rules():
        return [rule for group in prometheus.get("/api/v1/rules")["groups"] for rule in group["rules"]]

    wait(lambda: all(rule["health"] != "unknown" for rule in rules()), "every rule has been tried", 60)
    assert {rule["name"]: rule["lastError"] for rule in rules() if rule["health"] != "ok"} == {}
    critical = [rule["name"] for rule in rules() if rule["labels"]["severity"] == "critical"]
    assert critical == ["RaddleWebhookDown"]
    assert [rule["name"] for rule in rules() if rule["state"] == "firing" and rule["name"] in critical] == []


def test_no_label_of_ours_has_to_give_way_to_one_of_the_target(busy, prometheus):
    assert not [name for name in prometheus.get("/api/v1/labels") if name.startswith("exported_")]


def test_a_process_has_few_series(busy, prometheus):
    for found in prometheus.query('count by (pod) ({__name__=~"raddle_.+"})'):
        assert int(found["value"][1]) < 300, found["metric"]
