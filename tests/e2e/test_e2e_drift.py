"""What runs otherwise than planned on a real node, and that each of Raddle's readers names it with its cause and fix."""

import html
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from support import real_pods as pods

from cluster.client import ApiError
from e2e import release
from e2e.images import APP_IMAGE, PYTHON
from e2e.scenarios import HOST, HOSTNAME
from e2e.waiting import wait
from raddle_operator.objects import nodereport
from raddle_operator.objects.nodereport import Cause

pytestmark = [pytest.mark.e2e, pytest.mark.flaky(reruns=1, rerun_except="E2EError"), pytest.mark.timeout(3600)]

SECONDS = 300.0
AGENT_PORT = 8082
LIMIT = "2"
# A program as people write it; 0 is the runtime's own count.
SESSION = """
import time
import numpy as np
import onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = {threads}
session = ort.InferenceSession("/app/model.onnx", options, providers=["CPUExecutionProvider"])
given = session.get_inputs()[0]
value = np.zeros(given.shape, np.float32)
while True:
    session.run(None, {{given.name: value}})
    time.sleep(0.05)
"""
SETS_16 = SESSION.format(threads=16)
PLAIN = SESSION.format(threads=0)
# CPU 1 is the only one that is not kept back: nobody needs to be on CPU 0.
BOUND = """
import os
os.sched_setaffinity(0, {0})
while True:
    pass
"""
SPUN_ON = {0: 3, 1: 1}
SPINNING = f"""
import os, threading
def spin(cpu):
    os.sched_setaffinity(0, {{cpu}})
    while True:
        pass
for cpu, threads in {SPUN_ON}.items():
    for _ in range(threads):
        threading.Thread(target=spin, args=(cpu,)).start()
"""


# --- the five -------------------------------------------------------------------------------------------------------


def test_a_count_in_the_code_is_named(host, record_property):
    with pods.governed(host, "sets-16") as space:
        (one,) = started(space, application("app", SETS_16))
        found = named(space, one, Cause.CODE_SETS_IT)
    assert re.search("the code sets 16 threads .* 1 was planned; limit 2 CPUs", found.detail)
    assert "remove the count from the code" in found.fix
    record_property("e2e drift", told(found))


def test_a_process_that_the_shim_does_not_reach_is_named(host, record_property):
    with pods.governed(host, "not-reached") as space:
        (one,) = started(space, application("app", SETS_16, "-I"))
        found = named(space, one, Cause.NOT_REACHED)
    assert re.search("no shim has spoken in process 1 .*, which has onnxruntime: .* 1 was planned", found.detail)
    assert "python -I" in found.fix
    record_property("e2e drift", told(found))


