"""docs/reference/metrics.md is made from the metrics themselves, which keep Prometheus' conventions."""

import re
import shutil
import subprocess

import pytest
from prometheus_client import generate_latest

from generate.docs import metrics as page
from raddle_operator.agent import served
from raddle_operator.webhook.caches import Caches
from raddle_operator.webhook.metrics import WebhookMetrics
from raddle_operator.webhook.sources import MemorySources

METRICS = [*page.webhook(), *page.controlling(), *page.agent()]
# What Prometheus itself puts on a series for where it was scraped; a label of ours would become exported_….
TAKEN = {"job", "instance", "namespace", "pod", "container", "service", "endpoint", "node", "cluster"}


def of_container(metric):
    """The labels that say which container it is of, as cadvisor's: the chart's monitors honour them."""
    return set(served.LABELS) if metric.name.startswith("raddle_container_") else set()


def test_every_metric_and_each_of_its_labels_has_a_row():
    text = page.render()
    for metric in METRICS:
        assert text.count(f"\n| `{metric.name}` | {metric.type} |") == 1, metric.name
        for label in metric.labels.keys() - of_container(metric):
            rows = re.findall(rf"^\| `{metric.name}` \| `{label}` \| (.*\S.*) \|$", text, flags=re.MULTILINE)
            assert len(rows) == 1, (metric.name, label)


def test_names_tell_type_and_unit():
    for metric in METRICS:
        assert re.fullmatch(r"raddle_[a-z]+(_[a-z]+)*", metric.name)
        assert metric.name.endswith("_total") is (metric.type == "counter"), metric.name
        assert metric.name.endswith("_seconds") or metric.type != "histogram", metric.name
        assert not metric.name.endswith(("_s", "_ms", "_count", "_sum", "_bucket"))
        assert metric.help.rstrip(".") == metric.help != "", metric.name


def test_no_label_is_one_that_prometheus_sets():
    for metric in METRICS:
        assert not TAKEN & (metric.labels.keys() - of_container(metric)), metric.name


def test_labels_take_few_values():
    """All that is there from the start; requests by reason are bounded by the enumerations that the page lists."""
    series = 0
    for metric in METRICS:
        combinations = 1
        for values in metric.labels.values():
            combinations *= len(values)
        series += combinations * (len(metric.buckets) + 2 if metric.buckets else 1)
    assert series < 400


def test_words_on_values_are_about_labels_that_there_are():
    labels = {(metric.name, label) for metric in METRICS for label in metric.labels}
    assert page.LATER.keys() <= labels


def webhook_text():
    metrics = WebhookMetrics()
    metrics.watch(Caches(MemorySources.empty().sources()))
    metrics.request("pods", "changed", "")
    return metrics.text()


@pytest.mark.parametrize("text", [webhook_text, generate_latest], ids=["webhook", "controller"])
def test_promtool_finds_nothing_to_complain_of(text):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    done = subprocess.run([promtool, "check", "metrics"], input=text(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
