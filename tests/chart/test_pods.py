"""What the chart says of its pods beside what they run: where they are placed, what may reach them, which image."""

import json

import pytest
import yaml
from support.chartmatrix import named

from generate import chart
from raddle_operator.cli.selftest import selftest
from report import ROOT

COMPONENTS = ("controller", "webhook", "agent")


def template(objects, component):
    """The pod template of a component."""
    kind = "DaemonSet" if component == "agent" else "Deployment"
    return named(objects, kind, f"raddle-{component}")["spec"]["template"]


def selects(selector, labels):
    return selector["matchLabels"].items() <= labels.items()


# --- Placement and disruption ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("component", ["controller", "webhook"])
def test_replicas_keep_off_each_others_nodes_and_spread_over_zones_but_run_on_one_node_too(default, component):
    pod = template(default, component)
    (term,) = pod["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert selects(term["podAffinityTerm"]["labelSelector"], pod["metadata"]["labels"])
    spread = pod["spec"]["topologySpreadConstraints"]
    assert [one["topologyKey"] for one in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    for one in spread:
        assert one["whenUnsatisfiable"] == "ScheduleAnyway"
        assert selects(one["labelSelector"], pod["metadata"]["labels"])


def test_an_affinity_of_ones_own_takes_the_place_of_the_default():
    own = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    assert template(chart.objects({"webhook": {"affinity": own}}), "webhook")["spec"]["affinity"] == own


@pytest.mark.parametrize("component", ["controller", "webhook"])
def test_evictions_take_one_pod_at_a_time_and_a_broken_pod_holds_no_drain_up(default, component):
    budget = named(default, "PodDisruptionBudget", f"raddle-{component}")["spec"]
    assert selects(budget.pop("selector"), template(default, component)["metadata"]["labels"])
    assert budget == {"maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    without = chart.objects({component: {"replicas": 1}})
    names = [item["metadata"]["name"] for item in without if item["kind"] == "PodDisruptionBudget"]
    assert f"raddle-{component}" not in names


def test_a_rollout_of_the_webhook_never_has_fewer_pods_than_asked_for(default):
    strategy = named(default, "Deployment", "raddle-webhook")["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 1, "maxUnavailable": 0}


# --- The nodes' network -----------------------------------------------------------------------------------------------------


def test_the_webhook_can_use_the_nodes_network_and_then_rolls_out_on_nodes_that_are_all_taken():
    objects = chart.objects({"webhook": {"hostNetwork": True, "port": 9443}})
    assert named(objects, "Deployment", "raddle-webhook")["spec"]["strategy"]["rollingUpdate"] == {
        "maxSurge": 0,
        "maxUnavailable": 1,
    }
    spec = template(objects, "webhook")["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert not {"hostNetwork"} & (
        set(template(objects, "controller")["spec"]) | set(template(objects, "agent")["spec"])
    )


@pytest.mark.parametrize(
    ("webhook", "message"),
    [
        ({"hostNetwork": True}, r"webhook.port: got 10250 with webhook.hostNetwork; the kubelet listens on that port"),
        ({"port": 8080}, r"webhook.metricsPort: got 8080, which is webhook.port too"),
        (
            {"hostNetwork": True, "port": 9443, "url": "https://127.0.0.1:9443"},
            r"webhook.url: got .* with webhook.host",
        ),
    ],
)
def test_two_values_that_contradict_each_other_are_refused_with_what_to_write(webhook, message):
    with pytest.raises(chart.RenderError, match=message):
        chart.render({"webhook": webhook})


# --- Network policies -------------------------------------------------------------------------------------------------------


def policies(values):
    objects = chart.objects(values)
    return {item["metadata"]["name"]: item["spec"] for item in objects if item["kind"] == "NetworkPolicy"}


def test_only_ports_that_a_pod_serves_are_open(default):
    found = policies({})
    assert set(found) == {f"raddle-{component}" for component in COMPONENTS}
    for component in COMPONENTS:
        pod = template(default, component)
        policy = found[f"raddle-{component}"]
        assert selects(policy["podSelector"], pod["metadata"]["labels"])
        served = {port["containerPort"] for port in pod["spec"]["containers"][0].get("ports", [])}
        assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == served
        # What they call is not limited unless asked: no rule that fits every cluster names its API server.
        assert policy["policyTypes"] == ["Ingress"]


def test_who_reads_metrics_can_be_limited_and_the_api_server_never_is():
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    found = policies({"networkPolicy": {"metricsFrom": [peer]}})
    reviews, metrics = found["raddle-webhook"]["ingress"]
    assert (reviews["ports"][0]["port"], "from" in reviews) == (10250, False)
    assert (metrics["ports"][0]["port"], metrics["from"]) == (8080, [peer])
    assert found["raddle-controller"]["ingress"][0]["from"] == [peer]


def test_egress_is_limited_to_the_rules_that_are_given():
    rule = {"to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}], "ports": [{"port": 6443}]}
    for policy in policies({"networkPolicy": {"egress": [rule]}}).values():
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        assert policy["egress"] == [rule]


def test_there_are_no_network_policies_where_they_are_not_wanted():
    assert policies({"networkPolicy": {"enabled": False}}) == {}


# --- Images -----------------------------------------------------------------------------------------------------------------


DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("values", "images"),
    [
        ({}, ["raddle:0.1.0"] * 3),
        ({"image": {"repository": "example/raddle", "tag": "1"}}, ["example/raddle:1"] * 3),
        ({"image": {"tag": "1", "digest": DIGEST}}, [f"raddle@{DIGEST}"] * 3),
        ({"image": {"tag": "1"}, "agent": {"image": "a:2"}}, ["raddle:1", "raddle:1", "a:2"]),
    ],
    ids=json.dumps,
)
def test_the_agent_has_the_charts_image_unless_it_has_its_own(values, images):
    objects = chart.objects(values)
    assert [template(objects, one)["spec"]["containers"][0]["image"] for one in COMPONENTS] == images


# --- helm test ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "url"),
    [
        ({}, "https://raddle-webhook.raddle-system.svc"),
        ({"webhook": {"url": "https://raddle.example/"}}, "https://raddle.example"),
    ],
)
def test_helm_test_asks_the_webhook_where_the_api_server_does_without_any_right(values, url):
    pod = named(chart.objects(values), "Pod", "raddle-test")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert pod["spec"]["automountServiceAccountToken"] is False
    (container,) = pod["spec"]["containers"]
    name, *arguments = container["args"]
    assert name == selftest.name
    parsed = selftest.make_context(name, arguments).params
    assert (parsed["url"], str(parsed["ca_file"])) == (url, "/tls/ca.crt")
    (volume,) = pod["spec"]["volumes"]
    assert [item["key"] for item in volume["secret"]["items"]] == ["ca.crt"], "no key"


# --- CRDs -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False])
def test_crds_outlive_the_release_unless_told_otherwise(keep):
    crds = [item for item in chart.objects({"crds": {"keep": keep}}) if item["kind"] == "CustomResourceDefinition"]
    kept = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    assert [item["metadata"]["annotations"].get("helm.sh/resource-policy") == "keep" for item in crds] == [keep] * len(
        kept
    )
    assert [item["spec"] for item in crds] == [item["spec"] for item in kept]
