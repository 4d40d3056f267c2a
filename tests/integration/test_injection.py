"""What pods get when they are created and when they are bound, on a real API server and scheduler."""

from pathlib import Path

import pytest

from cluster import ApiError, kubelet_env
from cluster.objects import container, env_of, guaranteed, injected, plan_of, pod, policy, threads
from cluster.waiting import wait
from raddle import delivery, env
from raddle.cpus import cpuset

SHIM_VOLUME = "raddle-shim"
SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def on(node, *containers, **more):
    """A pod that only fits one node."""
    return pod(*containers, nodeSelector={"node": node}, **more)


def test_a_pod_gets_variables_annotations_and_the_shim_at_create(space, kubernetes, proves):
    space.apply(policy())
    wait(lambda: space.client.get(f"/api/v1/namespaces/{space.name}/configmaps")["items"])
    made = space.create(pod(container(cpu="2"), schedulingGates=[{"name": "test/wait"}]))
    assert injected(made)
    assert threads(made) == 2
    assert plan_of(made).node is None
    variables = env_of(made)
    assert set(variables) == {env.PLAN, env.LITERALS}
    field = variables[env.PLAN]["valueFrom"]["fieldRef"]["fieldPath"]
    assert field == f"metadata.annotations['{env.SHIM_PREFIX}serve']"
    assert SHIM_VOLUME in {volume["name"] for volume in made["spec"]["volumes"]}
    assert made["metadata"]["annotations"][env.GOVERNED_BY] == "InferenceThreading/policy"
    proves("Kubernetes", str(kubernetes), "values at creation")


def test_a_load_that_agents_observe_is_in_the_policys_status_and_counts_for_new_pods(space):
    spec = {"observe": "Runs", "load": {"source": "Observed"}}
    space.apply(policy(**spec))

    def created():
        return space.probe(pod(container(cpu="1")))

    before = wait(lambda: injected(made := created()) and made, "the policy")
    assert "no load observed yet" in plan_of(before).because["intraOp"]
    load = {"runTime": "33ms", "requestsPerSecond": 10, "containers": 3}
    said = {"policy": f"InferenceThreading/{space.name}/policy", "containers": 3, "load": load}
    topology = "/apis/raddle.dev/v1alpha1/nodecputopologies/hybrid"
    space.client.merge(f"{topology}/status", {"status": {"running": {"policies": [said]}}})
    try:
        path = f"/apis/raddle.dev/v1alpha1/namespaces/{space.name}/inferencethreadings/policy"
        assert wait(lambda: space.client.get(path).get("status", {}).get("load"), "the status") == load
        after = wait(lambda: threads(made := created()) == 4 and made, "the webhook has seen it")
        assert "observed load: runs of 33 ms at 10/s" in plan_of(after).because["intraOp"]
        settings = [one["metadata"]["annotations"][env.SETTINGS_HASH] for one in (before, after)]
        assert settings[0] == settings[1]
    finally:
        space.client.merge(f"{topology}/status", {"status": {"running": None}})


@pytest.mark.parametrize(
    ("node", "one", "expected", "because"),
    [
        ("two-sockets", container(cpu="20"), 16, "16 physical cores on the node"),
        ("two-sockets", container(), 8, "no CPU limit; 8 physical cores on one NUMA node"),
        ("two-sockets", guaranteed(cpu="8"), 4, "8 exclusive CPUs (Guaranteed, static CPU manager) on 4 physical"),
        ("four-caches", guaranteed(cpu="10"), 8, "8 physical cores on the node"),
        ("four-caches", container(), 4, "no CPU limit; 4 physical cores on one NUMA node"),
        ("hybrid", container(), 6, "6 physical cores of one type"),
        ("hybrid", container(cpu="3500m"), 4, "limits.cpu 3500m, rounded up for Latency"),
        ("hybrid", container(cpu="500m"), 1, "limits.cpu 500m, below one CPU"),
    ],
)
def test_binding_gives_each_pod_the_numbers_of_its_node(space, node, one, expected, because, kubernetes, proves):
    space.apply(policy())
    space.create(on(node, one))
    bound = space.bound()
    assert bound["spec"]["nodeName"] == node
    assert threads(bound) == expected
    assert plan_of(bound).node == node
    assert because in plan_of(bound).because["intraOp"]
    proves("Kubernetes", str(kubernetes), "values at binding")


