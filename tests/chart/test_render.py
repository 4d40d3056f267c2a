"""What Helm makes of the chart: the rules that every rendering keeps, and the values that are refused."""

import itertools
import json
import tarfile

import pytest
import yaml
from support.chartmatrix import MATRIX, NO_CRDS, named

from generate import chart
from raddle_operator.cli import processes
from raddle_operator.objects.selectors import compile_selector
from report import ROOT

CRDS = sorted((ROOT / "crds").glob("*.yaml"))


def pod_specs(objects):
    return {
        item["metadata"]["name"]: item["spec"]["template"]["spec"]
        for item in objects
        if item["kind"] in {"Deployment", "DaemonSet"}
    }


@pytest.mark.parametrize("values", MATRIX, ids="+".join)
def test_every_combination_of_values_renders_well_formed_objects(values):
    objects = chart.objects(values)
    keys = [
        (item["apiVersion"], item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        for item in objects
    ]
    assert len(set(keys)) == len(keys)
    for item in objects:
        assert item["metadata"]["labels"]["app.kubernetes.io/name"] == "raddle"
        assert not any(line != line.rstrip() for line in yaml.safe_dump(item).splitlines())


def test_any_two_settings_are_together_in_one_of_these_combinations():
    assert len(MATRIX) < 25
    everywhere = [json.dumps(values) for values in MATRIX]
    for one, other in itertools.combinations(
        ("CertManager", "ServiceMonitor", "hostNetwork", '"pull"', '"labelled"'), 2
    ):
        assert any(one in text and other in text for text in everywhere), (one, other)


@pytest.mark.parametrize("case", chart.CASES)
def test_lint_finds_nothing(case, tmp_path):
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps(chart.CASES[case]))
    assert "0 chart(s) failed" in chart.run_helm("lint", "--strict", str(chart.CHART), "--values", str(values))


def test_rendering_again_gives_the_same_so_that_no_upgrade_makes_a_new_certificate():
    assert chart.render(NO_CRDS) == chart.render(NO_CRDS)
    assert not [path for path in (chart.CHART / "templates").iterdir() if "genCA" in path.read_text()]


def test_an_older_kubernetes_is_refused():
    with pytest.raises(chart.RenderError, match=r"kubeVersion: >=1\.30"):
        chart.render({}, kubernetes="1.29.9")


def test_versions_are_those_of_the_package():
    described = yaml.safe_load((chart.CHART / "Chart.yaml").read_text())
    namespace = {}
    exec((ROOT / "runtime" / "raddle" / "__init__.py").read_text(), namespace)
    assert described["version"] == described["appVersion"] == namespace["__version__"]


# --- CRDs ---------------------------------------------------------------------------------------------------------------


def test_the_charts_crds_are_the_projects(default):
    rendered = [item for item in default if item["kind"] == "CustomResourceDefinition"]
    assert rendered == [yaml.safe_load(path.read_text()) for path in CRDS]
    assert {path.name: path.resolve() for path in (chart.CHART / "files" / "crds").iterdir()} == {
        path.name: path for path in CRDS
    }


def test_a_package_holds_the_crds_themselves(tmp_path):
    chart.run_helm("package", str(chart.CHART), "--destination", str(tmp_path))
    (package,) = tmp_path.iterdir()
    with tarfile.open(package) as archive:
        for path in CRDS:
            member = archive.getmember(f"raddle/files/crds/{path.name}")
            assert member.isfile()
            assert archive.extractfile(member).read() == path.read_bytes()
    assert chart.render(NO_CRDS, chart=package) == chart.render(NO_CRDS)


def test_the_crds_can_be_left_out():
    assert "CustomResourceDefinition" not in chart.render(NO_CRDS)


