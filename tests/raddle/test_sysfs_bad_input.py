"""Trees with files that can't be used: the fact is absent, the file is among the problems, nothing fails or lasts long."""

import itertools
import json
import os
import shutil
import time
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import captures
from support.examples import examples

import machines
from raddle.machine.document import from_document, to_document
from raddle.machine.sysfs import read_machine
from raddle.machine.tree import MAX_PROBLEMS
from raddle.planning.capacity import Budget
from raddle.planning.planner import plan
from raddle.planning.policy import Policy

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
GPU = "sys/bus/pci/devices/0000:3b:00.0"


# --- what may stand where a file should ---------------------------------------------------------------------------------


def remove(path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def text(content):
    return lambda path: path.write_bytes(content)


def loop(path):
    """ELOOP: like EACCES and EIO, a file that is there and can't be opened, no matter who asks."""
    path.symlink_to(path.name)


def directory(path):
    path.mkdir()


def fifo(path):
    os.mkfifo(path)


# Nothing that is made of these is ever a fact.
UNUSABLE = {
    "unopenable": loop,
    "a directory": directory,
    "oversized": text(b"0," * 40_000 + b"0\n"),
    "binary": text(b"\x7fELF\x02\x01\x01\x00\xff\xfe\n"),
    "words": text(b"no such device\n"),
}
EMPTY = {"empty": text(b""), "a FIFO": fifo, "null": text(b"(null)\n")}


@contextmanager
def replaced(path, make):
    """The file replaced by something else while the block runs."""
    aside = path.with_name(path.name + ".aside")
    path.rename(aside)
    try:
        make(path)
        yield
    finally:
        remove(path)
        aside.rename(path)


# --- one file at a time -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Four cores in two sockets, with a GPU."""
    files = machines.synthesize(sockets=2, numa_nodes=2, l3_domains=2, cores=4)
    files |= {f"{GPU}/class": "0x030200\n", f"{GPU}/vendor": "0x10de\n", f"{GPU}/numa_node": "1\n"}
    files["proc/sys/kernel/random/boot_id"] = "5f0c1f4e-0000-4000-8000-000000000000\n"
    return machines.write(files, tmp_path_factory.mktemp("small"))


# Files, and the facts that each of them alone tells: these are absent without it.
TELLS = {
    f"{CPU}/online": {},
    f"{CPU}/present": {},
    f"{CPU}/isolated": {"isolated": 0},
    f"{CPU}/cpu0/topology/core_cpus_list": {},
    f"{CPU}/cpu0/topology/package_cpus_list": {},
    f"{CPU}/cpu0/topology/die_id": {"dies": ()},
    f"{CPU}/cpu0/cache/index3/shared_cpu_list": {},
    f"{CPU}/cpu0/cache/index3/level": {},
    f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq": {},
    f"{NODE}/node0/meminfo": {},
    f"{NODE}/node0/distance": {},
    "proc/cpuinfo": {"model": "", "architecture": ""},
    "proc/sys/kernel/random/boot_id": {"boot_id": ""},
    f"{GPU}/class": {"gpus": ()},
    f"{GPU}/vendor": {"gpus": ()},
    f"{GPU}/numa_node": {},
}


@pytest.mark.parametrize("badness", UNUSABLE)
@pytest.mark.parametrize("name", TELLS)
def test_a_file_that_can_not_be_used_costs_its_fact_and_is_named(small, name, badness):
    whole = read_machine(small)
    with replaced(small / name, UNUSABLE[badness]):
        machine = read_machine(small)
    assert name in [problem.path for problem in machine.problems]
    assert all(problem.reason for problem in machine.problems)
    for fact, absent in TELLS[name].items():
        assert getattr(machine, fact) == absent
    assert (machine.online, machine.cores, machine.sockets) == (whole.online, whole.cores, whole.sockets)
    assert [node.cpus for node in machine.numa_nodes] == [node.cpus for node in whole.numa_nodes]


# A set may be empty here; on a real machine it never is there.
NEVER_EMPTY = [name for name in TELLS if not name.endswith("isolated")]


@pytest.mark.parametrize("badness", EMPTY)
@pytest.mark.parametrize("name", NEVER_EMPTY)
def test_an_empty_file_tells_nothing_and_is_named(small, name, badness):
    whole = read_machine(small)
    with replaced(small / name, EMPTY[badness]):
        machine = read_machine(small)
    assert name in [problem.path for problem in machine.problems]
    assert (machine.online, machine.cores, machine.sockets) == (whole.online, whole.cores, whole.sockets)


@pytest.mark.parametrize("badness", UNUSABLE)
def test_without_any_usable_set_or_number_the_cores_are_unknown(small, badness):
    names = ("core_cpus_list", "thread_siblings_list", "core_id")
    bad = [f"{CPU}/cpu{cpu}/topology/{name}" for cpu in range(8) for name in names]
    managers = [replaced(small / name, UNUSABLE[badness]) for name in bad]
    for manager in managers:
        manager.__enter__()
    try:
        machine = read_machine(small)
    finally:
        for manager in managers:
            manager.__exit__(None, None, None)
    assert (machine.cores, to_document(machine)["threadsPerCore"]) == ((), None)
    assert {problem.path for problem in machine.problems} == {path for path in bad if not path.endswith("core_id")} | {
        f"{CPU}/cpu0/topology/core_id"
    }
    # Counts only: nothing is placed on cores that nobody knows.
    assert plan(machine, Budget(quota_cpus=3.0), Policy()).intra_op <= 3


def test_a_folder_that_can_not_be_opened_is_named(small):
    for folder in (CPU, NODE, "sys/bus/pci/devices"):
        with replaced(small / folder, loop):
            machine = read_machine(small)
        assert folder in [problem.path for problem in machine.problems]


# --- anything, anywhere -----------------------------------------------------------------------------------------------

TREES = ("2s3n-8c16t-memory", "1s2n4l3-8c16t", "hybrid-6p8e-20t", "1s8c16t-offline")
OTHERS = (
    "hwloc-16em64t-4s2c2t-offlines",
    "hwloc-48amd64-4pa2n6c-sparse",
    "lscpu-arm-A510-A710-A715-X3",
    "lscpu-ppc64-POWER7",
    "lscpu-s390-lpar-drawer",
)


@pytest.fixture(scope="module", params=[*TREES, *OTHERS])
def recorded(request, tmp_path_factory):
    """A copy of a recorded machine, ours or another project's, and its files."""
    folder = tmp_path_factory.mktemp("recorded")
    root = folder / request.param
    if request.param in OTHERS:
        captures.unpack(folder, request.param)
    else:
        shutil.copytree(machines.path(request.param), root, symlinks=True)
    return root, sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())