def test_a_pod_without_a_limit_has_the_smallest_nodes_number_until_it_is_bound(space):
    space.apply(policy())
    made = space.create(pod(container(), schedulingGates=[{"name": "test/wait"}]))
    assert threads(made) == 8  # four-caches has the fewest physical cores of the three


# What the scheduler writes of the two modes of dra-driver-cpu: a device for each CPU, or a group of which some are taken,
# here with the CPUs that an external allocator has chosen.
REQUEST = {"deviceClassName": "dra.cpu", "allocationMode": "ExactCount"}
INDIVIDUAL = (
    {**REQUEST, "count": 4},
    {"results": [{"pool": "hybrid", "device": f"cpudev{number:03}"} for number in range(4)]},
)
SHARE = {"shareID": "6a2b1a3c-6e2c-4a39-9d8b-0a2f3c1d4e5f"}
CHOSEN = {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": "2-5"}}
GROUPED = (
    {**REQUEST, "count": 1, "capacity": {"requests": {"dra.cpu/cpu": "4"}}},
    {
        "results": [{"pool": "hybrid", "device": "cpudevmachine", "consumedCapacity": {"dra.cpu/cpu": "4"}, **SHARE}],
        "config": [
            {"source": "FromClaim", "requests": ["cpus"], "opaque": {"driver": "dra.cpu", "parameters": CHOSEN}}
        ],
    },
)


# The API server keeps how much of a device is taken where DRAConsumableCapacity is on: from 1.36 on by default.
@pytest.mark.parametrize(("mode", "since"), [(INDIVIDUAL, (1, 34)), (GROUPED, (1, 36))], ids=["individual", "grouped"])
def test_the_cpus_of_a_pods_claim_are_planned_as_its_own_when_it_is_bound(space, kubernetes, mode, since):
    if kubernetes < since:
        pytest.skip(f"needs Kubernetes {since[0]}.{since[1]}")
    request, devices = mode
    space.apply(policy())
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "own-cpus"}}
    space.store({**claim, "spec": {"devices": {"requests": [{"name": "cpus", "exactly": request}]}}})
    results = [{"request": "cpus", "driver": "dra.cpu", **one} for one in devices["results"]]
    path = f"/apis/resource.k8s.io/v1/namespaces/{space.name}/resourceclaims/own-cpus/status"
    # Without a time the scheduler of 1.36 writes one, and is refused: the rest has been written by then.
    allocation = {"devices": {**devices, "results": results}, "allocationTimestamp": "2026-01-01T00:00:00Z"}
    space.client.merge(path, {"status": {"allocation": allocation}})
    one = container(cpu="4")
    one["resources"]["claims"] = [{"name": "cpus"}]
    made = space.create(on("hybrid", one, resourceClaims=[{"name": "cpus", "resourceClaimName": "own-cpus"}]))
    assert "exclusiveCPUs" not in plan_of(made).values
    bound = plan_of(space.bound())
    assert bound.values["exclusiveCPUs"] == 4
    assert bound.because["intraOp"].startswith("4 exclusive CPUs (DRA claim cpus)")
    if "config" in devices:
        assert set(cpuset.ids(cpuset.parse_list(bound.values["cpus"]))) <= {2, 3, 4, 5}


def test_the_legacy_bindings_path_gives_node_specific_values_too(space):
    space.apply(policy())
    made = space.create(pod(container(cpu="20"), schedulerName="nobody"))
    target = {"apiVersion": "v1", "kind": "Node", "name": "two-sockets"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "app"}, "target": target}
    space.client.post(f"/api/v1/namespaces/{space.name}/bindings", binding)
    assert threads(made) == 20
    assert threads(space.get()) == 16