# --- Values -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values",
    [
        {"webhok": {}},
        {"webhook": {"replica": 2}},
        {"webhook": {"failurePolicy": "Fail"}},
        {"webhook": {"replicas": 0}},
        {"webhook": {"replicas": "2"}},
        {"webhook": {"url": "http://127.0.0.1"}},
        {"webhook": {"caBundle": "-----BEGIN CERTIFICATE-----"}},
        {"webhook": {"timeoutSeconds": {"pods": 31}}},
        {"webhook": {"port": 443}},
        {"injection": {"default": "on"}},
        {"injection": {"default": True}},
        {"certificates": {"source": "raddle"}},
        {"agent": {"kubeletConfig": "nodes/proxy"}},
        {"agent": {"watch": "All"}},
        {"shim": {"configMaps": {"namespaces": ["Models"]}}},
        {"image": {"digest": "latest"}},
        {"crds": {"install": "false"}},
        {"crds": {"keep": "yes"}},
        {"webhook": {"hostNetwork": "true"}},
        {"webhook": {"resources": {"limit": {}}}},
        {"webhook": {"resources": {"limits": {"memory": "256 MB"}}}},
        {"webhook": {"extraEnv": [{"name": "A", "value": 1}]}},
        {"agent": {"tolerations": [{"effect": "NoRun"}]}},
        {"controller": {"affinity": {"nodeSelector": {}}}},
        {"networkPolicy": {"metricsFrom": ["monitoring"]}},
        {"certificates": {"certManager": {"issuerRef": {"kind": "ClusterIssuer"}}}},
    ],
    ids=json.dumps,
)
def test_misspelt_and_impossible_values_are_refused(values):
    with pytest.raises(chart.RenderError, match="values don't meet the specifications of the schema"):
        chart.render(values)


def test_a_refusal_names_every_wrong_value_what_was_there_and_what_is_allowed():
    values = {
        "webhok": {},
        "webhook": {"replicas": "2", "port": 443, "timeoutSeconds": {"pods": 31}},
        "injection": {"default": "on"},
        "image": {"digest": "latest"},
        "certificates": {"certManager": {"issuerRef": {"kind": "ClusterIssuer"}}},
    }
    with pytest.raises(chart.RenderError) as refused:
        chart.render(values)
    for line in (
        "at '': additional properties 'webhok' not allowed",
        "at '/webhook/replicas': got string, want integer",
        "at '/webhook/port': minimum: got 443, want 1,024",
        "at '/webhook/timeoutSeconds/pods': maximum: got 31, want 30",
        "at '/injection/default': value must be one of 'disabled', 'labelled', 'enabled'",
        "at '/image/digest': 'latest' does not match pattern '^(sha256:[0-9a-f]{64})?$'",
        "at '/certificates/certManager/issuerRef': missing property 'name'",
    ):
        assert line in str(refused.value)


def test_every_default_is_in_the_schema_and_every_value_of_the_schema_has_a_default():
    schema = json.loads((chart.CHART / "values.schema.json").read_text())
    defaults = yaml.safe_load((chart.CHART / "values.yaml").read_text())

    def compare(schema, values, path):
        known = set(schema.get("properties", {})) - {"global"}
        if not known:
            return
        assert set(values) == known or path == ".certificates.certManager.issuerRef", path
        for name in set(values):
            compare(schema["properties"][name], values[name], f"{path}.{name}")

    compare(schema, defaults, "")


# --- Pods ---------------------------------------------------------------------------------------------------------------


def test_every_pod_keeps_the_restricted_pod_security_standard(default):
    specs = pod_specs(default)
    assert set(specs) == {"raddle-controller", "raddle-webhook", "raddle-agent"}
    for spec in specs.values():
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert all("hostPath" not in volume for volume in spec.get("volumes", []))
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"requests", "limits"} == set(container["resources"])


CGROUPS = {"name": "cgroups", "mountPath": "/host/sys/fs/cgroup", "readOnly": True, "recursiveReadOnly": "IfPossible"}
LEAST = {"drop": ["ALL"]}


