import os
import re

import pytest

import machines
from raddle.cpus import cpuset
from raddle.cpus.topology import GPU, Cache, CoreType, Group, NUMANode
from raddle.machine.sysfs import read_machine

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"


def lists(masks):
    return [cpuset.ids(mask) for mask in masks]


def groups(found):
    return [(group.id, cpuset.format_list(group.cpus)) for group in found]


@pytest.fixture
def tree(tmp_path):
    """Makes a folder of files {path: text}, below it the machine; `cpu` files are below cpuN/."""

    def make(files):
        return machines.write(files, tmp_path)

    return make


def small(changes=()):
    """Two cores with two threads each (0,2 and 1,3), one socket; `changes` holds {path: text}, None to remove one."""
    files = machines.synthesize(sockets=1, numa_nodes=1, l3_domains=1, cores=2)
    for path, text in dict(changes).items():
        if text is None:
            files = {name: value for name, value in files.items() if name != path and not name.startswith(path + "/")}
        else:
            files[path] = text
    return files


# --- recorded machines -------------------------------------------------------------------------------------------


def test_two_sockets_with_smt():
    machine = read_machine(machines.path("2s16c32t"))
    assert cpuset.format_list(machine.online) == "0-31"
    assert lists(machine.cores) == [[n, n + 1] for n in range(0, 32, 2)]
    assert groups(machine.sockets) == [(0, "0-15"), (1, "16-31")]
    assert groups(machine.l3_domains) == [(0, "0-15"), (1, "16-31")]
    assert [(node.id, cpuset.format_list(node.cpus), node.distances) for node in machine.numa_nodes] == [
        (0, "0-15", (10, 21)),
        (1, "16-31", (21, 10)),
    ]
    assert machine.core_types == (CoreType("standard", machine.online),)
    assert (machine.architecture, machine.problems) == ("x86_64", ())
    assert len(machine.boot_id) == 36


def test_several_l3_domains_in_each_numa_node():
    machine = read_machine(machines.path("1s2n4l3-8c16t"))
    assert groups(machine.l3_domains) == [(0, "0-3"), (1, "4-7"), (2, "8-11"), (3, "12-15")]
    assert groups(machine.dies) == groups(machine.l3_domains)
    assert [cpuset.format_list(node.cpus) for node in machine.numa_nodes] == ["0-7", "8-15"]
    assert len(machine.sockets) == 1
    assert machine.problems == ()


def test_the_kernel_says_which_cores_are_fast_on_a_hybrid_machine():
    machine = read_machine(machines.path("hybrid-6p8e-20t"))
    assert machine.core_types == (
        CoreType("p-core", cpuset.parse_list("0-11"), 5200),
        CoreType("e-core", cpuset.parse_list("12-19"), 3900),
    )
    assert len(machine.cores) == 14


# --- made-up machines: what real kernels get wrong ---------------------------------------------------------------


def test_the_small_machine_itself(tree):
    machine = read_machine(tree(small()))
    assert lists(machine.cores) == [[0, 2], [1, 3]]
    assert machine.numa_nodes == (NUMANode(0, 0b1111, 257666, (10,)),)
    assert machine.l3_domains == (Group(0, 0b1111),)
    assert machine.problems == ()


def test_offline_names_only_cpus_that_can_exist(tree):
    files = {f"{CPU}/offline": "3,16-1023\n", f"{CPU}/online": "0-2\n", f"{CPU}/cpu3/topology": None}
    machine = read_machine(tree(small(files)))
    assert (machine.online, machine.offline) == (0b0111, 0b1000)
    assert lists(machine.cores) == [[0, 2], [1]]


def test_possible_cpus_that_are_not_present_are_not_offline(tree):
    machine = read_machine(tree(small({f"{CPU}/possible": "0-255\n", f"{CPU}/offline": "4-255\n"})))
    assert machine.offline == 0


