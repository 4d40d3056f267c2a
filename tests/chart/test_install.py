"""The chart on a real API server: it takes every object, upgrades keep what is not Helm's, and rights are the least."""

import base64
import json

import pytest
import yaml
from support.chartmatrix import MATRIX

from cluster import Cluster
from cluster.client import ApiError
from generate import chart

pytestmark = pytest.mark.cluster

NAMESPACE = chart.NAMESPACE
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/raddle"


@pytest.fixture(scope="module")
def cluster(kubernetes):
    with Cluster(scheduler=False, name="chart", version=kubernetes) as cluster:
        cluster.helm("install", "raddle", str(chart.CHART), "--namespace", NAMESPACE, "--create-namespace")
        cluster.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
        cluster.kubectl("create", "namespace", "models")
        yield cluster


def upgrade(cluster, *options):
    cluster.helm("upgrade", "raddle", str(chart.CHART), "--namespace", NAMESPACE, *options)


# Kinds of others, which this cluster does not have.
ELSEWHERE = ("cert-manager.io", "monitoring.coreos.com")


def in_cluster(cluster, *cases):
    """The different objects of these renderings, without those of other projects' kinds, with a caBundle that is one."""
    bundle = base64.b64encode(cluster.ca_file.read_bytes()).decode()
    found = {}
    for values in cases:
        made = values | {"webhook": values.get("webhook", {}) | {"caBundle": bundle}}
        for item in map(beside, chart.objects(made)):
            if not item["apiVersion"].startswith(ELSEWHERE):
                found[json.dumps(item, sort_keys=True)] = item
    return list(found.values())


def beside(item):
    """The object where the installed one is not: applied over it, a url would stand beside a service, ports add up."""
    if item["kind"] == "MutatingWebhookConfiguration":
        return item | {"metadata": {"name": "dry-run"}}
    if item["metadata"].get("namespace") == NAMESPACE:
        return item | {"metadata": item["metadata"] | {"namespace": "elsewhere"}}
    return item


@pytest.mark.parametrize("cases", [[{"crds": {"install": True}}], list(chart.CASES.values()), MATRIX], ids=len)
def test_the_api_server_takes_every_object_and_every_field_of_every_rendering(cluster, cases, kubernetes, proves):
    for namespace in ("models", "vision", "a", "b", "elsewhere"):
        cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    done = cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f", "-",
        input="\n".join(map(json.dumps, in_cluster(cluster, *cases))), check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    proves("Kubernetes", str(kubernetes), "helm install")


def test_no_expression_of_an_admission_policy_has_a_type_error(cluster):
    for name in ("raddle-agent-own-node", "raddle-frozen-annotations"):
        path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}"
        cluster.kubectl("wait", "--for=jsonpath={.status.observedGeneration}=1", f"validatingadmissionpolicy/{name}")
        assert cluster.client.get(path)["status"]["typeChecking"] == {}


