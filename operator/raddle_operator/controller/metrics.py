"""The controller's metrics. Names and labels are an interface: a renamed one breaks dashboards and alerts.

All but the leader show nothing but zeros of what is in the cluster: only it looks. The numbers of pods are those of the
policies' statuses, summed up: matched = injected + older + pending + skipped, but for those skipped that no policy
governs. (raddle_operator.webhook.metrics has the webhook's; docs/reference/metrics.md is made from both.)
"""

from __future__ import annotations

from collections import Counter as Tallies
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from raddle_operator.controller.freshness import FRESH, VALID
from raddle_operator.controller.running import Total
from raddle_operator.controller.status import ACCEPTED, DEGRADED, NamespaceTally
from raddle_operator.kube.informer import CacheState
from raddle_operator.objects.reasons import SkipReason
from raddle_operator.objects.running import PolicyKey

MISSED_NAMESPACES: Final = 50
"""Namespaces that are shown by name; the pods of the others count for OTHER_NAMESPACES."""
OTHER_NAMESPACES: Final = "(others)"
RUNNING_POLICIES: Final = 40
"""Policies whose running containers are shown by name, those with most drift first; all others are one more."""
OTHER_POLICIES: Final = ("", "", "(others)")

LEADER = Gauge("raddle_controller_leader", "1 while this process leads")
POLICIES = Gauge(
    "raddle_policies", "Policies by the conditions Accepted and Degraded of their status", ["accepted", "degraded"]
)
MATCHED_PODS = Gauge("raddle_matched_pods", "Opted-in pods that a policy governs")
INJECTED_PODS = Gauge("raddle_injected_pods", "Governed pods that have values")
SAFE_VALUE_PODS = Gauge("raddle_safe_value_pods", "Pods with safe values instead of values for their node")
STALE_PODS = Gauge("raddle_stale_pods", "Pods with values from outdated settings of their policy")
SHIMLESS_PODS = Gauge(
    "raddle_shimless_pods", "Pods whose processes the shim does not reach, which have environment variables only"
)
RESIZED_PODS = Gauge("raddle_resized_pods", "Pods with a container whose CPUs were resized in place after planning")
OLDER_PODS = Gauge(
    "raddle_older_pods", "Governed pods without values that were created before their policy or the opt-in"
)
PENDING_PODS = Gauge("raddle_pending_pods", "Governed pods without values whose reason is not known yet")
SKIPPED_PODS = Gauge("raddle_skipped_pods", "Opted-in pods that got no values, by reason", ["reason"])
MISSED_PODS = Gauge(
    "raddle_missed_pods",
    f"Governed pods that should have values and do not, by namespace (the {MISSED_NAMESPACES} with most)",
    # Not "namespace": Prometheus itself puts that of the scraped pod there.
    ["pod_namespace"],
)
_POLICY: Final = ("policy_kind", "policy_namespace", "policy")
CONTAINERS_RUNNING = Gauge(
    "raddle_policy_containers_running",
    f"Running containers with a plan, by policy (the {RUNNING_POLICIES} with most drift)",
    _POLICY,
)
CONTAINERS_DRIFTED = Gauge(
    "raddle_policy_containers_drifted",
    "Containers that differ from their plan, by policy and cause; one with several causes counts for each",
    [*_POLICY, "cause"],
)
TOPOLOGIES = Gauge(
    "raddle_topologies", "NodeCPUTopologies by the conditions Fresh and Valid of their status", ["fresh", "valid"]
)
NODES_WITHOUT_TOPOLOGY = Gauge("raddle_nodes_without_topology", "Linux nodes that have no NodeCPUTopology")
TUNINGS = Gauge(
    "raddle_tunings", "InferenceTunings by the conditions Accepted and Valid of their status", ["accepted", "valid"]
)
TUNING_JOBS = Counter("raddle_controller_tuning_jobs", "Jobs of InferenceTunings, by action", ["outcome"])
STATUS_WRITES = Counter("raddle_controller_status_writes", "Status writes by kind and outcome", ["kind", "outcome"])
RECONCILE_SECONDS = Histogram(
    "raddle_controller_reconcile_duration_seconds",
    "Time to handle one key of the queue, by kind of work",
    ["work"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)
QUEUE_DEPTH = Gauge("raddle_controller_queue_depth", "Keys that are waiting or being handled")
RESYNCS = Counter("raddle_controller_resyncs", "Full lists of policies and topologies, by outcome", ["outcome"])
SHIM_WRITES = Counter("raddle_controller_shim_writes", "Shim ConfigMaps written or removed, by outcome", ["outcome"])
CERTIFICATE_CHECKS = Counter(
    "raddle_controller_certificate_checks", "Checks of the webhook's certificates, by outcome", ["outcome"]
)

_POD_STATES: Final = (
    MATCHED_PODS, INJECTED_PODS, SAFE_VALUE_PODS, STALE_PODS, SHIMLESS_PODS, RESIZED_PODS, OLDER_PODS, PENDING_PODS,
)  # fmt: skip
_STATES: Final = ("true", "false", "unknown")
STATUS_KINDS: Final = ("InferenceThreading", "ClusterInferenceThreading", "NodeCPUTopology", "InferenceTuning")
_OUTCOMES: Final[Mapping[Counter, tuple[str, ...]]] = {
    RESYNCS: ("done", "failed"),
    SHIM_WRITES: ("created", "there", "removed", "forbidden", "namespace_gone"),
    CERTIFICATE_CHECKS: ("done", "failed"),
    TUNING_JOBS: ("created", "there", "refused", "deleted"),
}
# Known from the start, so that the first of a kind is a change that Prometheus sees.
for _counter, _words in _OUTCOMES.items():
    for _word in _words:
        _counter.labels(_word)
for _kind in STATUS_KINDS:
    for _word in ("written", "failed", "gone"):
        STATUS_WRITES.labels(_kind, _word)


class Readings(Collector):
    """What parts of the process count or keep themselves, read when Prometheus asks."""

    def __init__(self) -> None:
        self.events_dropped = 0
        self.caches: tuple[CacheState, ...] = ()

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics with what was last set."""
        yield CounterMetricFamily(
            "raddle_controller_events_dropped",
            "Events that were not written: repeated too often, or refused",
            self.events_dropped,
        )
        objects = GaugeMetricFamily("raddle_controller_cache_objects", "Objects in the cache, by kind", labels=["kind"])
        age = GaugeMetricFamily(
            "raddle_controller_cache_age_seconds",
            "Time since the last response of the API server, by kind",
            labels=["kind"],
        )
        for state in self.caches:
            objects.add_metric([state.kind], state.objects)
            if state.age_s is not None:
                age.add_metric([state.kind], state.age_s)
        yield objects
        yield age


READINGS: Final = Readings()
REGISTRY.register(READINGS)


def measure_pods(tallies: Mapping[str, NamespaceTally]) -> None:
    """Sets the gauges about pods from the counts of all namespaces."""
    states: Tallies[Gauge] = Tallies()
    reasons: Tallies[str] = Tallies({str(reason): 0 for reason in SkipReason})
    missed: Tallies[str] = Tallies()
    for namespace, item in tallies.items():
        reasons.update(item.unattributed)
        for tally in item.policies.values():
            states[MATCHED_PODS] += tally.matched
            states[INJECTED_PODS] += tally.injected
            states[SAFE_VALUE_PODS] += tally.safe
            states[STALE_PODS] += tally.stale
            states[SHIMLESS_PODS] += tally.shimless
            states[RESIZED_PODS] += tally.resized
            states[OLDER_PODS] += tally.older
            states[PENDING_PODS] += tally.pending
            reasons.update(tally.skipped)
            missed[namespace] += tally.skipped.get(SkipReason.WEBHOOK_MISSED, 0)
    for gauge in _POD_STATES:
        gauge.set(states[gauge])
    for reason, count in reasons.items():
        SKIPPED_PODS.labels(reason).set(count)
    _measure_missed(+missed)


def _measure_missed(missed: Tallies[str]) -> None:
    """Shows namespaces with missed pods only, and not all of them when there are very many."""
    MISSED_PODS.clear()
    shown = sorted(missed.items(), key=lambda item: (-item[1], item[0]))
    for namespace, count in shown[:MISSED_NAMESPACES]:
        MISSED_PODS.labels(namespace).set(count)
    rest = sum(count for _, count in shown[MISSED_NAMESPACES:])
    if rest:
        MISSED_PODS.labels(OTHER_NAMESPACES).set(rest)


def measure_running(totals: Iterable[tuple[PolicyKey, Total]]) -> None:
    """Sets the gauges about what runs: a policy in which all is as planned has no series by cause."""
    CONTAINERS_RUNNING.clear()
    CONTAINERS_DRIFTED.clear()
    rest = Total()
    by_drift = sorted(totals, key=lambda item: (-item[1].drifted, -item[1].containers, item[0]))
    for place, (key, total) in enumerate(by_drift):
        if place < RUNNING_POLICIES:
            _set_running(key, total)
        else:
            rest.containers += total.containers
            rest.causes += total.causes
    if rest.containers:
        _set_running(OTHER_POLICIES, rest)


def _set_running(policy: tuple[str, str, str], total: Total) -> None:
    CONTAINERS_RUNNING.labels(*policy).set(total.containers)
    for cause, containers in total.causes.items():
        if containers > 0:
            CONTAINERS_DRIFTED.labels(*policy, str(cause)).set(containers)


def measure_conditions(
    policies: Iterable[Mapping[str, Any]],
    topologies: Iterable[Mapping[str, Any]],
    tunings: Iterable[Mapping[str, Any]],
) -> None:
    """Sets the gauges about policies, topologies and tunings from their statuses."""
    _measure_two(POLICIES, (ACCEPTED, DEGRADED), policies)
    _measure_two(TOPOLOGIES, (FRESH, VALID), topologies)
    _measure_two(TUNINGS, (ACCEPTED, VALID), tunings)


def _measure_two(gauge: Gauge, kinds: tuple[str, str], statuses: Iterable[Mapping[str, Any]]) -> None:
    """Counts the statuses by two conditions, so that the sum over all labels is the number of objects."""
    result = Tallies({(one, other): 0 for one in _STATES for other in _STATES})
    result.update((_condition(status, kinds[0]), _condition(status, kinds[1])) for status in statuses)
    for states, count in result.items():
        gauge.labels(*states).set(count)


def _condition(status: Mapping[str, Any], kind: str) -> str:
    result = (item["status"] for item in status.get("conditions") or () if item.get("type") == kind)
    return str(next(result, "Unknown")).lower()
