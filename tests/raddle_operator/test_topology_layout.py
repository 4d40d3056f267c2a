"""What a picture of a machine shows: boxes that nest as the machine does, and every CPU exactly once."""

import pytest
from hypothesis import given
from support.machines import described_machines

import machines
from raddle.cpus import cpuset
from raddle.cpus.topology import GPU, Cache, CoreType, Group, Kubelet, Machine, NUMANode
from raddle.machine import sysfs
from raddle_operator.cli.picture import layout
from raddle_operator.cli.picture.model import Box, Cell, Marks, State


def mask(text):
    return cpuset.parse_list(text)


def drawn(machine, marks=None):
    return layout.picture(machine, marks).boxes


def outline(boxes):
    """[(title, what is inside)]: lists of boxes, or a core list string each."""
    return [
        (" · ".join(box.names), outline(box.boxes) or [cpuset.format_list(mask_of(core)) for core in box.cores])
        for box in boxes
    ]


def mask_of(cells):
    return cpuset.of([cell.cpu for cell in cells if cell.cpu is not None])


def machine(cpus, **parts):
    """A machine of one-thread cores; its groups are written as {id: list}."""
    groups = {
        name: tuple(Group(number, mask(text)) for number, text in parts.pop(name, {}).items())
        for name in ("sockets", "dies", "l3_domains")
    }
    nodes = tuple(NUMANode(number, mask(text)) for number, text in parts.pop("numa_nodes", {}).items())
    online = mask(cpus)
    cores = parts.pop("cores", tuple(1 << cpu for cpu in cpuset.ids(online)))
    return Machine(online=online, cores=cores, numa_nodes=nodes, **groups, **parts)


def states(boxes):
    return {cell.cpu: cell.state for box in boxes for cell in box.cells()}


@pytest.mark.parametrize("name", machines.names())
def test_every_cpu_of_a_committed_machine_is_drawn_once(name):
    read = sysfs.read_machine(str(machines.path(name)))
    cells = [cell for box in drawn(read) for cell in box.cells()]
    assert sorted(cell.cpu for cell in cells) == cpuset.ids(read.online | read.offline)
    assert mask_of(cell for cell in cells if cell.state is State.OFFLINE) == read.offline


@given(described_machines())
def test_every_online_cpu_of_any_machine_is_drawn_once(any_machine):
    cells = [cell for box in drawn(any_machine) for cell in box.cells() if cell.state is not State.OFFLINE]
    assert sorted(cell.cpu for cell in cells) == cpuset.ids(any_machine.online)


