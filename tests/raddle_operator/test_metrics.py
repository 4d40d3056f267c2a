"""The webhook's metrics: what is counted is shown, by few labels."""

from prometheus_client.parser import text_string_to_metric_families

from raddle_operator.injection.binding import BindingOutcome
from raddle_operator.kube.informer import CacheState
from raddle_operator.webhook.metrics import WebhookMetrics


class Caches:
    def states(self):
        return [CacheState("UnboundPod", 3, 1.5), CacheState("ShimConfigMap", 0, None)]


def samples(metrics):
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_requests_bindings_and_times_are_counted_by_their_labels():
    metrics = WebhookMetrics()
    for _ in range(2):
        metrics.request("pods", "changed", "")
    metrics.binding(BindingOutcome.NODE_SPECIFIC)
    metrics.duration("pods", 0.0015)
    found = samples(metrics)
    labels = (("decision", "changed"), ("path", "pods"), ("reason", ""))
    assert found["raddle_webhook_requests_total", labels] == 2
    assert found["raddle_webhook_bindings_total", (("outcome", "NodeSpecific"),)] == 1
    assert found["raddle_webhook_request_duration_seconds_bucket", (("le", "0.001"), ("path", "pods"))] == 0
    assert found["raddle_webhook_request_duration_seconds_bucket", (("le", "0.002"), ("path", "pods"))] == 1
    assert metrics.value("raddle_webhook_fail_open_total") == 0


def test_caches_are_asked_when_the_metrics_are_and_an_unknown_age_is_absent():
    metrics = WebhookMetrics()
    metrics.watch(Caches())
    found = samples(metrics)
    assert found["raddle_webhook_cache_objects", (("kind", "UnboundPod"),)] == 3
    assert found["raddle_webhook_cache_age_seconds", (("kind", "UnboundPod"),)] == 1.5
    assert ("raddle_webhook_cache_age_seconds", (("kind", "ShimConfigMap"),)) not in found


def test_failures_and_outcomes_are_shown_before_the_first():
    found = samples(WebhookMetrics())
    assert found["raddle_webhook_fail_open_total", ()] == 0
    assert found["raddle_webhook_certificate_loads_total", (("outcome", "failed"),)] == 0
    for outcome in BindingOutcome:
        assert found["raddle_webhook_bindings_total", (("outcome", outcome),)] == 0


def test_no_series_says_only_when_another_began():
    assert not [name for name, _ in samples(WebhookMetrics()) if name.endswith("_created")]


def test_two_processes_in_one_test_do_not_count_together():
    one, other = WebhookMetrics(), WebhookMetrics()
    one.request("pods", "changed", "")
    assert other.value("raddle_webhook_requests_total", path="pods", decision="changed", reason="") == 0
