"""What the agent tells of a real container on a real node, beside what its own /proc says of it."""

import json

import pytest
from support import real_pods as pods

from cluster.client import ApiError
from e2e import release
from e2e.images import APP_IMAGE, PYTHON
from e2e.scenarios import GUEST, HOST, HOSTNAME
from e2e.waiting import wait
from raddle.cpus import cpuset
from raddle_operator.objects import nodereport

pytestmark = [pytest.mark.e2e, pytest.mark.flaky(reruns=1, rerun_except="E2EError"), pytest.mark.timeout(3600)]

THREADS = 16
PROGRAM = f"""
import threading, time
def hammer():
    open("/proc/thread-self/comm", "w").write("hammer-%d" % threading.get_native_id())
    while True:
        sum(range(100000))
for _ in range({THREADS}):
    threading.Thread(target=hammer).start()
"""
# Of the first process, by a second one in the same container.
INSIDE = """
import json, os
names = [open(f"/proc/1/task/{task}/comm").read() for task in os.listdir("/proc/1/task")]
print(json.dumps({"names": names, "cpus": sorted(os.sched_getaffinity(1))}))
"""


def manifest(space, node):
    container = {
        "name": "app",
        "image": APP_IMAGE,
        "imagePullPolicy": "Never",
        "command": [PYTHON, "-c", PROGRAM],
        "resources": {"requests": {"cpu": "0"}, "limits": {"cpu": "500m"}},
    }
    spec = {"nodeSelector": {HOSTNAME: node}, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hammer", "namespace": space.name}, "spec": spec}


def reported(client, node, uid):
    """What the node's agent says of the pod's container, by way of the API server; None while it says nothing."""
    found = client.get(
        f"/api/v1/namespaces/{release.NAMESPACE}/pods",
        labelSelector="app.kubernetes.io/component=agent",
        fieldSelector=f"spec.nodeName={node}",
    )
    (agent,) = found["items"]
    path = f"/api/v1/namespaces/{release.NAMESPACE}/pods/{agent['metadata']['name']}:8082/proxy/v1/report"
    try:
        report = nodereport.from_document(client.get(path))
    except ApiError:
        return None
    return next((one for one in report.containers if one.uid == uid and whole(one)), None)


def whole(container):
    """Whether the window began after all threads did."""
    return container.throttled_share and any(
        pool.ran == THREADS for process in container.processes for pool in process.pools
    )


@pytest.mark.parametrize("node", [HOST, GUEST])
def test_the_agent_tells_of_a_containers_threads_what_its_proc_does(node, host, request, record_property):
    if node == GUEST:
        request.getfixturevalue("guest")
    with pods.governed(host, "watch") as space:
        pods.wait_for_shim(space, manifest(space, node))
        made = space.client.apply(manifest(space, node))
        uid, seconds = made["metadata"]["uid"], pods.LOOKS_SECONDS[node]
        found = wait(lambda: reported(space.client, node, uid), "a report of the pod", seconds)
        status, text = pods.inside(space, made, "app", PYTHON, "-c", INSIDE)
        assert status == 0, text
        space.client.delete(f"{space.pods_path}/hammer")
    process = next(one for one in found.processes if one.pid == 1)
    inside = json.loads(text)
    pool = next(one for one in process.pools if one.name == "hammer-")
    assert (process.pid, process.threads) == (1, len(inside["names"]))
    assert pool.threads == sum(name.startswith("hammer-") for name in inside["names"])
    assert cpuset.parse_list(found.cpuset) == cpuset.of(inside["cpus"])
    assert set(pool.last_cpus) <= set(inside["cpus"])
    assert (found.limit_cpus, found.quota_cpus, found.planned_threads) == (0.5, 0.5, 1)
    # The two are not read at one instant.
    assert 0 < pool.used_cpus <= found.used_cpus * 1.5
    assert pool.delay_cpus > 0
    assert process.runtimes == (), "of its maps none is a runtime's"
    told = f"{pool.threads} threads, {pool.used_cpus:.2f} CPUs, {pool.delay_cpus:.2f} waiting"
    record_property(f"e2e watch {node}", f"{told}, {found.throttled_share:.0%} throttled")
