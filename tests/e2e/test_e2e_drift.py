"""What runs otherwise than planned on real nodes, and that each of Raddle's readers names it with its cause and fix."""

import contextlib
import html
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest
from support import real_pods as pods

from cluster.client import ApiError
from e2e import release
from e2e.images import APP_IMAGE, PYTHON
from e2e.scenarios import GUEST, HOST, HOSTNAME
from e2e.waiting import wait
from raddle import env
from raddle.cpus import cpuset
from raddle_operator.agent.watching import REACHED_AFTER_S
from raddle_operator.objects import nodereport
from raddle_operator.objects.nodereport import Cause

pytestmark = [pytest.mark.e2e, pytest.mark.flaky(reruns=1, rerun_except="E2EError"), pytest.mark.timeout(3600)]

SECONDS = pods.LOOKS_SECONDS
AGENT_PORT, DATAGRAMS_PORT = 8082, 8126
LIMIT = "2"
NUMBER = re.compile(r"\d+")
# On a machine of two CPUs, one of which is kept back, 2 CPUs of limit are one thread's.
PLANNED = {HOST: 1, GUEST: 2}
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
# No count of either machine, which would be cut (raddle.process.machine_counts): a choice of the user.
SETS_12 = SESSION.format(threads=12)
PLAIN = SESSION.format(threads=0)
# A CPU beside those that nobody needs to be on.
BOUND_TO = {HOST: 0, GUEST: 3}
BOUND = """
import os
os.sched_setaffinity(0, {{{cpu}}})
while True:
    pass
"""
# CPU -> threads; on the virtual node they are of two NUMA nodes.
SPUN_ON = {HOST: {0: 3, 1: 1}, GUEST: {3: 3, 12: 1}}
SPINNING = """
import os, threading
def spin(cpu):
    os.sched_setaffinity(0, {{cpu}})
    while True:
        pass
for cpu, threads in {spun_on}.items():
    for _ in range(threads):
        threading.Thread(target=spin, args=(cpu,)).start()
"""
# Of all processes of the node whose control groups have one of these names: task -> CPU time in ticks and the CPU that
# it was on last, fields 14, 15 and 39 of /proc/*/task/*/stat.
READ_PROC = """
import json, pathlib, sys
found = {name: {} for name in sys.argv[1:]}
for process in pathlib.Path("/proc").iterdir():
    try:
        groups = (process / "cgroup").read_text() if process.name.isdecimal() else ""
        for name in [name for name in found if name in groups]:
            for task in (process / "task").iterdir():
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                found[name][task.name] = int(fields[11]) + int(fields[12]), int(fields[36])
    except OSError:
        continue
print(json.dumps(found))
"""


@pytest.fixture(params=[HOST, GUEST])
def node(request):
    """Each node by its name, once it is there."""
    request.getfixturevalue("guest" if request.param == GUEST else "host")
    return request.param


# --- the five -------------------------------------------------------------------------------------------------------


def test_a_count_in_the_code_is_named(host, node, record_property):
    with pods.governed(host, "sets-12") as space:
        (one,) = started(space, node, application(space, node, "app", SETS_12))
        found = named(space, node, one, Cause.CODE_SETS_IT)
        assert sessions(space, node, one) == [("onnxruntime", 12, "code")]
    assert re.fullmatch(rf"the code sets 12 threads for onnxruntime of .*, {planned(node)}; limit 2 CPUs", found.detail)
    assert "remove the count from the code" in found.fix
    record_property(f"e2e drift {node}", told(found))


def test_a_process_that_the_shim_does_not_reach_is_named(host, node, record_property):
    with pods.governed(host, "not-reached") as space:
        # Silence of a process that is older says nothing: its shim may have spoken before the agent listened.
        wait(lambda: age_s(agent(space, node)) > REACHED_AFTER_S + 5, "its agent listens", SECONDS[node])
        (one,) = started(space, node, application(space, node, "app", SETS_12, "-I"))
        found = named(space, node, one, Cause.NOT_REACHED)
    assert re.search(
        rf"no shim has reported from .*, which has onnxruntime: .*, {planned(node)}; limit 2 CPUs", found.detail
    )
    assert "python -I" in found.fix
    record_property(f"e2e drift {node}", told(found))