@pytest.mark.parametrize(
    ("values", "user", "mounts", "capabilities", "granted"),
    [
        ({"watch": "None"}, 65532, [], LEAST, set()),
        ({"watch": "Kubelet"}, 65532, [], LEAST, {"pods", "nodes/metrics"}),
        ({"watch": "Cgroups"}, 65532, [CGROUPS], LEAST, {"pods"}),
        ({"watch": "Processes"}, 61827, [CGROUPS], LEAST, {"pods"}),
        ({"watch": "Libraries"}, 0, [CGROUPS], LEAST | {"add": ["SYS_PTRACE"]}, {"pods"}),
    ],
)
def test_the_agent_has_no_more_rights_than_its_level_needs(values, user, mounts, capabilities, granted):
    objects = chart.objects({"agent": values})
    spec = pod_specs(objects)["raddle-agent"]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsUser"] == user
    assert spec.get("hostPID", False) is (values["watch"] in {"Processes", "Libraries"})
    assert container.get("volumeMounts", []) == mounts
    assert [volume["hostPath"]["path"] for volume in spec.get("volumes", [])] == ["/sys/fs/cgroup"] * len(mounts)
    assert container["securityContext"]["capabilities"] == capabilities
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    rules = named(objects, "ClusterRole", "raddle-agent")["rules"]
    assert {one for rule in rules for one in rule["resources"]} & {"pods", "nodes/metrics"} == granted
    (policy,) = [
        item for item in objects if item["kind"] == "NetworkPolicy" and item["metadata"]["name"] == "raddle-agent"
    ]
    serves = values["watch"] != "None"
    assert policy["spec"]["ingress"] == ([{"ports": [{"port": 8082, "protocol": "TCP"}]}] if serves else [])
    assert ("livenessProbe" in container) is serves
    assert container.get("ports", []) == ([{"name": "watch", "containerPort": 8082}] if serves else [])


@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor"])
def test_a_monitor_keeps_the_labels_that_the_agents_metrics_have(kind):
    values = {"agent": {"watch": "Kubelet"}, "monitoring": {"scrape": {"kind": kind}}}
    objects = chart.objects(values)
    monitor = named(objects, kind, "raddle")["spec"]
    endpoints = monitor["podMetricsEndpoints" if kind == "PodMonitor" else "endpoints"]
    assert {one["port"]: one.get("honorLabels", False) for one in endpoints}["watch"] is True
    if kind == "PodMonitor":
        assert monitor["selector"]["matchExpressions"][0]["values"] == ["controller", "webhook", "agent"]
    else:
        (port,) = named(objects, "Service", "raddle-agent-metrics")["spec"]["ports"]
        assert port == {"name": "watch", "port": 8082, "targetPort": "watch"}


def test_pods_tell_their_nodes_agent_only_where_that_is_asked_for(default):
    datagrams = {"enabled": True}
    asked = chart.objects({"agent": {"watch": "Kubelet", "datagrams": datagrams}})
    blind = chart.objects({"agent": {"datagrams": datagrams}})
    for objects, wanted in ((default, False), (blind, False), (asked, True)):
        names = {one["metadata"]["name"] for one in objects if one["kind"] == "Service"}
        assert ("raddle-agent" in names) is wanted
        webhook = {one["name"]: one for one in pod_specs(objects)["raddle-webhook"]["containers"][0]["env"]}
        assert ("RADDLE_AGENT_ADDRESS" in webhook) is wanted
    assert webhook["RADDLE_AGENT_ADDRESS"]["value"] == "$(RADDLE_AGENT_SERVICE_HOST):8126"
    service = named(asked, "Service", "raddle-agent")["spec"]
    assert service["internalTrafficPolicy"] == "Local"
    (port,) = service["ports"]
    (container,) = pod_specs(asked)["raddle-agent"]["containers"]
    assert {"name": "RADDLE_DATAGRAMS_PORT", "value": "8126"} in container["env"]
    (listening,) = [one for one in container["ports"] if one["name"] == "datagrams"]
    assert (port["port"], port["protocol"], port["targetPort"]) == (8126, "UDP", listening["name"])
    assert (listening["containerPort"], listening["protocol"]) == (8126, "UDP")
    ingress = named(asked, "NetworkPolicy", "raddle-agent")["spec"]["ingress"]
    assert {"ports": [{"port": 8126, "protocol": "UDP"}]} in ingress


