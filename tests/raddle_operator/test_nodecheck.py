"""What a NodeCPUTopology that was edited by hand is told, and that a machine's own object is never refused."""

import copy
import json

import pytest
from hypothesis import given
from support.machines import decisive, described_machines

import machines
from raddle.machine.sysfs import read_machine
from raddle_operator.objects import nodecheck
from raddle_operator.objects.nodecheck import Checker
from raddle_operator.objects.nodetopology import TopologyError, to_spec


@pytest.fixture
def obj():
    spec = to_spec(read_machine(machines.path("2s16c32t")))
    return json.loads(json.dumps({"metadata": {"name": "worker"}, "spec": spec}))


def changed(obj, path, value):
    found = copy.deepcopy(obj)
    *parents, last = path
    inner = found["spec"]
    for step in parents:
        inner = inner.setdefault(step, {}) if isinstance(step, str) else inner[step]
    inner[last] = value
    return found


# What the schema lets through: (where, what, the field that the message names, what it says is allowed).
NONSENSE = [
    (("cpus", "online"), "0-3", "spec.cores[", "online"),
    (("cpus", "online"), "9-0", "spec.cpus.online", "a CPU list"),
    (("cpus", "online"), "0-99999", "spec.cpus.online", "a CPU list"),
    (("cpus", "offline"), "31-33", "spec.cpus.offline", "free of CPUs in cpus.online"),
    (("cores", 0), "0,1,16", "spec.cores[", "in this group only"),
    (("cores", 0), "400", "spec.cores[0]", "online"),
    (("numaNodes", 0, "cpus"), "0-31", "spec.numaNodes[1].cpus", "in this group only"),
    (("sockets", 1, "cpus"), "99", "spec.sockets[1].cpus", "online"),
    (("counts", "cpus"), 7, "spec.counts.cpus", "the number of CPUs in cpus.online, 32"),
    (("threadsPerCore",), 4, "spec.threadsPerCore", "the size of the largest entry in cores, 2"),
    (("kubelet", "reservedCPUs"), "30-40", "spec.kubelet.reservedCPUs", "within the node's CPUs, 0-31"),
]


@pytest.mark.parametrize(("path", "value", "field", "allowed"), NONSENSE)
def test_what_passes_the_schema_and_is_no_machine_is_named(schema, obj, path, value, field, allowed):
    nonsense = changed(obj, path, value)
    schema.validate(nonsense)
    with pytest.raises(TopologyError) as caught:
        nodecheck.machine_of(nonsense)
    assert field in caught.value.path
    assert allowed in caught.value.allowed
    assert Checker().problem(nonsense) == str(caught.value)


@given(described_machines())
def test_what_the_agent_writes_is_a_machine(machine):
    kubelet = machine.kubelet
    if kubelet.reserved_cpus is not None:
        kubelet = kubelet._replace(reserved_cpus=kubelet.reserved_cpus & (machine.online | machine.offline))
    machine = decisive(machine._replace(kubelet=kubelet))
    written = {"spec": json.loads(json.dumps(to_spec(machine)))}
    assert Checker().problem(written) == ""
    assert nodecheck.machine_of(written) == machine


def test_nodes_of_one_make_are_looked_at_once(obj):
    checker = Checker()
    other_boot = changed(obj, ("bootID",), "another")
    broken = changed(obj, ("counts", "cpus"), 7)
    wrong = "spec.counts.cpus: 7 is not the number of CPUs in cpus.online, 32"
    assert [checker.problem(one) for one in (obj, other_boot, broken, obj)] == ["", "", wrong, ""]


@pytest.mark.parametrize("spec", [None, [], {}, {"cpus": None}, {"cpus": {"online": 3}}])
def test_whatever_is_there_gets_an_answer(spec):
    assert Checker().problem({"spec": spec}).startswith("spec")
