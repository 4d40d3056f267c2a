"""What the chart installs for Prometheus and Grafana: who is scraped, which alerts fire when, what the dashboard asks."""

import json
import re
import shutil
import subprocess

import pytest
import yaml

from generate import chart, dashboard
from generate.docs import metrics as reference
from report import ROOT

RULES = chart.CHART / "files" / "monitoring" / "alerts.yaml"
RUNBOOKS = ROOT / "docs" / "runbooks"
WRITTEN = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in WRITTEN if "alert" in rule}
RECORDED = {rule["record"]: rule for rule in WRITTEN if "record" in rule}
METRICS = {metric.name: metric for metric in [*reference.webhook(), *reference.controlling(), *reference.agent()]}
PANELS = [panel for row in dashboard.ROWS for panel in row.panels]
QUERIES = [(panel.title, query) for panel in PANELS for _, query in panel.queries]
EVERYTHING = {
    "crds": {"install": False},
    "monitoring": {
        "scrape": {"kind": "ServiceMonitor", "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "grafanaDashboard": {"enabled": True, "annotations": {"grafana_folder": "Platform"}},
    },
}
each_alert = pytest.mark.parametrize("alert", ALERTS)


def of_kind(objects, kind):
    return [item for item in objects if item["kind"] == kind]


def with_monitoring(**changes):
    return chart.objects({**EVERYTHING, "monitoring": {**EVERYTHING["monitoring"], **changes}})


def promtool(*arguments):
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian's package prometheus)")
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


# --- Queries --------------------------------------------------------------------------------------------------------------


def metric_of(series):
    """The metric that a series belongs to; a histogram has three kinds."""
    for suffix in ("_bucket", "_sum", "_count"):
        if METRICS.get(series.removesuffix(suffix), METRICS["raddle_matched_pods"]).type == "histogram":
            return METRICS[series.removesuffix(suffix)]
    return METRICS[series]


def assert_asks_for_what_there_is(query):
    """Every metric exists, has the labels that are asked for, and they can have the values."""
    # The later ones ask for the ones before.
    for name, rule in reversed(RECORDED.items()):
        query = query.replace(name, f"({rule['expr']})")
    series = re.findall(r"raddle_\w+", query)
    assert series
    known = set().union(*(metric_of(name).labels for name in series)) | {"le", "instance"}
    for label in re.findall(r"\b(?:by|without)\s*\(([^)]*)\)", query):
        assert {one.strip() for one in label.split(",")} <= known, query
    for name, matchers in re.findall(r"(raddle_\w+)\{([^}]*)\}", query):
        for label, operator, wanted in re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', matchers):
            metric = metric_of(name)
            words = reference.values(metric, label)
            for one in wanted.split("|") if "~" in operator else [wanted]:
                assert f"`{one}`" in words, f"{name} has no {label}={one}"


@each_alert
def test_an_alert_asks_for_what_there_is(alert):
    assert_asks_for_what_there_is(ALERTS[alert]["expr"])


@pytest.mark.parametrize("name", RECORDED)
def test_a_recording_rule_asks_for_what_there_is_and_is_named_after_it(name):
    assert_asks_for_what_there_is(RECORDED[name]["expr"])
    assert re.fullmatch(r"[a-z_]+:raddle_\w+:[a-z]+", name)


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_a_panel_asks_for_what_there_is(title, query):
    assert_asks_for_what_there_is(query)


@pytest.mark.parametrize(
    "query",
    [
        "sum(raddle_webhook_fails_open_total)",
        "sum by (reason) (raddle_missed_pods)",
        'raddle_policies{accepted="no"}',
        'rate(raddle_webhook_bindings_total{outcome!~"NodeSpecific|Skipped"}[5m])',
    ],
)
def test_a_query_for_what_there_is_not_would_be_found(query):
    with pytest.raises((AssertionError, KeyError)):
        assert_asks_for_what_there_is(query)


def test_every_metric_is_looked_at_by_an_alert_or_a_panel():
    """What nobody looks at need not be measured; the outcomes of certificate loads are for a runbook."""
    text = " ".join([*(rule["expr"] for rule in WRITTEN), *(query for _, query in QUERIES)])
    # The agent's are of containers: what somebody looks at who has one in mind.
    unseen = {name for name in METRICS if name not in text and not name.startswith("raddle_container_")}
    for name in unseen:
        assert any(name in page.read_text() for page in RUNBOOKS.glob("*.md")), name


def test_prometheus_can_read_every_query_of_the_dashboard(tmp_path):
    rules = [
        {"record": f"panel:{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, (_, query) in enumerate(QUERIES)
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


# --- Alerts ---------------------------------------------------------------------------------------------------------------


def test_prometheus_can_read_the_rules():
    done = promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


@each_alert
def test_an_alert_says_how_bad_it_is_and_where_to_read_on(alert):
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{alert}.md"
    assert (RUNBOOKS / f"{alert}.md").read_text().startswith(f"# {alert}\n")


def test_every_runbook_belongs_to_an_alert_and_is_listed():
    assert {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"} == set(ALERTS)
    assert re.findall(r"^\| \[(\w+)\]\(\1\.md\)", (RUNBOOKS / "README.md").read_text(), re.MULTILINE) == list(ALERTS)


HEALTHY = {
    'raddle_webhook_ready{instance="a"}': "1+0x1600",
    'raddle_webhook_ready{instance="b"}': "1+0x1600",
    'raddle_controller_leader{instance="c"}': "1+0x1600",
    'raddle_controller_leader{instance="d"}': "0+0x1600",
    'raddle_webhook_fail_open_total{instance="a"}': "0+0x1600",
    'raddle_webhook_requests_total{path="pods",decision="changed",reason=""}': "0+600x1600",
    'raddle_webhook_request_duration_seconds_bucket{path="pods",le="0.002"}': "0+600x1600",
    'raddle_webhook_request_duration_seconds_bucket{path="pods",le="1.0"}': "0+600x1600",
    'raddle_webhook_request_duration_seconds_bucket{path="pods",le="+Inf"}': "0+600x1600",
    'raddle_webhook_certificate_expiry_timestamp_seconds{instance="a"}': "7776000+0x1600",
    'raddle_webhook_certificate_expiry_timestamp_seconds{instance="b"}': "0+0x1600",
    'raddle_webhook_cache_age_seconds{kind="Namespace"}': "50+0x1600",
    'raddle_controller_cache_age_seconds{kind="Pod"}': "50+0x1600",
    'raddle_webhook_bindings_total{outcome="NodeSpecific"}': "0+90x1600",
    'raddle_webhook_bindings_total{outcome="NotInjected"}': "0+900x1600",
    'raddle_webhook_bindings_total{outcome="SafeNoTopology"}': "0+10x1600",
    'raddle_controller_status_writes_total{kind="NodeCPUTopology",outcome="failed"}': "3+0x1600",
    'raddle_controller_resyncs_total{outcome="failed"}': "0+0x1600",
    'raddle_controller_certificate_checks_total{outcome="failed"}': "1+0x1600",
    'raddle_controller_queue_depth{instance="c"}': "0 500 0 0 0+0x1600",
    'raddle_controller_shim_writes_total{outcome="forbidden"}': "0+0x1600",
    "raddle_stale_pods": "0+0x1600",
    'raddle_policies{accepted="true",degraded="true"}': "9+0x1600",
    'raddle_policies{accepted="false",degraded="false"}': "0+0x1600",
    'raddle_topologies{fresh="true",valid="true"}': "3+0x1600",
    'raddle_topologies{fresh="unknown",valid="true"}': "1+0x1600",
    'raddle_topologies{fresh="false",valid="true"}': "0+0x1600",
    'raddle_topologies{fresh="unknown",valid="false"}': "0+0x1600",
    'raddle_policy_containers_drifted{policy_kind="K",policy_namespace="shop",policy="p",cause="Resized"}': "2+0x1600",
    'raddle_container_cpu_throttled_periods_ratio{namespace="shop",pod="a",container="c"}': "0.9+0x1600",
    'raddle_container_cpu_throttled_periods_ratio{namespace="shop",pod="b",container="c"}': "0.1+0x1600",
    'raddle_container_findings{namespace="shop",pod="a",container="c",cause="Resized"}': "1+0x1600",
    'raddle_container_findings{namespace="shop",pod="b",container="c",cause="OtherThreads"}': "1+0x1600",
}
DAY_MIN = 24 * 60
# What goes wrong at minute 60 (one sample per minute; "_" is one that is missing), a minute at which the alert is not yet
# there, and one at which it is.
CASES = [
    ("RaddleWebhookDown", {'raddle_webhook_ready{instance="a"}': "1+0x59 0+0x900", 'raddle_webhook_ready{instance="b"}': "1+0x59 0+0x900"}, 64, 66),
    ("RaddleWebhookDown", {'raddle_webhook_ready{instance="a"}': "1+0x59 stale", 'raddle_webhook_ready{instance="b"}': "1+0x59 stale"}, 64, 66),
    ("RaddleWebhookFailsOpen", {'raddle_webhook_fail_open_total{instance="a"}': "0+0x59 1+0x900"}, 59, 61),
    ("RaddleWebhookSlow", {'raddle_webhook_request_duration_seconds_bucket{path="pods",le="0.002"}': "0+600x59 35400+0x900"}, 65, 80),
    ("RaddleWebhookRefusesRequests", {'raddle_webhook_requests_total{path="other",decision="refused",reason="UnknownPath"}': "0+0x59 0+1x900"}, 70, 80),
    ("RaddleWebhookRefusesRequests", {'raddle_webhook_requests_total{path="pods",decision="foreign",reason="ForeignKind"}': "0+0x59 0+1x900"}, 70, 80),
    ("RaddleWebhookCertificateExpiresSoon", {'raddle_webhook_certificate_expiry_timestamp_seconds{instance="a"}': f"{14 * 86400 + 3600}+0x900"}, 70, 80),
    ("RaddleCacheOld", {'raddle_webhook_cache_age_seconds{kind="Namespace"}': "0+0x59 0+60x900"}, 65, 75),
    ("RaddleCacheOld", {'raddle_controller_cache_age_seconds{kind="Pod"}': "0+0x59 0+60x900"}, 65, 75),
    ("RaddleSafeValuesAtBinding", {'raddle_webhook_bindings_total{outcome="SafeNoTopology"}': "0+10x59 590+900x900"}, 80, 120),
    ("RaddleControllerNotLeading", {'raddle_controller_leader{instance="c"}': "1+0x59 0+0x900"}, 64, 66),
    ("RaddleControllerFails", {'raddle_controller_status_writes_total{kind="NodeCPUTopology",outcome="failed"}': "3+0x59 3+1x900"}, 85, 95),
    ("RaddleControllerFails", {'raddle_controller_resyncs_total{outcome="failed"}': "0+0x59 0+1x900"}, 85, 95),
    ("RaddleControllerFails", {'raddle_controller_certificate_checks_total{outcome="failed"}': "1+0x59 1+1x900"}, 85, 95),
    ("RaddleControllerBehind", {'raddle_controller_queue_depth{instance="c"}': "0+0x59 200+0x900"}, 85, 92),
    ("RaddleShimForbidden", {'raddle_controller_shim_writes_total{outcome="forbidden"}': "0+0x59 1+0x900"}, 59, 61),
    ("RaddlePodsMissed", {'raddle_missed_pods{pod_namespace="shop"}': "_x59 2+0x900"}, 65, 75),
    ("RaddlePodsStale", {"raddle_stale_pods": "0+0x59 3+0x1600"}, 60 + DAY_MIN - 5, 60 + DAY_MIN + 5),
    ("RaddlePoliciesNotAccepted", {'raddle_policies{accepted="false",degraded="false"}': "0+0x59 1+0x900"}, 85, 95),
    ("RaddleTopologiesUnusable", {'raddle_topologies{fresh="false",valid="true"}': "0+0x59 1+0x900"}, 85, 95),
    ("RaddleTopologiesUnusable", {'raddle_topologies{fresh="unknown",valid="false"}': "0+0x59 1+0x900"}, 85, 95),
    ("RaddleThrottledByThreads", {'raddle_container_cpu_throttled_periods_ratio{namespace="shop",pod="b",container="c"}': "0.1+0x59 0.6+0x900"}, 70, 80),
    ("RaddleDrift", {'raddle_policy_containers_drifted{policy_kind="K",policy_namespace="shop",policy="p",cause="CodeSetsIt"}': "_x59 2+0x900"}, 85, 95),
]  # fmt: skip


def firing(tmp_path, series, expected):
    """Whether Prometheus says that exactly these alerts fire, by minute."""
    tests = [
        {
            "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": count} for name, count in alerts.items()],
        }
        for minute, alerts in expected.items()
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": tests}],
    }
    path = tmp_path / "alerts.test.yaml"
    path.write_text(yaml.safe_dump(document))
    done = promtool("test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_fires_in_a_healthy_cluster(tmp_path):
    firing(tmp_path, HEALTHY, {1: {}, 10: {}, 90: {}, DAY_MIN + 120: {}})


@pytest.mark.parametrize(
    ("alert", "wrong", "not_yet_min", "then_min"), CASES, ids=[f"{case[0]}-{next(iter(case[1]))}" for case in CASES]
)
def test_an_alert_fires_for_what_it_is_about_and_no_other_does(tmp_path, alert, wrong, not_yet_min, then_min):
    firing(tmp_path, {**HEALTHY, **wrong}, {not_yet_min: {}, then_min: {alert: 1}})


def test_there_is_a_case_for_every_alert():
    assert {case[0] for case in CASES} == set(ALERTS)


# --- The chart ------------------------------------------------------------------------------------------------------------


def test_nothing_of_it_is_installed_unless_asked_for():
    kinds = {item["kind"] for item in chart.objects({"crds": {"install": False}})}
    assert not kinds & {"PodMonitor", "ServiceMonitor", "PrometheusRule", "ConfigMap"}


def test_the_rule_holds_the_alerts_with_the_runbooks_where_they_are():
    objects = with_monitoring(prometheusRule={"enabled": True, "runbookURL": "https://example.com/runbooks/"})
    (rule,) = of_kind(objects, "PrometheusRule")
    found = [one for group in rule["spec"]["groups"] for one in group["rules"] if "alert" in one]
    assert {one["alert"] for one in found} == set(ALERTS)
    for one in found:
        assert one["annotations"]["runbook_url"] == f"https://example.com/runbooks/{one['alert']}.md"
        wanted = {**ALERTS[one["alert"]], "annotations": None}
        assert {**one, "annotations": None} == wanted


def test_without_a_place_of_their_own_the_runbooks_are_those_of_the_repository():
    (rule,) = of_kind(with_monitoring(), "PrometheusRule")
    assert rule["spec"]["groups"] == yaml.safe_load(RULES.read_text())["groups"]
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_alerts_can_be_left_out_and_a_group_without_any_goes_too():
    controller = [name for name in ALERTS if name.startswith("RaddleController") or name == "RaddleShimForbidden"]
    objects = with_monitoring(prometheusRule={"enabled": True, "disabledAlerts": ["RaddlePodsStale", *controller]})
    (rule,) = of_kind(objects, "PrometheusRule")
    found = {one["alert"] for group in rule["spec"]["groups"] for one in group["rules"] if "alert" in one}
    assert found == set(ALERTS) - {"RaddlePodsStale", *controller}
    assert [group["name"] for group in rule["spec"]["groups"]] == [
        "raddle.webhook",
        "raddle.workloads",
        "raddle.running",
    ]


def test_the_schema_knows_the_alerts_by_name():
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    rule = schema["properties"]["monitoring"]["properties"]["prometheusRule"]["properties"]
    assert rule["disabledAlerts"]["items"]["enum"] == list(ALERTS)
    with pytest.raises(chart.RenderError, match="disabledAlerts"):
        with_monitoring(prometheusRule={"enabled": True, "disabledAlerts": ["RaddlePodStale"]})


def ports(objects):
    return {
        item["metadata"]["labels"]["app.kubernetes.io/component"]: {
            port["name"]: port["containerPort"]
            for container in item["spec"]["template"]["spec"]["containers"]
            for port in container.get("ports", [])
        }
        for item in objects
        if item["kind"] in {"Deployment", "DaemonSet"}
    }


def test_a_pod_monitor_finds_the_metrics_ports_of_webhook_and_controller():
    objects = with_monitoring(scrape={"kind": "PodMonitor"})
    (monitor,) = of_kind(objects, "PodMonitor")
    (expression,) = monitor["spec"]["selector"]["matchExpressions"]
    there = ports(objects)
    assert set(expression["values"]) == {component for component, found in there.items() if found}
    names = [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]]
    assert {name for component in expression["values"] for name in names if name in there[component]} == set(names)
    for component in expression["values"]:
        assert len(set(names) & set(there[component])) == 1, "each pod is scraped once"
    assert not of_kind(objects, "ServiceMonitor")


def test_a_service_monitor_finds_services_that_lead_to_the_metrics_ports():
    objects = with_monitoring()
    (monitor,) = of_kind(objects, "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint == {"port": "metrics"}
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    found = [item for item in of_kind(objects, "Service") if wanted <= item["metadata"]["labels"].items()]
    there = ports(objects)
    assert {item["spec"]["selector"]["app.kubernetes.io/component"] for item in found} == {"controller", "webhook"}
    for service in found:
        (port,) = service["spec"]["ports"]
        component = service["spec"]["selector"]["app.kubernetes.io/component"]
        assert (port["name"], port["port"]) == ("metrics", there[component][port["targetPort"]])


# --- The dashboard --------------------------------------------------------------------------------------------------------


def test_the_config_map_holds_the_dashboard_as_it_is():
    (config_map,) = of_kind(with_monitoring(), "ConfigMap")
    assert json.loads(config_map["data"]["raddle.json"]) == dashboard.build()
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    panels = dashboard.build()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < dashboard.COLUMNS
        taken |= cells
