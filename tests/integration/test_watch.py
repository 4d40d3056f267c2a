"""The agent as a process of its own, with its account's rights: what it reports of a node's pods and real processes."""

import json
import subprocess
import sys
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.nodes import unregister

from cluster.components import free_port
from cluster.waiting import wait
from raddle.planning.planner import Budget
from raddle.planning.policy import Policy
from raddle_operator.injection import plan_annotations
from raddle_operator.objects import nodereport

pytestmark = pytest.mark.cluster

NODE = "watched"
BOX = "9a8b" * 16
PODS = "/api/v1/namespaces/models/pods"
PROGRAM = """
import sys, threading
def rest():
    open("/proc/thread-self/comm", "w").write("pool-%d" % threading.get_native_id())
    started.release()
    threading.Event().wait()
started = threading.Semaphore(0)
for _ in range(16):
    threading.Thread(target=rest, daemon=True).start()
for _ in range(16):
    started.acquire()
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def cluster(only_installed):
    cluster = only_installed.cluster
    cluster.client.post("/api/v1/namespaces", {"metadata": {"name": "models"}})
    node = only_installed.register_machine(NODE, "/", publish=False)
    yield cluster
    cluster.client.delete(f"{PODS}/not-mine")
    unregister(cluster, node)


@pytest.fixture
def process():
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process
        process.stdin.close()


def create(cluster, name, node):
    _, values = plan_annotations.compose(
        None, Budget(quota_cpus=2.0, because="limits.cpu 2"), Policy(), governed_by="InferenceThreading/small"
    )
    container = {"name": "server", "image": "x", "resources": {"limits": {"cpu": "2"}}}
    pod = {
        "metadata": {"name": name, "annotations": {prefix + "server": text for prefix, text in values.items()}},
        "spec": {"nodeName": node, "automountServiceAccountToken": False, "containers": [container]},
    }
    return cluster.client.post(PODS, pod)["metadata"]["uid"]


def run(cluster, name, box):
    told = {"name": "server", "image": "x", "imageID": "x", "ready": True, "restartCount": 0}
    told |= {"containerID": f"containerd://{box}", "state": {"running": {}}}
    cluster.client.merge(f"{PODS}/{name}/status", {"status": {"phase": "Running", "containerStatuses": [told]}})


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read()


def reported(port):
    """The report as its readers take it; None where there is none yet."""
    try:
        return nodereport.from_document(json.loads(get(port, "/v1/report")))
    except OSError:
        return None


def pods_of(port):
    found = reported(port)
    return None if found is None else [one.pod for one in found.containers]


def test_the_report_follows_the_nodes_pods_and_tells_of_their_real_threads(cluster, only_installed, process, tmp_path):
    uid = create(cluster, "mine", NODE)
    create(cluster, "not-mine", "other")
    run(cluster, "mine", BOX)
    folder = tmp_path / "kubepods" / "burstable" / f"pod{uid}" / BOX
    folder.mkdir(parents=True)
    (tmp_path / "cgroup.controllers").write_text("cpu cpuset\n")
    (folder / "cgroup.procs").write_text(f"{process.pid}\n")
    (folder / "cpu.max").write_text("150000 100000\n")
    port = free_port()
    flags = ["--watch", "Processes", "--cgroups", str(tmp_path), "--watch-port", str(port), "--watch-interval", "1"]
    agent = only_installed.start_agent(NODE, options=flags)
    agent.wait(lambda: pods_of(port) == ["mine"], "a report of the pod")
    (container,) = reported(port).containers
    assert (container.uid, container.limit_cpus, container.quota_cpus, container.planned_threads) == (uid, 2.0, 1.5, 2)
    (seen,) = container.processes
    assert (seen.pid, seen.threads) == (process.pid, 17)
    assert {pool.name: pool.threads for pool in seen.pools}["pool-"] == 16
    assert get(port, "/livez") == b"ok\n"
    metrics = {
        sample.name: sample
        for family in text_string_to_metric_families(get(port, "/metrics").decode())
        for sample in family.samples
    }
    assert metrics["raddle_container_threads"].value == 17
    assert metrics["raddle_container_threads"].labels == {"namespace": "models", "pod": "mine", "container": "server"}
    cluster.client.delete(f"{PODS}/mine")
    wait(lambda: pods_of(port) == [], "a report without the pod")
    assert "Traceback" not in agent.log
    assert "observation failed" not in agent.log
