"""Where a tuning's pods can run, and what is measured there."""

import pytest
from support.measured import BIG, SMALL, tuning_object
from support.tunings import IMAGE

from cluster import objects
from raddle_operator.jobs.places import Node, node_from_object, places
from raddle_operator.jobs.template import RefusedError, template_of
from raddle_operator.objects.selectors import compile_selector

POOL = {"pool": "cpu"}
TAINT = ("dedicated", "ml", "NoSchedule")


def affinity(*terms):
    required = {"nodeSelectorTerms": list(terms)}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def expression(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("node", "pod_spec", "why"),
    [
        (Node(labels=POOL), {}, ""),
        (Node(labels=POOL, cordoned=True), {}, "cordoned"),
        (Node(labels=POOL, unready_s=1), {}, "not Ready"),
        (Node(labels=POOL, taints=(TAINT,)), {}, "its taint dedicated=ml:NoSchedule"),
        (Node(labels=POOL, taints=(TAINT,)), {"tolerations": [{"key": "dedicated", "value": "ml"}]}, ""),
        (Node(labels=POOL, taints=(TAINT,)), {"tolerations": [{"key": "dedicated", "value": "db"}]}, "taint"),
        (Node(labels=POOL, taints=(TAINT,)), {"tolerations": [{"operator": "Exists"}]}, ""),
        (Node(labels=POOL, taints=(TAINT,)), {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}, "taint"),
        (Node(labels=POOL), {"nodeSelector": POOL}, ""),
        (Node(labels=POOL), {"nodeSelector": {"pool": "gpu"}}, "nodeSelector"),
        (Node(labels=POOL), affinity(expression("pool", "In", "cpu", "gpu")), ""),
        (Node(labels=POOL), affinity(expression("pool", "NotIn", "cpu")), "node affinity"),
        (Node(labels=POOL), affinity(expression("gpu", "DoesNotExist")), ""),
        (Node(labels=POOL), affinity(expression("gpu", "Exists"), expression("pool", "Exists")), ""),
        (Node(labels={"cores": "8"}), affinity(expression("cores", "Gt", "4")), ""),
        (Node(labels={"cores": "4"}), affinity(expression("cores", "Gt", "4")), "node affinity"),
        (Node(labels={"cores": "4"}), affinity(expression("cores", "Lt", "8")), ""),
        (Node(labels={}), affinity({"matchFields": expression("metadata.name", "In", "n")["matchExpressions"]}), ""),
        (Node(labels={}), affinity({}), "node affinity"),
    ],
)
def test_a_node_can_be_measured_where_the_workloads_pods_can_run(node, pod_spec, why):
    found = places(compile_selector(None), pod_spec, {"n": node}, {"n": BIG})
    assert why in found.left_out.get("n", "")
    assert bool(found.classes) is not bool(why)


def test_nodes_are_grouped_by_class_and_those_without_a_topology_are_left_out():
    there = {name: Node(labels=POOL) for name in "dcba"} | {"x": Node(labels={})}
    classes = {"a": BIG, "b": SMALL, "d": BIG, "x": BIG}
    found = places(compile_selector({"matchLabels": POOL}), {}, there, classes)
    assert found.classes == {BIG.title: ("a", "d"), SMALL.title: ("b",)}
    assert found.left_out == {"c": "it has no valid NodeCPUTopology"}


def test_a_node_is_read():
    unknown = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "2027-01-15T09:00:00Z"}
    obj = {
        "metadata": {"name": "n", "labels": POOL, "creationTimestamp": "2027-01-15T08:00:00Z"},
        "spec": {"unschedulable": True, "taints": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]},
        "status": {"conditions": [unknown]},
    }
    assert node_from_object(obj) == Node(labels=POOL, taints=(TAINT,), cordoned=True, unready_s=1_800_003_600)
    obj["status"]["conditions"][0]["status"] = "True"
    assert node_from_object(obj).unready_s is None
    assert node_from_object({"metadata": obj["metadata"]}).unready_s == 1_800_000_000


def serving(**more):
    return objects.container(cpu="2", request="1500m", **{"command": ["serve"], **more})


def test_the_named_container_is_measured_under_the_limit_that_is_asked_for():
    reference = {"kind": "Deployment", "name": "ranker", "container": "serve"}
    tuned = tuning_object(workload=reference, resources={"limits": {"cpu": "500m"}})
    workload = objects.deployment("ranker", 2, objects.container("proxy"), serving())
    found = template_of(tuned, workload)
    assert found.container["resources"] == {"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}}
    assert found.labels == {"app": "ranker"}


def test_without_a_name_the_first_container_is_measured_under_its_own_limit():
    found = template_of(tuning_object(), objects.deployment("ranker", 2, serving(), objects.container("proxy")))
    assert found.container["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "1500m"}}


def test_a_container_that_has_the_pods_limit_is_measured_under_that():
    workload = objects.deployment("ranker", 2, objects.container(command=["serve"]), resources={"limits": {"cpu": "3"}})
    assert template_of(tuning_object(), workload).container["resources"]["limits"] == {"cpu": "3"}


def test_an_image_alone_is_measured():
    found = template_of(tuning_object(**IMAGE, server=None, model="/m.onnx"), None)
    limits = {"limits": {"cpu": "4"}}
    assert found.container == {"name": "measured", "image": "registry.example/ranker:1", "resources": limits}


@pytest.mark.parametrize(
    ("workload", "changes", "reason", "says"),
    [
        (None, {}, "WorkloadNotFound", "there is no deployment/ranker"),
        (
            objects.deployment("ranker", 1, serving()),
            {"workload": {"kind": "Deployment", "name": "ranker", "container": "server"}},
            "ContainerNotFound",
            "no container server, only serve",
        ),
        (objects.deployment("ranker", 1, serving(command=None)), {}, "CommandUnknown", "set spec.server.command"),
        (objects.deployment("ranker", 1, serving(name="tuner")), {}, "Invalid", "the name of Raddle's own container"),
    ],
)
def test_what_can_not_be_measured_says_what_to_do(workload, changes, reason, says):
    with pytest.raises(RefusedError) as refused:
        template_of(tuning_object(**changes), workload)
    assert refused.value.reason == reason
    assert says in refused.value.message
