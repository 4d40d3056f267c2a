"""Many pods at once: a Deployment of 500, made and bound by the real controller manager and scheduler."""

from __future__ import annotations

import collections
import re

import pytest
from support.nodes import unregister

import machines
from cluster import objects
from cluster.objects import container, injected, plan_of, policy, threads
from cluster.waiting import wait

PODS = 500
ROOM = 600
SAFE = (
    4  # the pods' limit; no node of the burst has fewer cores than that on a NUMA node, so maxIntraOp tells them apart
)
BURST_SECONDS = 120.0
# With a topology, and one of which Raddle knows nothing.
SHAPES = {"burst-a": "2s16c32t", "burst-b": "1s2n4l3-8c16t"}
UNKNOWN = "burst-c"


@pytest.fixture
def nodes(cluster, raddle):
    """Three nodes that only the burst's pods go to."""
    labels = {"burst": "yes"}
    handles = [raddle.register_machine(name, machines.path(s), labels=labels, pods=ROOM) for name, s in SHAPES.items()]
    handles.append(cluster.register_node(UNKNOWN, cpus=32, labels=labels, pods=ROOM))
    yield
    for handle in handles:
        unregister(cluster, handle)


def deployment(namespace):
    # Without a kubelet nobody would confirm the end of a pod that has time to end.
    more = {"nodeSelector": {"burst": "yes"}, "terminationGracePeriodSeconds": 0}
    return objects.deployment("burst", PODS, container(cpu=str(SAFE), request="1m"), namespace=namespace, **more)


@pytest.fixture
def burst(space, nodes):
    """burst(): 500 pods of a Deployment, all bound."""
    path = f"/apis/apps/v1/namespaces/{space.name}"

    def start():
        space.client.apply(deployment(space.name))

        def all_bound():
            pods = space.list()
            return pods if len(pods) == PODS and all(one["spec"].get("nodeName") for one in pods) else None

        return wait(all_bound, seconds=BURST_SECONDS)

    yield start
    space.client.delete(f"{path}/deployments/burst", missing_ok=True)
    wait(lambda: not space.client.get(f"{path}/replicasets")["items"])
    space.client.delete(f"/api/v1/namespaces/{space.name}/pods")


def outcomes(webhook):
    """Bindings so far, by outcome."""
    lines = re.findall(
        r'^raddle_webhook_bindings_total\{outcome="(\w+)"\} (\S+)$', webhook.get("/metrics"), re.MULTILINE
    )
    return collections.Counter({name: int(float(count)) for name, count in lines})


def test_each_pod_of_a_burst_of_500_is_bound_with_its_nodes_values_or_safe_ones_for_a_reason(raddle, space, burst):
    space.apply(policy())
    wait(lambda: all(space.knows(node) for node in SHAPES))
    before = outcomes(raddle.webhook)
    pods = burst()
    found = outcomes(raddle.webhook) - before
    print(dict(found))
    assert [one["metadata"]["name"] for one in pods if not injected(one)] == []
    own = [one for one in pods if plan_of(one).node == one["spec"]["nodeName"]]
    safe = [one for one in pods if plan_of(one).node is None]
    assert len(own) + len(safe) == PODS
    assert {one["spec"]["nodeName"] for one in own} <= set(SHAPES)
    assert {threads(one) for one in safe} == {SAFE}
    # Each of them is counted once, by what became of it.
    assert sum(found.values()) == PODS
    assert found["NodeSpecific"] == len(own)
    assert sum(count for outcome, count in found.items() if outcome != "NodeSpecific") == len(safe)
    unknown = sum(one["spec"]["nodeName"] == UNKNOWN for one in pods)
    assert 0 < found["SafeNoTopology"] <= unknown, "some of them may have had another reason before that one"
    assert raddle.webhook.metric("raddle_webhook_fail_open_total") == 0