def test_a_pod_whose_node_is_given_gets_its_numbers_at_create(space):
    space.apply(policy())
    made = space.create(pod(container(cpu="20"), nodeName="two-sockets"))
    assert threads(made) == 16
    assert plan_of(made).node == "two-sockets"


def test_a_pod_whose_node_is_unknown_to_raddle_keeps_its_safe_values(space):
    space.cluster.register_node("bare", cpus=8, labels={"node": "bare"})
    space.apply(policy())
    space.create(on("bare", container(cpu="6")))
    bound = space.bound()
    assert threads(bound) == 6
    assert plan_of(bound).node is None


# --- who is chosen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("namespace_label", "pod_label", "expected"),
    [
        ("enabled", None, True),
        ("enabled", "disabled", False),
        ("labelled", None, False),
        ("labelled", "enabled", True),
        ("disabled", "enabled", False),
    ],
)
def test_namespace_and_pod_labels_opt_in(space, namespace_label, pod_label, expected):
    space.apply(policy())
    space.label(**{env.INJECT_LABEL: namespace_label})
    labels = {env.INJECT_LABEL: pod_label} if pod_label else {}
    assert injected(space.create(pod(labels=labels))) is expected


def test_precedence_is_admin_then_named_then_namespaced_then_baseline(space):
    def cluster_policy(name, tier, limit):
        selector = {"matchLabels": {"kubernetes.io/metadata.name": space.name}}
        return policy(
            name, kind="ClusterInferenceThreading", tier=tier, namespaceSelector=selector, threads={"maxIntraOp": limit}
        )

    baseline, admin = (
        cluster_policy(f"{tier.lower()}-{space.name}", tier, n) for tier, n in (("Baseline", 1), ("Admin", 4))
    )
    body = container(cpu="8")
    try:
        space.client.apply(baseline)
        space.wait_for_webhook()
        assert threads(space.create(pod(body, name="one"))) == 1
        space.apply(policy("local", threads={"maxIntraOp": 2}), policy("named", priority=-1, threads={"maxIntraOp": 3}))
        assert threads(space.create(pod(body, name="two"))) == 2
        assert threads(space.create(pod(body, name="three", labels={env.POLICY_LABEL: "named"}))) == 3
        space.client.apply(admin)
        space.wait_for_webhook()
        made = space.create(pod(body, name="four", labels={env.POLICY_LABEL: "named"}))
        assert threads(made) == 4
        assert (
            made["metadata"]["annotations"][env.GOVERNED_BY] == f"ClusterInferenceThreading/{admin['metadata']['name']}"
        )
    finally:
        for one in (baseline, admin):
            space.client.delete(
                f"/apis/raddle.dev/v1alpha1/clusterinferencethreadings/{one['metadata']['name']}", missing_ok=True
            )


# --- the door -------------------------------------------------------------------------------------------------------

ON_AMD64 = {"nodeSelector": {"kubernetes.io/arch": "amd64"}}
NAMESPACE_OF_RESTRICTED = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
needs_native = pytest.mark.skipif("x86_64" not in delivery.architectures(), reason="no native shim was built")


def mounted(made, path=delivery.PRELOAD_FILE):
    """The volumes that the first container has mounted on a path."""
    return [m["name"] for m in made["spec"]["containers"][0].get("volumeMounts", []) if m["mountPath"] == path]


