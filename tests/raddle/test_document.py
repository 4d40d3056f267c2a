import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.machines import described_machines

import machines
from raddle.cpus import cpuset
from raddle.cpus.topology import Group, Machine, NUMANode
from raddle.machine.document import from_document, to_document
from raddle.machine.fields import DocumentError
from raddle.machine.sysfs import read_machine

KEYS = [
    "version",
    "bootID",
    "architecture",
    "model",
    "threadsPerCore",
    "cpusOnline",
    "cpusOffline",
    "cpusIsolated",
    "sockets",
    "dies",
    "cores",
    "l3Domains",
    "numaNodes",
    "coreTypes",
    "caches",
    "gpus",
    "kubelet",
    "problems",
]


def travelled(document):
    """The document after a journey as text, there and back."""
    return to_document(from_document(json.loads(json.dumps(document))))


@given(described_machines())
def test_a_machine_survives_json(machine):
    document = to_document(machine)
    assert travelled(document) == document
    assert list(document) == KEYS


@given(described_machines())
def test_all_but_the_kernels_own_ids_is_in_the_document(machine):
    read = from_document(to_document(machine))
    without_ids = {
        field: tuple(group.cpus for group in getattr(machine, field)) for field in ("sockets", "dies", "l3_domains")
    }
    assert {field: tuple(group.cpus for group in getattr(read, field)) for field in without_ids} == without_ids
    assert read._replace(sockets=(), dies=(), l3_domains=()) == machine._replace(sockets=(), dies=(), l3_domains=())


@pytest.mark.parametrize("name", machines.names())
def test_a_recorded_machine_survives_json(name):
    document = to_document(read_machine(machines.path(name)))
    assert travelled(document) == document


def test_the_document_of_a_small_machine(tmp_path):
    files = machines.synthesize(sockets=1, numa_nodes=1, l3_domains=1, cores=2)
    gpu = "sys/bus/pci/devices/0000:3b:00.0"
    files |= {f"{gpu}/class": "0x030200\n", f"{gpu}/vendor": "0x10de\n", f"{gpu}/numa_node": "0\n"}
    document = to_document(read_machine(machines.write(files, tmp_path)))
    assert list(document) == KEYS
    assert document == {
        "version": 1,
        "bootID": "",
        "architecture": "x86_64",
        "model": "Synthetic",
        "threadsPerCore": 2,
        "cpusOnline": "0-3",
        "cpusOffline": "",
        "cpusIsolated": "",
        "sockets": ["0-3"],
        "dies": ["0-3"],
        "cores": ["0,2", "1,3"],
        "l3Domains": ["0-3"],
        "numaNodes": {"0": {"cpus": "0-3", "memoryMiB": 257666, "distances": [10]}},
        "coreTypes": {"standard": {"cpus": "0-3", "maxFrequencyMHz": 3700}},
        "caches": [{"level": 2, "cpus": ["0,2", "1,3"]}, {"level": 3, "cpus": ["0-3"]}],
        "gpus": [{"address": "0000:3b:00.0", "numaNode": 0}],
        "kubelet": {"cpuManagerPolicy": "unknown", "topologyManagerPolicy": "unknown"},
        "problems": [],
    }


def test_a_machine_that_tells_nothing_has_every_key():
    assert to_document(Machine(online=1, cores=())) == {
        "version": 1,
        "bootID": "",
        "architecture": "",
        "model": "",
        "threadsPerCore": None,
        "cpusOnline": "0",
        "cpusOffline": "",
        "cpusIsolated": "",
        "sockets": [],
        "dies": [],
        "cores": [],
        "l3Domains": [],
        "numaNodes": {},
        "coreTypes": {},
        "caches": [],
        "gpus": [],
        "kubelet": {"cpuManagerPolicy": "unknown", "topologyManagerPolicy": "unknown"},
        "problems": [],
    }


def test_ids_are_made_up_in_order():
    """Dies count from 0 in each socket, as the kernel numbers them."""
    machine = from_document(small(sockets=["2-3", "0-1"], dies=["0", "1", "2-3"], cores=[], l3Domains=["2-3", "0-1"]))
    assert machine.sockets == (Group(0, 0b0011), Group(1, 0b1100))
    assert machine.dies == (Group(0, 0b0001), Group(1, 0b0010), Group(0, 0b1100))
    assert machine.l3_domains == machine.sockets