def refusals(cluster, values):
    """What Pod Security says of the pods that it does not let into the namespace, by name."""
    found = {}
    for item in chart.objects(values):
        if item["kind"] in {"Deployment", "DaemonSet", "Pod"}:
            spec = item["spec"] if item["kind"] == "Pod" else item["spec"]["template"]["spec"]
            name = item["metadata"]["name"]
            try:
                pod = {"metadata": {"name": name}, "spec": spec}
                cluster.client.post(f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", pod)
            except ApiError as error:
                found[name] = str(error)
    return found


@pytest.mark.parametrize("case", chart.CASES)
def test_every_pod_is_let_into_a_namespace_that_enforces_the_restricted_pod_security_standard(
    cluster, case, kubernetes, proves
):
    pods = {item["metadata"]["name"] for item in chart.objects(chart.CASES[case]) if "template" in item.get("spec", {})}
    assert pods == {"raddle-controller", "raddle-webhook", "raddle-agent"}
    assert refusals(cluster, chart.CASES[case]) == {}
    proves("Kubernetes", str(kubernetes), "restricted pods")


@pytest.mark.parametrize(
    ("values", "pod", "violation"),
    [
        ({"webhook": {"hostNetwork": True, "port": 9443}}, "raddle-webhook", "hostNetwork=true"),
        ({"agent": {"watch": "Cgroups"}}, "raddle-agent", "hostPath"),
        ({"agent": {"watch": "Processes"}}, "raddle-agent", "hostPID=true"),
    ],
)
def test_what_gives_the_standard_up_is_one_pod_and_only_when_asked_for(cluster, values, pod, violation):
    refused = refusals(cluster, values)
    assert set(refused) == {pod}
    assert violation in refused[pod]


def test_an_upgrade_keeps_the_ca_bundle_that_the_controller_wrote(cluster):
    """Helm's three-way merge leaves alone what neither the old nor the new manifest names; hence no lookup."""
    bundle = base64.b64encode(cluster.ca_file.read_bytes()).decode()
    found = cluster.client.get(WEBHOOKS)
    operations = [
        {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": bundle}
        for number in range(len(found["webhooks"]))
    ]
    cluster.client.request("PATCH", WEBHOOKS, operations, content_type="application/json-patch+json")
    upgrade(cluster, "--set", "webhook.timeoutSeconds.pods=1", "--set", "injection.default=labelled")
    webhooks = cluster.client.get(WEBHOOKS)["webhooks"]
    assert [webhook["timeoutSeconds"] for webhook in webhooks] == [1, 1, 1]
    assert [webhook["clientConfig"]["caBundle"] for webhook in webhooks] == [bundle] * 3
    upgrade(cluster, "--reset-values")


def test_an_upgrade_reaches_the_crds(cluster):
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/inferencethreadings.raddle.dev"
    cluster.client.merge(path, {"spec": {"names": {"categories": ["changed"]}}})
    upgrade(cluster)
    assert cluster.client.get(path)["spec"]["names"]["categories"] == ["raddle"]


# --- Notes --------------------------------------------------------------------------------------------------------------


def warnings(cluster, *options):
    """What the notes of an upgrade warn of."""
    done = cluster.helm(
        "upgrade", "raddle", str(chart.CHART), "--namespace", NAMESPACE, "--dry-run=server", "--reset-values", *options
    )
    notes = done.stdout.partition("NOTES:")[2]
    return [line.removeprefix("WARNING: ") for line in notes.splitlines() if line.startswith("WARNING: ")]


def test_the_notes_warn_of_nothing_where_nothing_is_wrong(cluster, kubernetes):
    found = warnings(cluster, "--set", "image.repository=example/raddle")
    assert [text for text in found if "nodes/configz" not in text] == []
    assert len(found) == int(kubernetes < (1, 33))


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (
            "certificates.source=Secret,crds.keep=false,injection.default=enabled,injection.excludedNamespaces={other}",
            [
                'image.repository is "raddle", which no registry serves',
                "certificates.source is Secret but webhook.caBundle is empty",
                "crds.keep is false: uninstalling this release deletes every policy",
                "kube-system is not in injection.excludedNamespaces",
            ],
        ),
        (
            "image.repository=r,webhook.hostNetwork=true,webhook.port=9443,agent.watch=Cgroups",
            ["webhook.hostNetwork and agent.watch=Cgroups: only a namespace with Pod Security level privileged"],
        ),
    ],
    ids=["trust-and-scope", "pod-security"],
)
def test_the_notes_warn_of_what_installs_and_would_not_work(cluster, options, wanted):
    found = [text for text in warnings(cluster, "--set", options) if "nodes/configz" not in text]
    assert [text[: len(start)] for text, start in zip(found, wanted, strict=True)] == wanted


# --- Rights -------------------------------------------------------------------------------------------------------------


def test_the_controller_applies_its_own_secret_and_no_other(cluster, kubernetes, proves):
    """What else each account may do is in tests/integration/golden/rbac.txt."""
    token = cluster.account_token("raddle-controller", NAMESPACE)

    def apply(name):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"tls.crt": "x"}}
        return cluster.kubectl(
            "apply", "--server-side", "-f", "-", "-n", NAMESPACE, "--token", token, "--kubeconfig", anonymous(cluster),
            input=json.dumps(secret), check=False,
        )  # fmt: skip

    assert apply("raddle-webhook-tls").returncode == 0
    assert apply("raddle-webhook-tls").returncode == 0
    refused = apply("other")
    assert refused.returncode
    assert "forbidden" in refused.stderr
    proves("Kubernetes", str(kubernetes), "least rights")


def anonymous(cluster):
    """A kubeconfig without credentials, so that the token alone speaks."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {}
    path = cluster.directory / "anonymous.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)
