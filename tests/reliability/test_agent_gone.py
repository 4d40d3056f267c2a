"""The node agent is gone while its node is booted again, and comes back."""

import time
from pathlib import Path

import pytest
from support.nodes import unregister
from support.reliability.installed import LIMIT_CPUS, NODE_THREADS, SHAPE, became, pod

import machines
from cluster.namespaces import TOPOLOGIES
from cluster.objects import threads
from cluster.waiting import settled, wait

NODE = "mortal"
BOOT_ID = Path("proc/sys/kernel/random/boot_id")
FIRST, SECOND = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
PODS = 5


@pytest.fixture
def root(tmp_path):
    """The recorded machine's files, which say the first boot."""
    made = machines.unpack((machines.ARCHIVES / f"{SHAPE}.txt").read_text(), tmp_path)
    (made / BOOT_ID).parent.mkdir(parents=True, exist_ok=True)
    (made / BOOT_ID).write_text(FIRST + "\n")
    return made


@pytest.fixture
def node(raddle, root):
    handle = raddle.register_machine(NODE, root, labels={"node": NODE}, publish=False)
    yield handle
    unregister(raddle.cluster, handle)


@pytest.mark.failure(
    "agent-gone",
    "The agent of a node is killed, the node is booted again without it, then the agent comes back.",
    "Values stay the node's while it is the same boot; after another boot the topology is said to be stale and pods"
    " get safe values; with the agent back they get the node's again.",
)
def test_pods_get_a_nodes_values_only_while_its_topology_is_of_the_present_boot(raddle, governed, root, node, figures):
    space = governed
    agent = raddle.start_agent(NODE, str(root), ["--kubelet-config", "None"])
    assert fresh_for(space, "True") == "SameBoot"
    before = pods(space, "before")
    agent.kill()
    without_agent = pods(space, "same-boot")
    rebooted_s = time.monotonic()
    space.client.merge(f"/api/v1/nodes/{NODE}/status", {"status": {"nodeInfo": {"bootID": SECOND}}})
    stale = fresh_for(space, "False")
    said_s = time.monotonic() - rebooted_s
    metric = settled(lambda: raddle.controller.metric("raddle_topologies", fresh="false"), 1.0)
    wait(lambda: not has_node_values(space), "the webhook has seen it")
    during = pods(space, "stale")
    (root / BOOT_ID).write_text(SECOND + "\n")
    agent.start()
    back_s = time.monotonic()
    again = fresh_for(space, "True")
    wait(lambda: has_node_values(space), "the webhook has seen it")
    back_s = time.monotonic() - back_s
    after = pods(space, "after")
    agent.stop()
    figures |= {
        "pods bound": 4 * PODS,
        "with the agent": told(before),
        "agent gone, same boot": told(without_agent),
        "said to be stale after the reboot": f"{said_s:.1f} s ({stale})",
        "agent gone, another boot": told(during),
        "agent back, fresh again in": f"{back_s:.1f} s",
        "then": told(after),
    }
    assert (stale, again) == ("BootIDChanged", "SameBoot")
    assert metric == 1
    assert became(before) == became(without_agent) == became(after) == {"node": PODS}
    assert became(during) == {"safe": PODS}
    assert {threads(one) for one in during} == {LIMIT_CPUS}
    assert {threads(one) for one in after} == {NODE_THREADS}


def fresh_for(space, wanted):
    """The reason of the topology's condition Fresh once that is as wanted."""

    def found():
        topologies = {one["metadata"]["name"]: one for one in space.client.get(TOPOLOGIES)["items"]}
        conditions = topologies.get(NODE, {}).get("status", {}).get("conditions", [])
        fresh = {one["type"]: one for one in conditions}.get("Fresh", {})
        return fresh["reason"] if fresh.get("status") == wanted else None

    return wait(found, f"the topology's condition Fresh is {wanted}")


def has_node_values(space):
    """Whether a pod that names the node has its values at CREATE already."""
    return became([space.probe(pod("probe", nodeName=NODE))])["node"] == 1


def pods(space, name):
    names = [f"{name}-{number}" for number in range(PODS)]
    for one in names:
        space.create(pod(one, nodeSelector={"node": NODE}))
    return [space.bound(one) for one in names]


def told(pods):
    got, counts = became(pods), {threads(one) for one in pods}
    return f"{got['node']} node values, {got['safe']} safe, threads {', '.join(map(str, counts))}"