def test_repeated_core_ids_do_not_merge_cores(tree):
    files = {f"{CPU}/cpu{cpu}/topology/core_id": "0\n" for cpu in range(4)}
    assert lists(read_machine(tree(small(files))).cores) == [[0, 2], [1, 3]]


def test_sockets_without_a_number_are_counted_by_their_sets(tree):
    files = {}
    for cpu in range(4):
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = "-1\n"
        files[f"{CPU}/cpu{cpu}/topology/package_cpus_list"] = "0,2\n" if cpu in (0, 2) else "1,3\n"
    assert groups(read_machine(tree(small(files))).sockets) == [(0, "0,2"), (1, "1,3")]


def test_sockets_of_one_number_in_two_books_stay_two(tree):
    files = {}
    for cpu in range(4):
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = "3\n"
        files[f"{CPU}/cpu{cpu}/topology/package_cpus_list"] = "0,2\n" if cpu in (0, 2) else "1,3\n"
    assert groups(read_machine(tree(small(files))).sockets) == [(0, "0,2"), (1, "1,3")]


def test_a_cpu_whose_files_vanish_while_they_are_read_stays_with_its_core(tree):
    machine = read_machine(tree(small({f"{CPU}/cpu3": None})))
    assert lists(machine.cores) == [[0, 2], [1, 3]]
    assert cpuset.format_list(machine.online) == "0-3"


def test_holes_in_the_numbering_stay_holes(tmp_path):
    files = machines.synthesize(sockets=1, numa_nodes=1, l3_domains=1, cores=2, threads=1)
    moved = {path.replace("cpu1/", "cpu40/"): text.replace("0-1", "0,40") for path, text in files.items()}
    for name in ("core_cpus_list", "thread_siblings_list"):
        moved[f"{CPU}/cpu40/topology/{name}"] = "40\n"
    machine = read_machine(machines.write(moved, tmp_path))
    assert lists(machine.cores) == [[0], [40]]
    assert groups(machine.sockets) == [(0, "0,40")]


