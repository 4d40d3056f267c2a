import json
import os
import re
import shutil
import tarfile
from pathlib import Path

import pytest

import machines
from raddle import cpuset
from raddle.sysfs import read_machine
from raddle.topology import CoreType, Group, NUMANode, threads_per_core

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
CAPTURES = Path(__file__).resolve().parents[3] / "shared" / "machines" / "captures.tar.xz"
# Half of 14,000 files: what no reader of topology could want.
UNREAD = re.compile(
    "/(power|stats|ondemand|state[0-9]+|size_of|ways_of|number_of|coherency|physical_line|type$)|proc/[^c]"
)
CAPTURED = (
    "hwloc-16em64t-4s2c2t-offlines",
    "hwloc-20em64t-hybrid-1p6c2t+2ca4co1t",
    "hwloc-32amd64-4s2n4c-cgroup2",
    "hwloc-48amd64-4pa2n6c-sparse",
    "hwloc-64intel64-fakeKNL-SNC4-hybrid",
    "iree-x86_64_ryzen9_7950x",
    "lscpu-arm-A510-A710-A715-X3",
    "lscpu-ppc64-POWER7",
    "lscpu-s390-lpar-drawer",
    "nto-worker2",
)


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


@pytest.fixture(scope="session")
def captures(tmp_path_factory):
    if not CAPTURES.is_file():
        pytest.skip(f"the recorded machines of other projects are not here: {CAPTURES}")
    folder = tmp_path_factory.mktemp("captures")
    with tarfile.open(CAPTURES) as tar:
        tar.extractall(folder, [member for member in tar if not UNREAD.search(member.name)], filter="tar")
    return folder


def facts(machine):
    """What a Machine says, under the keys of expected.json."""
    numbers = [str(node.id) for node in machine.numa_nodes]
    return {
        "cpus_online": cpuset.ids(machine.online),
        "cpus_offline": cpuset.ids(machine.offline),
        "sockets": len(machine.sockets),
        "cores": len(machine.cores),
        "threads_per_core_max": threads_per_core(machine),
        "core_groups": lists(machine.cores),
        "socket_groups": lists(group.cpus for group in machine.sockets),
        "die_groups": lists(group.cpus for group in machine.dies),
        "dies": len(machine.dies),
        "l3_domains": lists(group.cpus for group in machine.l3_domains),
        "numa_nodes": {str(node.id): cpuset.ids(node.cpus) for node in machine.numa_nodes},
        "numa_distances": {
            str(node.id): dict(zip(numbers, node.distances, strict=True))
            for node in machine.numa_nodes
            if node.distances
        },
    }


def within(allowed, value):
    """The groups cut to the allowed CPUs, for a tool that shows no others."""
    return [cut for group in value if (cut := [cpu for cpu in group if cpu in allowed])]


@pytest.mark.parametrize("name", CAPTURED)
def test_a_recorded_machine_is_read_as_other_tools_read_it(captures, name):
    expected = json.loads((captures / name / "expected.json").read_text())
    machine = read_machine(captures / name)
    found = facts(machine)
    compared = []
    for key in found.keys() & expected.keys() - expected.get("soft", {}).keys():
        value = found[key]
        if expected.get("scope") == "allowed" and isinstance(value, list) and key != "cpus_online":
            value = within(expected["allowed"], value)
        if key == "numa_distances":
            value = {
                one: {two: value[one][two] for two in expected[key]} for one in expected[key]
            }  # the other tool may show fewer nodes
        assert value == expected[key], key
        compared.append(key)
    assert "cpus_online" in compared
    if "kinds" in expected:
        kinds = sorted(len(kind["cpus"]) if "cpus" in kind else kind["count"] for kind in expected["kinds"])
        assert sorted(cpuset.count(kind.cpus) for kind in machine.core_types) == kinds
        named = sorted(kind["cpus"] for kind in expected["kinds"] if "cpus" in kind)
        assert not named or sorted(lists(kind.cpus for kind in machine.core_types)) == named
    assert machine.problems == ()


