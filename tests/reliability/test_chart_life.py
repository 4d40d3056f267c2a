"""The chart's life: upgrade and back, other CRDs below stored objects, and the end with what it leaves.

There is no earlier release yet, so what an upgrade comes from is this chart with less in it.
"""

import http.client
import json

import pytest
import yaml
from support import chart_release as release
from support.reliability import truth
from support.reliability.installed import installed

import machines
from cluster import ApiError, Cluster, namespaces
from cluster.objects import API, injected
from cluster.waiting import WAIT_SECONDS, settled, wait
from generate import chart
from raddle.machine.sysfs import read_machine
from raddle_operator.objects import nodetopology

PODS = 20
HELM_RELEASE = "meta.helm.sh/release-name"


def with_pods(raddle):
    """A new namespace with a policy and pods of it that are bound."""
    space = namespaces.made(raddle, "check")
    space.store(truth.capped("app", 4))
    truth.settle(space)
    for number in range(PODS):
        space.create(truth.of_app("app", f"app-{number}"))
    for number in range(PODS):
        space.bound(f"app-{number}")
    return space


# --- upgrade and back -------------------------------------------------------------------------------------------------


@pytest.mark.failure(
    "upgraded-and-back",
    "The chart is upgraded from an earlier one, rolled back, and upgraded again.",
    "Each time the objects are those of that chart; no pod, policy or CRD is replaced.",
)
def test_an_upgrade_a_rollback_and_an_upgrade_replace_no_pod_policy_or_crd(tmp_path, figures):
    with Cluster(name="reliability-own") as cluster:
        release.helm(cluster, "install", release.earlier(tmp_path / "earlier"))
        old = of_the_chart(cluster)
        # It upgrades the release that is there.
        with installed(cluster, workloads=True) as raddle:
            space = with_pods(raddle)
            truth.settle(space)
            new, before = of_the_chart(cluster), versions(space)
            cluster.helm("rollback", "raddle", "1", "--namespace", release.NAMESPACE)
            back = of_the_chart(cluster)
            space.create(truth.of_app("app", "meanwhile"))
            release.helm(cluster, "upgrade", chart.CHART, "--values", str(cluster.directory / "raddle-values.yaml"))
            again = of_the_chart(cluster)
            truth.settle(space)
            after = versions(space)
            later = space.probe(truth.of_app("app", "probe"))
    changed = {name for name, version in before.items() if after.get(name) != version}
    figures |= {
        "objects of the earlier chart and this one": f"{len(old)}, {len(new)}",
        "orphaned or missing after going back": len(back ^ old),
        "after the second upgrade": len(again ^ new),
        "pods and policies changed, CRDs replaced": f"{len(changed)} of {len(before)}",
    }
    assert back == old
    assert again == new
    assert changed == set()
    assert injected(later)


def of_the_chart(cluster):
    """The objects that Helm made, whether it still knows of them or not."""
    # A Deployment's ReplicaSets, of which the older ones stay, have its annotations.
    return {
        name
        for name, metadata in release.everything(cluster).items()
        if HELM_RELEASE in metadata.get("annotations", {}) and "ownerReferences" not in metadata
    }


def versions(space):
    """What tells whether an object is still the same: pods by version too, the others, which have a status, by uid."""
    found = {}
    for name, metadata in release.everything(space.cluster).items():
        if name.startswith(f"{space.name} pod/app-"):
            found[name] = metadata["uid"], metadata["resourceVersion"]
        elif "customresourcedefinition" in name:
            found[name] = metadata["uid"]
        elif name.startswith(f"{space.name} inferencethreading"):
            found[name] = metadata["uid"], metadata["generation"]
    return found


# --- other CRDs below stored objects ----------------------------------------------------------------------------------

# What today's schema refuses and the earlier one took: it may stay as it is, and change elsewhere.
REFUSED_NOW = {
    "a-second-pool": {"threads": {"interOp": 2}},
    "a-second-pool-in-sequence": {"threads": {"interOp": 2, "executionMode": "Sequential"}},
}