def test_masks_stand_in_for_missing_lists(tree, tmp_path_factory):
    files = {f"{CPU}/{name}": None for name in ("online", "possible", "present")}
    for cpu in range(4):
        top = f"{CPU}/cpu{cpu}/topology"
        for name in ("core_cpus_list", "thread_siblings_list", "package_cpus_list", "core_siblings_list"):
            files[f"{top}/{name}"] = None
        files[f"{top}/thread_siblings"] = "00000005\n" if cpu in (0, 2) else "0000000a\n"
        files[f"{top}/core_siblings"] = "0000000f\n"
        files[f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_list"] = None
        files[f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_map"] = "f\n"
    files[f"{NODE}/node0/cpulist"] = None
    files[f"{NODE}/node0/cpumap"] = "00000000,0000000f\n"
    whole = machines.write(small(), tmp_path_factory.mktemp("whole"))
    assert read_machine(tree(small(files))) == read_machine(whole)


@pytest.mark.parametrize("text", ["(null)\n", "\n", "nonsense\n", "\x7fELF\x02\n", "0-3\x00garbage\n"])
def test_an_online_file_that_says_nothing_is_made_up_for(tree, text):
    assert cpuset.format_list(read_machine(tree(small({f"{CPU}/online": text}))).online) == "0-3"


def test_proc_stat_tells_the_cpus_where_sysfs_is_hidden(tree):
    machine = read_machine(tree({"proc/stat": "cpu  1 2 3\ncpu0 1 2 3\ncpu2 1 2 3\nintr 5\n"}))
    assert (machine.online, machine.cores) == (0b101, ())


def test_an_empty_tree_is_a_machine_without_facts(tmp_path):
    machine = read_machine(tmp_path)
    assert (machine.online, machine.cores, machine.sockets, machine.problems) == (0, (), (), ())


def test_a_missing_root_is_a_machine_without_facts(tmp_path):
    assert read_machine(tmp_path / "nowhere").online == 0


@pytest.mark.parametrize(
    ("claim", "cores"),
    [
        ("0-3\n", [[0, 2], [1, 3]]),  # too wide: the others deny it
        ("1\n", [[0], [1, 3], [2]]),  # without itself, and with a stranger: nobody confirms it
        ("0\n", [[0], [1, 3], [2]]),  # too narrow
        ("0,2,900\n", [[0, 2], [1, 3]]),  # with a CPU that does not exist
    ],
)
def test_a_wrong_sibling_set_never_puts_a_cpu_into_two_cores(tree, claim, cores):
    machine = read_machine(tree(small({f"{CPU}/cpu0/topology/core_cpus_list": claim})))
    assert lists(machine.cores) == cores
    assert bool(machine.problems) == (claim != "0,2,900\n")


def test_a_bad_list_is_recorded_and_its_older_name_used(tree):
    machine = read_machine(tree(small({f"{CPU}/cpu1/topology/core_cpus_list": "what?\n"})))
    assert lists(machine.cores) == [[0, 2], [1, 3]]
    assert [problem.path for problem in machine.problems] == [f"{CPU}/cpu1/topology/core_cpus_list"]
    assert "what?" in machine.problems[0].reason


def test_a_node_without_cpus_and_a_cpu_without_a_node(tree):
    files = {
        f"{NODE}/node0/cpulist": "0-2\n",
        f"{NODE}/node0/distance": "10 17\n",
        f"{NODE}/node7/cpulist": "\n",
        f"{NODE}/node7/distance": "17 10\n",
    }
    machine = read_machine(tree(small(files)))
    assert machine.numa_nodes == (NUMANode(0, 0b0111, 257666, (10, 17)), NUMANode(7, 0, None, (17, 10)))


def test_a_node_names_only_cpus_that_are_online(tree):
    assert read_machine(tree(small({f"{NODE}/node0/cpulist": "0-140\n"}))).numa_nodes[0].cpus == 0b1111


@pytest.mark.parametrize("claim", ["3\n", "0-3\n", "2-9\n"])
def test_a_node_that_claims_cpus_of_a_lower_node_is_left_out(tree, claim):
    """Some firmware lets every node have every CPU; hwloc leaves the others out too."""
    files = {
        f"{NODE}/node0/distance": "10 20 30\n",
        f"{NODE}/node1/cpulist": claim,
        f"{NODE}/node1/distance": "20 10 30",
    }
    files |= {f"{NODE}/node2/cpulist": "\n", f"{NODE}/node2/distance": "30 30 10\n"}
    machine = read_machine(tree(small(files)))
    assert machine.numa_nodes == (NUMANode(0, 0b1111, 257666, (10, 30)), NUMANode(2, 0, None, (30, 10)))
    assert [(problem.path, "lower node" in problem.reason) for problem in machine.problems] == [
        (f"{NODE}/node1/cpulist", True)
    ]


def test_distances_of_the_wrong_length_are_no_distances(tree):
    machine = read_machine(tree(small({f"{NODE}/node0/distance": "10 20 30\n"})))
    assert machine.numa_nodes[0].distances == ()
    assert machine.problems[0].path == f"{NODE}/node0/distance"


def test_a_huge_file_is_not_read_to_its_end(tree):
    machine = read_machine(tree(small({f"{CPU}/isolated": "0," * 50_000 + "0\n"})))
    assert machine.isolated == 0
    assert machine.problems == ((f"{CPU}/isolated", "longer than 65536 bytes"),)


def test_a_fifo_or_a_folder_in_place_of_a_file_does_not_block(tree):
    root = tree(small({f"{CPU}/isolated": None, f"{CPU}/offline/x": "", f"{CPU}/offline": None}))
    os.mkfifo(root / CPU / "isolated")
    (root / NODE / "node0" / "distance").unlink()
    (root / NODE / "node0" / "distance").mkdir()
    machine = read_machine(root)
    assert (machine.isolated, machine.numa_nodes[0].distances) == (0, ())
    assert [problem.path for problem in machine.problems] == [f"{NODE}/node0/distance"]


def test_problems_stay_few(tmp_path):
    files = machines.synthesize()
    files |= {path: "?\n" for path in files if path.endswith("core_cpus_list")}
    machine = read_machine(machines.write(files, tmp_path))
    assert len(machine.problems) == 64
    assert len(machine.cores) == 128


def test_isolated_cpus(tree):
    assert read_machine(tree(small({f"{CPU}/isolated": "1-2,700\n"}))).isolated == 0b0110


def test_a_cache_directory_may_have_any_number(tree):
    files = {}
    for cpu in range(4):
        files[f"{CPU}/cpu{cpu}/cache/index3"] = None
        files[f"{CPU}/cpu{cpu}/cache/index5/level"] = "3\n"
        files[f"{CPU}/cpu{cpu}/cache/index5/shared_cpu_list"] = "0,2\n" if cpu in (0, 2) else "1,3\n"
    assert groups(read_machine(tree(small(files))).l3_domains) == [(0, "0,2"), (1, "1,3")]


def test_more_than_two_thousand_cpus(tmp_path):
    files = machines.synthesize(sockets=16, numa_nodes=16, l3_domains=64, cores=2304, threads=1)
    few = re.compile(
        "(online|core_cpus_list|package_cpus_list|index3/level|index3/shared_cpu_list|node[0-9]+/cpulist)$"
    )
    machine = read_machine(machines.write({name: text for name, text in files.items() if few.search(name)}, tmp_path))
    assert (cpuset.count(machine.online), len(machine.cores), len(machine.l3_domains)) == (2304, 2304, 64)
    assert machine.problems == ()


def test_two_frequencies_alone_make_no_hybrid_machine(tree):
    """Favoured cores and Speed Select vary the frequency within one kind of core."""
    files = {f"{CPU}/cpu1/cpufreq/cpuinfo_max_freq": "5000000\n"}
    assert read_machine(tree(small(files))).core_types == (CoreType("standard", 0b1111, 5000),)


def test_equal_capacities_are_one_type(tree):
    files = {f"{CPU}/cpu{cpu}/cpu_capacity": "1024\n" for cpu in range(4)}
    assert read_machine(tree(small(files))).core_types == (CoreType("standard", 0b1111, 3700, 1024),)


def test_this_machine_itself():
    machine = read_machine()
    assert machine.architecture == os.uname().machine
    assert cpuset.of(os.sched_getaffinity(0)) & ~machine.online == 0


# --- GPUs ----------------------------------------------------------------------------------------------------------------


def device(address, kind, vendor, numa_node=None):
    """The files of one PCI device."""
    folder = f"sys/bus/pci/devices/{address}"
    files = {f"{folder}/class": kind + "\n", f"{folder}/vendor": vendor + "\n"}
    return files | ({f"{folder}/numa_node": numa_node + "\n"} if numa_node else {})


@pytest.mark.parametrize(
    ("kind", "vendor", "is_gpu"),
    [
        ("0x030000", "0x10de", True),  # a GeForce
        ("0x030200", "0x10de", True),  # an H100
        ("0x040300", "0x10de", False),  # a GeForce's sound
        ("0x038000", "0x1002", True),  # an MI250
        ("0x120000", "0x1002", True),  # an MI300X
        ("0x038000", "0x8086", True),  # a Data Center GPU Flex
        ("0x030000", "0x8086", False),  # graphics inside a CPU
        ("0x030000", "0x1a03", False),  # a board's management controller
        ("0x030000", "0x1af4", False),  # virtio
        ("0x020000", "0x8086", False),  # a network card
    ],
)
def test_which_pci_devices_are_gpus(tree, kind, vendor, is_gpu):
    machine = read_machine(tree(small(device("0000:3b:00.0", kind, vendor, "0"))))
    assert machine.gpus == ((GPU("0000:3b:00.0", 0),) if is_gpu else ())
    assert machine.problems == ()


def test_gpus_are_sorted_by_address_and_say_their_numa_node(tree):
    files = device("0000:af:00.0", "0x030200", "0x10de", "0")
    files |= device("0000:3b:00.0", "0x030200", "0x10de", "-1")
    files |= device("10000:01:00.0", "0x030200", "0x10de")
    files |= {"sys/bus/pci/devices/not-a-device/class": "0x030200\n"}
    assert read_machine(tree(small(files))).gpus == (
        GPU("0000:3b:00.0", None),
        GPU("0000:af:00.0", 0),
        GPU("10000:01:00.0", None),
    )


def test_a_gpu_near_a_node_that_is_not_there_is_near_no_node(tree):
    machine = read_machine(tree(small(device("0000:3b:00.0", "0x030200", "0x10de", "7"))))
    assert machine.gpus == (GPU("0000:3b:00.0", None),)
    assert machine.problems == (("sys/bus/pci/devices/0000:3b:00.0/numa_node", "there is no NUMA node 7"),)


# --- what other tools' captures taught -------------------------------------------------------------------------------------


def without(files, *names):
    """The tree without the files of these names."""
    return {path: text for path, text in files.items() if path.rpartition("/")[2] not in names}


SETS = (
    "core_cpus_list", "thread_siblings_list", "package_cpus_list", "core_siblings_list", "die_cpus_list", "die_id",
)  # fmt: skip


def test_numbers_tell_the_cores_of_a_tree_without_any_set(tmp_path):
    """Cores are numbered from 0 in each socket."""
    files = machines.synthesize(sockets=2, numa_nodes=2, l3_domains=2, cores=4, threads=2)
    whole = read_machine(machines.write(files, tmp_path / "whole"))
    for cpu in range(8):
        files[f"{CPU}/cpu{cpu}/topology/core_id"] = f"{cpu % 2}\n"
    stripped = read_machine(machines.write(without(files, *SETS), tmp_path / "stripped"))
    assert (stripped.cores, stripped.sockets, stripped.problems) == (whole.cores, whole.sockets, ())


def test_a_number_that_repeats_within_a_socket_is_another_core(tmp_path):
    """Level-1 caches tell the two cores of one number apart, as NUMA nodes do: an Opteron 6100."""
    files = without(machines.synthesize(sockets=1, numa_nodes=1, l3_domains=1, cores=4, threads=1), *SETS)
    for cpu in range(4):
        files[f"{CPU}/cpu{cpu}/topology/core_id"] = f"{cpu % 2}\n"
        files[f"{CPU}/cpu{cpu}/cache/index0/shared_cpu_list"] = f"{cpu}\n"
    assert lists(read_machine(machines.write(files, tmp_path)).cores) == [[0], [1], [2], [3]]


@pytest.mark.parametrize("package", ["-1\n", "65535\n", None])
def test_numbers_without_sockets_and_caches_tell_nothing(tmp_path, package):
    files = without(machines.synthesize(sockets=1, numa_nodes=1, l3_domains=1, cores=4, threads=1), *SETS)
    files = {path: text for path, text in files.items() if "/cache/" not in path}
    for cpu in range(4):
        files[f"{CPU}/cpu{cpu}/topology/core_id"] = "0\n"
        files[f"{CPU}/cpu{cpu}/topology/physical_package_id"] = package
    machine = read_machine(machines.write({path: text for path, text in files.items() if text}, tmp_path))
    assert (machine.cores, machine.sockets) == ((), ())


def test_packages_that_an_old_kernel_cut_at_numa_borders_are_whole(tmp_path):
    """Linux before 3.18 on a Haswell with Cluster-on-Die: core_siblings holds the CPUs of one node only."""
    files = machines.synthesize(sockets=2, numa_nodes=4, l3_domains=4, cores=8, threads=1)
    for cpu in range(8):
        node = cpu // 2
        for name in ("package_cpus_list", "core_siblings_list"):
            files[f"{CPU}/cpu{cpu}/topology/{name}"] = f"{node * 2}-{node * 2 + 1}\n"
    machine = read_machine(machines.write(files, tmp_path))
    assert groups(machine.sockets) == [(0, "0-3"), (1, "4-7")]
    assert machine.problems == ()


@pytest.mark.parametrize("architecture", ["", "IA-64"])
def test_a_cache_that_no_cpu_shares_is_its_cores_own_on_itanium(tree, architecture):
    files = {"proc/cpuinfo": f"processor  : 0\narch       : {architecture}\n"}
    for cpu in range(4):
        files[f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_list"] = None
        files[f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_map"] = "00000000\n"
    machine = read_machine(tree(small(files)))
    assert groups(machine.l3_domains) == [(0, "0,2"), (1, "1,3")]


def test_a_cache_that_no_cpu_shares_is_a_problem_elsewhere(tree):
    files = {f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_list": "\n" for cpu in range(4)}
    machine = read_machine(tree(small(files)))
    assert machine.l3_domains == ()
    assert machine.problems[0] == (f"{CPU}/cpu0/cache/index3/shared_cpu_list", "is empty")


def test_a_cpu_without_the_cache_is_in_no_domain(tree):
    """Low-power cores of Meteor Lake have none of level 3."""
    files = {f"{CPU}/cpu{cpu}/cache": None for cpu in (1, 3)}
    files |= {f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_list": "0,2\n" for cpu in (0, 2)}
    machine = read_machine(tree(small(files)))
    assert (groups(machine.l3_domains), machine.problems) == ([(0, "0,2")], ())


def test_a_node_that_has_only_links_to_its_cpus(tree):
    files = without(small({f"{NODE}/node0/cpu{cpu}/topology/core_id": "0\n" for cpu in (0, 1, 3)}), "cpulist", "cpumap")
    assert read_machine(tree(files)).numa_nodes[0].cpus == 0b1011


def test_a_node_that_tells_no_cpus_is_left_out(tree):
    machine = read_machine(tree(without(small(), "cpulist", "cpumap")))
    assert machine.numa_nodes == ()
    assert machine.problems == ((f"{NODE}/node0", "lists no CPUs"),)


def test_a_mask_speaks_where_the_list_is_null(tree):
    machine = read_machine(tree(small({f"{NODE}/node0/cpulist": "(null)\n", f"{NODE}/node0/cpumap": "0000000f\n"})))
    assert machine.numa_nodes[0].cpus == 0b1111


def test_distances_are_to_the_nodes_that_are_online(tree):
    """A tree that holds one of four nodes still has its row of four distances."""
    files = {f"{NODE}/online": "0,3,8-9\n", f"{NODE}/node0/distance": "10 20 30 40\n"}
    machine = read_machine(tree(small(files)))
    assert machine.numa_nodes[0].distances == (10,)
    assert machine.problems == ()


def test_a_single_cpu_is_a_core_and_a_socket(tmp_path):
    """A kernel without SMP support has no topology folder."""
    machine = read_machine(machines.write({f"{CPU}/cpu0/cache/index0/level": "1\n"}, tmp_path))
    assert (machine.cores, machine.sockets) == ((1,), (Group(0, 1),))


def test_online_cpus_that_can_not_exist_are_none(tree):
    machine = read_machine(tree(small({f"{CPU}/online": "0-3,4000-65535\n"})))
    assert cpuset.format_list(machine.online) == "0-3"
    assert machine.problems == ((f"{CPU}/online", "CPUs 4000-65535 are not there"),)


def test_the_parts_of_arm_cores_are_kinds_where_linux_tells_no_capacity(tree):
    files = {"proc/cpuinfo": "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd03\n"}
    for cpu in range(4):
        part = "d03" if cpu in (0, 2) else "d08"
        files[f"{CPU}/cpu{cpu}/regs/identification/midr_el1"] = f"0x00000000410f{part}4\n"
    assert read_machine(tree(small(files))).core_types == (
        CoreType("part-0xd03", 0b0101, 3700, None, "Cortex-A53"),
        CoreType("part-0xd08", 0b1010, 3700, None, "Cortex-A72"),
    )


def arm(parts, capacities=()):
    """Four CPUs of these parts and capacities, each where it is told."""
    files = {"proc/cpuinfo": "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\n"}
    for cpu, part in enumerate(parts):
        if part:
            files[f"{CPU}/cpu{cpu}/regs/identification/midr_el1"] = f"0x00000000410f{part:03x}4\n"
    files |= {f"{CPU}/cpu{cpu}/cpu_capacity": f"{capacity}\n" for cpu, capacity in enumerate(capacities)}
    return files


def test_cores_of_one_design_that_are_rated_a_few_percent_apart_are_one_kind(tree):
    machine = read_machine(tree(small(arm([0xD87, 0xD87, 0xD85, 0xD85], [718, 731, 997, 1024]))))
    assert [(kind.name, kind.cpus, kind.capacity, kind.model) for kind in machine.core_types] == [
        ("capacity-731", 0b0011, 731, "Cortex-A725"),
        ("capacity-1024", 0b1100, 1024, "Cortex-X925"),
    ]


def test_cores_that_are_rated_a_few_percent_apart_are_no_kinds_where_there_are_no_others(tree):
    machine = read_machine(tree(small(arm([0xD85] * 4, [997, 1017, 1024, 1024]))))
    assert [kind.name for kind in machine.core_types] == ["standard"]


def test_cores_of_one_design_that_are_rated_far_apart_are_two_kinds(tree):
    machine = read_machine(tree(small(arm([0xD0D] * 4, [801, 801, 801, 1024]))))
    assert [(kind.name, kind.cpus) for kind in machine.core_types] == [("capacity-801", 0b0111), ("capacity-1024", 8)]


@pytest.mark.parametrize("parts", [[0, 0, 0, 0xC0F], [0xC0F, 0, 0xC0F, 0xC0F], [0xC07, 0xC0F, 0, 0]])
def test_a_core_of_unknown_design_is_no_kind_of_core(tree, parts):
    assert [kind.name for kind in read_machine(tree(small(arm(parts)))).core_types] == ["standard"]


def test_one_part_after_the_last_processor_makes_no_kind(tree):
    cpus = "".join(f"processor\t: {cpu}\nBogoMIPS\t: 38.40\n\n" for cpu in range(4))
    shared = "CPU implementer\t: 0x41\nCPU architecture: 7\nCPU part\t: 0xc0f\n"
    machine = read_machine(tree(small({"proc/cpuinfo": cpus + shared, "proc/sys/kernel/arch": "armv7l\n"})))
    assert [kind.name for kind in machine.core_types] == ["standard"]


def test_a_server_of_one_arm_core_names_it(tree):
    files = {"proc/cpuinfo": "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n"}
    files |= {f"{CPU}/cpu{cpu}/regs/identification/midr_el1": "0x00000000413fd0c1\n" for cpu in range(4)}
    machine = read_machine(tree(small(files)))
    assert machine.core_types == (CoreType("standard", 0b1111, 3700, None, "Neoverse-N1"),)


def test_two_designers_with_one_number_make_no_kinds(tree):
    files = {"proc/cpuinfo": "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd40\n"}
    for cpu in range(4):
        files[f"{CPU}/cpu{cpu}/regs/identification/midr_el1"] = f"0x{0x41 if cpu < 2 else 0x48:02x}0fd400\n"
    assert [kind.name for kind in read_machine(tree(small(files))).core_types] == ["standard"]


def test_smt8_cores(tmp_path):
    files = machines.synthesize(sockets=2, numa_nodes=2, l3_domains=2, cores=8, threads=8)
    machine = read_machine(machines.write(files, tmp_path))
    assert (len(machine.cores), {cpuset.count(core) for core in machine.cores}) == (8, {8})


def test_a_power_core_of_eight_threads_has_an_l3_cache_for_each_half(tree):
    files = machines.synthesize(sockets=1, numa_nodes=1, l3_domains=1, cores=2, threads=8)
    # The cores are 0,2,4,... and 1,3,5,...
    for cpu in range(16):
        files[f"{CPU}/cpu{cpu}/cache/index3/shared_cpu_list"] = f"{cpu % 4}-15:1/4\n"
    machine = read_machine(tree(files))
    assert lists(domain.cpus for domain in machine.l3_domains) == [list(range(first, 16, 4)) for first in range(4)]
    assert machine.problems == ()


# --- caches ----------------------------------------------------------------------------------------------------------


def test_modules_of_e_cores_share_a_level_2_cache_of_another_size():
    caches = read_machine(machines.path("hybrid-6p8e-20t")).caches
    assert [
        (cache.level, cache.size_kib, [cpuset.format_list(group) for group in cache.groups]) for cache in caches
    ] == [
        (2, 1280, ["0-1", "2-3", "4-5", "6-7", "8-9", "10-11"]),
        (2, 2048, ["12-15", "16-19"]),
        (3, 24576, ["0-19"]),
    ]


def level2(cpu, **files):
    return {f"{CPU}/cpu{cpu}/cache/index2/{name}": f"{text}\n" for name, text in {"level": 2, **files}.items()}


def test_halves_of_a_core_may_have_a_cache_each(tree):
    changes = {f"{CPU}/cpu{cpu}/cache": None for cpu in range(4)}
    files = small(changes)
    for cpu in range(4):
        files |= level2(cpu, shared_cpu_list=cpu)
    assert read_machine(tree(files)).caches == (Cache(2, (1, 2, 4, 8)),)


def test_a_cache_of_instructions_is_none_that_data_is_in(tree):
    files = small() | level2(0, type="Instruction", shared_cpu_list="0,2")
    files = {path: text for path, text in files.items() if "/cache/index2/" not in path or "/cpu0/" in path}
    assert not [cache for cache in read_machine(tree(files)).caches if cache.level == 2]


def test_a_cache_whose_size_cannot_be_read_is_a_cache_of_unknown_size(tree):
    machine = read_machine(tree(small() | level2(0, type="Unified", shared_cpu_list="0,2", size="big")))
    assert Cache(2, (0b0101, 0b1010)) in machine.caches
    assert [(problem.path, problem.reason) for problem in machine.problems] == [
        (f"{CPU}/cpu0/cache/index2/size", "'big' is not a size")
    ]


def test_a_reader_that_decides_only_leaves_the_caches_out():
    whole = read_machine(machines.path("2s16c32t"))
    assert whole.caches
    assert read_machine(machines.path("2s16c32t"), details=False) == whole._replace(caches=())


# --- memory without CPUs ---------------------------------------------------------------------------------------------


def far_memory(*links):
    """Two nodes with two CPUs each, a third with none, and links to whom the firmware calls near."""
    files = machines.synthesize(sockets=2, numa_nodes=2, l3_domains=2, cores=2, threads=2)
    files |= {f"{NODE}/node2/cpulist": "\n", f"{NODE}/node2/meminfo": "Node 2 MemTotal: 2048 kB\n"}
    return files | {f"{NODE}/node2/{link}/cpulist": "" for link in links}


@pytest.mark.parametrize(
    ("links", "nearest"),
    [
        ((), ()),
        (("access0/initiators/node1",), (1,)),
        (("access0/initiators/node2", "access1/initiators/node1"), (1,)),
        (("access0/initiators/node1", "access0/initiators/node2", "access1/initiators/node0"), (1,)),
        (("access0/initiators/node0", "access0/initiators/node1", "access0/initiators/node9"), (0, 1)),
    ],
    ids=("nothing told", "CPUs", "a device, then CPUs only", "CPUs and a device", "a node that is not there"),
)
def test_memory_without_cpus_is_near_to_the_nodes_that_the_firmware_links(tree, links, nearest):
    nodes = read_machine(tree(far_memory(*links))).numa_nodes
    assert [(node.id, node.initiators) for node in nodes] == [(0, ()), (1, ()), (2, nearest)]
