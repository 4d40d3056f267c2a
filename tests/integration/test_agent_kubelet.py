"""The agent beside a real kubelet: what it says of its CPU manager, and what it says set up again."""

import os
import time

import pytest
from support import real_kubelet

from cluster.namespaces import TestNamespace
from cluster.waiting import wait

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(bool(real_kubelet.possible()), reason=real_kubelet.possible())]

TOPOLOGIES = "/apis/raddle.dev/v1alpha1/nodecputopologies"
STATIC = {
    "cpuManagerPolicy": "static",
    "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"},
    "topologyManagerPolicy": "best-effort",
    "topologyManagerScope": "pod",
    "reservedSystemCPUs": "0",
}


@pytest.fixture
def kubelet(only_installed, tmp_path):
    with real_kubelet.runtime(tmp_path / "cri.sock") as endpoint:
        made = real_kubelet.Kubelet(only_installed.cluster, tmp_path, endpoint, f"real-{time.monotonic_ns()}")
        yield made
        made.stop()
        print(made.log())


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="a static CPU manager needs a CPU beside the reserved one")
def test_what_a_real_kubelet_says_is_published_and_followed(only_installed, kubelet):
    space = TestNamespace(only_installed, "default")
    kubelet.start(**STATIC)
    nodes = f"/api/v1/nodes/{kubelet.node}"
    wait(
        lambda: kubelet.node in [one["metadata"]["name"] for one in space.client.get("/api/v1/nodes")["items"]],
        seconds=60,
    )
    options = ["--node-ip", "127.0.0.1", "--kubelet-port", str(kubelet.port), "--kubelet-insecure-tls"]
    options += ["--kubelet-interval-s", "0.5", "--reread-s", "0.5"]
    agent = only_installed.start_agent(kubelet.node, options=options)

    def said(check):
        def look():
            items = space.client.get(TOPOLOGIES, fieldSelector=f"metadata.name={kubelet.node}")["items"]
            return next((obj["spec"]["kubelet"] for obj in items if check(obj["spec"]["kubelet"])), None)

        return wait(look, seconds=60)

    known = said(lambda found: found.get("reservedCPUs"))
    assert known == {
        "source": "Configz",
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"},
        "topologyManagerPolicy": "best-effort",
        "topologyManagerScope": "pod",
        "reservedCPUs": "0",
    }
    # Nothing changes: nothing is written, however often it looks.
    before = space.client.get(f"{TOPOLOGIES}/{kubelet.node}")["metadata"]["resourceVersion"]
    asked = space.client.get(nodes)["metadata"]["resourceVersion"]
    wait(lambda: space.client.get(nodes)["metadata"]["resourceVersion"] != asked, seconds=60)
    assert space.client.get(f"{TOPOLOGIES}/{kubelet.node}")["metadata"]["resourceVersion"] == before

    kubelet.start(cpuManagerPolicy="none")
    known = said(lambda found: found["cpuManagerPolicy"] == "none")
    assert known == {
        "source": "Configz",
        "cpuManagerPolicy": "none",
        "topologyManagerPolicy": "none",
        "topologyManagerScope": "container",
    }
    agent.stop()
