"""Makes the chart's Grafana dashboard from a table of panels, so that all of them look and ask alike.

tests/chart/test_monitoring.py checks that its queries ask for metrics that there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import report

COLUMNS: Final = 24
STAT_WIDTH, STAT_HEIGHT = 4, 4
GRAPH_WIDTH, GRAPH_HEIGHT = 8, 8
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture: its queries by legend, and the unit as Grafana names it. ``red_from`` colours a single number."""

    title: str
    text: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    stat: bool = False
    red_from: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def number(title: str, query: str, text: str, *, unit: str = "short", red_from: float | None = None) -> Panel:
    """A panel with one number."""
    return Panel(title=title, text=text, queries=(("", query),), unit=unit, stat=True, red_from=red_from)


def graph(title: str, text: str, *queries: tuple[str, str], unit: str = "short") -> Panel:
    """A panel with lines over time."""
    return Panel(title=title, text=text, queries=queries, unit=unit)


def quantile(share: float, metric: str, by: str) -> str:
    """A quantile of a histogram, by one label."""
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket[$__rate_interval])))"


def per_s(metric: str, by: str, matchers: str = "") -> str:
    """How often a counter counts in a second, by one label."""
    return f"sum by ({by}) (rate({metric}{matchers}[$__rate_interval]))"


ROWS: Final = (
    Row(
        title="At a glance",
        panels=(
            number("Webhooks ready", "sum(raddle_webhook_ready)", "Pods of the webhook that answer."),
            number("Controllers leading", "sum(raddle_controller_leader)", "1; 0 for some seconds during a failover."),
            number("Pods with values", "sum(raddle_injected_pods)", "Governed pods that have values."),
            number(
                "Missed pods",
                "sum(raddle_missed_pods) or vector(0)",
                "Pods that should have values and do not.",
                red_from=1,
            ),
            number(
                "Certificate ends in",
                "min((raddle_webhook_certificate_expiry_timestamp_seconds > 0) - time())",
                "The webhook's serving certificate.",
                unit="s",
            ),
            number(
                "Internal errors in a day",
                "sum(increase(raddle_webhook_fail_open_total[1d]))",
                "Reviews allowed without values because of an internal error.",
                red_from=1,
            ),
        ),
    ),
    Row(
        title="Pods, policies, nodes",
        panels=(
            graph(
                "Governed pods",
                "Stale: outdated settings. Safe values: not computed for their node. Older: created before their "
                "policy.",
                ("matched", "sum(raddle_matched_pods)"),
                ("with values", "sum(raddle_injected_pods)"),
                ("stale", "sum(raddle_stale_pods)"),
                ("safe values", "sum(raddle_safe_value_pods)"),
                ("no shim", "sum(raddle_shimless_pods)"),
                ("resized in place", "sum(raddle_resized_pods)"),
                ("older", "sum(raddle_older_pods)"),
                ("reason not known yet", "sum(raddle_pending_pods)"),
            ),
            graph(
                "Pods without values",
                "By skip reason.",
                ("{{reason}}", "sum by (reason) (raddle_skipped_pods) > 0"),
            ),
            graph(
                "Missed pods",
                "By their namespace.",
                ("{{pod_namespace}}", "sum by (pod_namespace) (raddle_missed_pods)"),
            ),
            graph(
                "Policies",
                "By condition Accepted, and those that are Degraded.",
                ("accepted {{accepted}}", "sum by (accepted) (raddle_policies)"),
                ("degraded", 'sum(raddle_policies{degraded="true"})'),
            ),
            graph(
                "Topologies",
                "Whether they are up to date and valid.",
                ("fresh {{fresh}}", "sum by (fresh) (raddle_topologies)"),
                ("not valid", 'sum(raddle_topologies{valid="false"})'),
                ("nodes without", "sum(raddle_nodes_without_topology)"),
            ),
            graph(
                "Tunings",
                "Whether they can run and have a result, and the actions on their Jobs.",
                ("accepted {{accepted}}", "sum by (accepted) (raddle_tunings)"),
                ("with a result", 'sum(raddle_tunings{valid="true"})'),
                ("Jobs {{outcome}}", per_s("raddle_controller_tuning_jobs_total", "outcome")),
            ),
            graph(
                "Values withheld",
                "Pods that got some of their values, but not all, by reason.",
                ("{{reason}}", per_s("raddle_webhook_withheld_total", "reason") + " > 0"),
                unit="cps",
            ),
        ),
    ),
    Row(
        title="Running containers, as observed by agents",
        panels=(
            graph(
                "Containers with a plan",
                "Running containers, and those that differ from their plan, by cause.",
                ("running", "sum(raddle_policy_containers_running)"),
                ("{{cause}}", "sum by (cause) (raddle_policy_containers_drifted)"),
            ),
            graph(
                "Policies with the most drift",
                "Containers that differ from their plan; one with several causes counts for each.",
                (
                    "{{policy_namespace}}/{{policy}}",
                    "topk(10, sum by (policy_namespace, policy) (raddle_policy_containers_drifted))",
                ),
            ),
            graph(
                "Throttled by threads",
                "Containers with more threads than planned that are throttled in at least a quarter of their periods.",
                ("{{namespace}}", "namespace:raddle_container_throttled_by_threads:count"),
            ),
            graph(
                "Threads",
                "Threads of governed containers: planned for one session, in effect, and all that used CPU time.",
                ("planned", "sum(raddle_container_threads_planned)"),
                ("in effect", "sum(raddle_container_threads_effective)"),
                ("ran", "sum(raddle_container_threads_ran)"),
            ),
            graph(
                "Throttled periods",
                "The ten most throttled containers.",
                (
                    "{{namespace}}/{{pod}} {{container}}",
                    "topk(10, raddle_container_cpu_throttled_periods_ratio)",
                ),
                unit="percentunit",
            ),
            graph(
                "Waiting for a CPU",
                "Seconds per second that runnable threads waited for a CPU: the ten highest containers.",
                (
                    "{{namespace}}/{{pod}} {{container}}",
                    "topk(10, rate(raddle_container_cpu_delay_seconds_total[$__rate_interval]))",
                ),
            ),
        ),
    ),
    Row(
        title="Webhook",
        panels=(
            graph(
                "Reviews",
                "By path and decision.",
                ("{{path}} {{decision}}", per_s("raddle_webhook_requests_total", "path, decision")),
                unit="reqps",
            ),
            graph(
                "Time to answer",
                "The API server waits 2 s for pods and 1 s for bindings.",
                ("{{path}} p50", quantile(0.5, "raddle_webhook_request_duration_seconds", "path")),
                ("{{path}} p99", quantile(0.99, "raddle_webhook_request_duration_seconds", "path")),
                unit="s",
            ),
            graph(
                "Bindings",
                "By outcome for the pods' safe values.",
                ("{{outcome}}", per_s("raddle_webhook_bindings_total", "outcome") + " > 0"),
                unit="reqps",
            ),
            graph(
                "Cache age",
                "Time since the last response of the API server; maximum over processes.",
                ("{{kind}}", "max by (kind) (raddle_webhook_cache_age_seconds)"),
                unit="s",
            ),
            graph(
                "Cache size",
                "Objects in the cache; maximum over processes.",
                ("{{kind}}", "max by (kind) (raddle_webhook_cache_objects)"),
            ),
            graph(
                "Event loop lag",
                "Near 0 if the process gets enough CPU.",
                ("{{instance}}", "raddle_webhook_event_loop_lag_seconds"),
                unit="s",
            ),
        ),
    ),
    Row(
        title="Controller",
        panels=(
            graph("Queue", "Keys that are waiting or being handled.", ("keys", "sum(raddle_controller_queue_depth)")),
            graph(
                "Time to handle a key",
                "By kind of work, 99th percentile.",
                ("{{work}}", quantile(0.99, "raddle_controller_reconcile_duration_seconds", "work")),
                unit="s",
            ),
            graph(
                "Failures",
                "All are retried.",
                ("status {{kind}}", per_s("raddle_controller_status_writes_total", "kind", '{outcome="failed"}')),
                ("resync", 'sum(rate(raddle_controller_resyncs_total{outcome="failed"}[$__rate_interval]))'),
                (
                    "certificate",
                    'sum(rate(raddle_controller_certificate_checks_total{outcome="failed"}[$__rate_interval]))',
                ),
                (
                    "shim forbidden",
                    'sum(rate(raddle_controller_shim_writes_total{outcome="forbidden"}[$__rate_interval]))',
                ),
                ("events dropped", "sum(rate(raddle_controller_events_dropped_total[$__rate_interval]))"),
                unit="cps",
            ),
            graph(
                "Status writes",
                "By kind.",
                ("{{kind}}", per_s("raddle_controller_status_writes_total", "kind", '{outcome="written"}')),
                unit="cps",
            ),
            graph(
                "Cache age",
                "Time since the last response of the API server.",
                ("{{kind}}", "max by (kind) (raddle_controller_cache_age_seconds)"),
                unit="s",
            ),
            graph(
                "Cache size",
                "Objects in the cache.",
                ("{{kind}}", "max by (kind) (raddle_controller_cache_objects)"),
            ),
        ),
    ),
)


