"""The door: /etc/ld.so.preload by a second mount. Where it is closed and why, and what a second look makes of a pod."""

import copy
from dataclasses import replace

import pytest
from support.injections import ITEMS, KNOWN, SHIM, decide, inject, withheld

from cluster import objects
from raddle.cpus.topology import Machine
from raddle.planning.policy import WITHOUT_SHIM
from raddle.planning.wire import read_plan_text
from raddle_operator.injection.decide import Facts
from raddle_operator.objects.reasons import SkipReason

DOOR = "/etc/ld.so.preload"
MIXED = Facts(architectures=frozenset({"x86_64", "aarch64"}))
THEIRS = {"name": "oneagent", "mountPath": DOOR, "subPath": "ld.so.preload"}


def container(name="serve", **parts):
    limits = {"cpu": "4", "memory": "1Gi"}
    return {"name": name, "image": "example.test/serve:1", "resources": {"limits": limits}, **parts}


def pod(*containers, **more):
    return objects.pod(*(containers or [container()]), name="p", **more)


def limited(limits):
    return pod(container(resources={"limits": {"cpu": "4", **limits}}))


def mounted(patched):
    """Container -> the volumes that are mounted on the file."""
    found = {}
    for one in patched["spec"]["containers"]:
        found[one["name"]] = [m["name"] for m in one.get("volumeMounts", []) if m["mountPath"] == DOOR]
    return found


def shim_items(patched):
    volumes = {volume["name"]: volume for volume in patched["spec"].get("volumes", [])}
    return volumes.get("raddle-shim", {}).get("configMap", {}).get("items")


@pytest.mark.parametrize(
    "command", [None, ["python", "serve.py"], ["node", "."], ["java", "-jar", "a.jar"], ["sh", "-c", "exec ./serve"]]
)
def test_behind_the_door_every_command_is_reached(command):
    obj = pod(container(command=command)) if command else pod()
    patched, decision = inject(obj)
    assert withheld(decision) == []
    assert mounted(patched) == {"serve": ["raddle-shim"]}
    assert read_plan_text(patched["metadata"]["annotations"]["plan.raddle.dev/serve"]).budget.shim is True


def test_the_files_are_those_of_the_pods_architecture():
    patched, _ = inject(pod(nodeSelector={"kubernetes.io/arch": "arm64"}), facts=MIXED)
    assert shim_items(patched) == ITEMS[::-1]
    patched["spec"]["nodeSelector"] = {"kubernetes.io/arch": "amd64"}
    assert shim_items(inject(patched, facts=MIXED)[0]) == ITEMS


@pytest.mark.parametrize("path", [DOOR, DOOR + "/", "/etc", "/etc/", "etc", DOOR + "/x", "//etc/./ld.so.preload"])
def test_a_mount_at_above_or_below_the_file_occupies_the_door_of_the_container(path):
    theirs = {"name": "agent", "mountPath": path}
    obj = pod(container(volumeMounts=[theirs]), container("b"), volumes=[{"name": "agent", "emptyDir": {}}])
    patched, decision = inject(obj)
    ((reason, detail),) = withheld(decision, "serve")
    assert reason is SkipReason.DOOR_OCCUPIED
    assert detail.startswith("volume agent is mounted at /")
    assert patched["spec"]["containers"][0]["volumeMounts"] == [theirs]
    assert withheld(decision, "b") == []
    assert mounted(patched) == {"serve": ["agent"] if path == DOOR else [], "b": ["raddle-shim"]}


@pytest.mark.parametrize("path", [DOOR, "/opt/raddle"])
def test_a_block_device_at_a_path_of_ours_is_not_mounted_over(path):
    volume = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
    devices = [{"name": "disk", "devicePath": path}]
    obj = pod(container(volumeDevices=devices), volumes=[volume])
    patched, decision = inject(obj)
    assert withheld(decision)[0][0] is SkipReason.DOOR_OCCUPIED
    assert "disk is mounted at" in withheld(decision)[0][1]
    assert patched["spec"]["containers"][0].get("volumeMounts") is None


def at(path):
    return {"volumeMounts": [{"name": "d", "mountPath": path}]}


@pytest.mark.parametrize(
    "obj",
    [
        *(pod(container(**at(path))) for path in ("/etc/ld.so.preload.d", "/etc/ld.so.conf", "/etc/ssl", "/etcetera")),
        # It gets nothing itself.
        pod(container(), container("istio-proxy", volumeMounts=[THEIRS])),
        # Whole GPUs are no shared ones.
        limited({"nvidia.com/gpu": "1", "amd.com/gpu": "1"}),
        pod(labels={"raddle.dev/door": "open"}),
    ],
)
def test_a_neighbour_of_what_closes_the_door_is_no_hindrance(obj):
    patched, decision = inject(obj)
    assert withheld(decision) == []
    assert mounted(patched)["serve"] == ["raddle-shim"]
    assert mounted(patched).get("istio-proxy", ["oneagent"]) == ["oneagent"]


