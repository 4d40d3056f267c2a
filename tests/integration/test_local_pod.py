"""The processes that stand for a pod's containers where there is no kubelet see what a container sees, and no more."""

import os
from pathlib import Path

import pytest

from cluster.local_container import problem
from cluster.local_pod import Image, LocalPods
from cluster.waiting import wait

IMAGE = "registry.example/shell:1"
SHARED = {"name": "shared", "mountPath": "/shared"}
SIDECAR = """
cat /from-a-config-map/text /sys/fs/cgroup/cpu/cpu.stat /sys/fs/cgroup/cpu.stat > /shared/seen 2>/dev/null
mv /shared/seen /shared/ready
exec sleep 1000
"""
MAIN = f"""
until [ -e /shared/ready ]; do sleep 0.05; done
touch /etc/written-{os.getpid()}
echo "I am $NAME, pid $$$$"
cat /shared/ready > /dev/termination-log
exit 3
"""

pytestmark = pytest.mark.skipif(problem() is not None, reason=str(problem()))


@pytest.fixture
def ran(cluster, space, tmp_path):
    """A pod with a sidecar, as it is when its container has ended, and what that one said."""
    with_quota = {"limits": {"cpu": "500m"}}
    space.store({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "text"}, "data": {"text": "hello\n"}})
    cluster.register_node(space.name, cpus=2)
    mounts = [SHARED, {"name": "text", "mountPath": "/from-a-config-map"}]
    sidecar = {"name": "beside", "image": IMAGE, "restartPolicy": "Always", "command": ["sh", "-c", SIDECAR]}
    sidecar |= {"resources": with_quota, "volumeMounts": mounts}
    main = {"name": "main", "image": IMAGE, "args": [MAIN], "volumeMounts": [SHARED]}
    main["env"] = [{"name": "NAME", "value": "main"}]
    spec = {
        "nodeName": space.name,
        "restartPolicy": "Never",
        "initContainers": [sidecar],
        "containers": [main],
        "volumes": [{"name": "text", "configMap": {"name": "text"}}, {"name": "shared", "emptyDir": {}}],
    }
    pod = space.create({"metadata": {"name": "two", "labels": {"runs": space.name}}, "spec": spec})
    path = f"{space.pods_path}/{pod['metadata']['name']}"
    images = {IMAGE: Image(entrypoint=("sh", "-c"))}
    with LocalPods(cluster.new_client, space.name, f"runs={space.name}", images, tmp_path) as pods:
        wait(lambda: space.client.get(path)["status"]["phase"] not in ("Pending", "Running"), "the pod has ended")
        yield space.client.get(path)["status"], pods.pods[pod["metadata"]["uid"]]


def test_a_container_sees_its_volumes_its_cgroup_and_its_environment(ran):
    status, pod = ran
    (main,) = status["containerStatuses"]
    ended = main["state"]["terminated"]
    assert status["phase"] == "Failed"
    assert ended["exitCode"] == 3
    assert ended["message"].startswith("hello\nnr_periods") or "usage_usec" in ended["message"]
    assert "I am main, pid 1" in pod.log("main")


def test_nothing_of_it_is_left_on_the_machine(ran):
    _, pod = ran
    assert not Path(f"/etc/written-{os.getpid()}").exists()
    assert not Path("/shared").exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pod.processes.values())
