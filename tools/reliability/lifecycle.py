"""The chart's life: upgrade and back, other CRDs below stored objects, and the end with what it leaves.

There is no earlier release of the programs yet, so what an upgrade goes back to is an earlier chart and the first CRDs.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

import machines
from cluster import ApiError, Client, Cluster
from cluster.namespaces import TestNamespace
from cluster.objects import injected
from cluster.waiting import WAIT_SECONDS, settled, wait
from generate import chart
from raddle.machine.sysfs import read_machine
from raddle_operator.objects import nodetopology
from reliability import release, truth
from reliability.model import Check, Result, broken_unless
from reliability.world import World

PODS: Final = 20
FIRST_CRDS: Final = release.PREVIOUS / "crds" / "first.yaml"
API: Final = "raddle.dev/v1alpha1"
HELM_RELEASE: Final = "meta.helm.sh/release-name"


# --- upgrade and back -------------------------------------------------------------------------------------------------


def upgraded_and_back(world: World) -> Result:
    """From an earlier chart to this one, back, and here again, under policies and pods."""
    frozen = max(release.PREVIOUS.glob("*.yaml"))
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(world.fresh_cluster())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        release.helm(cluster, "install", release.earlier(frozen, folder / "earlier"))
        old = _of_the_chart(cluster)
        # It upgrades the release that is there.
        raddle = stack.enter_context(world.raddle_on(cluster, values={"workloads": {"enabled": True}}))
        space = stack.enter_context(world.namespace(raddle))
        space.store(truth.capped("app", 4))
        truth.settle(space)
        for number in range(PODS):
            space.create(truth.of_app("app", f"app-{number}"))
        for number in range(PODS):
            space.bound(f"app-{number}")
        truth.settle(space)
        new, before = _of_the_chart(cluster), _versions(space)
        cluster.helm("rollback", "raddle", "1", "--namespace", release.NAMESPACE)
        back = _of_the_chart(cluster)
        made_meanwhile = space.create(truth.of_app("app", "meanwhile"))
        release.helm(cluster, "upgrade", chart.CHART, "--values", str(cluster.directory / "raddle-values.yaml"))
        again = _of_the_chart(cluster)
        truth.settle(space)
        after = _versions(space)
        changed = {name for name, version in before.items() if after.get(name) != version}
        return Result(
            {
                "objects of the earlier chart and this one": f"{len(old)}, {len(new)}",
                "orphaned or missing after going back": str(len(back ^ old)),
                "after the second upgrade": str(len(again ^ new)),
                "pods and policies changed, CRDs replaced": f"{len(changed)} of {len(before)}",
            },
            (
                *broken_unless(
                    going_back_leaves_the_earlier_chart_and_nothing_else=back == old,
                    the_second_upgrade_makes_what_the_first_made=again == new,
                    no_pod_no_policy_and_no_crd_is_replaced=not changed,
                    pods_are_created_meanwhile=bool(made_meanwhile["metadata"]["uid"]),
                    pods_have_values_again=injected(space.probe(truth.of_app("app", "probe"))),
                ),
                *sorted(back ^ old),
                *sorted(changed),
            ),
        )


def _of_the_chart(cluster: Cluster) -> frozenset[str]:
    """The objects that Helm made, whether it still knows of them or not."""
    found = release.everything(cluster).items()
    # A Deployment's ReplicaSets, of which the older ones stay, have its annotations.
    return frozenset(
        name
        for name, metadata in found
        if HELM_RELEASE in metadata.get("annotations", {}) and "ownerReferences" not in metadata
    )


def _versions(space: TestNamespace) -> dict[str, str]:
    """What tells whether an object is still the same: pods by version too, the others, which have a status, by uid."""
    found = {}
    for name, metadata in release.everything(space.cluster).items():
        if name.startswith(f"{space.name} pod/app-"):
            found[name] = f"{metadata['uid']} {metadata['resourceVersion']}"
        elif "customresourcedefinition" in name or name.startswith(f"{space.name} inferencethreading"):
            found[name] = f"{metadata['uid']} {metadata['generation'] if 'inference' in name.split('/')[0] else ''}"
    return found


# --- other CRDs below stored objects ----------------------------------------------------------------------------------

# What today's schema refuses and the first one took: it may stay as it is, and change elsewhere.
REFUSED_NOW: Final[Mapping[str, Mapping[str, Any]]] = {
    "a-loader": {"imageEnv": {"NODE_OPTIONS": "--import /app/telemetry.mjs"}},
    "a-temporary-library": {"imageEnv": {"LD_PRELOAD": "/tmp/libfast.so"}},
}


def crds_upgraded(world: World) -> Result:
    """Store objects below the project's first CRDs; install today's over them, and the first ones again."""
    with world.fresh_cluster(scheduler=False, controller_manager=False) as cluster:
        client = cluster.client
        _apply_crds(cluster, FIRST_CRDS)
        client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "models"}})
        written = [one for one in _objects() if _is_taken(client, one)]
        paths = [client.path_of(one) for one in written]
        before = [client.get(path) for path in paths]
        release.helm(cluster, "install", chart.CHART)
        wait(lambda: _knows_today(client), "the API server has today's schema", WAIT_SECONDS)
        after = [client.get(path) for path in paths]
        refused = [path for path, one in zip(paths, after, strict=True) if not _may_be_changed(client, path, one)]
        old_kind = {client.path_of(one) for one in _refused_now()} <= set(paths)
        is_strict = [not _is_taken(client, one, dryRun="All") for one in _refused_now("another-")]
        _apply_crds(cluster, FIRST_CRDS)
        wait(lambda: not _knows_today(client), "the API server has the first schema", WAIT_SECONDS)
        back = [client.get(path) for path in paths]
        stored = [
            crd["status"]["storedVersions"]
            for crd in client.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
        ]
    changed = [path for path, *both in zip(paths, before, after, strict=True) if not is_kept(*both)]
    changed_back = [path for path, *both in zip(paths, before, back, strict=True) if not is_kept(*both)]
    return Result(
        {
            "objects stored before": str(len(written)),
            "changed by the upgrade": str(len(changed)),
            "changed by going back": str(len(changed_back)),
            "that can't be changed any more": str(len(refused)),
            "of these, today's schema would refuse a new one": str(sum(is_strict)),
        },
        (
            *broken_unless(
                every_object_is_as_it_was=not changed,
                every_object_is_as_it_was_after_going_back=not changed_back,
                every_object_can_be_changed_and_get_a_status=not refused,
                what_is_refused_today_was_stored_before=old_kind,
                the_schemas_really_differ=bool(is_strict) and all(is_strict),
                one_version_is_stored=all(versions == ["v1alpha1"] for versions in stored),
            ),
            *changed,
            *refused,
        ),
    )


def _apply_crds(cluster: Cluster, file: Path) -> None:
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(file))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


def _objects() -> Iterator[dict[str, Any]]:
    """The policies of the examples, those that today's schema refuses, and the topologies of the recorded machines."""
    seen = set()
    for path in sorted((chart.REPOSITORY / "examples").glob("*.yaml")):
        for one in yaml.safe_load_all(path.read_text()):
            key = (one["kind"], one["metadata"]["name"]) if one else ()
            if one and one["apiVersion"] == API and key not in seen:
                seen.add(key)
                yield _in_models(one)
    yield from _refused_now()
    for name in machines.names():
        made = nodetopology.to_object(read_machine(str(machines.path(name))), name, "")
        yield {**made, "metadata": {"name": name}}  # there is no Node that could own it