def test_the_webhook_never_gets_the_authoritys_key(default):
    (volume,) = pod_specs(default)["raddle-webhook"]["volumes"]
    assert [item["key"] for item in volume["secret"]["items"]] == ["tls.crt", "tls.key"]
    assert volume["secret"]["optional"] is True


def test_agents_run_on_every_node(default):
    assert pod_specs(default)["raddle-agent"]["tolerations"] == [{"operator": "Exists"}]


def test_the_service_leads_from_443_to_the_port_that_private_clusters_open(default):
    (port,) = named(default, "Service", "raddle-webhook")["spec"]["ports"]
    (container,) = pod_specs(default)["raddle-webhook"]["containers"]
    assert port["port"] == 443
    assert {"name": port["targetPort"], "containerPort": 10250} in container["ports"]


@pytest.mark.parametrize(
    "values", [{}, {"shim": {"door": False, "configMaps": {"namespaces": ["a", "b"]}}}], ids=json.dumps
)
@pytest.mark.parametrize("process", ["controller", "webhook", "agent"])
def test_a_process_knows_every_flag_and_variable_that_the_chart_gives_it(process, values, monkeypatch):
    (container,) = pod_specs(chart.objects(values))[f"raddle-{process}"]["containers"]
    name, *arguments = container["args"]
    assert name == process
    command = getattr(processes, process)
    known = {variable for option in command.params for variable in at_least_one(option.envvar)}
    assert {item["name"] for item in container["env"]} - known == set()
    for item in container["env"]:
        # Of the fields that the kubelet fills in, any text will do.
        monkeypatch.setenv(item["name"], item.get("value", "10.0.0.1"))
    parsed = command.make_context(process, arguments).params
    for item in container["env"]:
        if "value" in item:
            (value,) = [parsed[option.name] for option in command.params if item["name"] in at_least_one(option.envvar)]
            as_text = ",".join(value) if isinstance(value, tuple) else str(value).lower()
            assert as_text == item["value"].lower()


def at_least_one(names):
    """Click keeps one name as text, several as a list, and an option without variable as None."""
    return [names] if isinstance(names, str) else names or []


# --- The webhook --------------------------------------------------------------------------------------------------------


def entries(values):
    return named(chart.objects(values), "MutatingWebhookConfiguration", "raddle")["webhooks"]


@pytest.mark.parametrize("values", MATRIX, ids="+".join)
def test_no_entry_can_ever_block_a_pod(values):
    for entry in entries(values):
        assert entry["failurePolicy"] == "Ignore"
        assert entry["sideEffects"] == "None"
        assert entry["timeoutSeconds"] <= 2


def test_binding_is_called_on_both_paths(default):
    (entry,) = [
        item
        for item in named(default, "MutatingWebhookConfiguration", "raddle")["webhooks"]
        if item["name"] == "bindings.raddle.dev"
    ]
    assert entry["rules"][0]["resources"] == ["pods/binding", "bindings"]
    assert entry["timeoutSeconds"] == 1
    assert "objectSelector" not in entry


def test_the_ca_bundle_is_left_out_unless_it_is_given():
    assert all("caBundle" not in entry["clientConfig"] for entry in entries({}))
    assert all(entry["clientConfig"]["caBundle"] == "Q0E=" for entry in entries({"webhook": {"caBundle": "Q0E="}}))


def test_a_url_takes_the_place_of_the_service():
    found = entries({"webhook": {"url": "https://127.0.0.1:9443/"}})
    assert [entry["clientConfig"]["url"] for entry in found] == [
        "https://127.0.0.1:9443/mutate/pods",
        "https://127.0.0.1:9443/mutate/pods",
        "https://127.0.0.1:9443/mutate/binding",
    ]


STATES = ("enabled", "labelled", "disabled", None)