@needs_native
def test_by_the_door_a_restricted_namespace_admits_the_pod_and_the_files_are_those_of_its_architecture(
    shimmed, tmp_path
):
    shimmed.apply(policy())
    shimmed.client.merge(f"/api/v1/namespaces/{shimmed.name}", NAMESPACE_OF_RESTRICTED)
    read_only = {**SECURITY, "readOnlyRootFilesystem": True, "runAsUser": 1000}
    made = shimmed.create(pod(container(cpu="2", securityContext=read_only), **ON_AMD64))
    assert (mounted(made), mounted(made, delivery.MOUNT_PATH)) == ([SHIM_VOLUME], [SHIM_VOLUME])
    assert not {"PYTHONPATH", "PYTHONUSERBASE", "NODE_OPTIONS", "LD_PRELOAD"} & set(env_of(made))
    kubelet_env.environment(shimmed.client, made, "serve", tmp_path)
    folder, built = tmp_path / SHIM_VOLUME, Path(delivery.__file__).parent / "_native/x86_64/libraddle.so"
    assert (folder / "libraddle.so").read_bytes() == built.read_bytes()
    assert (folder / "raddle").stat().st_mode & 0o777 == 0o555
    assert (folder / "ld.so.preload").read_text() == "/opt/raddle/libraddle.so\n"
    with pytest.raises(ApiError, match="PodSecurity"):
        shimmed.create(pod(container(cpu="1"), name="loose"))


@needs_native
def test_the_label_of_a_pod_and_an_architecture_that_is_open_close_the_door(shimmed):
    shimmed.apply(policy())
    assert mounted(shimmed.create(pod(name="open", **ON_AMD64))) == [SHIM_VOLUME]
    made = shimmed.create(pod(name="closed", labels={env.DOOR_LABEL: "closed"}, **ON_AMD64))
    assert (mounted(made), injected(made)) == ([], True)
    made = shimmed.create(pod(name="another", nodeSelector={"kubernetes.io/arch": "s390x"}))
    assert (mounted(made), injected(made)) == ([], True)


AGENT = {"name": "oneagent-share", "mountPath": delivery.PRELOAD_FILE, "subPath": "ld.so.preload"}


def mounts_the_file(*, looks):
    """What another injector does to a pod: with `looks` it leaves a file alone that is mounted already."""

    def patch(body):
        spec = body["spec"]
        there = {mount["mountPath"] for mount in spec["containers"][0].get("volumeMounts", [])}
        if looks and delivery.PRELOAD_FILE in there:
            return []
        # The token's volume and its mount are there before webhooks are asked.
        return [
            {"op": "add", "path": "/spec/volumes/-", "value": {"name": AGENT["name"], "emptyDir": {}}},
            {"op": "add", "path": "/spec/containers/0/volumeMounts/-", "value": AGENT},
        ]

    return patch


@needs_native
@pytest.mark.parametrize(
    ("name", "looks", "keeps"),
    [("aa", False, AGENT["name"]), ("zz", True, SHIM_VOLUME), ("zz", False, AGENT["name"])],
    ids=["before ours", "after ours, and looks", "after ours, and does not look"],
)
def test_beside_another_injector_of_the_file_pods_are_admitted_and_one_has_it(
    shimmed, foreign_webhook, name, looks, keeps
):
    shimmed.apply(policy())
    foreign_webhook(name, shimmed.name, mounts_the_file(looks=looks))
    made = shimmed.create(pod(labels={"second": "yes"}, **ON_AMD64))
    assert injected(made)
    assert mounted(made) == [keeps]
    if keeps != SHIM_VOLUME:
        assert SHIM_VOLUME not in {volume["name"] for volume in made["spec"]["volumes"]}
        log = shimmed.raddle.webhook.log
        assert f"serve: DoorOccupied: volume {AGENT['name']} is mounted at /etc/ld.so.preload" in log


# --- what must not change -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("qos", "containers"),
    [
        ("Guaranteed", [guaranteed(cpu="2")]),
        ("Guaranteed", [guaranteed("one", "1"), guaranteed("two", "500m")]),
        ("Burstable", [container(cpu="2", request="1")]),
        ("BestEffort", [container()]),
    ],
)
def test_the_class_of_service_stays(space, qos, containers):
    space.apply(policy())
    made = space.create(pod(*containers))
    assert injected(made)
    assert made["status"]["qosClass"] == qos


