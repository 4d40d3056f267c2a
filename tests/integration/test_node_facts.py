"""Where a node's facts come from, on a real API server: nonsense in a NodeCPUTopology."""

from __future__ import annotations

import json
import time

import pytest

import machines
from cluster import ApiError, Cluster, namespaces
from cluster.local_raddle import LocalRaddle
from cluster.objects import container, plan_of, pod, policy, threads
from cluster.waiting import wait
from raddle.cpus.topology import GPU
from raddle.machine.sysfs import read_machine
from raddle_operator.objects.nodetopology import to_object

pytestmark = pytest.mark.cluster

TOPOLOGIES = "/apis/raddle.dev/v1alpha1/nodecputopologies"


@pytest.fixture(scope="module")
def raddle():
    """Webhook and controller with the chart's rights."""
    values = {"webhook": {"timeoutSeconds": {"pods": 30, "bindings": 30}}}
    options = ["--lookup-timeout", "20"]
    with Cluster(name="facts") as cluster, LocalRaddle(cluster, values=values, webhook_options=options) as running:
        yield running


@pytest.fixture(scope="module")
def space(raddle):
    """A namespace that is opted in, with a policy for every pod."""
    made = namespaces.made(raddle, "models")
    made.wait_for_webhook()
    made.apply(policy("everything"))
    return made


def tried(space, node, cpu=None):
    """A pod that names its node, as it would be created."""
    body = pod(container(cpu=cpu), name="tried", nodeName=node)
    return space.client.request("POST", "/api/v1/namespaces/models/pods", body, query={"dryRun": "All"})


def condition(space, node, kind):
    items = space.client.get(TOPOLOGIES, fieldSelector=f"metadata.name={node}")["items"]
    conditions = [one for obj in items for one in obj.get("status", {}).get("conditions", [])]
    return next((one for one in conditions if one["type"] == kind), {})


def says(space, node, kind, status):
    """The condition once it has this status, for the object as it is now."""
    return wait(lambda: found if (found := condition(space, node, kind)).get("status") == status else None)


REFUSED = {
    "no CPU at all": ({"cpus": {"online": ""}}, "spec.cpus.online"),
    "a CPU that no Linux has": ({"cpus": {"online": "0-100000"}}, "spec.cpus.online"),
    "text": ({"cpus": {"online": "all of them"}}, "spec.cpus.online"),
    "a count of cores that are not listed": ({"counts": {"cores": 7}}, "counts.cores must be the number of entries"),
    "a count of sockets that are not listed": ({"counts": {"sockets": 9}}, "counts.sockets must be the number"),
    "more NUMA nodes than are listed": ({"counts": {"numaNodes": 3}}, "counts.numaNodes must be at most"),
    "SMT without threads": ({"smtEnabled": False}, "smtEnabled must be true where threadsPerCore is above 1"),
    "threads without cores": ({"cores": None, "counts": {"cores": 0}}, "threadsPerCore needs cores"),
    "a core twice": ({"cores": ["0,16", "0,16"]}, "Duplicate value"),
    "a NUMA node twice": (
        {"numaNodes": [{"numaNodeID": 0, "cpus": "0"}, {"numaNodeID": 0, "cpus": "1"}]},
        "Duplicate value",
    ),
    "a negative id": ({"sockets": [{"socketID": -1, "cpus": "0"}]}, "spec.sockets[0].socketID"),
    "a policy that there is not": ({"kubelet": {"cpuManagerPolicy": "quantum"}}, "spec.kubelet.cpuManagerPolicy"),
    "an address that is none": ({"gpus": [{"address": "first"}]}, "spec.gpus[0].address"),
}


@pytest.fixture(scope="module")
def node(raddle):
    """A node of 32 CPUs whose object nobody keeps right."""
    raddle.register_machine("edited", machines.path("2s16c32t"))
    return "edited"


@pytest.mark.parametrize("case", REFUSED)
def test_the_schema_refuses(space, node, case):
    change, words = REFUSED[case]
    with pytest.raises(ApiError) as caught:
        space.client.merge(f"{TOPOLOGIES}/{node}", {"spec": change})
    assert caught.value.status == 422
    assert words in str(caught.value)


