"""The webhook's metrics. Names and labels are an interface: a renamed one breaks dashboards and alerts.

Labels take few values: paths, decisions, reasons and kinds, never names of pods or namespaces. Those that are known
from the start are shown as 0, so that the first of a kind is a change that Prometheus sees. One object holds the
metrics of one process, so that two servers in one test do not count together. (controller.metrics has the other half;
docs/reference/metrics.md is made from both.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from raddle_operator.injection.binding import BindingOutcome
from raddle_operator.kube.informer import CacheState
from raddle_operator.objects.reasons import SkipReason

# A series of its own for each counter and histogram, which nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_DURATION_BUCKETS_S: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class HasCaches(Protocol):
    """Something that can say how its caches are."""

    def states(self) -> Iterable[CacheState]:
        """The state of each cache."""
        ...


class _CacheCollector(Collector):
    """Asks the caches when Prometheus asks, so that nothing is counted on the way."""

    def __init__(self, caches: HasCaches) -> None:
        self._caches = caches

    def collect(self) -> Iterator[GaugeMetricFamily]:
        objects = GaugeMetricFamily("raddle_webhook_cache_objects", "Objects in the cache, by kind", labels=["kind"])
        age = GaugeMetricFamily(
            "raddle_webhook_cache_age_seconds",
            "Time since the last response of the API server, by kind",
            labels=["kind"],
        )
        for state in self._caches.states():
            objects.add_metric([state.kind], state.objects)
            if state.age_s is not None:
                age.add_metric([state.kind], state.age_s)
        yield objects
        yield age


class WebhookMetrics:
    """All metrics of one webhook process."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._requests = Counter(
            "raddle_webhook_requests",
            "Requests by path, decision and reason",
            ["path", "decision", "reason"],
            registry=registry,
        )
        self._seconds = Histogram(
            "raddle_webhook_request_duration_seconds",
            "Time from reading a review's headers until its response is ready",
            ["path"],
            buckets=_DURATION_BUCKETS_S,
            registry=registry,
        )
        self.fail_open = Counter(
            "raddle_webhook_fail_open",
            "Reviews allowed without a patch because of an internal error",
            registry=registry,
        )
        self._bindings = Counter(
            "raddle_webhook_bindings", "Bindings by outcome for the pod's values", ["outcome"], registry=registry
        )
        self._withheld = Counter(
            "raddle_webhook_withheld",
            "Pods that got some of their values, but not all, by reason",
            ["reason"],
            registry=registry,
        )
        self.certificate_expiry = Gauge(
            "raddle_webhook_certificate_expiry_timestamp_seconds",
            "When the serving certificate expires; 0 while none is loaded",
            registry=registry,
        )
        self.certificate_loads = Counter(
            "raddle_webhook_certificate_loads", "Certificates loaded, by outcome", ["outcome"], registry=registry
        )
        self.ready = Gauge("raddle_webhook_ready", "1 while /readyz answers 200", registry=registry)
        self.loop_lag = Gauge(
            "raddle_webhook_event_loop_lag_seconds", "Longest delay of a timer in the last 10 s", registry=registry
        )
        for word in ("loaded", "failed"):
            self.certificate_loads.labels(word)
        # labels() validates and locks at each call; the few combinations are kept.
        self._request_children: dict[tuple[str, str, str], Counter] = {}
        self._seconds_children = {path: self._seconds.labels(path) for path in ("pods", "binding")}
        self._binding_children = {str(outcome): self._bindings.labels(outcome) for outcome in BindingOutcome}
        self._withheld_children = {str(reason): self._withheld.labels(reason) for reason in SkipReason}

    def request(self, path: str, decision: str, reason: str) -> None:
        """Counts one request."""
        child = self._request_children.get((path, decision, reason))
        if child is None:
            child = self._request_children[path, decision, reason] = self._requests.labels(path, decision, reason)
        child.inc()

    def duration(self, path: str, seconds: float) -> None:
        """Adds one answer's time to the histogram."""
        self._seconds_children[path].observe(seconds)

    def binding(self, outcome: BindingOutcome) -> None:
        """Counts what became of one binding."""
        self._binding_children[outcome].inc()

    def withheld(self, reason: SkipReason) -> None:
        """Counts a pod that got values, but for this reason not all of them."""
        self._withheld_children[reason].inc()

    def families(self) -> Iterable[Metric]:
        """All metrics as they are now."""
        return self._registry.collect()

    def watch(self, caches: HasCaches) -> None:
        """Shows the sizes and ages of these caches."""
        self._registry.register(_CacheCollector(caches))

    def value(self, name: str, **labels: str) -> float:
        """One sample's value, 0 where it has never been counted."""
        return self._registry.get_sample_value(name, labels) or 0.0

    def text(self) -> bytes:
        """All metrics in Prometheus' text form."""
        return generate_latest(self._registry)