@pytest.mark.parametrize(
    ("obj", "plugin"),
    [
        (limited({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}), "HAMi"),
        (limited({"nvidia.com/gpumem-percentage": "50"}), "HAMi"),
        (limited({"nvidia.com/gpucores": "30"}), "HAMi"),
        (limited({"nvidia.com/priority": "1"}), "HAMi"),
        (pod(container(), container("b", resources={"limits": {"nvidia.com/gpumem": "1"}})), "HAMi"),
        (pod(schedulerName="hami-scheduler"), "HAMi"),
        (pod(annotations={"hami.io/vgpu-node": "n"}), "HAMi"),
        (pod(annotations={"nvidia.com/vgpu-mode": "hami-core"}), "HAMi"),
        (pod(annotations={"huawei.com/vnpu-mode": "hami-core"}), "HAMi"),
        (pod(annotations={"4pd.io/vgpu-node": "n"}), "k8s-vgpu-scheduler"),
        (limited({"nvidia.com/vgpu-memory": "1"}), "vgpu-manager"),
        (limited({"volcano.sh/vgpu-number": "1"}), "Volcano vGPU"),
        (pod(annotations={"volcano.sh/vgpu-mode": "hami-core"}), "Volcano vGPU"),
        (pod(labels={"tensor-fusion.ai/enabled": "true"}), "tensor-fusion"),
        (pod(annotations={"tensor-fusion.ai/vram-limit": "1Gi"}), "tensor-fusion"),
        (pod(schedulerName="tensor-fusion-scheduler"), "tensor-fusion"),
    ],
)
def test_who_shares_gpus_by_that_file_keeps_it(obj, plugin):
    patched, decision = inject(obj)
    ((reason, detail), *_) = withheld(decision)
    assert reason is SkipReason.DOOR_OCCUPIED
    assert f"is {plugin}'s, which mounts {DOOR}" in detail
    assert not any(mounted(patched).values())


@pytest.mark.parametrize(
    ("obj", "more", "reason", "words"),
    [
        (pod(labels={"raddle.dev/door": "closed"}), {}, SkipReason.DOOR_CLOSED, "the pod's label raddle.dev/door"),
        (pod(), {"door": False}, SkipReason.DOOR_CLOSED, "the chart's value shim.door"),
        (pod(), {"facts": Facts()}, SkipReason.ARCHITECTURE_UNKNOWN, "no node is known"),
        (pod(), {"facts": MIXED}, SkipReason.ARCHITECTURE_UNKNOWN, "set nodeSelector kubernetes.io/arch"),
        (pod(nodeSelector={"kubernetes.io/arch": "s390x"}), {}, SkipReason.SHIM_MISSING, "no native shim for s390x"),
        (pod(), {"facts": replace(KNOWN, config_map_present=False)}, SkipReason.SHIM_MISSING, "has no ConfigMap"),
        (pod(), {"shim": replace(SHIM, config_map=None)}, SkipReason.SHIM_MISSING, "the operator has no shim"),
    ],
)
def test_where_the_door_is_closed_the_reason_says_by_what_and_the_counts_are_given(obj, more, reason, words):
    patched, decision = inject(obj, **more)
    ((found, detail),) = withheld(decision)
    assert found is reason
    assert words in detail
    assert detail.endswith(f"; {WITHOUT_SHIM}")
    assert mounted(patched) == {"serve": []}
    assert shim_items(patched) is None
    assert "ORT_INTRA_OP_NUM_THREADS" in str(patched["spec"]["containers"][0]["env"])
    # Spinning can't be controlled without a shim, so a CPU stays free of it.
    assert patched["metadata"]["annotations"]["threads.raddle.dev/serve"] == "3"


def test_a_container_that_gets_nothing_since_the_door_is_closed_is_told_so():
    decision = decide(pod(container(envFrom=[{"configMapRef": {"name": "c"}}], volumeMounts=[THEIRS])))
    assert decision.skip.reason == SkipReason.ENV_FROM_PRESENT
    assert "; DoorOccupied: volume oneagent is mounted at /etc/ld.so.preload" in decision.skip.detail


def test_a_policy_without_the_shim_has_no_door():
    patched, decision = inject(pod(), {"shim": "None"})
    assert withheld(decision) == []
    assert mounted(patched) == {"serve": []}