def test_memory_is_near_to_no_node_that_is_not_there():
    with pytest.raises(DocumentError, match="initiators"):
        from_document(small(numaNodes={"0": {"initiators": [1 << 40]}}))


def test_numa_nodes_are_in_the_order_of_their_numbers():
    nodes = {"10": {"cpus": "0-3", "distances": [21, 10]}, "2": {"distances": [10, 21]}}
    assert from_document(small(numaNodes=nodes)).numa_nodes == (
        NUMANode(2, 0, None, (10, 21)),
        NUMANode(10, 0b1111, None, (21, 10)),
    )


def test_this_process_share_is_there_when_asked_for(tmp_path):
    machine = read_machine(machines.write(machines.synthesize(), tmp_path))
    document = to_document(machine, cpuset.parse_list("2-3"), 1.5)
    assert (document["allowed"], document["quotaCPUs"]) == ("2-3", 1.5)
    assert not {"allowed", "quotaCPUs"} & to_document(machine).keys()


def small(**changes):
    return {"cpusOnline": "0-3", "cores": ["0,2", "1,3"], "sockets": ["0-3"]} | changes


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
        ({"sockets": {"0": "0-3"}}, "sockets"),
        ({"sockets": [{"socketID": 0, "cpus": "0"}]}, "sockets[0]"),
        ({"l3Domains": ["0-1", "1"]}, "l3Domains[1]"),
        ({"dies": [""]}, "dies[0]"),
        ({"threadsPerCore": 2, "numaNodes": []}, "numaNodes"),
        ({"numaNodes": {"0": {"cpus": "9"}}}, "numaNodes.0.cpus"),
        ({"numaNodes": {"0": {"cpus": "0"}, "1": {"cpus": "0"}}}, "numaNodes.1.cpus"),
        ({"numaNodes": {"one": {"cpus": "0"}}}, "numaNodes"),
        ({"numaNodes": {"01": {"cpus": "0"}}}, "numaNodes"),
        ({"numaNodes": {"0": "0-3"}}, "numaNodes.0"),
        ({"numaNodes": {"0": {"cpus": "0", "distances": [10, 20]}}}, "numaNodes.0.distances"),
        ({"numaNodes": {"0": {"cpus": "0", "distances": {"0": 10}}}}, "numaNodes.0.distances"),
        ({"numaNodes": {"0": {"cpus": "0", "distances": [-1]}}}, "numaNodes.0.distances[0]"),
        ({"numaNodes": {"0": {"cpus": "0", "distances": [None]}}}, "numaNodes.0.distances[0]"),
        ({"numaNodes": {"0": {"cpus": "0", "memoryMiB": 1.5}}}, "numaNodes.0.memoryMiB"),
        ({"numaNodes": {"0": {"cpus": "0", "memoryMiB": 1 << 70}}}, "numaNodes.0.memoryMiB"),
        ({"numaNodes": {"0": {"cpus": "0", "memoryMiB": True}}}, "numaNodes.0.memoryMiB"),
        ({"coreTypes": [{"coreType": "p-core", "cpus": "0"}]}, "coreTypes"),
        ({"coreTypes": {"p-core": {"cpus": "0"}, "x": {"cpus": 7}}}, "coreTypes.x.cpus"),
        ({"coreTypes": {str(n): {} for n in range(40)}}, "coreTypes"),
        ({"gpus": ["0000:3b:00.0"]}, "gpus[0]"),
        ({"gpus": [{"address": "0000:3b:00.0", "numaNode": "0"}]}, "gpus[0].numaNode"),
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


def test_a_document_of_a_thousand_numa_nodes_has_a_number_for_each_distance_and_no_more():
    ids = range(1024)
    nodes = tuple(NUMANode(number, 1 << number, None, (10,) * len(ids)) for number in ids)
    text = json.dumps(to_document(Machine(online=(1 << 1024) - 1, cores=(), numa_nodes=nodes)))
    assert len(text) < 5 * 1024 * 1024
