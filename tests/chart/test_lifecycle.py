"""The chart from its first install to its end on a real API server: upgrade and back, kubectl instead, what is left."""

import base64
import contextlib

import pytest
import yaml
from support import chart_release as release

from cluster import Cluster
from cluster.local_raddle import LocalRaddle
from cluster.waiting import settled, wait
from generate import chart

pytestmark = pytest.mark.cluster

NAMESPACE = chart.NAMESPACE
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/raddle"
KIND = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/inferencethreadings.raddle.dev"
POLICY = {
    "apiVersion": "raddle.dev/v1alpha1",
    "kind": "InferenceThreading",
    "metadata": {"name": "kept", "namespace": "models"},
    "spec": {"podSelector": {}, "threads": {"intraOp": 2}},
}


@pytest.fixture(scope="module")
def cluster(kubernetes):
    with Cluster(name="chart-lifecycle", version=kubernetes) as cluster:
        labels = {"raddle.dev/inject": "enabled"}
        cluster.client.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "models", "labels": labels}}
        )
        yield cluster


@pytest.fixture
def bare(cluster):
    """The cluster without a release; CRDs of another test may be there, as after any uninstall."""
    yield cluster
    with contextlib.suppress(Exception):
        cluster.helm("uninstall", "raddle", "--namespace", NAMESPACE, "--ignore-not-found")


def everything(cluster):
    return set(release.everything(cluster))


# --- Upgrade and back -------------------------------------------------------------------------------------------------------


def names(cluster, path):
    return [item["metadata"]["name"] for item in cluster.client.get(path)["items"]]


def columns(cluster):
    return len(cluster.client.get(KIND)["spec"]["versions"][0]["additionalPrinterColumns"])


def network_policies(cluster):
    return names(cluster, f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies")


def test_an_upgrade_from_an_earlier_chart_and_back_keeps_policies_crds_and_the_ca_bundle(
    bare, tmp_path, kubernetes, proves
):
    cluster = bare
    release.helm(cluster, "install", release.earlier(tmp_path / "earlier"))
    assert (network_policies(cluster), columns(cluster)) == ([], 12)
    cluster.client.apply(POLICY)
    uid = cluster.client.get(cluster.client.path_of(POLICY))["metadata"]["uid"]
    bundle = base64.b64encode(cluster.ca_file.read_bytes()).decode()
    operations = [
        {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": bundle} for number in range(3)
    ]
    cluster.client.request("PATCH", WEBHOOKS, operations, content_type="application/json-patch+json")

    for action, policies, shown in (("upgrade", 3, 13), ("rollback", 0, 12), ("upgrade", 3, 13)):
        if action == "rollback":
            cluster.helm("rollback", "raddle", "1", "--namespace", NAMESPACE)
        else:
            release.helm(cluster, "upgrade", chart.CHART)
        assert (len(network_policies(cluster)), columns(cluster)) == (policies, shown), action
        kept = cluster.client.get(cluster.client.path_of(POLICY))
        assert (kept["metadata"]["uid"], kept["spec"]["threads"]["intraOp"]) == (uid, 2)
        webhooks = cluster.client.get(WEBHOOKS)["webhooks"]
        assert {webhook["clientConfig"]["caBundle"] for webhook in webhooks} == {bundle}
    proves("Kubernetes", str(kubernetes), "upgrade and back")


# --- kubectl instead of Helm --------------------------------------------------------------------------------------------------


def test_install_yaml_is_the_namespace_and_what_helm_installs():
    documents = [found for found in yaml.safe_load_all(chart.install_manifest(["--set", "image.tag=v1"])) if found]
    assert documents[0] == {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    installed = [item for item in chart.objects({"image": {"tag": "v1"}}) if item["kind"] != "Pod"]
    assert documents[1:] == installed


def test_kubectl_installs_again_over_itself_and_its_end_leaves_crds_and_policies(bare, tmp_path, kubernetes, proves):
    cluster = bare
    file = tmp_path / "install.yaml"
    file.write_text(chart.install_manifest())
    apply = ("apply", "--server-side", "-f", str(file))
    # Fields that Helm wrote when it was here are equal, so that nobody contests them.
    cluster.kubectl(*apply)
    cluster.client.apply(POLICY)
    assert "serverside-applied" in cluster.kubectl(*apply).stdout
    delete = next(line for line in file.read_text().splitlines() if "kubectl delete" in line).split("kubectl ")[1]
    cluster.kubectl(*delete.replace("install.yaml", str(file)).split())
    left = release.of_raddle(everything(cluster))
    assert left == release.LEFT_OVER | {"models inferencethreading.raddle.dev/kept"}
    proves("Kubernetes", str(kubernetes), "kubectl apply")


# --- The end ------------------------------------------------------------------------------------------------------------------


def test_uninstalling_leaves_crds_policies_and_what_running_pods_mount_and_nothing_else(bare, kubernetes, proves):
    cluster = bare
    before = everything(cluster)
    values = {"certificates": {"source": "Raddle"}}
    with LocalRaddle(cluster, values=values, workloads=True, controller_options=("--issue-certificates",)) as raddle:
        cluster.client.apply(POLICY)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "running", "namespace": "models", "labels": {"app": "model"}},
            "spec": {"containers": [{"name": "main", "image": "model", "resources": {"limits": {"cpu": "2"}}}]},
        }
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
        wait(lambda: "raddle-controller" in names(cluster, leases), "the controller made its Lease")
        secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        wait(lambda: "raddle-webhook-tls" in names(cluster, secrets), "the controller made the Secret")
        maps = "/api/v1/namespaces/models/configmaps"
        wait(lambda: any("raddle-shim-" in one for one in names(cluster, maps)), "the shim's ConfigMap is there")
        wait(lambda: raddle.controller.log, "the controller runs")
        path = "/api/v1/namespaces/models/pods"
        cluster.client.post(path, pod)
        running = cluster.client.get(f"{path}/running")["spec"]
    shims = {f"models configmap/{name}" for name in names(cluster, maps) if name.startswith("raddle-shim-")}
    assert len(shims) == 1
    notes = release.notes(cluster)

    cluster.helm("uninstall", "raddle", "--namespace", NAMESPACE)

    expected = shims | release.LEFT_OVER | {"models inferencethreading.raddle.dev/kept", "models pod/running"}
    # Owned objects go some moments after their owner.
    assert settled(lambda: everything(cluster) - before - expected, set()) == set()
    assert expected <= everything(cluster)
    assert cluster.client.get(f"{path}/running")["spec"] == running
    removed, crds = release.removed_by(notes, cluster)
    assert {f"models configmap/{name}" for name in removed} == shims
    assert crds == set(release.CRD_NAMES)
    proves("Kubernetes", str(kubernetes), "uninstall")


def test_crds_go_with_the_release_only_where_that_was_asked_for(bare):
    cluster = bare
    release.helm(cluster, "install", chart.CHART)
    options = ("--namespace", NAMESPACE, "--reuse-values", "--set", "crds.keep=false")
    cluster.helm("upgrade", "raddle", str(chart.CHART), *options)
    cluster.helm("uninstall", "raddle", "--namespace", NAMESPACE)
    # An API server on a busy machine may take minutes for the rest of it.
    format_ = "jsonpath={range .items[*]}{.metadata.name}={.metadata.deletionTimestamp}{'\\n'}{end}"
    left = cluster.kubectl("get", "crd", "-o", format_).stdout.split()
    assert [line for line in left if line.endswith("=")] == []
