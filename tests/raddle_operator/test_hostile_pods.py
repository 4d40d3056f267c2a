"""Pods made to cost time: as large as a request may be, each part many times over. None may hold other tenants' up.

The webhook decides one pod at a time, before the API server has validated it, so any shape reaches it.
"""

import time

import jsonpatch
import pytest
from support.injections import KNOWN, SHIM

from cluster import objects
from raddle import env
from raddle.planning import families
from raddle_operator.injection.decide import Settings, decide_object
from raddle_operator.injection.matching import Policies
from raddle_operator.objects.policy import policy_from_object

# What is quadratic in one of these takes a minute and more, even on a fast machine; what is linear takes some 0.5 s.
AT_MOST_CPU_S = 8.0
MIB = 2**20
POLICY = policy_from_object(objects.policy("p", "ns", runtimes=list(families.NAMES)))
REST = ("ns", {env.INJECT_LABEL: "enabled"}, Policies([POLICY]), KNOWN, Settings(shim=SHIM))
COPY = {"name": "raddle-shim", "configMap": {"name": "raddle-shim-old", "optional": True}}
SHIM_MOUNT = {"name": "raddle-shim", "mountPath": "/opt/raddle"}


def ours(container):
    path = f"metadata.annotations['{env.SHIM_PREFIX}{container}']"
    return {"name": env.PLAN, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def pod(annotations=None, labels=None, **container):
    metadata = {"name": "p", "annotations": annotations or {}, "labels": labels or {}}
    first = {"name": "serve", "image": "x", "resources": {"limits": {"cpu": "2"}}, **container}
    return {"metadata": metadata, "spec": {"containers": [first]}}


def with_spec(obj, **spec):
    return {**obj, "spec": {**obj["spec"], **spec}}


def containers(count, field="containers", **more):
    made = [{"name": f"c{n}", "image": "x", "resources": {"limits": {"cpu": "1"}}, **more} for n in range(count)]
    return with_spec(pod(), **{field: made})


HOSTILE = {
    "an annotation of a MiB": lambda: pod({"a": "x" * MIB}),
    "as many annotations": lambda: pod({f"k{n}": "" for n in range(100_000)}),
    "as many of our own": lambda: pod({f"{env.THREADS_PREFIX}{n}": "" for n in range(30_000)}),
    "as many labels": lambda: pod(labels={f"k{n}": "" for n in range(100_000)}),
    "arguments": lambda: pod(args=["--workers"] * 100_000),
    "a script": lambda: pod(command=["sh", "-c", "gunicorn -w 4;" * 70_000]),
    "Java's options": lambda: pod(env=[{"name": "JAVA_TOOL_OPTIONS", "value": "-XX:ActiveProcessorCount" * 40_000}]),
    "a list of what is ours": lambda: pod(env=[{"name": env.LITERALS, "value": "A=1;" * 250_000}]),
    "variables": lambda: pod(env=[{"name": f"V{n}", "value": ""} for n in range(30_000)]),
    "one variable": lambda: pod(env=[{"name": "PYTHONPATH", "value": "a"}] * 30_000),
    "variables beside a changed order of ours": lambda: pod(
        env=[*[{"name": f"V{n}", "value": ""} for n in range(30_000)], ours("serve")]
    ),
    "references that are ours": lambda: pod(env=[ours("serve")] * 9_000),
    "mounts": lambda: pod(volumeMounts=[{"name": f"v{n}", "mountPath": f"/opt/raddle/{n}"} for n in range(20_000)]),
    "mounts of the door": lambda: with_spec(
        pod(volumeMounts=[{**SHIM_MOUNT, "mountPath": "/etc/ld.so.preload"}] * 20_000), volumes=[COPY]
    ),
    "shares of a GPU": lambda: pod(resources={"limits": {"cpu": "2", **{f"k{n}": "1" for n in range(60_000)}}}),
    "volumes of our name": lambda: with_spec(pod(volumeMounts=[SHIM_MOUNT] * 20_000), volumes=[COPY] * 9_000),
    "volumes": lambda: with_spec(pod(), volumes=[{"name": f"v{n}", "emptyDir": {}} for n in range(30_000)]),
    "containers": lambda: containers(12_000),
    "sidecars": lambda: containers(12_000, "initContainers", restartPolicy="Always"),
    "containers of one name": lambda: with_spec(pod(), containers=pod()["spec"]["containers"] * 12_000),
    "injected containers": lambda: with_spec(
        containers(4_000, env=[ours("c1")], volumeMounts=[SHIM_MOUNT]), volumes=[COPY]
    ),
    "digits": lambda: pod(resources={"limits": {"cpu": "1" * MIB}}),
    "an exponent": lambda: pod(resources={"limits": {"cpu": "1e" + "9" * 20}}),
    "an image": lambda: pod(image="a/" * 500_000),
    "a node selector": lambda: with_spec(pod(), nodeSelector={f"k{n}": "" for n in range(60_000)}),
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_a_pod_of_the_largest_size_is_decided_in_time_linear_in_it(shape):
    obj = HOSTILE[shape]()
    began_s = time.process_time()
    decide_object(obj, *REST)
    assert time.process_time() - began_s < AT_MOST_CPU_S


def test_the_order_of_many_variables_makes_no_second_patch():
    obj = pod(env=[{"name": f"V{n}", "value": ""} for n in range(20_000)])
    patched = jsonpatch.apply_patch(obj, decide_object(obj, *REST).operations)
    entries = patched["spec"]["containers"][0]["env"]
    reordered = with_spec(patched, containers=[{**patched["spec"]["containers"][0], "env": entries[::-1]}])
    began_s = time.process_time()
    again = decide_object(reordered, *REST)
    assert time.process_time() - began_s < AT_MOST_CPU_S
    assert not any(operation["path"].endswith("/env") for operation in again.operations)