@pytest.mark.parametrize(("spec", "more"), [({"shim": "None"}, {}), ({}, {"door": False})])
def test_an_allocator_is_skipped_with_a_reason_where_the_shim_is_not(spec, more):
    _, decision = inject(pod(), {**spec, "allocator": "Jemalloc"}, **more)
    assert withheld(decision)[-1] == (SkipReason.SHIM_MISSING, "allocator Jemalloc is preloaded by the shim")
    assert withheld(inject(pod(), {"allocator": "Jemalloc"})[1]) == []


@pytest.mark.parametrize("path", ["/opt/raddle", "/opt", "/opt/raddle/python"])
def test_a_container_whose_own_files_stand_in_the_way_has_no_half_of_a_door(path):
    patched, decision = inject(pod(container(**at(path)), container("b")))
    assert [reason for reason, _ in withheld(decision)] == [SkipReason.DOOR_OCCUPIED]
    assert mounted(patched) == {"serve": [], "b": ["raddle-shim"]}


def required(*terms):
    """Required node affinity with one term for each list of architectures."""
    arch = {"key": "kubernetes.io/arch", "operator": "In"}
    listed = [{"matchExpressions": [arch | {"values": names}]} for names in terms]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": listed}}}


ARM = Machine(online=0b11, cores=(1, 2), architecture="aarch64")


@pytest.mark.parametrize(
    ("placed", "facts", "expected"),
    [
        ({}, Facts(architectures=frozenset({"aarch64"})), "aarch64"),
        ({}, MIXED, None),
        ({}, Facts(), None),
        ({"nodeSelector": {"kubernetes.io/arch": "arm64"}}, MIXED, "aarch64"),
        ({"nodeSelector": {"kubernetes.io/arch": "amd64"}}, Facts(), "x86_64"),
        ({"affinity": required(["amd64"], ["amd64"])}, MIXED, "x86_64"),
        ({"affinity": required(["amd64"], ["arm64"])}, MIXED, None),
        ({"affinity": required(["amd64", "arm64"])}, MIXED, None),
        ({"nodeName": "n1"}, replace(MIXED, machines={"n1": ARM}), "aarch64"),
        ({"nodeName": "n2"}, replace(MIXED, machines={"n1": ARM}), None),
    ],
)
def test_the_architecture_is_the_nodes_the_pods_wish_or_the_only_one(placed, facts, expected):
    patched, decision = inject(pod(**placed), facts=facts)
    if expected is None:
        assert [reason for reason, _ in withheld(decision)] == [SkipReason.ARCHITECTURE_UNKNOWN]
    assert shim_items(patched) == (SHIM.items[expected] if expected else None)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_ours_is_withdrawn_where_another_injector_has_mounted_the_file_since(place):
    patched, _ = inject(pod())
    patched["spec"]["containers"][0]["volumeMounts"].insert(place, THEIRS)
    patched["spec"]["volumes"].append({"name": "oneagent", "emptyDir": {}})
    again, decision = inject(patched)
    assert mounted(again) == {"serve": ["oneagent"]}
    assert withheld(decision)[0][0] is SkipReason.DOOR_OCCUPIED
    assert "oneagent" in withheld(decision)[0][1]
    assert [volume["name"] for volume in again["spec"]["volumes"]] == ["oneagent"]


def test_a_door_that_stood_open_closes_with_the_label_and_a_policy():
    patched, _ = inject(pod())
    patched["metadata"]["labels"]["raddle.dev/door"] = "closed"
    again, _ = inject(patched)
    assert again["spec"].get("volumes", []) == []
    assert mounted(again) == {"serve": []}


def test_mounts_of_ours_that_somebody_has_bent_are_made_right():
    patched, _ = inject(pod())
    bent = copy.deepcopy(patched)
    mounts = bent["spec"]["containers"][0]["volumeMounts"]
    mounts[1]["subPath"] = "python"
    mounts.append(dict(mounts[1]))
    assert inject(bent)[0] == patched


@pytest.mark.parametrize("spec", [{}, {"shim": "None"}])
@pytest.mark.parametrize("command", [["python", "s.py"], ["node", "s.js"], ["java", "S"], ["./serve"]])
@pytest.mark.parametrize("door", [True, False])
def test_the_variable_holds_the_count_that_is_right_where_no_shim_is(spec, command, door):
    patched, _ = inject(pod(container(command=command)), spec, door=door)
    annotations = patched["metadata"]["annotations"]
    open_door = door and "shim" not in spec
    assert annotations.get("threads.raddle.dev/serve") == (None if open_door else "3")
    recorded = read_plan_text(annotations["plan.raddle.dev/serve"])
    assert recorded.budget.shim is open_door
    assert recorded.values["intraOp"] == (4 if open_door else 3)