def build() -> dict[str, Any]:
    """The dashboard as Grafana imports it (schema version 39, Grafana 10.4 and later)."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row.title,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
            }
        )
        y, x, height = y + 1, 0, 0
        for panel in row.panels:
            width, height = (STAT_WIDTH, STAT_HEIGHT) if panel.stat else (GRAPH_WIDTH, GRAPH_HEIGHT)
            if x + width > COLUMNS:
                y, x = y + height, 0
            place = {"x": x, "y": y, "w": width, "h": height}
            panels.append({"id": len(panels) + 1, "gridPos": place, **_panel(panel)})
            x += width
        y += height
    return {
        "uid": "raddle",
        "title": "Raddle",
        "description": "Thread counts, spinning and affinity of inference containers: values in pods, and the "
        "health of Raddle.",
        "tags": ["kubernetes", "raddle"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "templating": {
            "list": [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}]
        },
        "panels": panels,
    }


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.unit == "s" and panel.stat:
        del defaults["min"]
    targets = [
        {"refId": chr(ord("A") + number), "datasource": DATASOURCE, "expr": query, "legendFormat": legend or "__auto"}
        for number, (legend, query) in enumerate(panel.queries)
    ]
    options: dict[str, Any] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    if panel.stat:
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "none"}
    return {
        "type": "stat" if panel.stat else "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": targets,
    }


def render() -> str:
    """The dashboard's file."""
    return report.folded_json(build()) + "\n"