@pytest.mark.parametrize("name", CAPTURED)
def test_a_tree_as_it_was_recorded_gives_what_it_can(captures, name, tmp_path):
    """Without the files that were added to the capture: the masks beside them say the same."""
    expected = json.loads((captures / name / "expected.json").read_text())
    bare = shutil.copytree(captures / name, tmp_path / "bare", symlinks=True)
    for added in expected["completed"]:
        folder, _, file = added.rpartition("/")
        pattern = f"sys/devices/system/{added}" if folder == "cpu" else f"sys/devices/system/**/{file}"
        if folder == "node":
            pattern = f"sys/devices/system/node/**/{file}"
        for path in bare.glob(pattern):
            path.unlink()
    assert facts(read_machine(bare)) == facts(read_machine(captures / name))


def test_the_parts_of_an_arm_machine_tell_cores_of_one_capacity_apart(captures):
    machine = read_machine(captures / "lscpu-arm-A510-A710-A715-X3")
    assert [(kind.name, cpuset.format_list(kind.cpus), kind.capacity) for kind in machine.core_types] == [
        ("capacity-280", "0-2", 280),
        ("capacity-855", "3-4", 855),
        ("capacity-855-0xd47", "5-6", 855),
        ("capacity-1024", "7", 1024),
    ]


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


def test_a_cpu_is_in_one_node_only(tree):
    machine = read_machine(tree(small({f"{NODE}/node1/cpulist": "3\n"})))
    assert [node.cpus for node in machine.numa_nodes] == [0b1111, 0]
    assert "lower node" in machine.problems[-1].reason


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


def test_more_than_a_thousand_cpus(tmp_path):
    files = machines.synthesize(sockets=16, numa_nodes=16, l3_domains=64, cores=1536, threads=1)
    machine = read_machine(machines.write(files, tmp_path))
    assert (cpuset.count(machine.online), len(machine.cores), len(machine.l3_domains)) == (1536, 1536, 64)
    assert machine.problems == ()


def test_two_frequencies_alone_make_no_hybrid_machine(tree):
    """Favoured cores and Speed Select vary the frequency within one kind of core."""
    files = {f"{CPU}/cpu1/cpufreq/cpuinfo_max_freq": "5000000\n"}
    assert read_machine(tree(small(files))).core_types == (CoreType("standard", 0b1111, 5000),)


def test_equal_capacities_are_one_type(tree):
    files = {f"{CPU}/cpu{cpu}/cpu_capacity": "1024\n" for cpu in range(4)}
    assert read_machine(tree(small(files))).core_types == (CoreType("standard", 0b1111, 3700, 1024),)


@pytest.mark.parametrize(
    ("cpuinfo", "model", "architecture"),
    [
        ("model name\t: A  B\nflags\t: fpu lm\n", "A B", "x86_64"),
        ("model name\t: Old\nflags\t: fpu\n", "Old", "i686"),
        (
            "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n",
            "implementer 0x41 part 0xd0c",
            "aarch64",
        ),
        (
            "vendor_id       : IBM/S390\nprocessor 0: version = FF,  identification = 1,  machine = 2964\n",
            "IBM/S390 machine 2964",
            "s390x",
        ),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported", ""),
        ("processor\t: 0\nisa\t: rv64imafdc\n", "", "riscv64"),
        ("\x00\x01\x02\n", "", ""),
    ],
)
def test_each_architecture_names_its_model_in_its_own_way(tree, cpuinfo, model, architecture):
    machine = read_machine(tree({"proc/cpuinfo": cpuinfo}))
    assert (machine.model, machine.architecture) == (model, architecture)


def test_this_machine_itself():
    machine = read_machine()
    assert machine.architecture == os.uname().machine
    assert cpuset.of(os.sched_getaffinity(0)) & ~machine.online == 0
