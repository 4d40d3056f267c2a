"""The agent as a process of its own against a real API server: what it writes, how often, and what it mends."""

import array
import contextlib
import fcntl
import json
import os
import resource
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

import machines
from cluster import ApiError
from cluster.waiting import wait
from raddle.machine.sysfs import read_machine
from raddle_operator.agent.client import AgentClient, from_kubeconfig
from raddle_operator.agent.reflector import Backoff
from raddle_operator.agent.summary import SummaryWriter
from raddle_operator.objects.nodereport import Cause, Container, Finding, Level, NodeReport
from raddle_operator.objects.nodetopology import from_object

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
TOPOLOGIES = "/apis/raddle.dev/v1alpha1/nodecputopologies"
NODE = "worker"
WAIT_S = 60
STOCK = 128


@pytest.fixture(scope="module")
def cluster(only_installed):
    return only_installed.cluster


@pytest.fixture
def node(cluster):
    """A Node object without a machine behind it; gone afterwards, with what the agent wrote."""
    cluster.client.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
    yield NODE
    for path in (f"/api/v1/nodes/{NODE}", f"{TOPOLOGIES}/{NODE}"):
        cluster.client.delete(path, missing_ok=True)


@contextlib.contextmanager
def running_agent(cluster, root, *options):
    """The agent's process; ends with SIGTERM, which must be enough."""
    command = [sys.executable, "-m", "raddle_operator", "agent", "--node-name", NODE, "--root", str(root)]
    command += ["--kubeconfig", cluster.environment()["KUBECONFIG"], "--kubelet-config", "Proxy", *options]
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("operator", "runtime"))
    with log(cluster).open("wb") as said:
        process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths}, stderr=said, stdout=said)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        said = log(cluster).read_text()
        print(said)
    assert process.returncode == 0, said
    assert "Traceback" not in said


def log(cluster):
    """What the agent that was started last says."""
    return cluster.directory / "agent.log"


@pytest.fixture
def root(tmp_path, request):
    """The files of a machine, which a test may change: of another one than 2s16c32t by a parameter."""
    name = getattr(request, "param", "2s16c32t")
    return machines.unpack((machines.ARCHIVES / f"{name}.txt").read_text(), tmp_path)


def online(root):
    return root / "sys/devices/system/cpu/online"


def read_again(root, times=10):
    """Returns once the agent has read the machine so many times more."""
    text, beside = online(root).read_bytes(), root / "beside"
    os.mkfifo(beside)
    fifo = os.open(beside, os.O_RDWR)
    try:
        # In this mode each reading takes one of the writes, of which there are more than are waited for.
        fcntl.fcntl(fifo, fcntl.F_SETFL, os.O_DIRECT)
        fcntl.fcntl(fifo, fcntl.F_SETPIPE_SZ, STOCK * resource.getpagesize())
        for _ in range(STOCK):
            os.write(fifo, text)
        beside.replace(online(root))
        left = array.array("i", [0])

        def taken():
            fcntl.ioctl(fifo, termios.FIONREAD, left)
            return STOCK - left[0] // len(text)

        wait(lambda: taken() >= times, "the agent reads the machine again")
        beside.write_bytes(text)
        beside.replace(online(root))
    finally:
        os.close(fifo)


@pytest.fixture
def watcher(cluster):
    """The agent's own client: its watch is what the tests wait with."""
    return AgentClient(from_kubeconfig(Path(cluster.environment()["KUBECONFIG"])))


def topology(cluster):
    try:
        return cluster.client.get(f"{TOPOLOGIES}/{NODE}")
    except ApiError as error:
        if error.status != 404:
            raise
        return None


def awaited(cluster, watcher, wanted=lambda _: True):
    """The topology as soon as it is as wanted; waits for the server's own events."""
    listed = cluster.client.get(TOPOLOGIES)
    for obj in listed["items"]:
        if obj["metadata"]["name"] == NODE and wanted(obj):
            return obj
    query = {"fieldSelector": f"metadata.name={NODE}", "resourceVersion": listed["metadata"]["resourceVersion"]}
    for event in watcher.watch(TOPOLOGIES, query, "application/json", timeout_s=WAIT_S):
        if event["type"] in ("ADDED", "MODIFIED") and wanted(event["object"]):
            return event["object"]
    pytest.fail(f"no such topology within {WAIT_S} s; now: {topology(cluster)}")