def _refused_now(prefix: str = "") -> Iterator[dict[str, Any]]:
    for name, spec in REFUSED_NOW.items():
        body = {"apiVersion": API, "kind": "InferenceThreading", "metadata": {"name": prefix + name}}
        yield _in_models({**body, "spec": {"podSelector": {}, **spec}})


def _in_models(one: dict[str, Any]) -> dict[str, Any]:
    if one["kind"].startswith("Cluster"):
        return one
    return {**one, "metadata": {**one["metadata"], "namespace": "models"}}


def _knows_today(client: Client) -> bool:
    """Whether a field that the first schema lacks is kept."""
    one = truth.capped("probe", 2)
    one["spec"]["reports"] = True
    path = f"/apis/{API}/namespaces/models/inferencethreadings"
    made = client.request("POST", path, one, query={"dryRun": "All", "fieldValidation": "Ignore"})
    return "reports" in made["spec"]


def _may_be_changed(client: Client, path: str, one: Mapping[str, Any]) -> bool:
    """Whether its label and its status can be written, as users and the controller do."""
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "Checked",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    kind = "Fresh" if one["kind"] == "NodeCPUTopology" else "Ready"
    try:
        client.merge(path, {"metadata": {"labels": {"checked": "yes"}}})
        client.merge(f"{path}/status", {"status": {"conditions": [{**condition, "type": kind}]}})
    except ApiError:
        return False
    return True


def _is_taken(client: Client, one: Mapping[str, Any], **query: str) -> bool:
    """Create an object; whether the schema knows all its fields and takes it."""
    try:
        client.request(
            "POST", client.path_of(one).rpartition("/")[0], one, query={"fieldValidation": "Strict", **query}
        )
    except ApiError as error:
        if error.status not in (http.client.BAD_REQUEST, http.client.UNPROCESSABLE_ENTITY):
            raise
        return False
    return True


