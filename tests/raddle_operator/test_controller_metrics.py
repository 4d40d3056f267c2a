"""The controller's gauges: what statuses and counts come to, and how many series they are at most."""

import pytest
from prometheus_client import REGISTRY

from raddle_operator.controller import metrics
from raddle_operator.controller.status import NamespaceTally, Tally
from raddle_operator.kube.informer import CacheState
from raddle_operator.objects.reasons import SkipReason

KEY = ("InferenceThreading", "shop", "p")
MISSED = str(SkipReason.WEBHOOK_MISSED)


@pytest.fixture(autouse=True)
def clean():
    yield
    metrics.measure_pods({})
    metrics.measure_conditions([], [], [])
    metrics.READINGS.__init__()


def value(name, **labels):
    return REGISTRY.get_sample_value(name, labels)


def missed():
    found = {}
    for family in REGISTRY.collect():
        if family.name == "raddle_missed_pods":
            found = {sample.labels["pod_namespace"]: sample.value for sample in family.samples}
    return found


def tally(**counts):
    return NamespaceTally(policies={KEY: Tally(**counts)})


def test_pods_are_summed_over_policies_and_namespaces():
    counts = {"matched": 9, "injected": 4, "safe": 2, "stale": 1, "shimless": 3, "resized": 1, "older": 2, "pending": 1}
    one = NamespaceTally(policies={KEY: Tally(**counts, skipped={MISSED: 2})}, unattributed={"NoPolicy": 5})
    metrics.measure_pods({"shop": one, "bank": one})
    for name, count in {**counts, "safe_value": 2}.items():
        if name != "safe":
            assert value(f"raddle_{name}_pods") == 2 * count
    assert value("raddle_skipped_pods", reason=MISSED) == 4
    assert value("raddle_skipped_pods", reason="NoPolicy") == 10
    assert value("raddle_skipped_pods", reason="OptedOut") == 0


def test_what_is_gone_counts_for_nothing():
    metrics.measure_pods({"shop": tally(matched=2, skipped={MISSED: 2})})
    assert missed() == {"shop": 2}
    metrics.measure_pods({})
    assert (missed(), value("raddle_matched_pods"), value("raddle_skipped_pods", reason=MISSED)) == ({}, 0, 0)


def test_only_namespaces_with_missed_pods_are_shown_and_of_very_many_the_worst():
    tallies = {f"n{number:03}": tally(matched=1, skipped={MISSED: 1}) for number in range(80)}
    tallies["quiet"] = tally(matched=1, injected=1)
    tallies["z-worst"] = tally(matched=7, skipped={MISSED: 7})
    metrics.measure_pods(tallies)
    found = missed()
    assert len(found) == metrics.MISSED_NAMESPACES + 1
    assert found["z-worst"] == 7
    assert "quiet" not in found
    assert found[metrics.OTHER_NAMESPACES] == 81 - metrics.MISSED_NAMESPACES
    assert sum(found.values()) == 87


def conditions(**states):
    return {"conditions": [{"type": kind, "status": state} for kind, state in states.items()]}


def test_the_sum_over_all_conditions_is_the_number_of_objects():
    policies = [conditions(Accepted="True", Degraded="False"), conditions(Accepted="False", Degraded="False"), {}]
    metrics.measure_conditions(policies, [conditions(Fresh="Unknown", Valid="False")], [])
    assert value("raddle_policies", accepted="true", degraded="false") == 1
    assert value("raddle_policies", accepted="false", degraded="false") == 1
    assert value("raddle_policies", accepted="unknown", degraded="unknown") == 1
    assert value("raddle_topologies", fresh="unknown", valid="false") == 1
    families = {family.name: family for family in REGISTRY.collect()}
    assert sum(sample.value for sample in families["raddle_policies"].samples) == 3
    assert sum(sample.value for sample in families["raddle_topologies"].samples) == 1


def test_what_others_count_is_shown_as_they_say():
    metrics.READINGS.events_dropped = 3
    metrics.READINGS.caches = (CacheState("Pod", 7, 2.5), CacheState("NodeCPUTopology", 2, None))
    assert value("raddle_controller_events_dropped_total") == 3
    assert value("raddle_controller_cache_objects", kind="Pod") == 7
    assert value("raddle_controller_cache_age_seconds", kind="Pod") == 2.5
    assert value("raddle_controller_cache_objects", kind="NodeCPUTopology") == 2
    assert value("raddle_controller_cache_age_seconds", kind="NodeCPUTopology") is None


def test_failures_are_shown_before_the_first():
    assert value("raddle_controller_resyncs_total", outcome="failed") is not None
    assert value("raddle_controller_certificate_checks_total", outcome="failed") is not None
    assert value("raddle_controller_shim_writes_total", outcome="forbidden") is not None
    assert value("raddle_controller_status_writes_total", kind="InferenceThreading", outcome="failed") is not None