@pytest.mark.failure(
    "crds-upgraded",
    "Today's CRDs are installed over objects that were stored below earlier ones; then back.",
    "Every object is readable, the same and can still be changed, also where a new one like it is refused today.",
)
def test_objects_that_were_stored_below_earlier_crds_stay_the_same_and_can_be_changed_below_todays(figures):
    with Cluster(name="reliability-own", scheduler=False, controller_manager=False) as cluster:
        client = cluster.client
        apply_earlier_crds(cluster)
        client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "models"}})
        written = [one for one in stored_objects() if is_taken(client, one)]
        paths = [client.path_of(one) for one in written]
        before = [client.get(path) for path in paths]
        release.helm(cluster, "install", chart.CHART)
        wait(lambda: knows_today(client), "the API server has today's schema", WAIT_SECONDS)
        after = [client.get(path) for path in paths]
        refused = [path for path, one in zip(paths, after, strict=True) if not may_be_changed(client, path, one)]
        old_kind = {client.path_of(one) for one in refused_now()}
        is_strict = [not is_taken(client, one, dryRun="All") for one in refused_now("another-")]
        apply_earlier_crds(cluster)
        wait(lambda: not knows_today(client), "the API server has the earlier schema", WAIT_SECONDS)
        back = [client.get(path) for path in paths]
        crds = client.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    changed = [path for path, *both in zip(paths, before, after, strict=True) if not is_kept(*both)]
    changed_back = [path for path, *both in zip(paths, before, back, strict=True) if not is_kept(*both)]
    figures |= {
        "objects stored before": len(written),
        "changed by the upgrade": len(changed),
        "changed by going back": len(changed_back),
        "that can't be changed any more": len(refused),
        "of these, today's schema would refuse a new one": sum(is_strict),
    }
    assert (changed, changed_back, refused) == ([], [], [])
    assert old_kind <= set(paths), "what is refused today was to be stored before"
    assert is_strict == [True] * len(REFUSED_NOW), "the schemas were to differ"
    assert all(crd["status"]["storedVersions"] == ["v1alpha1"] for crd in crds)


def apply_earlier_crds(cluster):
    text = yaml.safe_dump_all(release.earlier_crds().values())
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


def stored_objects():
    """The policies of the examples, those that today's schema refuses, and the topologies of the recorded machines."""
    files = sorted((chart.REPOSITORY / "examples").glob("*.yaml"))
    documents = [one for path in files for one in yaml.safe_load_all(path.read_text()) if one]
    policies = {(one["kind"], one["metadata"]["name"]): one for one in documents if one["apiVersion"] == API}
    yield from map(in_models, policies.values())
    yield from refused_now()
    for name in machines.names():
        made = nodetopology.to_object(read_machine(str(machines.path(name))), name, "")
        yield {**made, "metadata": {"name": name}}  # there is no Node that could own it


def refused_now(prefix=""):
    for name, spec in REFUSED_NOW.items():
        body = {"apiVersion": API, "kind": "InferenceThreading", "metadata": {"name": prefix + name}}
        yield in_models({**body, "spec": {"podSelector": {}, **spec}})


def in_models(one):
    if one["kind"].startswith("Cluster"):
        return one
    return {**one, "metadata": {**one["metadata"], "namespace": "models"}}


def knows_today(client):
    """Whether a field that the earlier schema lacks is kept."""
    one = in_models(truth.capped("probe", 2))
    one["spec"]["onnxruntime"] = {"arenaShrinkage": True}
    query = {"dryRun": "All", "fieldValidation": "Ignore"}
    return "arenaShrinkage" in client.request("POST", collection(client, one), one, query=query)["spec"]["onnxruntime"]


