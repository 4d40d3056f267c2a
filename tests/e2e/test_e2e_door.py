"""Pods that were let in by the door, and whose ConfigMap is then gone or has lost a part when the kubelet mounts it.

A pod is admitted while a gate keeps it from its node. In between its namespace is opted out, so that the controller
does not bring back the ConfigMap, which is taken away or written again.
"""

import json
import time

import pytest
from support import real_pods as pods

from cluster.objects import pod
from e2e.images import VENV_IMAGE, VENV_PYTHON
from e2e.scenarios import GUEST, HARDENED, HOST, HOSTNAME, IN_RESTRICTED, PATIENCE_SECONDS
from e2e.waiting import wait
from raddle import delivery, env
from raddle_operator.injection.volumes import SHIM_LABEL, SHIM_VOLUME

pytestmark = [pytest.mark.e2e, pytest.mark.flaky(reruns=1, rerun_except="E2EError"), pytest.mark.timeout(3600)]

STEP_SECONDS = 60.0
SETTLED_SECONDS = 2.0
# What glibc's loader says of a library that its file names and that is not there.
COMPLAINT = f"ERROR: ld.so: object '{delivery.LIBRARY}' from {delivery.PRELOAD_FILE} cannot be preloaded"
# What a process is, as far as it can tell itself.
PROGRAM = """
import json, os, sys
descriptors = sorted(os.listdir("/proc/self/fd"))
print(json.dumps({"path": sys.path, "modules": sorted(sys.modules), "arguments": sys.argv, "descriptors": descriptors,
                  "environment": dict(os.environ)}))
"""
# Which keys of the ConfigMap are left; None: it is gone itself.
DAMAGES = {
    "gone": None,
    "without-library": lambda key: not key.endswith(".so"),
    "without-line": lambda key: key != delivery.PRELOAD_KEY,
    "without-python": lambda key: key.endswith(".so") or key == delivery.PRELOAD_KEY,
}


@pytest.fixture(scope="module", params=[HOST, GUEST])
def stock(request, host):
    """A node, and what the process is there without Raddle."""
    if request.param == GUEST:
        request.getfixturevalue("guest")
    with pods.without_raddle(host, "door") as space:
        space.create(application(request.param))
        return request.param, process(log_at_the_end(space, request.param))


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_pod_whose_shim_is_damaged_once_it_was_let_in_is_the_process_that_it_is_without_raddle(damage, stock, host):
    node, expected = stock
    manifest = application(node, schedulingGates=[{"name": "e2e.raddle.dev/wait"}])
    with pods.governed(host, f"door-{damage}", IN_RESTRICTED) as space:
        pods.wait_for_shim(space, manifest, has_door)
        admitted = space.create(manifest)
        assert has_door(admitted)
        space.client.merge(f"/api/v1/namespaces/{space.name}", {"metadata": {"labels": {env.INJECT_LABEL: "disabled"}}})
        damage_config_map(space, DAMAGES[damage])
        space.client.merge(f"{space.pods_path}/app", {"spec": {"schedulingGates": None}})
        log = log_at_the_end(space, node)
    given = {one["name"] for one in admitted["spec"]["containers"][0].get("env", [])}
    assert process(log, leaving_out=given) == expected
    others = [line for line in log.splitlines() if not line.startswith("{")]
    assert len(others) == (damage == "without-library"), others
    assert all(COMPLAINT in line for line in others), others


def application(node, **spec):
    """A pod in a virtual environment, that says what its process is and ends."""
    container = {
        "name": "app",
        "image": VENV_IMAGE,
        "imagePullPolicy": "Never",
        "command": [VENV_PYTHON, "-c", PROGRAM],
        "resources": {"limits": {"cpu": "500m"}, "requests": {"cpu": "0"}},
        "securityContext": HARDENED,
    }
    placed = {"restartPolicy": "Never", "nodeSelector": {HOSTNAME: node}}
    return pod(container, automountServiceAccountToken=False, enableServiceLinks=False, **placed, **spec)


def has_door(one):
    mounts = one["spec"]["containers"][0].get("volumeMounts", [])
    return (SHIM_VOLUME, delivery.PRELOAD_FILE) in [(mount["name"], mount["mountPath"]) for mount in mounts]


def damage_config_map(space, keep):
    """Take the shim's ConfigMap away, and write it again with these keys."""
    config_maps = f"/api/v1/namespaces/{space.name}/configmaps"

    def shims():
        return space.client.get(config_maps, labelSelector=SHIM_LABEL)["items"]

    (whole,) = shims()

    def gone():
        # The controller may not have heard of the label yet, and bring it back once.
        space.client.delete(f"{config_maps}/{whole['metadata']['name']}", missing_ok=True)
        time.sleep(SETTLED_SECONDS)
        return not shims()

    wait(gone, f"{space.name} has no ConfigMap", STEP_SECONDS)
    if keep is not None:
        left = {kind: {k: v for k, v in whole.get(kind, {}).items() if keep(k)} for kind in ("data", "binaryData")}
        space.client.post(config_maps, {**whole, **left, "metadata": {"name": whole["metadata"]["name"]}})


def log_at_the_end(space, node):
    """The pod's log once it has ended well."""

    def ended():
        phase = space.get()["status"].get("phase")
        return phase if phase in {"Succeeded", "Failed"} else None

    phase = wait(ended, f"the pod of {space.name} has ended", PATIENCE_SECONDS if node == GUEST else STEP_SECONDS * 4)
    log = pods.log(space, space.get())
    assert phase == "Succeeded", log
    return log


def process(log, leaving_out=()):
    """What the process said of itself, without the variables that its pod's spec gives it, and its host name."""
    found = json.loads(next(line for line in log.splitlines() if line.startswith("{")))
    for name in ("HOSTNAME", *leaving_out):
        found["environment"].pop(name, None)
    return found