@given(described_machines())
def test_threads_are_drawn_together_only_where_they_share_a_core(any_machine):
    def cores(boxes):
        for box in boxes:
            yield from box.cores
            yield from cores(box.boxes)

    for core in cores(drawn(any_machine)):
        assert len(core) == 1 or any(mask_of(core) & ~found == 0 for found in any_machine.cores)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param({}, [("CPUs", ["0", "1", "2", "3"])], id="nothing is known"),
        pytest.param({"sockets": {0: "0-3"}, "numa_nodes": {0: "0-3"}, "l3_domains": {0: "0-3"}},
         [("socket 0 · NUMA node 0 · L3 0", ["0", "1", "2", "3"])], id="levels that divide nothing are one box"),
        pytest.param({"sockets": {0: "0-3"}, "numa_nodes": {0: "0-1", 1: "2-3"}}, [("socket 0", [("NUMA node 0", ["0",
         "1"]), ("NUMA node 1", ["2", "3"])])], id="NUMA nodes in a socket"),
        pytest.param({"sockets": {0: "0-1", 1: "2-3"}, "numa_nodes": {0: "0-3"}}, [("NUMA node 0", [("socket 0", ["0",
         "1"]), ("socket 1", ["2", "3"])])], id="sockets in a NUMA node"),
        pytest.param({"sockets": {0: "0-3"}, "numa_nodes": {0: "0-1", 1: "2-3"}, "l3_domains": {0: "0-3"}},
         [("socket 0 · L3 0", [("NUMA node 0", ["0", "1"]), ("NUMA node 1", ["2", "3"])])],
         id="an L3 that spans NUMA nodes, as with sub-NUMA clusters"),
        pytest.param({"sockets": {0: "0-3"}, "dies": {0: "0-3"}, "l3_domains": {0: "0-1", 1: "2-3"}}, [("socket 0",
         [("L3 0", ["0", "1"]), ("L3 1", ["2", "3"])])], id="a die that is a whole socket says nothing"),
        pytest.param({"sockets": {0: "0-3"}, "numa_nodes": {0: "0-2"}}, [("socket 0", [("NUMA node 0", ["0", "1", "2"]),
         ("no NUMA node", ["3"])])], id="a CPU without a NUMA node"),
        pytest.param({"sockets": {0: "0-1", 1: "2-3"}, "numa_nodes": {0: "0", 1: "1-2", 2: "3"}}, [("socket 0",
         [("NUMA node 0", ["0"]), ("NUMA node 1 (part)", ["1"])]), ("socket 1", [("NUMA node 1 (part)", ["2"]),
         ("NUMA node 2", ["3"])])], id="groups that cross"),
    ],
)  # fmt: skip
def test_boxes_nest_as_the_machine_does(parts, expected):
    assert outline(drawn(machine("0-3", **parts))) == expected


def test_core_types_are_the_innermost_boxes_and_the_slower_cores_are_marked():
    hybrid = machine(
        "0-5",
        cores=(mask("0-1"), mask("2-3"), mask("4"), mask("5")),
        l3_domains={0: "0-5"},
        core_types=(CoreType("p-core", mask("0-3"), 4900), CoreType("e-core", mask("4-5"), 3700)),
    )
    boxes = drawn(hybrid)
    assert outline(boxes) == [("L3 0", [("p-core · 4900 MHz", ["0-1", "2-3"]), ("e-core · 3700 MHz", ["4", "5"])])]
    assert [cell.cpu for cell in boxes[0].cells() if cell.slow] == [4, 5]


def test_a_level_2_cache_that_several_cores_share_is_a_box_and_sizes_are_in_titles():
    caches = (
        Cache(2, (mask("0"), mask("1")), 1280),
        Cache(2, (mask("2-3"), mask("4-5")), 2048),
        Cache(3, (mask("0-5"),), 24576),
    )
    kinds = (CoreType("p-core", mask("0-1")), CoreType("e-core", mask("2-5")))
    picture = layout.picture(machine("0-5", l3_domains={0: "0-5"}, core_types=kinds, caches=caches))
    modules = [("L2 · 2 MiB", ["2", "3"]), ("L2 · 2 MiB", ["4", "5"])]
    assert outline(picture.boxes) == [("L3 0 · 24 MiB", [("p-core", ["0", "1"]), ("e-core", modules)])]
    assert ("caches", "2 L2 of 1280 KiB, 2 L2 of 2 MiB, 1 L3 of 24 MiB") in picture.facts


def test_memory_without_cpus_has_a_box_that_names_the_nearest_node():
    nodes = (
        NUMANode(0, mask("0-1"), 1024, (10, 20, 30)),
        NUMANode(1, mask("2-3"), 1024, (20, 10, 17)),
        NUMANode(2, 0, 65536, (30, 17, 10)),
    )
    *_, memory = drawn(machine("0-3")._replace(numa_nodes=nodes))
    assert memory.names == ("NUMA node 2", "64 GiB")
    assert memory.notes == ("memory only, no CPUs; nearest is node 1 (distance 17)",)