def test_a_container_that_was_resized_in_place_is_named(host, record_property):
    with pods.governed(host, "resized") as space:
        (one,) = started(space, application("app", PLAIN, limit="500m"))
        change = {"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "1"}}}]}}
        space.cluster.kubectl(
            *("-n", space.name, "patch", "pod", "app", "--subresource", "resize", "--patch", json.dumps(change))
        )
        found = named(space, one, Cause.RESIZED)
    assert found.detail == "planned with a limit of 0.5 CPUs, the limit is 1 now"
    assert "restart the pod" in found.fix
    record_property("e2e drift", told(found))


def test_a_cpuset_that_the_kubelet_has_made_smaller_is_named(host, record_property):
    with pods.governed(host, "cpuset", threads={"intraOp": 2}) as space:
        (one,) = started(space, application("app", PLAIN))
        whole = {"cpu": "1", "memory": "256Mi"}
        neighbour = application("neighbour", "import time; time.sleep(1e6)")
        neighbour["spec"]["containers"][0]["resources"] = {"requests": whole, "limits": whole}
        # Its agent has seen the CPUs that it had.
        before = wait(lambda: reported(space, one), "a report of the pod", SECONDS)
        started(space, neighbour)
        found = named(space, one, Cause.CPUSET_CHANGED)
    assert (before.cpuset, before.findings) == ("0-1", ())
    assert found.detail == "1 CPU (0) for 2 threads that were planned; they were 0-1"
    assert "restart the pod" in found.fix
    record_property("e2e drift", told(found))


def test_two_containers_that_are_bound_to_the_same_cpu_are_named(host, record_property):
    with pods.governed(host, "shared") as space:
        one, other = started(space, application("left", BOUND), application("right", BOUND))
        left, right = named(space, one, Cause.SHARED_CORES), named(space, other, Cause.SHARED_CORES)
        drawn = wait(lambda: agreeing(space, one, other), "the picture agrees with /proc", SECONDS)
    assert f"shares CPUs 0 with {space.name}/right app: 2 threads of both for 1 CPU" in left.detail
    assert f"shares CPUs 0 with {space.name}/left app" in right.detail
    assert "take away what binds both" in left.fix
    assert [sorted(threads) for threads in drawn] == [[0], [0]]
    record_property("e2e drift", told(left))


# --- the picture ----------------------------------------------------------------------------------------------------


def test_the_picture_of_a_node_agrees_with_proc_read_beside_it(host, record_property):
    with pods.governed(host, "picture") as space:
        (one,) = started(space, application("app", SPINNING))
        (drawn,) = wait(lambda: agreeing(space, one), "the picture agrees with /proc", SECONDS)
    assert drawn == SPUN_ON
    record_property("e2e drift", f"the picture and /proc: threads by CPU are {drawn}")


def agreeing(space, *ones):
    """For each pod CPU -> threads that ran there last, once the picture and /proc say the same; None while not."""
    ids = [wait(lambda one=one: container_id(space, one), "the container runs", SECONDS) for one in ones]
    before = [threads_of(one) for one in ids]
    picture = raddle(space, "top", "node", HOST, "-o", "json")
    after = [threads_of(one) for one in ids]
    letters = {found["uid"]: found["letter"] for found in picture["containers"]}
    drawn = [
        {cpu["cpu"]: cpu["threads"][letter] for cpu in picture["cpus"] if letter in cpu["threads"]}
        for letter in (letters.get(one["metadata"]["uid"]) for one in ones)
    ]
    read = [
        Counter(cpu for task, (ticks, cpu) in later.items() if ticks > earlier.get(task, (0, 0))[0])
        for earlier, later in zip(before, after, strict=True)
    ]
    return drawn if all(read) and drawn == read else None


def container_id(space, one):
    (status,) = space.get(one["metadata"]["name"])["status"].get("containerStatuses") or [{}]
    return status.get("containerID", "").rpartition("//")[2] if "running" in status.get("state", {}) else ""


def threads_of(container):
    """Task -> its CPU time in ticks and the CPU that it was on last, fields 14, 15 and 39 of /proc/*/task/*/stat."""
    found = {}
    for process in Path("/proc").iterdir():
        try:
            if not process.name.isdecimal() or container not in (process / "cgroup").read_text():
                continue
            for task in (process / "task").iterdir():
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                found[task.name] = (int(fields[11]) + int(fields[12]), int(fields[36]))
        except OSError:
            continue
    return found


# --- who names it ---------------------------------------------------------------------------------------------------


def named(space, one, cause):
    """The finding, once explain, top, the metric, the policy's status, scan and the pages all name it."""
    name, uid = one["metadata"]["name"], one["metadata"]["uid"]
    missing = ["explain"]

    def everywhere():
        found = finding(explain(space, name), cause)
        if found is not None:
            missing[:] = [reader for reader, names in readers(space, name, uid, found).items() if not names]
        return found if not missing else None

    try:
        wait(lambda: in_status(space, name, cause), f"the policy's status names {cause} of {name}", SECONDS)
        # A finding may be missing from one report, of which the next has it again.
        return wait(everywhere, f"all name {cause} of {name}", SECONDS)
    except Exception as error:
        error.add_note(f"not named by: {', '.join(missing)}")
        error.add_note(json.dumps(explain(space, name), indent=1)[:3000])
        error.add_note(pods.log(space, one)[-1000:])
        raise


def readers(space, name, uid, found):
    """Who must name it -> whether he does, with the fix where there is room for one."""
    (top,) = [one for one in raddle(space, "top", "pods", "-n", space.name, "-o", "json")["items"] if one["uid"] == uid]
    rows = raddle(space, "scan", "-n", space.name, "--no-usage", "-o", "json")["workloads"]
    scanned = next(row for row in rows if row["workload"] == f"pod/{name}")
    page = text(space, "scan", "-n", space.name, "--no-usage", "-o", "html")
    picture = text(space, "top", "node", HOST, "-o", "svg")
    labels = f'namespace="{space.name}",pod="{name}",container="app",cause="{found.cause}"'.split(",")
    metric = [line for line in metrics(space).splitlines() if line.startswith("raddle_container_findings{")]
    return {
        "top pods": finding(top, found.cause) is not None and finding(top, found.cause).fix == found.fix,
        "top pods, the table": found.cause in text(space, "top", "pods", f"pod/{name}", "-n", space.name),
        "scan": (scanned["cause"], scanned["fix"]["text"]) == (found.cause, found.fix),
        "the scan's page": all(html.escape(one) in page for one in (found.cause, found.fix)),
        "the picture": found.cause in picture and name in picture,
        "the page of nodes": found.cause in text(space, "top", "nodes", "-o", "html"),
        "metric": any(all(label in line for label in labels) and line.endswith(" 1.0") for line in metric),
        "explain, for people": found.fix in text(space, "explain", f"pod/{name}", "-n", space.name),
    }


def finding(container, cause):
    """The container's finding of this cause, None where it has none."""
    said = nodereport.from_document({"node": "n", "level": "Processes", "containers": [container]}).containers[0]
    return next((one for one in said.findings if one.cause == cause), None)


def in_status(space, name, cause):
    worst = space.policy_status().get("running", {}).get("worst", [])
    return any((one["pod"], one["cause"]) == (name, cause) for one in worst)


def explain(space, name):
    """What `raddle explain` says runs in the pod's container."""
    containers = raddle(space, "explain", f"pod/{name}", "-n", space.name, "-o", "json")["running"]["containers"]
    return containers[0] if containers else {"namespace": space.name, "pod": name, "uid": "", "name": "app"}


def raddle(space, *arguments):
    return json.loads(text(space, *arguments))


def text(space, *arguments):
    """What the command prints, as a user of this cluster runs it."""
    command = [sys.executable, "-m", "raddle_operator", *arguments]
    environ = space.cluster.environment()
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    return done.stdout


def metrics(space):
    """The metrics of the node's agent."""
    return str(asked(space, "metrics").get("text", ""))


def reported(space, one):
    """What the node's agent says of the pod's container, once it has seen it run; None while it says nothing."""
    try:
        report = nodereport.from_document(asked(space, "v1/report"))
    except ApiError:
        return None
    return next((seen for seen in report.containers if seen.uid == one["metadata"]["uid"] and seen.cpuset), None)


def asked(space, path):
    """The answer of the node's agent, by way of the API server."""
    where = {"labelSelector": "app.kubernetes.io/component=agent", "fieldSelector": f"spec.nodeName={HOST}"}
    agents = f"/api/v1/namespaces/{release.NAMESPACE}/pods"
    (agent,) = space.client.get(agents, **where)["items"]
    return space.client.get(f"{agents}/{agent['metadata']['name']}:{AGENT_PORT}/proxy/{path}")


def told(found):
    return f"{found.cause}: {found.detail}; fix: {found.fix}"


# --- pods -----------------------------------------------------------------------------------------------------------


def application(name, program, *options, limit=LIMIT):
    container = {
        "name": "app",
        "image": APP_IMAGE,
        "imagePullPolicy": "Never",
        "command": [PYTHON, *options, "-c", program],
        # A node of two CPUs, one of which is kept back, has none to spare.
        "resources": {"requests": {"cpu": "0"}, "limits": {"cpu": limit}},
    }
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {HOSTNAME: HOST},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def started(space, *manifests):
    """The pods as they are stored, once each has its shim and runs."""
    pods.wait_for_shim(space, manifests[0])
    made = [space.create(one) for one in manifests]
    for one in made:
        assert pods.has_volume(one), one["metadata"].get("annotations")
        wait(lambda one=one: container_id(space, one), f"{one['metadata']['name']} runs", SECONDS)
    return made