def test_a_container_that_was_resized_in_place_is_named(host, node, record_property):
    with pods.governed(host, "resized") as space:
        (one,) = started(space, node, application(space, node, "app", PLAIN, limit="500m"))
        assert wait(lambda: sessions(space, node, one), "the shim has spoken", SECONDS[node]) == [
            ("onnxruntime", 1, "plan")
        ]
        change = {"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "1"}}}]}}
        space.cluster.kubectl(
            *("-n", space.name, "patch", "pod", "app", "--subresource", "resize", "--patch", json.dumps(change))
        )
        found = named(space, node, one, Cause.RESIZED)
        wait(lambda: quota(space, node, one) == 1, "the kubelet has followed", SECONDS[node])
    assert found.detail == "planned with a limit of 0.5 CPUs; the limit is now 1"
    assert "restart the pod" in found.fix
    record_property(f"e2e drift {node}", told(found))


def test_a_cpuset_that_the_kubelet_has_made_smaller_is_named(host, node, record_property):
    whole, threads, taken = {HOST: ("0-1", 2, "1"), GUEST: ("0-15", 15, "2")}[node]
    with pods.governed(host, "cpuset", threads={"intraOp": threads}) as space:
        (one,) = started(space, node, application(space, node, "app", PLAIN, limit=str(threads)))
        # Its agent has seen the CPUs that it had.
        before = wait(lambda: reported(space, node, one), "a report of the pod", SECONDS[node])
        neighbour = application(space, node, "neighbour", "import time; time.sleep(1e6)")
        alone = {"cpu": taken, "memory": "256Mi"}
        neighbour["spec"]["containers"][0]["resources"] = {"requests": alone, "limits": alone}
        started(space, node, neighbour)
        found = named(space, node, one, Cause.CPUSET_CHANGED)
        # It never had more: the policy asks for so many threads.
        beside = wait(lambda: reported(space, node, space.get("neighbour")), "a report of the neighbour", SECONDS[node])
        assert beside.findings == ()
        status, text = pods.inside(space, one, "app", PYTHON, "-c", "import os; print(*os.sched_getaffinity(1))")
        assert status == 0, text
    left = cpuset.of([int(cpu) for cpu in text.split()])
    assert cpuset.count(left) == cpuset.count(cpuset.parse_list(whole)) - int(taken)
    assert (before.cpuset, before.findings) == (whole, ())
    cpus = f"{cpuset.count(left)} CPU{'s' * (cpuset.count(left) > 1)} ({cpuset.format_list(left)})"
    assert found.detail == f"{cpus} for {threads} threads that were planned; they were {whole}"
    assert "the policy requires that many" in found.fix
    record_property(f"e2e drift {node}", told(found))


def test_two_containers_that_are_bound_to_the_same_cpu_are_named(host, node, record_property):
    cpu = BOUND_TO[node]
    program = BOUND.format(cpu=cpu)
    with pods.governed(host, "shared") as space, proc_of(host, node) as read:
        one, other = started(space, node, *(application(space, node, name, program) for name in ("left", "right")))
        left, right = (named(space, node, each, Cause.SHARED_CORES) for each in (one, other))
        drawn = wait(lambda: agreeing(space, node, read, one, other), "the picture agrees with /proc", SECONDS[node])
    assert f"shares CPUs {cpu} with {space.name}/right app: 2 threads of both for 1 CPU" in left.detail
    assert f"shares CPUs {cpu} with {space.name}/left app" in right.detail
    assert "remove what binds both" in left.fix
    assert drawn == [{cpu: 1}, {cpu: 1}]
    record_property(f"e2e drift {node}", told(left))


# --- the picture ----------------------------------------------------------------------------------------------------


def test_the_picture_of_a_node_agrees_with_proc_read_beside_it(host, node, record_property):
    program = SPINNING.format(spun_on=SPUN_ON[node])
    with pods.governed(host, "picture") as space, proc_of(host, node) as read:
        (one,) = started(space, node, application(space, node, "app", program))
        (drawn,) = wait(lambda: agreeing(space, node, read, one), "the picture agrees with /proc", SECONDS[node])
        print(text(space, "kubectl", "raddle", "top", "node", node))
    assert drawn == SPUN_ON[node]
    record_property(f"e2e drift {node}", f"the picture, its SVG and /proc: threads by CPU are {drawn}")


def agreeing(space, node, read, *ones):
    """For each pod CPU -> threads that ran there last, once both pictures and /proc say the same; None while not."""
    ids = [wait(lambda one=one: container_id(space, one), "the container runs", SECONDS[node]) for one in ones]
    before = read(ids)
    drawn = [by_cpu(found, one) for found in (as_json(space, node), as_svg(space, node)) for one in ones]
    after = read(ids)
    seen = [
        Counter(cpu for task, (ticks, cpu) in after[name].items() if ticks > before[name].get(task, (0, 0))[0])
        for name in ids
    ]
    return [dict(one) for one in seen] if all(seen) and drawn == [*seen, *seen] else None


def as_json(space, node):
    """(namespace, pod, CPU) -> threads, of the picture for programs."""
    picture = json.loads(text(space, "raddle", "top", "node", node, "-o", "json"))
    names = {one["letter"]: (one["namespace"], one["pod"]) for one in picture["containers"]}
    return {(*names[letter], cpu["cpu"]): n for cpu in picture["cpus"] for letter, n in cpu["threads"].items()}


def as_svg(space, node):
    """The same, of the picture for people."""
    picture = html.unescape(text(space, "raddle", "top", "node", node, "-o", "svg"))
    names = dict(re.findall(r"\b([A-Z]\d*): ([-a-z0-9]+/[-a-z0-9]+) app: ", picture))
    cells = re.findall(r'<g class="cpu [^"]*" data-cpu="(\d+)"><title>([^<]*)</title>', picture)
    return {
        (*names[letter].split("/"), int(cpu)): int(threads)
        for cpu, said in cells
        for letter, threads in re.findall(r"\b([A-Z]\d*) (\d+) threads?", said)
    }


def by_cpu(drawn, one):
    space, name = one["metadata"]["namespace"], one["metadata"]["name"]
    return {cpu: threads for (namespace, pod, cpu), threads in drawn.items() if (namespace, pod) == (space, name)}


@contextlib.contextmanager
def proc_of(site, node):
    """Yields what reads a node's /proc, of these containers: a pod beside them that sees the node's processes."""
    with pods.without_raddle(site, "proc") as space:
        manifest = application(space, node, "proc", "import time; time.sleep(1e6)")
        manifest["spec"]["hostPID"] = True
        one = space.create(manifest)
        wait(lambda: container_id(space, one), "the reader of /proc runs", SECONDS[node])

        def read(containers):
            status, said = pods.inside(space, one, "app", PYTHON, "-c", READ_PROC, *containers)
            assert status == 0, said
            return json.loads(said)

        yield read


def container_id(space, one):
    (status,) = space.get(one["metadata"]["name"])["status"].get("containerStatuses") or [{}]
    return status.get("containerID", "").rpartition("//")[2] if "running" in status.get("state", {}) else ""


# --- who names it ---------------------------------------------------------------------------------------------------


def named(space, node, one, cause):
    """The finding, once all who should name it do; what they say is printed."""
    name = one["metadata"]["name"]
    said = {}

    def in_status():
        worst = space.policy_status().get("running", {}).get("worst", [])
        return any((each["pod"], each["cause"]) == (name, cause) for each in worst)

    def everywhere():
        report = reported(space, node, one)
        found = next((each for each in (report.findings if report else ()) if each.cause == cause), None)
        if found is None:
            return None
        said.clear()
        said.update((reader, (is_named, shown)) for reader, is_named, shown in readers(space, node, one, found))
        return found if all(is_named for is_named, _ in said.values()) else None

    try:
        wait(in_status, f"the policy's status names {cause} of {name}", SECONDS[node])
        # A finding may be missing from one report, of which the next has it again.
        found = wait(everywhere, f"all name {cause} of {name}", SECONDS[node])
    except Exception as error:
        missing = [f"{reader}: {shown[-2000:]}" for reader, (is_named, shown) in said.items() if not is_named]
        error.add_note(f"not named by {len(missing)} of {len(said)}:\n" + "\n".join(missing))
        error.add_note(json.dumps(asked(space, node, "v1/report"), indent=1)[:4000])
        error.add_note(pods.log(space, one)[-1000:])
        raise
    print(f"\n=== {cause} on {node}")
    for reader, (_, shown) in said.items():
        print(f"--- {reader}\n{shown.rstrip()}")
    return found


def readers(space, node, one, found):
    """Yields who must name it, whether he does, with the fix where there is room for one, and what he says."""
    name, uid, of = one["metadata"]["name"], one["metadata"]["uid"], ("-n", space.name)

    def says(words, *command, shown=None):
        said = text(space, *command)
        where = [line for line in said.splitlines() if shown is None or shown in line]
        # How many threads ran is another number in each report.
        plain = NUMBER.sub("1", said)
        return " ".join(command), all(NUMBER.sub("1", word) in plain for word in words), "\n".join(where)

    yield says((found.cause, found.detail, found.fix), "kubectl", "raddle", "explain", f"pod/{name}", *of)
    yield says((found.cause,), "kubectl", "raddle", "top", "pods", f"pod/{name}", *of)
    yield says((found.cause, name), "kubectl", "raddle", "top", "node", node)
    yield says((found.cause, name), "kubectl", "raddle", "top", "node", node, "-o", "svg", shown="data-cpu")
    yield says((found.cause, node), "kubectl", "raddle", "top", "nodes")
    yield says((found.cause, f"{space.name}/"), "kubectl", "raddle", "top", "policies", *of)
    yield says((found.cause, found.detail, found.fix, name), "raddle", "scan", "--no-usage", *of)
    page = html.escape(f"{found.detail}; fix: {found.fix}")
    yield says((found.cause, page, name), "raddle", "scan", "--no-usage", *of, "-o", "html", shown=page)
    items = json.loads(text(space, "kubectl", "raddle", "top", "pods", *of, "-o", "json"))["items"]
    fixes = [each["fix"] for item in items if item["uid"] == uid for each in item.get("findings", [])]
    yield "kubectl raddle top pods -o json", found.fix in fixes, json.dumps(fixes)
    labels = {f'namespace="{space.name}"', f'pod="{name}"', 'container="app"', f'cause="{found.cause}"'}
    lines = [line for line in str(asked(space, node, "metrics")["text"]).splitlines() if is_of(line, labels)]
    yield "the agent's metric", len(lines) == 1 and lines[0].endswith(" 1.0"), "\n".join(lines)
    status = space.policy_status()
    running = status.get("running", {})
    worst = [each for each in running.get("worst", []) if (each["pod"], each["cause"]) == (name, found.cause)]
    yield "the policy's status.running", len(worst) == 1, json.dumps(running)
    drifted = [each for each in status.get("conditions", []) if each["type"] == "Drifted"]
    yield "the policy's condition", [each["status"] for each in drifted] == ["True"], json.dumps(drifted)


def is_of(line, labels):
    return line.startswith("raddle_container_findings{") and all(label in line for label in labels)


def text(space, *command):
    """What a command prints, as a user of this cluster runs it."""
    environ = space.cluster.environment()
    programs = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    environ |= {"PATH": programs, "COLUMNS": "140"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    return done.stdout


def sessions(space, node, one):
    """What shims have told of the pod's processes: (runtime, threads, source)."""
    found = reported(space, node, one)
    told = [each for process in (found.processes if found else ()) for each in process.sessions or ()]
    return [(each.runtime, each.threads, each.source) for each in told]


def quota(space, node, one):
    """The CPUs of the container's quota now, as its agent says; None while it says nothing."""
    found = reported(space, node, one)
    return found and found.quota_cpus


def reported(space, node, one):
    """What the node's agent says of the pod's container, once it has seen it run; None while it says nothing."""
    try:
        report = nodereport.from_document(asked(space, node, "v1/report"))
    except ApiError:
        return None
    return next((seen for seen in report.containers if seen.uid == one["metadata"]["uid"] and seen.cpuset), None)


def asked(space, node, path):
    """The answer of the node's agent, by way of the API server."""
    found = agent(space, node)
    return space.client.get(
        f"/api/v1/namespaces/{release.NAMESPACE}/pods/{found['metadata']['name']}:{AGENT_PORT}/proxy/{path}"
    )


def agent(space, node):
    """The pod of the node's agent."""
    where = {"labelSelector": "app.kubernetes.io/component=agent", "fieldSelector": f"spec.nodeName={node}"}
    (found,) = space.client.get(f"/api/v1/namespaces/{release.NAMESPACE}/pods", **where)["items"]
    return found


def age_s(pod):
    """How long ago the pod's container began."""
    (status,) = pod["status"]["containerStatuses"]
    return time.time() - datetime.fromisoformat(status["state"]["running"]["startedAt"]).timestamp()


def planned(node):
    count = PLANNED[node]
    return f"{count} {'was' if count == 1 else 'were'} planned"


def told(found):
    return f"{found.cause}: {found.detail}; fix: {found.fix}"


# --- pods -----------------------------------------------------------------------------------------------------------


def application(space, node, name, program, *options, limit=LIMIT):
    """A pod of one container with this Python program."""
    container = {
        "name": "app",
        "image": APP_IMAGE,
        "imagePullPolicy": "Never",
        "command": [PYTHON, *options, "-c", program],
        # A node of two CPUs, one of which is kept back, has none to spare.
        "resources": {"requests": {"cpu": "0"}, "limits": {"cpu": limit}},
    }
    if node == GUEST:
        # Without kube-proxy, which would have to be emulated too, no Service is there: its agent is told of by its address.
        address = agent(space, node)["status"]["podIP"]
        container["env"] = [{"name": env.AGENT, "value": f"{address}:{DATAGRAMS_PORT}/app"}]
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {HOSTNAME: node},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def started(space, node, *manifests):
    """The pods as they are stored, once each has its shim and runs."""
    pods.wait_for_shim(space, manifests[0])
    made = [space.create(one) for one in manifests]
    for one in made:
        assert pods.has_volume(one), one["metadata"].get("annotations")
        wait(lambda one=one: container_id(space, one), f"{one['metadata']['name']} runs", SECONDS[node])
    return made
