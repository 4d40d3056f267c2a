"""What the agent serves of the governed containers: the last window's report as JSON, and metrics.

Each is made from the report that the loop tells: who asks often costs the agent little, and learns nothing sooner.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from raddle_operator.objects import nodereport
from raddle_operator.objects.nodereport import Cause, Container, NodeReport, Pool

# As cadvisor and kube-state-metrics have them, so that they join; a scrape has to honour them.
LABELS: Final = ("namespace", "pod", "container")

Key = tuple[str, str, str]


class _Totals:
    """What a container's threads came to since they were first seen; a window that does not tell adds nothing."""

    __slots__ = ("delay_s", "migrations", "preemptions", "used_s")

    def __init__(self) -> None:
        self.used_s = self.delay_s = self.migrations = self.preemptions = 0.0

    def add(self, pool: Pool, window_s: float) -> None:
        self.used_s += pool.used_cpus * window_s
        self.delay_s += (pool.delay_cpus or 0.0) * window_s
        self.migrations += (pool.migrations_hz or 0.0) * window_s
        self.preemptions += (pool.involuntary_hz or 0.0) * window_s


class Served(Collector):
    """The last report, as it is served. `update` is called by one thread, the rest by any."""

    def __init__(self, refused: Mapping[str, int] | None = None) -> None:
        """`refused` counts the datagrams that were not taken, by why; None: nobody is heard."""
        self._refused = refused
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self._report: NodeReport | None = None
        self._totals: dict[Key, _Totals] = {}
        self.document: bytes | None = None
        """The report as JSON; None where there is none."""

    def update(self, report: NodeReport | None) -> None:
        """Takes the report of the window that has ended; None: there is none."""
        if report is None:
            self._report = self.document = None
            return
        totals = {_key(one): self._totals.get(_key(one)) or _Totals() for one in report.containers}
        for one in report.containers:
            for process in one.processes:
                for pool in process.pools:
                    totals[_key(one)].add(pool, report.window_s)
        self._totals, self._report = totals, report
        self.document = json.dumps(nodereport.to_document(report), separators=(",", ":")).encode()

    def metrics(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The metrics of the last report. Names and labels are an interface: a renamed one breaks dashboards."""
        report, totals = self._report, self._totals
        containers = report.containers if report else ()
        for name, help_text, value in (
            ("threads", "Threads of the container's processes", _threads),
            ("threads_ran", "Threads that used CPU time in the last window", _ran),
            ("threads_planned", "Intra-op threads of the plan", lambda one: one.planned_threads),
            (
                "threads_effective",
                "Threads in effect: as reported by the shim, else those that ran",
                lambda one: one.effective_threads,
            ),
            ("cpu_limit_cores", "CPU limit of the pod spec", lambda one: one.limit_cpus),
            ("cpu_quota_cores", "CPU quota of the cgroup", lambda one: one.quota_cpus),
            ("cpu_used_cores", "CPU time per second in the last window", lambda one: one.used_cpus),
            (
                "cpu_throttled_periods_ratio",
                "Share of CFS periods that were throttled in the last window",
                lambda one: one.throttled_share,
            ),
            (
                "cpu_waiting_ratio",
                "Share of the last window in which a thread waited for a CPU",
                lambda one: one.waiting_share,
            ),
        ):
            family = GaugeMetricFamily(f"raddle_container_{name}", help_text, labels=LABELS)
            for one in containers:
                if (result := value(one)) is not None:
                    family.add_metric(_key(one), result)
            yield family
        yield _findings(containers)
        for name, help_text, attribute in (
            ("cpu_threads_seconds", "CPU time of the observed threads", "used_s"),
            ("cpu_delay_seconds", "Time that threads waited for a CPU while they could have run", "delay_s"),
            ("cpu_migrations", "Observed CPU migrations, a lower bound", "migrations"),
            ("cpu_preemptions", "Involuntary context switches", "preemptions"),
        ):
            counter = CounterMetricFamily(f"raddle_container_{name}", help_text, labels=LABELS)
            for one in containers:
                if _is_seen(one):
                    counter.add_metric(_key(one), round(getattr(totals[_key(one)], attribute), 6))
            yield counter
        if self._refused is not None:
            yield _refused(self._refused)


def _findings(containers: Iterable[Container]) -> Metric:
    findings = GaugeMetricFamily(
        "raddle_container_findings", "Differences from the plan, by cause", labels=(*LABELS, "cause")
    )
    for one in containers:
        for cause in Cause:
            if number := sum(1 for finding in one.findings if finding.cause == cause):
                findings.add_metric((*_key(one), str(cause)), number)
    return findings


def _refused(counts: Mapping[str, int]) -> Metric:
    result = CounterMetricFamily(
        "raddle_agent_datagrams_refused", "Rejected datagrams of shims, by reason", labels=("reason",)
    )
    for reason, number in counts.items():
        result.add_metric((reason,), number)
    return result


def _key(one: Container) -> Key:
    return one.namespace, one.pod, one.name


def _threads(one: Container) -> int | None:
    return sum(process.threads for process in one.processes) if _is_seen(one) else None


def _ran(one: Container) -> int | None:
    return sum(pool.ran for process in one.processes for pool in process.pools) if _is_seen(one) else None


def _is_seen(one: Container) -> bool:
    """Whether the agent has looked at its threads: processes that only a shim has told of have no pools."""
    return any(process.pools for process in one.processes)