# What passes the schema: (the change, what the condition says).
NONSENSE = {
    "a CPU in two cores": ({"cores": ["0,1", "1,2"], "counts": {"cores": 2}}, "spec.cores[1]"),
    "cores that are not online": ({"cpus": {"online": "0-3"}}, "spec."),
    "a range that runs backwards": ({"cpus": {"online": "9-0"}}, "spec.cpus.online: '9-0' is not a CPU list"),
    "another count of CPUs": ({"counts": {"cpus": 4096}}, "spec.counts.cpus: 4096 is not the number of CPUs"),
    "more threads than a core has": ({"threadsPerCore": 8}, "spec.threadsPerCore: 8 is not"),
    "reserved CPUs that are not there": ({"kubelet": {"reservedCPUs": "500"}}, "spec.kubelet.reservedCPUs: 500 is not"),
}


@pytest.mark.parametrize("case", NONSENSE)
def test_what_passes_the_schema_is_on_the_condition_and_pods_get_safe_values(space, node, case):
    change, words = NONSENSE[case]
    sound = space.client.get(f"{TOPOLOGIES}/{node}")["spec"]
    says(space, node, "Valid", "True")
    wait(lambda: threads(tried(space, node)) == 8)
    try:
        space.client.merge(f"{TOPOLOGIES}/{node}", {"spec": change})
        found = says(space, node, "Valid", "False")
        assert found["reason"] == "NoMachine"
        assert words in found["message"]
        assert "pods keep safe values" in found["message"]
        assert condition(space, node, "Fresh")["status"] == "Unknown"
        made = wait(lambda: one if plan_of(one := tried(space, node, "4")).node is None else None)
        # No node's processor is known any more: the door is closed, and the count is the one without a shim.
        assert threads(made) == 3
    finally:
        space.client.apply({**_named(node), "spec": sound})
    says(space, node, "Valid", "True")
    wait(lambda: plan_of(tried(space, node, "4")).node == node)


def _named(node):
    return {"apiVersion": "raddle.dev/v1alpha1", "kind": "NodeCPUTopology", "metadata": {"name": node}}


@pytest.fixture
def kept(raddle, space):
    """The name of a node with an agent."""
    name = f"kept-{time.monotonic_ns()}"
    raddle.register_machine(name, machines.path("2s16c32t"), publish=False)
    agent = raddle.start_agent(name, str(machines.path("2s16c32t")))
    yield name
    agent.stop()


def test_the_nodes_agent_mends_what_was_edited(space, kept):
    says(space, kept, "Valid", "True")
    sound = space.client.get(f"{TOPOLOGIES}/{kept}")
    edited = space.client.merge(f"{TOPOLOGIES}/{kept}", {"spec": {"cpus": {"online": "0-3"}, "threadsPerCore": 5}})
    wait(lambda: space.client.get(f"{TOPOLOGIES}/{kept}")["spec"] == sound["spec"])
    mended = space.client.get(f"{TOPOLOGIES}/{kept}")["metadata"]["generation"]
    assert mended == edited["metadata"]["generation"] + 1
    wait(lambda: condition(space, kept, "Valid").get("observedGeneration") == mended)
    assert condition(space, kept, "Valid")["status"] == "True"


def test_a_machine_of_1024_cpus_and_17_gpus_fits_well(raddle, space, tmp_path):
    files = machines.synthesize(sockets=4, numa_nodes=16, l3_domains=64, cores=512, threads=2)
    gpus = tuple(GPU(f"0000:{number:02x}:00.0", number if number < 16 else None) for number in range(1, 18))
    machine = read_machine(machines.write(files, tmp_path))._replace(gpus=gpus)
    body = to_object(machine, "huge", "00000000-0000-4000-8000-000000000000")
    stored = space.client.apply(body)
    try:
        assert stored["spec"] == body["spec"], "the schema knows every field that the agent writes"
        assert stored["spec"]["counts"]["cpus"] == 1024
        size = len(json.dumps(stored))
        print(f"1024 CPUs: {size} bytes")
        assert size < 64 * 1024
        assert says(space, "huge", "Valid", "True")
    finally:
        space.client.delete(f"{TOPOLOGIES}/huge", missing_ok=True)