ANY_TEXT = st.sampled_from(
    [
        b"\n",
        b"-1\n",
        b"0\n",
        b"1\n",
        b"3\n",
        b"0-65535\n",
        b"0-3\n",
        b"1,3,5-7\n",
        b"ffffffff,ffffffff\n",
        b"10 10 10\n",
    ]
) | st.binary(max_size=64)
ANYTHING = ANY_TEXT.map(text) | st.sampled_from([*UNUSABLE.values(), *EMPTY.values()])


@st.composite
def damages(draw):
    """(which file, what stands there instead), some of each."""
    return draw(st.lists(st.tuples(st.integers(0, 1 << 20), ANYTHING), min_size=1, max_size=12))


def check(machine):
    """What holds for whatever was read."""
    for groups in (
        machine.cores,
        [group.cpus for group in machine.sockets],
        [group.cpus for group in machine.dies],
        [group.cpus for group in machine.l3_domains],
        [node.cpus for node in machine.numa_nodes],
        [kind.cpus for kind in machine.core_types],
    ):
        assert all(not one & other for one, other in itertools.combinations(groups, 2))
        assert not any(group & ~machine.online for group in groups)
    assert all(machine.cores)
    assert not machine.online & machine.offline
    assert not machine.isolated & ~(machine.online | machine.offline)
    assert {len(node.distances) for node in machine.numa_nodes} <= {0, len(machine.numa_nodes)}
    assert len(machine.problems) <= MAX_PROBLEMS
    assert all(len(problem.reason) <= 256 and not problem.path.startswith("/") for problem in machine.problems)
    if machine.online:
        document = to_document(machine)
        assert to_document(from_document(json.loads(json.dumps(document)))) == document


@examples(0.4)  # of each of nine trees
@given(damage=damages(), quota_cpus=st.none() | st.floats(0.1, 64))
def test_whatever_is_wrong_with_some_files(recorded, damage, quota_cpus):
    root, files = recorded
    chosen = {files[number % len(files)]: make for number, make in damage}
    managers = [replaced(path, make) for path, make in chosen.items()]
    for manager in managers:
        manager.__enter__()
    try:
        started = time.process_time()
        machine = read_machine(root)
        assert time.process_time() - started < 1
    finally:
        for manager in managers:
            manager.__exit__(None, None, None)
    check(machine)
    assert plan(machine if machine.online else None, Budget(quota_cpus=quota_cpus), Policy()).intra_op >= 1


@given(st.dictionaries(st.sampled_from(sorted(TELLS)), ANY_TEXT, min_size=1))
def test_a_tree_of_nothing_but_nonsense(tmp_path_factory, contents):
    root = tmp_path_factory.mktemp("nonsense")
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    check(read_machine(root))
    shutil.rmtree(root)