def test_limit_ranges_and_quotas_admit_what_they_admitted(space):
    space.apply(policy())
    limits = {"type": "Container", "max": {"cpu": "4"}, "min": {"cpu": "100m"}, "maxLimitRequestRatio": {"cpu": "2"}}
    hard = {"limits.cpu": "2", "requests.cpu": "1"}
    for kind, name, spec in (
        ("LimitRange", "bounds", {"limits": [limits]}),
        ("ResourceQuota", "quota", {"hard": hard}),
    ):
        metadata = {"name": name, "namespace": space.name}
        space.client.apply({"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec})
    quota = f"/api/v1/namespaces/{space.name}/resourcequotas/quota"
    wait(lambda: space.client.get(quota).get("status", {}).get("hard"))
    made = space.create(pod(container(cpu="2", request="1")))
    assert injected(made)
    with pytest.raises(ApiError, match="exceeded quota"):
        space.create(pod(container(cpu="200m", request="100m"), name="another"))


def test_pod_level_limits_are_shared_by_the_containers(space):
    space.apply(policy())
    body = pod(container("one"), container("two"), resources={"limits": {"cpu": "6"}, "requests": {"cpu": "2"}})
    made = space.create(body)
    assert [threads(made, name) for name in ("one", "two")] == [3, 3]


# --- what is never trusted ------------------------------------------------------------------------------------------


def test_a_copied_pod_is_decided_anew(space):
    space.apply(policy())
    space.create(pod(container(cpu="4"), schedulingGates=[{"name": "test/wait"}]))
    # The pod has only been admitted: debug copies its spec, with our variables in it.
    space.cluster.kubectl("debug", "app", "--namespace", space.name, "--copy-to", "copy", "--image", "registry.example/debug:1",
                          "--container", "debugger", "--same-node=false", "--attach=false")  # fmt: skip
    copied = space.get("copy")
    assert threads(copied) == 4
    assert len([e for e in copied["spec"]["containers"][0]["env"] if e["name"] == env.PLAN]) == 1


def test_our_marks_on_an_incoming_pod_are_overwritten_or_removed(space):
    forged = {
        env.THREADS_PREFIX + "serve": "999",
        env.PLAN_PREFIX + "serve": "{}",
        env.SHIM_PREFIX + "gone": "v=1;intra_op=999",
        env.GOVERNED_BY: "InferenceThreading/somebody-elses",
    }
    body = pod(container(cpu="2"), labels={env.INJECTED_LABEL: "true"}, annotations=forged)
    ungoverned = space.create({**body, "metadata": {**body["metadata"], "name": "ungoverned"}})
    assert not injected(ungoverned)
    assert not [key for key in ungoverned["metadata"].get("annotations", {}) if "raddle.dev" in key]
    space.apply(policy())
    made = space.create(body)
    assert threads(made) == 2
    assert env.THREADS_PREFIX + "serve" not in made["metadata"]["annotations"]
    assert env.SHIM_PREFIX + "gone" not in made["metadata"]["annotations"]


def test_a_pod_whose_annotations_leave_no_room_is_created_unchanged(space):
    space.apply(policy())
    made = space.create(pod(container(cpu="2"), annotations={"big": "x" * 245_000}))
    assert not injected(made)
    nearly = space.create(
        pod(container(cpu="2"), name="nearly", annotations={"big": "x" * 235_000}, nodeSelector={"node": "hybrid"})
    )
    assert injected(nearly)
    bound = space.bound("nearly")
    assert plan_of(bound).node == "hybrid"
    # The kubelet can still report on it: the API server validates the whole object at a status update.
    space.cluster.mark_running(space.name, "nearly")


def test_a_webhook_that_changes_limits_later_makes_raddle_decide_again(space, foreign_webhook):
    space.apply(policy())
    limit = {"op": "add", "path": "/spec/containers/0/resources/limits/cpu", "value": "8"}
    foreign_webhook("zz", space.name, lambda _: [limit])
    made = space.create(pod(container(cpu="2"), labels={"second": "yes"}))
    assert made["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "8"
    assert threads(made) == 8
    names = [entry["name"] for entry in made["spec"]["containers"][0]["env"]]
    assert len(names) == len(set(names))