def test_it_publishes_the_machine_once(cluster, node, watcher, root):
    with running_agent(cluster, root, "--reread-s", "0.2") as process:
        first = awaited(cluster, watcher)
        read_again(root)
        assert topology(cluster)["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        status = Path(f"/proc/{process.pid}/status").read_text()
        print(next(line for line in status.splitlines() if line.startswith("VmRSS")))
    assert from_object(first) == read_machine(root, details=False)
    assert {field["manager"] for field in first["metadata"]["managedFields"]} == {"raddle-agent"}
    uid = cluster.client.get(f"/api/v1/nodes/{NODE}")["metadata"]["uid"]
    assert first["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid}]
    assert first["spec"]["kubelet"]["cpuManagerPolicy"] == "unknown"


@pytest.mark.parametrize("root", ["hybrid-6p8e-20t"], indirect=True)
def test_a_second_agent_finds_nothing_to_write(cluster, node, watcher, root):
    with running_agent(cluster, root):
        first = awaited(cluster, watcher)
    with running_agent(cluster, root, "--reread-s", "0.2"):
        read_again(root)
        assert topology(cluster)["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_it_restores_an_object_that_was_edited(cluster, node, watcher):
    with running_agent(cluster, machines.path("2s16c32t")):
        first = awaited(cluster, watcher)
        edit = {"spec": {"l3Domains": None, "kubelet": {"cpuManagerPolicy": "static", "reservedCPUs": "0-3"}}}
        cluster.client.merge(f"{TOPOLOGIES}/{NODE}", edit)
        restored = awaited(cluster, watcher, lambda obj: obj["spec"] == first["spec"])
        assert restored["metadata"]["generation"] == first["metadata"]["generation"] + 2


def test_an_owner_that_somebody_added_is_no_reason_to_write_for_ever(cluster, node, watcher, root):
    other = cluster.client.get("/api/v1/namespaces/default")["metadata"]
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": other["name"], "uid": other["uid"]}
    with running_agent(cluster, root, "--reread-s", "0.2"):
        first = awaited(cluster, watcher)
        owners = [*first["metadata"]["ownerReferences"], owner]
        cluster.client.merge(f"{TOPOLOGIES}/{NODE}", {"metadata": {"ownerReferences": owners}})
        wait(lambda: "reason=owner" in log(cluster).read_text(), "the agent writes its own owner")
        read_again(root)
    assert log(cluster).read_text().count("reason=owner") == 1


def test_it_leaves_the_status_to_the_controller(cluster, node, watcher, root):
    with running_agent(cluster, root, "--reread-s", "0.2"):
        awaited(cluster, watcher)
        status = {"status": {"observedGeneration": 1}}
        cluster.client.merge(f"{TOPOLOGIES}/{NODE}/status", status)
        written = topology(cluster)
        read_again(root)
        assert topology(cluster) == written
        assert written["status"] == status["status"]


def test_what_runs_is_written_beside_the_controllers_status_and_taken_away_by_an_agent_that_does_not_look(
    cluster, node, watcher, root
):
    found = Finding(cause=Cause.CODE_SETS_IT, detail="16 threads, 2 were planned", fix="remove it")
    policy = "InferenceThreading/small"
    one = Container(namespace="shop", pod="a", uid="u", name="serve", policy=policy, findings=(found,))
    report = NodeReport(node=NODE, level=Level.PROCESSES, at="", window_s=10, containers=(one,))
    with running_agent(cluster, root):
        spec = awaited(cluster, watcher)["spec"]
    cluster.client.merge(f"{TOPOLOGIES}/{NODE}/status", {"status": {"observedGeneration": 1}})
    writer = SummaryWriter(watcher, f"{TOPOLOGIES}/{NODE}", NODE, Backoff(1, 1), every_s=0)
    for _ in range(2):
        writer.take(report)
    assert writer.write(topology(cluster)) is not None
    written = topology(cluster)
    assert written["status"]["running"]["worst"][0]["cause"] == "CodeSetsIt"
    assert (written["spec"], written["status"]["observedGeneration"]) == (spec, 1)
    assert writer.write(written) is None
    # An agent that does not look takes away what an earlier one has written, and nothing else.
    with running_agent(cluster, root):
        last = awaited(cluster, watcher, lambda obj: "running" not in obj["status"])
    assert (last["spec"], last["status"]) == (spec, {"observedGeneration": 1})


def test_it_follows_a_node_that_was_created_again(cluster, node, watcher):
    with running_agent(cluster, machines.path("2s16c32t")):
        awaited(cluster, watcher)
        cluster.client.delete(f"/api/v1/nodes/{NODE}")
        again = cluster.client.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        uid = again["metadata"]["uid"]
        found = awaited(cluster, watcher, lambda obj: obj["metadata"]["ownerReferences"][0]["uid"] == uid)
        # The garbage collector may still take the object of the node before; then there is a new one.
        time.sleep(3)
        last = awaited(cluster, watcher, lambda obj: obj["metadata"]["ownerReferences"][0]["uid"] == uid)
        assert last["spec"] == found["spec"]


def test_it_waits_for_its_node(cluster, watcher, root):
    with running_agent(cluster, root, "--reread-s", "0.2"):
        read_again(root)
        assert topology(cluster) is None
        cluster.client.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        try:
            assert awaited(cluster, watcher)
        finally:
            cluster.client.delete(f"/api/v1/nodes/{NODE}")


def test_it_publishes_a_cpu_that_goes_offline(cluster, node, watcher, root):
    with running_agent(cluster, root, "--reread-s", "0.2"):
        awaited(cluster, watcher)
        online(root).write_text("0-30\n")
        found = awaited(cluster, watcher, lambda obj: obj["spec"]["counts"]["cpus"] == 31)
        assert found["spec"]["cpus"] == {"online": "0-30", "offline": "31"}


def test_it_outlives_the_api_server(cluster, node, watcher):
    with running_agent(cluster, machines.path("2s16c32t"), "--reread-s", "0.2"):
        first = awaited(cluster, watcher)
        cluster.restart("kube-apiserver")
        cluster.client.delete(f"{TOPOLOGIES}/{NODE}")
        second = awaited(cluster, watcher, lambda obj: obj["metadata"]["uid"] != first["metadata"]["uid"])
        assert json.dumps(second["spec"], sort_keys=True) == json.dumps(first["spec"], sort_keys=True)
