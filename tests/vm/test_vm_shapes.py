"""A shape as QEMU's arguments, and as what its kernel said when it was recorded."""

from pathlib import Path

import pytest

import machines
from raddle.cpus import cpuset
from raddle.machine.sysfs import read_machine
from vm import qemu
from vm.shapes import SHAPES, NUMANode, Shape, get

RECORDED = sorted(set(SHAPES) & set(machines.names()))


def command(shape, **changes):
    guest = qemu.Guest(kernel=Path("kernel"), initramfs=Path("initramfs"), **changes)
    words = qemu.arguments(shape, guest)
    return words, [words[index + 1] for index, word in enumerate(words) if word == "-numa"]


def value(words, option):
    return words[words.index(option) + 1]


def test_two_sockets_of_two_dies_become_four_numa_nodes_with_memory_cpus_and_distances():
    words, numa = command(get("2s4n-8c16t"))
    assert value(words, "-smp") == "16,sockets=2,dies=2,cores=2,threads=2"
    assert value(words, "-m") == "1024M"
    assert numa[:4] == [f"node,nodeid={node},memdev=m{node}" for node in range(4)]
    assert numa[4:8] == [
        "cpu,node-id=0,socket-id=0,die-id=0",
        "cpu,node-id=1,socket-id=0,die-id=1",
        "cpu,node-id=2,socket-id=1,die-id=0",
        "cpu,node-id=3,socket-id=1,die-id=1",
    ]
    assert "dist,src=0,dst=1,val=12" in numa
    assert "dist,src=0,dst=2,val=21" in numa
    assert len(numa[8:]) == 4 * 3


def test_a_machine_without_numa_has_no_numa_arguments():
    words, numa = command(get("1s2c2t"))
    assert numa == []
    assert value(words, "-m") == "1024M"


def test_a_node_of_memory_only_has_no_cpus():
    _, numa = command(get("2s3n-8c16t-memory"))
    assert "node,nodeid=2,memdev=m2" in numa
    assert not any(word.startswith("cpu,node-id=2") for word in numa)


def test_a_guest_has_a_network_only_where_it_is_given_an_interface():
    assert "-netdev" not in command(get("1s2c2t"))[0]
    words, _ = command(get("1s2c2t"), tap="cable0")
    assert value(words, "-netdev") == "tap,id=cable,ifname=cable0,script=no,downscript=no"


def test_the_opposite_socket_of_a_ring_is_further_away():
    assert get("4s4n-8c16t-ring").distances == ((10, 21, 31, 21), (21, 10, 21, 31), (31, 21, 10, 21), (21, 31, 21, 10))


def test_offline_and_isolated_cpus_are_told_to_the_kernel():
    words, _ = command(get("1s8c16t-offline"))
    assert value(words, "-append").endswith(" isolcpus=2,3 raddle.offline=5,14,15")


def test_linux_starts_with_one_cpu_since_emulated_ones_may_hang_in_code_that_changes():
    assert "maxcpus=1" in value(command(get("2s4n-8c16t"))[0], "-append").split()


def test_a_disk_is_shared_by_runs_so_it_is_not_written_to():
    words, _ = command(get("1s1c1t"), disk=Path("disk.img"), node_mib=2048)
    assert "snapshot=on" in value(words, "-drive")
    assert value(words, "-m") == "2048M"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cores": 256}, "APIC id 255; 254 is the highest"),
        ({"sockets": 3, "cores": 40, "threads": 2}, "APIC id 335"),
        ({"cores": 4, "offline": (4,)}, "offline: got (4,), only CPUs 1 to 3 can be"),
        ({"cores": 4, "isolated": (0,)}, "isolated: got (0,)"),
        ({"sockets": 2, "cores": 1, "numa_nodes": (NUMANode(dies=((0, 0),)),)}, "numa_nodes: got the dies [(0, 0)]"),
        ({"cores": 1, "numa_nodes": (NUMANode(dies=((0, 0),)),), "distances": ((10, 20),)}, "expected 1 rows of 1"),
    ],
)
def test_a_shape_that_can_not_be_is_refused(given, says):
    with pytest.raises(ValueError, match=r".") as refused:
        Shape(shows="nothing", **given)
    assert says in str(refused.value)


def test_255_cpus_are_the_most():
    assert Shape(shows="many", cores=255).highest_apic_id == 254


def test_an_unknown_shape_is_told_which_there_are():
    with pytest.raises(KeyError, match="there are 1s1c1t, "):
        get("9s")


@pytest.mark.parametrize("name", RECORDED)
def test_what_was_recorded_is_what_the_shape_says(name):
    shape, machine = get(name), read_machine(str(machines.path(name)))
    online = set(range(shape.cpus)) - set(shape.offline)
    assert cpuset.ids(machine.online) == sorted(online)
    assert cpuset.ids(machine.isolated) == list(shape.isolated)
    assert len(machine.sockets) == shape.sockets
    assert [cpuset.ids(domain.cpus) for domain in machine.l3_domains] == [
        sorted(online & set(shape.cpus_of_die(socket, die)))
        for socket in range(shape.sockets)
        for die in range(shape.dies)
    ]
    assert max(cpuset.count(core) for core in machine.cores) == shape.threads
    nodes = range(len(shape.numa_nodes) or 1)
    assert [cpuset.ids(node.cpus) for node in machine.numa_nodes] == [
        sorted(online & set(shape.cpus_of_node(node))) for node in nodes
    ]
    if shape.distances:
        assert tuple(node.distances for node in machine.numa_nodes) == shape.distances
