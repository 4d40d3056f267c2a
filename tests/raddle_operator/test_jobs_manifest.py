"""The Job that measures a workload's container on one node."""

import json

import pytest
import yaml
from support.measured import DIGEST, WINNER, tuning_object
from support.tunings import SERVER, tuning

from cluster import objects
from raddle_operator.injection.budget import container_budget, is_guaranteed, pod_resources
from raddle_operator.injection.volumes import ShimDelivery
from raddle_operator.jobs import supervisor
from raddle_operator.jobs.changes import Start
from raddle_operator.jobs.manifest import FOLDER, Settings, Wanted, manifest
from raddle_operator.jobs.run import job_from_object, job_name
from raddle_operator.jobs.template import template_of
from raddle_operator.objects.pods import pod_from_object
from raddle_operator.objects.quantities import parse
from raddle_tuner.commands.tuner import _budget as counts_with

SETTINGS = Settings(image="registry.example/raddle-tuner:1", command=("/bin/sh", "-c", "kill $$"))
DELIVERY = ShimDelivery(
    config_map="raddle-shim-abc", items={"x86_64": ({"key": "ld.so.preload", "path": "ld.so.preload"},)}
)
REQUEST = {**SERVER, "request": {"configMap": {"name": "requests", "key": "one"}}}
SERVING = objects.guaranteed(
    command=["serve", "--port", "8080"],
    ports=[{"containerPort": 8080, "hostPort": 8080}],
    env=[{"name": "MODEL", "value": "$(HOME)/ranker.onnx"}],
    envFrom=[{"secretRef": {"name": "keys"}}],
    livenessProbe={"httpGet": {"path": "/", "port": 8080}},
    lifecycle={"preStop": {"exec": {"command": ["sleep", "5"]}}},
    securityContext={"runAsUser": 1000, "runAsNonRoot": True, "capabilities": {"add": ["IPC_LOCK"]}},
    volumeMounts=[
        {"name": "models", "mountPath": "/models"},
        {"name": "store", "mountPath": "/store"},
        {"name": "identity", "mountPath": "/identity"},
    ],
)
PROJECTED = [{"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "region"}}]
POD = {
    "serviceAccountName": "ranker",
    "hostNetwork": True,
    "priorityClassName": "production",
    "nodeSelector": {"pool": "cpu"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "imagePullSecrets": [{"name": "registry"}],
    "securityContext": {"fsGroup": 1000},
    "affinity": {"podAntiAffinity": {}},
    "initContainers": [
        objects.container("fetch", volumeMounts=[{"name": "models", "mountPath": "/models"}]),
        objects.container("migrate", volumeMounts=[{"name": "store", "mountPath": "/store"}]),
        objects.container("proxy", restartPolicy="Always", volumeMounts=[{"name": "models", "mountPath": "/m"}]),
    ],
    "volumes": [
        {"name": "models", "emptyDir": {}},
        {"name": "store", "persistentVolumeClaim": {"claimName": "store"}},
        {"name": "identity", "projected": {"sources": PROJECTED}},
        {"name": "others", "secret": {"secretName": "others"}},
    ],
}
WORKLOAD = objects.deployment("ranker", 3, SERVING, objects.container("metrics"), **POD)
FIRST = Start(node="node-1", attempt=1)
DEFAULTS = {"policy": None, "reserve_cpus": None, "shim": "Auto", "delivery": DELIVERY, "architecture": "x86_64"}


def made(start=FIRST, *, workload=WORKLOAD, settings=SETTINGS, **more):
    """The Job; `more` has fields of what is wanted, and of the tuning's spec."""
    fields = {name: more.pop(name, value) for name, value in DEFAULTS.items()}
    tuned = tuning_object(**more)
    template = template_of(tuned, workload)
    return manifest(Wanted(tuning=tuned, obj=tuning(**more), template=template, start=start, **fields), settings)


def pod_spec(job):
    return job["spec"]["template"]["spec"]


def told(job):
    """What the tuner reads: the kubelet makes one `$` of two."""
    [entry] = pod_spec(job)["containers"][0]["env"]
    return json.loads(entry["value"].replace("$$", "$"))


def test_the_whole_of_it(golden):
    golden("tuning-job.yaml", yaml.safe_dump(json.loads(json.dumps(made(server=REQUEST))), sort_keys=False))


def test_no_service_finds_its_pods_and_nothing_of_the_server_is_reached_from_outside():
    job = made()
    assert "app" not in job["metadata"]["labels"] | job["spec"]["template"]["metadata"]["labels"]
    spec = pod_spec(job)
    assert not {"hostNetwork", "priorityClassName"} & spec.keys()
    assert not {"ports", "livenessProbe", "lifecycle"} & spec["initContainers"][-1].keys()


def test_no_token_of_a_service_account_is_in_the_pod():
    spec = pod_spec(made())
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountToken" not in json.dumps(spec)


@pytest.mark.parametrize(
    "volume",
    [
        {"hostPath": {"path": "/srv"}},
        {"nfs": {"server": "files", "path": "/srv"}},
        {"csi": {"driver": "files.example"}},
        {"persistentVolumeClaim": {"claimName": "store"}},
    ],
    ids=lambda volume: next(iter(volume)),
)
def test_volumes_that_outlive_the_pod_are_mounted_read_only_in_all_its_containers(volume):
    mounts = [{"name": name, "mountPath": f"/{name}"} for name in ("kept", "own")]
    volumes = [{"name": "kept", **volume}, {"name": "own", "emptyDir": {}}]
    containers = {"initContainers": [objects.container("fill", volumeMounts=mounts)], "volumes": volumes}
    workload = objects.deployment("ranker", 1, {**SERVING, "volumeMounts": mounts}, **containers)
    for container in pod_spec(made(workload=workload))["initContainers"]:
        read_only = {mount["name"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
        assert (read_only["kept"], read_only["own"]) == (True, False)


def test_of_its_init_containers_those_run_that_fill_a_volume_for_the_measured_one():
    assert [one["name"] for one in pod_spec(made())["initContainers"]] == ["fetch", "serve"]


ALONE = {**SERVING, "volumeMounts": []}
BURSTS = {**ALONE, "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}
EQUAL = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}}
SHARES_POD = {"resources": {"limits": {"cpu": "8"}}}


@pytest.mark.parametrize(
    ("containers", "pod", "guaranteed"),
    [
        ([ALONE], {}, True),
        ([ALONE, objects.guaranteed("metrics")], {}, True),
        ([BURSTS], {}, False),
        ([ALONE, objects.container("metrics")], {}, False),
        ([ALONE], {"initContainers": [objects.container("migrate")]}, False),
        ([ALONE], SHARES_POD, False),
    ],
    ids=["alone", "beside another", "less asked for", "beside one without limits", "after one without", "pod-level"],
)
def test_the_pod_is_guaranteed_where_all_of_the_workloads_pod_is(containers, pod, guaranteed):
    found = made(workload=objects.deployment("ranker", 1, *containers, **pod))
    assert is_guaranteed(pod_from_object({"metadata": {}, "spec": pod_spec(found)})) is guaranteed
    assert told(found)["guaranteed"] is guaranteed


@pytest.mark.parametrize(
    ("container", "pod", "non_root"),
    [
        ({}, {}, True),
        ({"runAsUser": 7}, {"runAsUser": 0}, True),
        ({}, {"runAsUser": 0}, None),
        ({"runAsUser": 0}, {}, None),
    ],
    ids=["its image's user", "the container's", "root of the pod's", "root of the container's"],
)
def test_the_tuner_is_not_root_unless_the_measured_container_is_said_to_be(container, pod, non_root):
    workload = objects.deployment("ranker", 1, {**ALONE, "securityContext": container}, securityContext=pod)
    assert pod_spec(made(workload=workload))["containers"][0]["securityContext"].get("runAsNonRoot") is non_root


def test_a_guaranteed_tuner_asks_for_no_cpu_of_its_own():
    found = pod_spec(made(workload=objects.deployment("ranker", 1, ALONE)))["containers"][0]["resources"]
    assert parse(found["limits"]["cpu"]) % 1, "an exclusive CPU of its own might not be admitted"


@pytest.mark.parametrize("cpus", ["1", "4"])
def test_under_another_limit_a_guaranteed_pod_stays_one(cpus):
    workload = objects.deployment("ranker", 1, {**ALONE, "resources": EQUAL})
    spec = pod_spec(made(workload=workload, resources={"limits": {"cpu": cpus}}))
    assert spec["initContainers"][-1]["resources"]["requests"]["cpu"] == cpus
    assert is_guaranteed(pod_from_object({"metadata": {}, "spec": spec}))


def test_the_tuner_is_told_what_to_measure():
    image = f"registry.example/app@{DIGEST}"
    workload = objects.deployment("ranker", 1, {**SERVING, "image": image})
    policy = objects.policy()
    found = told(made(workload=workload, policy=policy, resources={"limits": {"cpu": "2"}}))
    assert found["tuning"]["metadata"] == {"namespace": "shop", "name": "ranker", "uid": "tuning-uid", "generation": 1}
    assert found["tuning"]["spec"] == tuning(resources={"limits": {"cpu": "2"}})["spec"]
    assert found["container"]["name"] == "serve"
    assert found["container"]["command"] == ["serve", "--port", "8080"]
    assert found["container"]["env"] == [{"name": "MODEL", "value": "$(HOME)/ranker.onnx"}]
    assert found["container"]["resources"]["limits"]["cpu"] == "2"
    assert "/etc/ld.so.preload" in {mount["mountPath"] for mount in found["container"]["volumeMounts"]}
    assert (found["policy"], found["image"], found["confirm"]) == (policy, DIGEST, None)


@pytest.mark.parametrize(
    ("own", "of_pod", "others", "reserve_cpus", "measured", "planned"),
    [
        # The pod's limit, of which the other container has a part.
        ({}, "4", {"limits": {"cpu": "100m"}}, None, "4", 3.9),
        ({}, "4", {}, None, "4", 2.0),
        ({"requests": {"cpu": "3"}}, "4", {}, None, "4", 3.0),
        ({}, "4", {"limits": {"cpu": "1"}}, 0.2, "4", 2.0),
        ({}, "4", {"limits": {"cpu": "500m"}}, 0.2, "4", 3.0),
        ({}, "1", {"limits": {"cpu": "500m"}}, 0.2, "1", 0.4),
        # A limit of its own, which stays what the container has.
        ({"limits": {"cpu": "4"}}, None, {}, 0.2, "4", 3.0),
        ({"limits": {"cpu": "4"}}, None, {}, None, "4", 4.0),
        ({"limits": {"cpu": "2"}}, "4", {}, None, "2", 2.0),
        ({}, None, {}, 0.2, None, None),
    ],
)
def test_the_tuner_counts_the_cpus_that_the_workloads_pods_count(own, of_pod, others, reserve_cpus, measured, planned):
    serving = {**objects.container("serve", command=["serve"]), "resources": own}
    beside = {**objects.container("metrics"), "resources": others}
    resources = {"resources": {"limits": {"cpu": of_pod}}} if of_pod else {}
    workload = objects.deployment("ranker", 3, serving, beside, **resources)
    there = pod_from_object({"metadata": {}, "spec": workload["spec"]["template"]["spec"]})
    real = container_budget(there.containers[0], pod_resources(there, reserve_cpus))
    assert real.quota_cpus == (None if planned is None else pytest.approx(planned))
    job = made(workload=workload, reserve_cpus=reserve_cpus)
    assert counts_with(told(job)["container"], reserve_cpus).quota_cpus == real.quota_cpus
    [one] = [one for one in pod_spec(job)["initContainers"] if one["name"] == "serve"]
    assert one["resources"].get("limits", {}).get("cpu") == measured


def test_the_measured_container_takes_orders_where_the_tuner_gives_them():
    spec = pod_spec(made(settings=Settings(image="tuner", command=supervisor.command(FOLDER))))
    assert spec["initContainers"][-1]["command"] == [part.replace("$", "$$") for part in supervisor.command(FOLDER)]
    assert FOLDER in {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}


def test_another_node_is_told_which_settings_to_compare_with_the_plan():
    assert told(made(Start(node="b", attempt=1, winner=WINNER)))["confirm"] == dict(WINNER.settings)


def test_where_the_door_is_closed_there_is_nothing_of_the_shim():
    workload = objects.deployment("ranker", 1, SERVING)
    workload["spec"]["template"]["metadata"]["labels"]["raddle.dev/door"] = "closed"
    assert "raddle-shim" not in json.dumps(pod_spec(made(workload=workload)))


@pytest.mark.parametrize("case", [{"shim": "None"}, {"delivery": ShimDelivery()}], ids=["not wanted", "not to be had"])
def test_without_a_shim_there_is_no_volume_of_it(case):
    assert "raddle-shim" not in json.dumps(pod_spec(made(**case))["volumes"])


def test_a_volume_that_each_replica_has_for_itself_is_an_empty_one():
    mounts = [{"name": "data", "mountPath": "/data"}]
    workload = objects.deployment("ranker", 1, {**SERVING, "volumeMounts": mounts})
    workload["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]
    assert {"name": "data", "emptyDir": {}} in pod_spec(made(workload=workload))["volumes"]


def name_of(tuned, start):
    return job_name(tuned.name, tuned.uid, tuned.generation, start.node, start.attempt)


def test_the_same_pod_has_the_same_name_and_no_other_has_it():
    tuned = tuning_object()
    starts = [Start(node=node, attempt=attempt) for node in ("a", "b") for attempt in (1, 2)]
    names = [name_of(one, start) for one in (tuned, tuning_object(generation=2)) for start in starts]
    assert len(set(names)) == len(names)
    assert names[0] == name_of(tuned, Start(node="a", attempt=1, winner=WINNER))


def test_a_job_that_was_made_is_known_again_and_a_copy_of_it_is_not():
    job = made()
    job["metadata"] |= {"uid": "job-uid", "creationTimestamp": "2027-01-15T08:00:00Z"}
    found = job_from_object(job)
    assert (found.owner, found.tuning, found.node) == ("tuning-uid", "ranker", "node-1")
    copied = {**job, "metadata": {**job["metadata"], "name": "copy"}}
    assert job_from_object(copied) is None


def test_a_jobs_name_can_be_a_label_of_its_pod():
    name = job_name("ranker." * 8 + "cpu", "u", 1, "a", 1)
    assert len(name) <= 63
    assert "." not in name
