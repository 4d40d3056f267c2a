import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_strategies import random_machines

import machines
from raddle import cpuset
from raddle.cgroup import Allotment
from raddle.document import DocumentError, from_document, to_document
from raddle.sysfs import read_machine

KEYS = [
    "version",
    "bootID",
    "architecture",
    "model",
    "cpusOnline",
    "cpusOffline",
    "cpusIsolated",
    "threadsPerCore",
    "sockets",
    "dies",
    "numaNodes",
    "l3Domains",
    "cores",
    "coreTypes",
    "kubelet",
    "problems",
]


@given(random_machines())
def test_a_machine_survives_json(machine):
    assert from_document(json.loads(json.dumps(to_document(machine)))) == machine


@pytest.mark.parametrize("name", machines.names())
def test_a_recorded_machine_survives_json(name):
    machine = read_machine(machines.path(name))
    assert from_document(json.loads(json.dumps(to_document(machine)))) == machine


def test_the_document_of_a_small_machine(tmp_path):
    files = machines.synthesize(sockets=1, numa_nodes=1, l3_domains=1, cores=2)
    document = to_document(read_machine(machines.write(files, tmp_path)))
    assert list(document) == KEYS
    assert document == {
        "version": 1,
        "bootID": "",
        "architecture": "x86_64",
        "model": "Synthetic",
        "cpusOnline": "0-3",
        "cpusOffline": "",
        "cpusIsolated": "",
        "threadsPerCore": 2,
        "sockets": [{"socketID": 0, "cpus": "0-3"}],
        "dies": [{"socketID": 0, "dieID": 0, "cpus": "0-3"}],
        "numaNodes": [{"numaNodeID": 0, "cpus": "0-3", "memoryMiB": 257666, "distances": [10]}],
        "l3Domains": [{"cacheL3ID": 0, "cpus": "0-3"}],
        "cores": ["0,2", "1,3"],
        "coreTypes": [{"coreType": "standard", "cpus": "0-3", "maxFrequencyMHz": 3700}],
        "kubelet": {"cpuManagerPolicy": "unknown", "topologyManagerPolicy": "unknown"},
        "problems": [],
    }


def test_this_process_share_is_there_when_asked_for(tmp_path):
    machine = read_machine(machines.write(machines.synthesize(), tmp_path))
    document = to_document(machine, Allotment(cpuset=cpuset.parse_list("2-3,900"), quota_cpus=1.5))
    assert (document["allowed"], document["quotaCPUs"]) == ("2-3", 1.5)
    document = to_document(machine, Allotment(quota_cpus=400.0))
    assert (document["allowed"], "quotaCPUs" in document) == ("0-255", False)


def small(**changes):
    return {"cpusOnline": "0-3", "cores": ["0,2", "1,3"], "sockets": [{"socketID": 0, "cpus": "0-3"}]} | changes


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"version": 2}, "version"),
        ({"cpusOnline": ""}, "cpusOnline"),
        ({"cpusOnline": None}, "cpusOnline"),
        ({"cpusOnline": 3}, "cpusOnline"),
        ({"cpusOnline": "zero"}, "cpusOnline"),
        ({"cpusOnline": "0-99999999"}, "cpusOnline"),
        ({"cpusOnline": "0," * 5000 + "0"}, "cpusOnline"),
        ({"cores": "0-3"}, "cores"),
        ({"cores": ["0", ""]}, "cores[1]"),
        ({"cores": ["0", 1]}, "cores[1]"),
        ({"cores": ["0,1", "1,2"]}, "cores[1]"),
        ({"cores": ["4"]}, "cores[0]"),
        ({"cores": ["0"] * 9000}, "cores"),
        ({"sockets": [{"cpus": "0"}]}, "sockets[0].socketID"),
        ({"sockets": [{"socketID": "0", "cpus": "0"}]}, "sockets[0].socketID"),
        ({"sockets": [{"socketID": True, "cpus": "0"}]}, "sockets[0].socketID"),
        ({"sockets": [{"socketID": -1, "cpus": "0"}]}, "sockets[0].socketID"),
        ({"sockets": [{"socketID": 1 << 70, "cpus": "0"}]}, "sockets[0].socketID"),
        ({"sockets": ["0"]}, "sockets[0]"),
        ({"numaNodes": [{"numaNodeID": 0, "cpus": "9"}]}, "numaNodes[0].cpus"),
        ({"numaNodes": [{"numaNodeID": 0, "cpus": "0", "distances": [10, None]}]}, "numaNodes[0].distances[1]"),
        ({"numaNodes": [{"numaNodeID": 0, "cpus": "0", "memoryMiB": 1.5}]}, "numaNodes[0].memoryMiB"),
        ({"coreTypes": [{"coreType": 7, "cpus": "0"}]}, "coreTypes[0].coreType"),
        ({"model": "x" * 257}, "model"),
        ({"kubelet": []}, "kubelet"),
        ({"kubelet": {"cpuManagerPolicy": "maybe"}}, "kubelet.cpuManagerPolicy"),
        ({"kubelet": {"reservedCPUs": "a"}}, "kubelet.reservedCPUs"),
        ({"kubelet": {"cpuManagerPolicyOptions": {"a": 1}}}, "kubelet.cpuManagerPolicyOptions.a"),
        ({"kubelet": {"cpuManagerPolicyOptions": {str(n): "" for n in range(40)}}}, "kubelet.cpuManagerPolicyOptions"),
    ],
)
def test_what_is_no_machine_is_named(changes, path):
    with pytest.raises(DocumentError) as caught:
        from_document(small(**changes))
    assert caught.value.path == path
    assert path in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_document_that_is_no_object():
    with pytest.raises(DocumentError, match="document"):
        from_document([])


def test_unknown_and_absent_keys_are_no_errors():
    machine = from_document(small(future={"x": 1}, kubelet=None, numaNodes=None))
    assert (machine.numa_nodes, machine.kubelet.cpu_manager_policy, machine.kubelet.reserved_cpus) == (
        (),
        "unknown",
        None,
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_a_hostile_document_raises_nothing_else(changes):
    with contextlib.suppress(DocumentError):
        from_document(small(**changes))
