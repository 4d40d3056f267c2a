"""What Node Feature Discovery says becomes a machine that never has more than the real one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machines import described_machines

import machines
from raddle.cpus import cpuset
from raddle.cpus.topology import cores_within, threads_per_core
from raddle.machine.sysfs import read_machine
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import Policy
from raddle_operator.objects import nfd
from raddle_operator.objects.nfd import NodeReport, Zone, ZonesReport, machine_of, read_node, read_zones

NFD_LABEL = {"feature.node.kubernetes.io/cpu-cpuid.AVX2": "true"}


def node(cpus="32", arch="amd64", **labels):
    found = {"kubernetes.io/arch": arch, "kubernetes.io/os": "linux", **NFD_LABEL, **labels}
    return {"metadata": {"name": "worker", "labels": found}, "status": {"capacity": {"cpu": cpus, "memory": "64Gi"}}}


def smt(value):
    return {nfd.MULTITHREADING: value}


def topology(*cpus, attributes=(), policies=(), **more):
    """A NodeResourceTopology as nfd-topology-updater writes one."""
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "costs": [{"name": f"node-{other}", "value": 10 if other == number else 21} for other in range(len(cpus))],
            "resources": [
                {"name": "memory", "capacity": "33554432", "allocatable": "33554432", "available": "33554432"},
                {"name": "cpu", "capacity": str(count), "allocatable": str(count - 1), "available": "1"},
            ],
        }
        for number, count in enumerate(cpus)
    ]
    return {
        "apiVersion": nfd.API_VERSION,
        "kind": "NodeResourceTopology",
        "metadata": {"name": "worker"},
        "zones": zones,
        "attributes": list(attributes),
        "topologyPolicies": list(policies),
        **more,
    }


def described(node_object, topology_object=None):
    return machine_of(read_node(node_object), read_zones(topology_object) if topology_object else None)


def test_zones_and_labels_give_the_shape_of_the_machine():
    found = described(node(**smt("true")), topology(16, 16))
    assert (cpuset.count(found.online), len(found.cores), threads_per_core(found)) == (32, 16, 2)
    assert [(one.id, cpuset.count(one.cpus), one.distances) for one in found.numa_nodes] == [
        (0, 16, (10, 21)),
        (1, 16, (21, 10)),
    ]
    assert [cores_within(found, one.cpus) for one in found.numa_nodes] == [8, 8]
    assert (found.architecture, found.kubelet.cpu_manager_policy) == ("x86_64", "unknown")
    assert found.source == "from NFD NodeResourceTopology, no agent"


def test_labels_alone_give_cores_and_no_numa_nodes():
    found = described(node(**smt("false")))
    assert (len(found.cores), found.numa_nodes, found.source) == (32, (), "from NFD labels, no agent")


@pytest.mark.parametrize(
    ("arch", "label", "cores", "said"),
    [
        ("amd64", smt("true"), 16, ""),
        ("amd64", smt("false"), 32, ""),
        ("amd64", {}, 16, ", SMT2 assumed"),
        ("amd64", smt("maybe"), 16, ", SMT2 assumed"),
        ("arm64", smt("false"), 32, ""),
        ("arm64", {}, 8, ", SMT4 assumed"),
        ("ppc64le", smt("true"), 4, ""),
        ("s390x", {}, 16, ", SMT2 assumed"),
        ("vax", {}, 4, ", SMT8 assumed"),
    ],
)
def test_smt_that_is_not_known_to_be_off_counts_as_on(arch, label, cores, said):
    found = described(node(arch=arch, **label))
    assert (len(found.cores), found.source) == (cores, f"from NFD labels, no agent{said}")


def test_cpus_that_fill_no_core_count_as_one_all_together():
    found = described(node("7", **smt("true")), topology(3, 3))
    assert sorted(map(cpuset.count, found.cores)) == [2, 2, 3]
    assert [cores_within(found, one.cpus) for one in found.numa_nodes] == [2, 2]


def test_zones_that_contradict_the_node_are_left_out():
    found = described(node("8", **smt("false")), topology(16, 16))
    assert (len(found.cores), found.numa_nodes, found.source) == (8, (), "from NFD labels, no agent")


@pytest.mark.parametrize(
    ("attributes", "policies", "policy", "scope"),
    [
        ((), (), "unknown", "unknown"),
        ((), ("SingleNUMANodePodLevel",), "single-numa-node", "pod"),
        (
            (("topologyManagerPolicy", "restricted"), ("topologyManagerScope", "container")),
            (),
            "restricted",
            "container",
        ),
        ((("topologyManagerPolicy", "quantum"), ("topologyManagerScope", 7)), ("None",), "none", "unknown"),
    ],
)
def test_the_topology_managers_policy_is_read_in_both_forms(attributes, policies, policy, scope):
    pairs = [{"name": name, "value": value} for name, value in attributes]
    kubelet = described(node(), topology(16, 16, attributes=pairs, policies=policies)).kubelet
    assert (kubelet.topology_manager_policy, kubelet.topology_manager_scope) == (policy, scope)


def unlabelled(**changes):
    return {"metadata": {"labels": {"kubernetes.io/arch": "amd64"}}, "status": {"capacity": {"cpu": "4"}}} | changes


@pytest.mark.parametrize(
    ("node_object", "topology_object"),
    [
        (unlabelled(), None),
        (unlabelled(), topology(8)),
        (unlabelled(status={}), topology(4)),
        (node("0"), None),
        (node("many"), None),
        (node(str(2**40)), None),
        (node(**{"kubernetes.io/os": "windows"}), topology(16, 16)),
        ({}, None),
    ],
)
def test_without_nfd_or_a_count_there_is_no_machine(node_object, topology_object):
    assert described(node_object, topology_object) is None


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"zones": None},
        {"zones": []},
        {"zones": [{"type": "Socket", "name": "socket-0"}]},
        {"zones": [{"type": "Node", "name": "first"}]},
        {"zones": [{"type": "Node", "name": "node-0", "resources": [{"name": "cpu", "capacity": "-1"}]}]},
        {"zones": [{"type": "Node", "name": "node-0"}, {"type": "Node", "name": "node-0"}]},
        {"zones": [{"type": "Node", "name": "node-0"}] * 2000},
    ],
)
def test_zones_that_can_not_be_read_say_nothing(broken):
    assert read_zones(broken) is None


@pytest.mark.parametrize("resources", [[], [{"name": "cpu", "capacity": "0"}], [{"name": "memory", "capacity": "1Gi"}]])
def test_a_zone_without_cpus_is_memory_only(resources):
    memory_only = {"type": "Node", "name": "node-1", "resources": resources}
    zones = [*topology(4)["zones"], memory_only]
    found = described(node("4", **smt("false")), topology(4, zones=zones))
    assert [(one.id, one.cpus) for one in found.numa_nodes] == [(0, 0b1111), (1, 0)]


# What nobody has told can't be planned with: for each real machine, what NFD would say of it never gives more threads.


def seen_by_nfd(machine, label, zoned):
    """What NFD reports of a machine: label is what it says of SMT, or None where it could not tell."""
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine.architecture, "")
    report = NodeReport(cpus=cpuset.count(machine.online), architecture=arch, labelled=True, multithreading=label)
    zones = tuple(Zone(id=one.id, cpus=cpuset.count(one.cpus)) for one in machine.numa_nodes)
    return machine_of(report, ZonesReport(zones=zones) if zoned and zones else None)


@given(described_machines(), st.booleans(), st.booleans())
def test_it_never_invents_a_core(machine, told, zoned):
    if threads_per_core(machine) > (2 if machine.architecture == "x86_64" else 4):
        machine = machine._replace(cores=())
    found = seen_by_nfd(machine, threads_per_core(machine) > 1 if told else None, zoned)
    assert cpuset.count(found.online) == cpuset.count(machine.online)
    assert cores_within(found, found.online) <= cores_within(machine, machine.online)
    assert cpuset.count(found.online) == cpuset.count(sum(found.cores))
    real = {one.id: one.cpus for one in machine.numa_nodes}
    for one in found.numa_nodes:
        assert cpuset.count(one.cpus) == cpuset.count(real[one.id])
        assert cores_within(found, one.cpus) <= cores_within(machine, real[one.id])


@pytest.mark.parametrize("shape", ["2s16c32t", "1s2n4l3-8c16t"])
@pytest.mark.parametrize("quota", [None, 0.5, 1.5, 4.0, 8.0, 12.0, 64.0])
@pytest.mark.parametrize("objective", ["Latency", "Throughput"])
@pytest.mark.parametrize("told", [True, False])
def test_its_plan_never_has_more_threads_than_the_agents(shape, quota, objective, told):
    machine = read_machine(machines.path(shape))
    found = seen_by_nfd(machine, True if told else None, zoned=True)
    budget, policy = Budget(quota_cpus=quota, because="limits.cpu"), Policy(objective=objective)
    by_nfd, by_agent = plan(found, budget, policy), plan(machine, budget, policy)
    assert by_nfd.intra_op <= by_agent.intra_op
    assert by_nfd.intra_op == by_agent.intra_op or not told
    assert "from NFD NodeResourceTopology, no agent" in by_nfd.because["intraOp"]
    assert by_nfd.exclusive_cpus == 0
    assert by_nfd.cpus is None