def is_kept(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether it is the same object, each field that it had is as it was, and no spec was written."""
    same = all(before["metadata"][key] == after["metadata"][key] for key in ("uid", "generation"))
    return same and has(after["spec"], before["spec"])


def has(found: Any, wanted: Any) -> bool:
    """Whether `wanted` is in `found`, which may have more fields: defaults of new ones."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(key in found and has(found[key], value) for key, value in wanted.items())
    return json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)


# --- the end ----------------------------------------------------------------------------------------------------------


def uninstalled(world: World) -> Result:
    """Uninstall under running pods; compare all that is left with what was there before, then follow the notes."""
    values = {"workloads": {"enabled": True}, "certificates": {"source": "Raddle"}}
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(world.fresh_cluster())
        before = set(release.everything(cluster))
        with world.raddle_on(cluster) as raddle:
            space = stack.enter_context(world.namespace(raddle))
            space.store(truth.capped("app", 4))
            truth.settle(space)
            for number in range(PODS):
                space.create(truth.of_app("app", f"app-{number}"))
            for number in range(PODS):
                space.bound(f"app-{number}")
        # Everything that it can make, also what no webhook of the harness could answer with.
        options = {"values": values, "controller_options": ("--issue-certificates",)}
        with world.raddle_on(cluster, node=False, start=("controller",), **options):
            made = {f"{release.NAMESPACE} secret/raddle-webhook-tls"}
            wait(lambda: made <= set(release.everything(cluster)), "the controller made the webhook's Secret")
        installed = set(release.everything(cluster))
        pods, notes = space.list(), release.notes(cluster)
        cluster.helm("uninstall", "raddle", "--namespace", release.NAMESPACE)
        shims = {one for one in installed if one.startswith(f"{space.name} configmap/raddle-shim-")}
        must_stay = _must_stay(installed - before, shims)
        # The users' own objects and nodes with their topologies are none of the release's.
        others = {one for one in installed - before if "raddle" not in one or "nodecputopology" in one}
        wait(lambda: _confirm_ends(cluster), "Raddle's own pods are to end")
        # Owned objects go some moments after their owner.
        nothing: set[str] = set()
        surplus = settled(
            lambda: set(release.everything(cluster)) - before - must_stay - others, nothing, 2 * WAIT_SECONDS
        )
        left = set(release.everything(cluster))
        after = space.list()
        removed, crds = release.removed_by(notes, cluster)
        return Result(
            {
                "objects that the release and its processes made": str(len(installed - before - must_stay - others)),
                "of these left": str(len(surplus)),
                "running pods changed": f"{sum(one not in after for one in pods)} of {len(pods)}",
                "kept on purpose": f"{len(release.CRD_NAMES)} CRDs, 1 policy, {len(shims)} shim ConfigMap",
                "named by the notes' commands": f"{len(crds)} CRDs, {len(removed)} ConfigMap",
            },
            (
                *sorted(surplus | (must_stay - left)),
                *broken_unless(
                    nothing_else_is_left=not surplus,
                    running_pods_are_as_they_were=pods == after and len(pods) == PODS and all(map(injected, pods)),
                    crds_policies_and_the_mounted_configmap_are_left=must_stay <= left,
                    the_notes_remove_the_configmaps={f"{space.name} configmap/{name}" for name in removed} == shims,
                    the_notes_remove_the_crds=crds == set(release.CRD_NAMES),
                ),
            ),
        )


def _confirm_ends(cluster: Cluster) -> bool:
    """Take away the pods of Raddle whose owners have deleted them, as a kubelet would; whether none is left."""
    path = f"/api/v1/namespaces/{release.NAMESPACE}/pods"
    pods = cluster.client.get(path)["items"]
    for one in pods:
        if one["metadata"].get("deletionTimestamp"):
            cluster.client.delete(f"{path}/{one['metadata']['name']}", missing_ok=True)
    return not pods


def _must_stay(made: set[str], shims: set[str]) -> set[str]:
    """Of all that was made since the cluster was bare: CRDs, policies, the users' pods and what they mount."""
    own = f"{release.NAMESPACE} "
    pods_and_policies = {
        one for one in made if " pod/" in one or " inferencethreading.raddle.dev/" in one if not one.startswith(own)
    }
    return pods_and_policies | shims | release.LEFT_OVER


CHECKS: Final = (
    Check(
        "upgraded-and-back",
        "The chart is upgraded from an earlier one, rolled back, and upgraded again.",
        "Each time the objects are those of that chart; no pod, policy or CRD is replaced.",
        upgraded_and_back,
    ),
    Check(
        "crds-upgraded",
        "Today's CRDs are installed over objects that were stored below the project's first ones; then back.",
        "Every object is readable, the same and can still be changed, also where a new one like it is refused today.",
        crds_upgraded,
    ),
    Check(
        "uninstalled",
        "The release is uninstalled while pods with values run.",
        "Pods, what they mount, CRDs and policies stay as they are, nothing else; the notes name how to remove those.",
        uninstalled,
    ),
)
