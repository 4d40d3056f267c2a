"""The controller's metrics. Names and labels are an interface: a renamed one breaks dashboards and alerts."""

from __future__ import annotations

from collections import Counter as Tallies
from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from raddle_operator.controller.status import ACCEPTED, NamespaceTally
from raddle_operator.reasons import SkipReason

LEADER = Gauge("raddle_controller_leader", "1 while this process leads")
POLICIES = Gauge("raddle_policies", "Policies by whether they are accepted", ["accepted"])
PODS = Gauge("raddle_pods", "Opted-in pods that a policy governs, by state", ["state"])
MISSED_PODS = Gauge(
    "raddle_missed_pods", "Governed pods that were created after their policy and yet got no values", ["namespace"]
)
SKIPPED_PODS = Gauge("raddle_skipped_pods", "Governed pods that got no values, by reason", ["reason"])
STALE_TOPOLOGIES = Gauge("raddle_stale_topologies", "NodeCPUTopologies that no longer describe their node")
STATUS_WRITES = Counter(
    "raddle_controller_status_writes_total", "Status writes by kind and outcome", ["kind", "outcome"]
)
RECONCILE_SECONDS = Histogram(
    "raddle_controller_reconcile_seconds",
    "Time to handle one key",
    ["kind"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)
QUEUE_DEPTH = Gauge("raddle_controller_queue_depth", "Keys that wait or run")
CACHE_AGE = Gauge("raddle_controller_cache_age_seconds", "Time since the API server was last heard, by kind", ["kind"])
CACHE_OBJECTS = Gauge("raddle_controller_cache_objects", "Objects kept, by kind", ["kind"])
RESYNCS = Counter("raddle_controller_resyncs_total", "Full lists of policies and topologies, by outcome", ["outcome"])
EVENTS_DROPPED = Gauge(
    "raddle_controller_events_dropped", "Events that were not written: repeated too often, or refused"
)
KOPF_RESTARTS = Gauge("raddle_controller_kopf_restarts", "Times that kopf ended by itself and was started again")
SHIM_WRITES = Counter(
    "raddle_controller_shim_writes_total", "Shim ConfigMaps written or removed, by outcome", ["outcome"]
)
CERTIFICATE_CHECKS = Counter("raddle_controller_certificate_checks_total", "Certificate checks by outcome", ["outcome"])


def measure_pods(tallies: Mapping[str, NamespaceTally]) -> None:
    """Set the gauges about pods from the counts of all namespaces."""
    states: Tallies[str] = Tallies(matched=0, injected=0, safe_values=0, stale=0, older=0)
    reasons: Tallies[str] = Tallies({str(reason): 0 for reason in SkipReason})
    MISSED_PODS.clear()
    for namespace, found in tallies.items():
        reasons.update(found.unattributed)
        for tally in found.policies.values():
            states.update(
                matched=tally.matched,
                injected=tally.injected,
                safe_values=tally.safe,
                stale=tally.stale,
                older=tally.older,
            )
            reasons.update(tally.skipped)
        missed = sum(tally.skipped.get(SkipReason.WEBHOOK_MISSED, 0) for tally in found.policies.values())
        MISSED_PODS.labels(namespace).set(missed)
    for state, count in states.items():
        PODS.labels(state).set(count)
    for reason, count in reasons.items():
        SKIPPED_PODS.labels(reason).set(count)


def measure_conditions(policies: Iterable[Mapping[str, Any]], topologies: Iterable[Mapping[str, Any]]) -> None:
    """Set the gauges about policies and topologies from their statuses."""
    accepted: Tallies[str] = Tallies({"True": 0, "False": 0, "Unknown": 0})
    accepted.update(_condition(status, ACCEPTED) for status in policies)
    for word, count in accepted.items():
        POLICIES.labels(word.lower()).set(count)
    STALE_TOPOLOGIES.set(sum(_condition(status, "Fresh") == "False" for status in topologies))


def _condition(status: Mapping[str, Any], kind: str) -> str:
    found = (item["status"] for item in status.get("conditions") or () if item.get("type") == kind)
    return next(found, "Unknown")
