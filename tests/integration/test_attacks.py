"""What a user of one namespace can try on a real API server with labels, annotations and policies of their own.

They have `edit` in their namespace, and may write pods/status. RADDLE_ATTACK_POLICIES says how many policies the crowd
has (300; the page on security was written with 10000).
"""

from __future__ import annotations

import itertools
import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from integration.world import Space, container, injected, pod, policy, threads

from devcluster import ApiError
from fuzz import podmaker
from raddle import env

CROWD = int(os.environ.get("RADDLE_ATTACK_POLICIES", "300"))
SAMPLES = 25
RBAC = "rbac.authorization.k8s.io"
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def unharmed(raddle):
    """Whatever is tried, neither process ends, and no answer is an exception."""
    pids = raddle.webhook.pid, raddle.controller.pid
    failed_open = raddle.webhook.metric("raddle_webhook_fail_open_total")
    yield
    assert (raddle.webhook.pid, raddle.controller.pid) == pids
    assert None not in pids
    assert raddle.webhook.metric("raddle_webhook_fail_open_total") == failed_open


@pytest.fixture
def hostile(cluster, raddle):
    """The namespace of the one who means ill, opted in like any other."""
    name = f"hostile-{os.getpid()}-{next(_numbers)}"
    labels = {"raddle.dev/inject": "enabled"}
    cluster.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    made = Space(cluster, raddle, name)
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    made.wait(lambda: [one for one in cluster.client.get(accounts)["items"] if one["metadata"]["name"] == "default"])
    made.wait_for_webhook()
    yield made
    for left in made.list():
        made.delete(left["metadata"]["name"])
    cluster.client.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def mallory(hostile):
    """mallory(kubectl arguments, text=...): what kubectl wrote to standard error, "" when it went well."""
    name = f"mallory-of-{hostile.name}"
    kubeconfig = hostile.cluster.user(name)
    metadata = {"name": "pod-status", "namespace": hostile.name}
    rules = [{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["get", "patch", "update"]}]
    hostile.client.apply({"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
    for kind, role in (("ClusterRole", "edit"), ("Role", "pod-status")):
        hostile.client.apply(
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": f"mallory-{role}", "namespace": hostile.name},
                "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
                "subjects": [{"apiGroup": RBAC, "kind": "User", "name": name}],
            }
        )

    def kubectl(*arguments, text=None):
        done = hostile.cluster.kubectl("--kubeconfig", str(kubeconfig), *arguments, input=text, check=False)
        return done.stderr if done.returncode else ""

    hostile.wait(lambda: kubectl("get", "inferencethreadings", "--namespace", hostile.name) == "")
    return kubectl


# --- reading, and reaching, what is another tenant's ------------------------------------------------------------------


def test_nothing_of_another_namespace_or_of_the_cluster_is_readable_or_writable(space, hostile, mallory):
    space.apply(policy("secret-sauce"))
    space.create(pod())
    elsewhere = ["inferencethreadings", "pods", "configmaps"]
    tries = [("get", kind, "--namespace", space.name) for kind in elsewhere]
    tries += [("get", kind) for kind in ("clusterinferencethreadings", "nodecputopologies", "nodes")]
    tries += [("get", "inferencethreadings", "--all-namespaces"), ("get", "secrets", "--namespace", "raddle-system")]
    tries += [("delete", "inferencethreading", "secret-sauce", "--namespace", space.name)]
    for arguments in tries:
        assert "forbidden" in mallory(*arguments).lower(), arguments
    for manifest in (policy("mine", space.name), policy("mine", kind="ClusterInferenceThreading", tier="Admin")):
        assert "forbidden" in mallory("create", "-f", "-", text=yaml.safe_dump(manifest)).lower()


@pytest.mark.parametrize("form", ["{name}", "{namespace}.{name}"])
def test_a_label_can_not_name_another_namespaces_policy(space, hostile, form):
    space.apply(policy("secret-sauce", threads={"intraOp": 7}))
    named = form.format(name="secret-sauce", namespace=space.name)
    made = hostile.create(pod(labels={env.POLICY_LABEL: named}))
    assert not injected(made)
    assert "env" not in made["spec"]["containers"][0]


@pytest.mark.parametrize("forged", ["annotation", "label"])
def test_a_pod_can_not_claim_to_be_of_another_policy_or_namespace(space, hostile, forged):
    space.apply(policy("secret-sauce", threads={"intraOp": 7}))
    hostile.apply(policy("mine", threads={"intraOp": 2}))
    annotations = {env.GOVERNED_BY: "InferenceThreading/secret-sauce", env.THREADS_PREFIX + "serve": "7"}
    body = pod(annotations=annotations) if forged == "annotation" else pod(labels={env.INJECTED_LABEL: "true"})
    made = hostile.create({**body, "metadata": {**body["metadata"], "namespace": hostile.name}})
    assert threads(made) == 2
    assert made["metadata"]["annotations"][env.GOVERNED_BY] == "InferenceThreading/mine"


def test_a_policy_with_every_pod_and_the_highest_priority_stays_within_its_namespace(space, hostile):
    space.apply(policy("ours", threads={"intraOp": 2}))
    hostile.apply(policy("theirs", priority=1000, threads={"intraOp": 1}))
    assert threads(space.create(pod())) == 2
    assert threads(hostile.create(pod())) == 1


# --- what runs --------------------------------------------------------------------------------------------------------

LIBRARY = "/tmp/evil.so"
CODE = [
    {"onnxruntime": {"configEntries": {"session.custom_ops_library": LIBRARY}}},
    {"onnxruntime": {"configEntries": {"ep.dynamic.library": LIBRARY}}},
    {"onnxruntime": {"providerOptions": {"OpenVINOExecutionProvider": {"cache_dir": "/tmp"}}}},
    {"onnxruntime": {"providerOptions": {"EvilExecutionProvider": {"library": LIBRARY}}}},
    {"imageEnv": {"LD_PRELOAD": "/proc/self/fd/0\n"}},
    {"imageEnv": {"PATH": "/tmp"}},
    {"imageEnv": {"NODE_OPTIONS": "--require /tmp/evil.js"}},
    {"allocator": LIBRARY},
    {"shim": "evil.test/image:1"},
]


@pytest.mark.parametrize("spec", CODE, ids=str)
def test_a_policy_that_names_code_is_refused(hostile, mallory, spec):
    refused = mallory("create", "-f", "-", text=yaml.safe_dump(policy("evil", hostile.name, **spec)))
    assert "invalid" in refused.lower()
    assert "spec." in refused


@pytest.mark.parametrize("shim", ["Auto", "ConfigMap", "ImageVolume", "InitContainer"])
def test_nothing_in_a_pod_makes_raddle_run_or_mount_what_the_user_chose(hostile, shim):
    hostile.apply(policy("mine", shim=shim, reports=True))
    evil = "evil.test/image:1"
    forged = {
        "raddle.dev/shim-image": evil,
        "raddle.dev/shim": "InitContainer",
        env.SHIM_PREFIX + "serve": f"v=1;library={LIBRARY}",
        env.PLAN_PREFIX + "serve": f'{{"v":1,"image":"{evil}"}}',
    }
    body = pod(container(cpu="2"), annotations=forged, labels={"raddle.dev/shim": "evil"})
    made = hostile.create(body)
    spec = made["spec"]
    assert {one["image"] for one in [*spec["containers"], *spec.get("initContainers", [])]} == {
        "registry.example/app:1"
    }
    volumes = [one for one in spec["volumes"] if not one["name"].startswith("kube-api-access-")]
    assert all(one.keys() <= {"name", "configMap", "emptyDir"} for one in volumes), volumes
    assert all(one["configMap"]["name"].startswith("raddle-shim-") for one in volumes if "configMap" in one)
    # A key that Raddle does not know stays, and nobody reads it.
    ours = {
        key: text for key, text in made["metadata"]["annotations"].items() if key.startswith(env.CONTAINER_PREFIXES)
    }
    assert ours
    assert "evil" not in str(ours)


def test_a_status_nobody_but_raddle_writes_is_not_the_users_either(hostile, mallory):
    hostile.apply(policy("mine"))
    lie = yaml.safe_dump({"status": {"injectedPods": 7}})
    where = ("inferencethreading", "mine", "--namespace", hostile.name, "--subresource=status", "--type=merge")
    assert "forbidden" in mallory("patch", *where, "-p", lie).lower()


def test_annotations_stay_however_many_others_a_user_adds_first(hostile, mallory):
    hostile.apply(policy("mine"))
    crowded = {f"k{number}": "" for number in range(1500)}
    before = hostile.create(pod(annotations=crowded, schedulingGates=[{"name": "test/wait"}]))
    assert injected(before)
    forged = yaml.safe_dump({"metadata": {"annotations": {env.THREADS_PREFIX + "serve": "999"}}})
    for subresource in ([], ["--subresource=status"]):
        patch = ("patch", "pod", "app", "--namespace", hostile.name, "--type=merge", *subresource, "-p")
        assert "annotations of a pod that has more than 1000 stay as they are" in mallory(*patch, forged)
        assert mallory(*patch, yaml.safe_dump({"metadata": {"labels": {"tried": str(len(subresource))}}})) == ""
    assert threads(hostile.get()) == threads(before)


# --- time -------------------------------------------------------------------------------------------------------------


def create_seconds(space, count=20):
    """Seconds of each of so many creations, tried by dry run."""
    taken = []
    for number in range(count):
        began_s = time.monotonic()
        made = space.client.request(
            "POST", f"/api/v1/namespaces/{space.name}/pods", pod(name=f"p{number}"), query={"dryRun": "All"}
        )
        taken.append(time.monotonic() - began_s)
        assert injected(made)
    return sorted(taken)


def test_a_crowd_of_policies_holds_no_other_tenants_pod_up(space, hostile, raddle):
    space.apply(policy("ours"))
    alone = create_seconds(space)
    known = raddle.webhook.metric("raddle_webhook_cache_objects", kind="InferenceThreading")

    def add(numbers):
        with hostile.cluster.new_client() as client:
            path = f"/apis/raddle.dev/v1alpha1/namespaces/{hostile.name}/inferencethreadings"
            for number in numbers:
                client.post(path, policy(f"p{number}", podSelector={"matchLabels": {"app": f"a{number}"}}))

    with ThreadPoolExecutor(4) as pool:
        adding = [pool.submit(add, range(first, CROWD, 4)) for first in range(4)]
        meanwhile = create_seconds(space)
        for one in adding:
            one.result()
    hostile.wait(
        lambda: raddle.webhook.metric("raddle_webhook_cache_objects", kind="InferenceThreading") == known + CROWD, 300
    )
    after = create_seconds(space)
    print(
        f"{CROWD} policies: the median of another tenant's creation took {1000 * alone[10]:.0f} ms before, "
        f"{1000 * meanwhile[10]:.0f} ms meanwhile, {1000 * after[10]:.0f} ms after"
    )
    # The webhook's own limit is far away; the rest is room for a busy machine.
    assert after[10] < 1.0
    assert meanwhile[10] < 1.0
    # The oldest 100 are evaluated; creation times are whole seconds, so which they are is up to the names.
    assert not injected(hostile.create(pod(name="stranger", labels={"app": "other"})))


def test_an_annotation_of_a_mebibyte_is_refused_by_the_api_server_and_holds_nobody_up(space, hostile, raddle):
    space.apply(policy("ours"))
    hostile.apply(policy("mine"))
    huge = pod(annotations={"big": "x" * 2**20})
    with ThreadPoolExecutor(1) as pool:

        def flood():
            with hostile.cluster.new_client() as client:
                for _ in range(10):
                    with pytest.raises(ApiError, match=r"metadata\.annotations"):
                        client.post(f"/api/v1/namespaces/{hostile.name}/pods", huge)

        flooding = pool.submit(flood)
        meanwhile = create_seconds(space)
        flooding.result()
    assert meanwhile[10] < 1.0
    assert raddle.webhook.metric("raddle_webhook_requests_total", reason="AnnotationBudget") >= 10


# --- any pod ----------------------------------------------------------------------------------------------------------


def outcome(space, body):
    """The stored pod of a creation by dry run, or the error's status."""
    try:
        return space.client.request("POST", f"/api/v1/namespaces/{space.name}/pods", body, query={"dryRun": "All"})
    except ApiError as error:
        return error.status


@pytest.mark.parametrize("shim", ["Auto", "InitContainer"])
def test_a_pod_that_the_api_server_takes_without_raddle_it_takes_with(shimmed, shim):
    """A sample of what `python -m fuzz --only reviews` tries."""
    more = {"NODE_OPTIONS": "", "LD_PRELOAD": "", "JAVA_TOOL_OPTIONS": ""}
    shimmed.apply(policy("any", shim=shim, reports=True, nativeShim="Preload", imageEnv=more))
    taken = changed = 0
    for seed in range(SAMPLES * 50):
        body = podmaker.pod(random.Random(f"sample {seed}"))
        body["metadata"] = {**body["metadata"], "name": "sample"}
        body["spec"].pop("nodeName", None)
        for one in [*body["spec"]["containers"], *body["spec"].get("initContainers", [])]:
            one["image"] = one.get("image") or "registry.example/app:1"
            one["resources"] = {"limits": {"cpu": "2"}}
        if "resources" in body["spec"] or not is_plausible(body["spec"]):
            continue
        labels = {key: text for key, text in body["metadata"].get("labels", {}).items() if key != env.POLICY_LABEL}
        body["metadata"]["labels"] = {**labels, env.INJECT_LABEL: "disabled"}
        if isinstance(outcome(shimmed, body), int):
            continue
        taken += 1
        body["metadata"]["labels"][env.INJECT_LABEL] = "enabled"
        made = outcome(shimmed, body)
        assert not isinstance(made, int), (seed, body)
        changed += injected(made)
        if taken == SAMPLES:
            break
    assert taken == SAMPLES
    assert changed > SAMPLES / 4


def is_plausible(spec):
    """Whether names are used once and mounts have their volumes: most others the API server refuses anyhow."""
    containers = [*spec["containers"], *spec.get("initContainers", [])]
    names = [one["name"] for one in containers]
    volumes = [one["name"] for one in spec.get("volumes", [])]
    mounts = [mount for one in containers for mount in one.get("volumeMounts", [])]
    return (
        len(set(names)) == len(names)
        and len(set(volumes)) == len(volumes)
        and {mount["name"] for mount in mounts} <= set(volumes)
    )