def selected(entry, state, pod_state, name="models"):
    """Whether the API server would call this entry for a pod."""
    namespace = {"kubernetes.io/metadata.name": name} | ({"raddle.dev/inject": state} if state else {})
    pod = {"raddle.dev/inject": pod_state} if pod_state else {}
    return compile_selector(entry["namespaceSelector"]).matches(namespace) and compile_selector(
        entry.get("objectSelector")
    ).matches(pod)


@pytest.mark.parametrize("default_state", ["disabled", "labelled", "enabled"])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("pod_state", ["enabled", "disabled", None])
def test_each_opted_in_pod_is_sent_once_and_no_other_at_all(default_state, state, pod_state):
    *pods, binding = entries({"injection": {"default": default_state}})
    effective = state or default_state
    wanted = (effective == "enabled" and pod_state != "disabled") or (
        effective == "labelled" and pod_state == "enabled"
    )
    assert [selected(entry, state, pod_state) for entry in pods].count(True) == int(wanted)
    assert selected(binding, state, None) == (effective in {"enabled", "labelled"})


@pytest.mark.parametrize("name", ["kube-system", chart.NAMESPACE])
@pytest.mark.parametrize("default_state", ["disabled", "enabled"])
def test_the_systems_and_our_own_namespace_are_never_called_for(name, default_state):
    for entry in entries({"injection": {"default": default_state}}):
        for state in STATES:
            assert not selected(entry, state, "enabled", name)


# --- Rights -------------------------------------------------------------------------------------------------------------


def test_no_role_has_a_wildcard_or_reads_secrets_of_others():
    for values in MATRIX:
        for item in chart.objects(values):
            if item["kind"] not in {"Role", "ClusterRole"}:
                continue
            for rule in item["rules"]:
                assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
                if "secrets" in rule["resources"]:
                    assert item["kind"] == "Role"
                    assert rule["resourceNames"] == ["raddle-webhook-tls"]


def rights(objects, role):
    rules = named(objects, "ClusterRole", role)["rules"]
    return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def test_tunings_give_these_rights_and_no_others(default):
    asked = chart.objects({"tuning": {"enabled": True}})
    reading = {("inferencetunings", verb) for verb in ("get", "list", "watch")}
    writing = {("inferencetunings", verb) for verb in ("create", "update", "patch", "delete", "deletecollection")}
    jobs = {("jobs", verb) for verb in ("list", "watch", "create", "delete")}
    workloads = {(kind, "get") for kind in ("deployments", "statefulsets", "daemonsets")}
    more = {
        "raddle-controller": {*reading, ("inferencetunings/status", "patch"), *jobs, *workloads},
        "raddle-webhook": reading,
        "raddle-view": reading,
        "raddle-edit": writing,
        "raddle-admin": {*reading, *writing},
    }
    for role, added in more.items():
        assert rights(asked, role) - rights(default, role) == added
        assert not rights(default, role) - rights(asked, role)


def test_the_controller_carries_out_tunings_with_the_image_that_the_chart_names(default):
    image = "registry.example/tuner:2"
    for objects, wanted in (
        (default, {}),
        (
            chart.objects({"tuning": {"enabled": True, "image": image}}),
            {"RADDLE_TUNING": "true", "RADDLE_TUNER_IMAGE": image},
        ),
    ):
        env = pod_specs(objects)["raddle-controller"]["containers"][0]["env"]
        assert {one["name"]: one.get("value") for one in env if "TUN" in one["name"]} == wanted


def test_the_shims_config_maps_can_be_kept_to_some_namespaces():
    objects = chart.objects({"shim": {"configMaps": {"namespaces": ["models", "vision"]}}})
    roles = [
        item for item in objects if item["metadata"]["name"] == "raddle-controller-shim" and item["kind"] == "Role"
    ]
    assert [role["metadata"]["namespace"] for role in roles] == ["models", "vision"]
    assert not any("configmaps" in str(item["rules"]) for item in objects if item["kind"] == "ClusterRole")


def test_without_the_shim_there_is_no_right_on_config_maps():
    assert "configmaps" not in chart.render({"shim": {"configMaps": {"enabled": False}}} | NO_CRDS)