def may_be_changed(client, path, one):
    """Whether its label and its status can be written, as users and the controller do."""
    condition = {
        "type": "Fresh" if one["kind"] == "NodeCPUTopology" else "Ready",
        "status": "True",
        "reason": "Checked",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    try:
        client.merge(path, {"metadata": {"labels": {"checked": "yes"}}})
        client.merge(f"{path}/status", {"status": {"conditions": [condition]}})
    except ApiError:
        return False
    return True


def is_taken(client, one, **query):
    """Create an object; whether the schema knows all its fields and takes it."""
    try:
        client.request("POST", collection(client, one), one, query={"fieldValidation": "Strict", **query})
    except ApiError as error:
        if error.status not in (http.client.BAD_REQUEST, http.client.UNPROCESSABLE_ENTITY):
            raise
        return False
    return True


def collection(client, one):
    return client.path_of(one).rpartition("/")[0]


def is_kept(before, after):
    """Whether it is the same object, each field that it had is as it was, and no spec was written."""
    same = all(before["metadata"][key] == after["metadata"][key] for key in ("uid", "generation"))
    return same and has(after["spec"], before["spec"])


def has(found, wanted):
    """Whether `wanted` is in `found`, which may have more fields: defaults of new ones."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(key in found and has(found[key], value) for key, value in wanted.items())
    return json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)


STORED = {"metadata": {"uid": "u", "generation": 1}, "spec": {"a": {"b": [1, 2]}}}


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        pytest.param({"spec": {"a": {"b": [1, 2]}}}, True, id="the same"),
        pytest.param({"spec": {"a": {"b": [1, 2], "new": False}}}, True, id="with a new field's default"),
        pytest.param({"spec": {"a": {"b": [1]}}}, False, id="with other content"),
        pytest.param({"spec": {"a": {}}}, False, id="without a field"),
        pytest.param({"metadata": {"uid": "v", "generation": 1}}, False, id="made again"),
        pytest.param({"metadata": {"uid": "u", "generation": 2}}, False, id="written"),
    ],
)
def test_an_object_is_kept_if_all_that_it_had_is_there_and_nobody_has_written_it(after, kept):
    assert is_kept(STORED, STORED | after) is kept


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.failure(
    "uninstalled",
    "The release is uninstalled while pods with values run.",
    "Pods, what they mount, CRDs and policies stay as they are, nothing else; the notes name how to remove those.",
)
def test_an_uninstall_under_running_pods_leaves_what_they_need_and_says_how_to_remove_that(figures):
    with Cluster(name="reliability-own") as cluster:
        before = set(release.everything(cluster))
        with installed(cluster) as raddle:
            space = with_pods(raddle)
        # Everything that it can make, also what no webhook of the harness could answer with.
        values = {"certificates": {"source": "Raddle"}}
        options = {"node": False, "start": ["controller"], "values": values, "workloads": True}
        with installed(cluster, controller_options=["--issue-certificates"], **options):
            secret = f"{release.NAMESPACE} secret/raddle-webhook-tls"
            wait(lambda: secret in release.everything(cluster), "the controller made the webhook's Secret")
        made = set(release.everything(cluster)) - before
        pods, notes = space.list(), release.notes(cluster)
        cluster.helm("uninstall", "raddle", "--namespace", release.NAMESPACE)
        shims = {one for one in made if one.startswith(f"{space.name} configmap/raddle-shim-")}
        must_stay = of_users(made) | shims | release.LEFT_OVER
        # The users' own objects and nodes with their topologies are none of the release's.
        others = {one for one in made if "raddle" not in one or "nodecputopology" in one}
        wait(lambda: confirm_ends(cluster), "Raddle's own pods are to end")
        # Owned objects go some moments after their owner.
        surplus = settled(
            lambda: set(release.everything(cluster)) - before - must_stay - others, set(), 2 * WAIT_SECONDS
        )
        left = set(release.everything(cluster))
        after = space.list()
        removed, crds = release.removed_by(notes, cluster)
    figures |= {
        "objects that the release and its processes made": len(made - must_stay - others),
        "of these left": len(surplus),
        "running pods changed": f"{sum(one not in after for one in pods)} of {len(pods)}",
        "kept on purpose": f"{len(release.CRD_NAMES)} CRDs, 1 policy, {len(shims)} shim ConfigMap",
        "named by the notes' commands": f"{len(crds)} CRDs, {len(removed)} ConfigMap",
    }
    assert surplus == set()
    assert must_stay <= left
    assert pods == after
    assert [injected(one) for one in pods] == [True] * PODS
    assert {f"{space.name} configmap/{name}" for name in removed} == shims
    assert crds == set(release.CRD_NAMES)


def confirm_ends(cluster):
    """Take away the pods of Raddle whose owners have deleted them, as a kubelet would; whether none is left."""
    path = f"/api/v1/namespaces/{release.NAMESPACE}/pods"
    pods = cluster.client.get(path)["items"]
    for one in pods:
        if one["metadata"].get("deletionTimestamp"):
            cluster.client.delete(f"{path}/{one['metadata']['name']}", missing_ok=True)
    return not pods


def of_users(made):
    """Of all that was made since the cluster was bare: policies and the users' pods."""
    users = {one for one in made if not one.startswith(f"{release.NAMESPACE} ")}
    return {one for one in users if " pod/" in one or " inferencethreading.raddle.dev/" in one}