def with_memory(*memory, sockets=None):
    """Two NUMA nodes of two CPUs each, perhaps a socket each, and nodes of memory only."""
    nodes = (NUMANode(0, mask("0-1"), 1024, (10, 20, 17, 17)), NUMANode(1, mask("2-3"), 1024, (20, 10, 17, 28)))
    return machine("0-3", sockets=sockets or {})._replace(numa_nodes=(*nodes, *memory))


SOCKETS = {0: "0-1", 1: "2-3"}
TIED = NUMANode(2, 0, 65536, (17, 17, 10, 20))
NEAR_0 = NUMANode(3, 0, 4096, (17, 28, 20, 10))


def test_memory_without_cpus_names_every_node_that_is_as_near():
    for sockets in ({}, SOCKETS):
        *_, memory = drawn(with_memory(TIED, NEAR_0._replace(distances=()), sockets=sockets))[:3]
        assert memory.notes == ("memory only, no CPUs; nearest are nodes 0-1 (distance 17)",)


def test_memory_without_cpus_is_nearest_to_whom_the_firmware_names_whatever_the_distances_say():
    *_, memory, _ = drawn(with_memory(TIED._replace(initiators=(1,)), NEAR_0))
    assert memory.notes == ("memory only, no CPUs; nearest is node 1 (distance 17)",)


def test_memory_without_cpus_is_drawn_in_the_socket_that_it_is_nearest_to_and_else_beside_all():
    boxes = drawn(with_memory(TIED, NEAR_0, sockets=SOCKETS))
    assert [box.kind for box in boxes] == ["socket", "socket", "memory"]
    assert [box.names[0] for box in boxes] == ["socket 0", "socket 1", "NUMA node 2"]
    assert [(box.kind, box.names, box.notes) for box in boxes[0].boxes] == [
        ("numa", ("NUMA node 0", "1 GiB"), ()),
        ("memory", ("NUMA node 3", "4 GiB"), ("memory only, no CPUs",)),
    ]
    assert boxes[1].names == ("socket 1", "NUMA node 1", "1 GiB")


def test_memory_that_is_as_near_to_all_nodes_of_a_socket_is_drawn_in_it():
    nodes = (
        NUMANode(0, mask("0"), 1024, (10, 12, 20, 14, 14)),
        NUMANode(1, mask("1"), 1024, (12, 10, 20, 14, 15)),
        NUMANode(2, mask("2-3"), 1024, (20, 20, 10, 28, 28)),
        NUMANode(3, 0, 4096, (14, 14, 28, 10, 20)),
        NUMANode(4, 0, 4096, (14, 15, 28, 20, 10)),
    )
    first, second = drawn(machine("0-3", sockets=SOCKETS)._replace(numa_nodes=nodes))
    assert [(box.names[0], box.notes) for box in first.boxes] == [
        ("NUMA node 0", ()),
        ("NUMA node 1", ()),
        ("NUMA node 3", ("memory only, no CPUs",)),
        ("NUMA node 4", ("memory only, no CPUs; nearest is node 0 (distance 14)",)),
    ]
    assert second.names == ("socket 1", "NUMA node 2", "1 GiB")


def test_memory_is_drawn_beside_a_numa_node_that_is_divided_not_in_it():
    nodes = (NUMANode(0, mask("0-3"), 1024, (10, 20, 17)), NUMANode(1, mask("4-5"), 1024, (20, 10, 28)))
    found = machine("0-5", sockets={0: "0-5"}, l3_domains={0: "0-1", 1: "2-3", 2: "4-5"})
    (socket,) = drawn(found._replace(numa_nodes=(*nodes, NUMANode(2, 0, 4096, (17, 28, 10)))))
    assert [box.names[0] for box in socket.boxes] == ["NUMA node 0", "NUMA node 1", "NUMA node 2"]
    assert socket.boxes[2].notes == ("memory only, no CPUs; nearest is node 0 (distance 17)",)


def test_memory_shows_its_kind_its_speed_and_where_there_are_several_its_tier():
    fast = NEAR_0._replace(memory_kind="special-purpose", read_mb_s=409600, read_ns=90)
    for tiers, note in (((4, 4), "409.6 GB/s · 90 ns"), ((4, 22), "409.6 GB/s · 90 ns · memory tier 22")):
        found = with_memory(TIED._replace(memory_tier=tiers[0]), fast._replace(memory_tier=tiers[1]))
        found = found._replace(numa_nodes=tuple(n._replace(memory_tier=n.memory_tier or 4) for n in found.numa_nodes))
        box = drawn(found)[-1]
        assert box.names == ("NUMA node 3", "4 GiB", "special-purpose memory")
        assert box.notes[1].replace("\N{NO-BREAK SPACE}", " ") == note


def test_a_gpu_is_drawn_at_its_numa_node_and_listed_where_that_is_unknown():
    gpus = (GPU("0000:3b:00.0", 1), GPU("0000:af:00.0", None))
    picture = layout.picture(machine("0-3", numa_nodes={0: "0-1", 1: "2-3"}, gpus=gpus))
    assert [box.notes for box in picture.boxes] == [(), ("GPU 0000:3b:00.0",)]
    assert ("GPU", "0000:af:00.0, NUMA node unknown") in picture.facts


def test_a_gpu_is_drawn_once_where_its_numa_node_lies_in_two_sockets():
    crossing = machine("0-3", sockets={0: "0-1", 1: "2-3"}, numa_nodes={0: "0", 1: "1-2", 2: "3"})
    boxes = drawn(crossing._replace(gpus=(GPU("0000:3b:00.0", 1),)))
    assert [inner.notes for box in boxes for inner in box.boxes] == [(), ("GPU 0000:3b:00.0",), (), ()]


def test_offline_isolated_and_reserved_cpus_have_signs_and_a_legend():
    picture = layout.picture(
        machine("0-3", offline=mask("4"), isolated=mask("1-2"), kubelet=Kubelet("static", reserved_cpus=mask("0-1")))
    )
    signs = {cell.cpu: cell.sign for box in picture.boxes for cell in box.cells()}
    assert signs == {0: "r", 1: "ri", 2: "i", 3: "", 4: "x"}
    assert [sign for sign, _, _ in picture.legend] == ["r", "x", "i"]


def test_a_kernel_that_names_thousands_of_impossible_cpus_offline_gets_one_line_for_them():
    *_, offline = drawn(machine("0-3", offline=mask("4-8191")))
    assert (offline.names, offline.notes, offline.cores) == (("offline, 8188 CPUs",), ("4-8191",), ())


def test_marks_say_whose_a_cpu_is():
    marks = Marks(outside=mask("0"), idle=mask("1"), caller=mask("2"), workers=(mask("3"), mask("4")), pool=mask("5"))
    expected = (State.OUTSIDE, State.IDLE, State.CALLER, State.WORKER, State.WORKER, State.POOL, State.FREE)
    assert states(drawn(machine("0-6"), marks)) == dict(enumerate(expected))


def test_a_cpu_that_several_workers_may_use_names_them():
    marks = Marks(workers=tuple(map(mask, ("0", "1-2", "1", "1", "3"))))
    signs = {cell.cpu: cell.sign for box in drawn(machine("0-3"), marks) for cell in box.cells()}
    assert signs == {0: "w1", 1: "w2-4", 2: "w2", 3: "w5"}


def test_a_model_cannot_steer_a_terminal():
    assert layout.picture(machine("0", model="Fast\x1b[2J CPU")).title == "Fast?[2J CPU"


def test_a_box_of_boxes_yields_their_cells_in_drawing_order():
    inner = [Box(kind="l3", names=("L3",), cores=((Cell(cpu=number),),)) for number in (3, 1)]
    assert [cell.cpu for cell in Box(kind="socket", names=("socket",), boxes=tuple(inner)).cells()] == [3, 1]
