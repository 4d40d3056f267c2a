"""Model and architecture in each architecture's own words, and CPUs where only /proc tells of them."""

import os
import sys

import pytest

import machines
from raddle import files
from raddle.cpus import cpuset
from raddle.machine.sysfs import read_machine

X86 = """\
processor\t: {cpu}
vendor_id\t: GenuineIntel
model name\t: A CPU
physical id\t: {socket}
siblings\t: {siblings}
core id\t\t: {core}
cpu cores\t: {cores}
flags\t\t: fpu lm

"""


@pytest.fixture
def tree(tmp_path):
    """Makes a folder of files {path: text}, below it the machine."""
    return lambda files: machines.write(files, tmp_path)


@pytest.mark.parametrize(
    ("cpuinfo", "model", "architecture"),
    [
        ("model name\t: A  B\nflags\t: fpu lm\n", "A B", "x86_64"),
        ("model name\t: Old\nflags\t: fpu\n", "Old", "i686"),
        ("vendor_id : IBM/S390\nprocessor 7: version = FF,  machine = 2817\n", "IBM/S390 machine 2817", "s390x"),
        ("processor : 0\narch : IA-64\nfamily : 32\nmodel : 1\n", "", "ia64"),
        ("CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n", "Neoverse-N1", "aarch64"),
        ("CPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xfff\n", "implementer 0x41 part 0xfff", "aarch64"),
        ("CPU implementer\t: 0x48\nCPU architecture: 8\nCPU part\t: 0xd01\n", "Kunpeng-920", "aarch64"),
        ("CPU implementer\t: what\nCPU architecture: 8\nCPU part\t: 0xd01\n", "implementer what part 0xd01", "aarch64"),
        (
            "model name\t: ARMv7 Processor rev 4 (v7l)\nCPU implementer\t: 0x41\nCPU architecture: 7\nCPU part\t: 0xc0f\n",
            "Cortex-A15",
            "armv7l",
        ),
        (
            "Processor\t: ARMv6-compatible processor rev 7 (v6l)\nCPU implementer : 0x41\nCPU architecture: 7\nCPU part : 0xb76\n",
            "ARM1176",
            "armv6l",
        ),
        (
            "vendor_id       : IBM/S390\nprocessor 0: version = FF,  identification = 1,  machine = 2964\n",
            "IBM/S390 machine 2964",
            "s390x",
        ),
        (
            "vendor_id : IBM/S390\nfeatures : esan3 stfle\nprocessor 0: machine = 2064\n",
            "IBM/S390 machine 2064",
            "s390",
        ),
        (
            "processor\t: 0\ncpu\t\t: POWER7 (architected), altivec supported\n",
            "POWER7 (architected), altivec supported",
            "ppc64",
        ),
        (
            "processor\t: 0\ncpu\t\t: Cell Broadband Engine, altivec supported\n",
            "Cell Broadband Engine, altivec supported",
            "ppc64",
        ),
        ("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported", ""),
        ("processor\t: 0\ncpu\t\t: POWER10 (architected)\n", "POWER10 (architected)", ""),
        ("processor\t: 0\nhart\t: 1\nisa\t: rv64imafdc\nuarch\t: sifive,u74-mc\n", "sifive,u74-mc", "riscv64"),
        ("processor\t: 0\nisa\t: rv64imafdc\n", "", "riscv64"),
        (
            "processor : 0\nCPU Family : Loongson-64bit\nModel Name : Loongson-3A5000-HV\n",
            "Loongson-3A5000-HV",
            "loongarch64",
        ),
        (
            "processor  : 0\nvendor     : GenuineIntel\narch       : IA-64\nfamily     : Itanium 2\n",
            "Itanium 2",
            "ia64",
        ),
        ("cpu\t\t: UltraSparc T1 (Niagara)\ntype\t\t: sun4v\n", "UltraSparc T1 (Niagara)", "sparc64"),
        ("cpu\t\t\t: Alpha\ncpu model\t\t: EV67\n", "EV67", ""),
    ],
)
def test_each_architecture_names_its_model_in_its_own_way(tree, cpuinfo, model, architecture):
    machine = read_machine(tree({"proc/cpuinfo": cpuinfo}))
    assert (machine.model, machine.architecture, machine.problems) == (model, architecture, ())


@pytest.mark.parametrize(
    ("path", "text", "architecture"),
    [
        ("proc/sys/kernel/arch", "ppc64le\n", "ppc64le"),
        ("proc/hwloc-nofile-info", "OSName: Linux\nArchitecture: ppc64le\nPageSize: 65536\n", "ppc64le"),
        ("proc/version", "Linux version 4.18.0-477.el8.ppc64le (mockbuild@host) (gcc) #1 SMP\n", "ppc64le"),
        ("proc/version", "Linux version 6.1.0-13-powerpc64le (debian) #1 SMP\n", ""),
        ("proc/sys/kernel/arch", "what is this?\n", ""),
        ("proc/sys/kernel/arch", "\xff\x00\n", ""),
    ],
)
def test_the_byte_order_of_power_is_known_where_the_kernel_or_its_release_says_it(tree, path, text, architecture):
    machine = read_machine(tree({"proc/cpuinfo": "processor\t: 0\ncpu\t\t: POWER9\n", path: text}))
    assert machine.architecture == architecture


@pytest.mark.parametrize("text", ["", "\n\n", "\x01\x00\x02\n", "nothing to see"])
def test_a_cpuinfo_that_says_nothing_is_a_problem(tree, text):
    machine = read_machine(tree({"proc/cpuinfo": text}))
    assert (machine.model, machine.architecture) == ("", "")
    assert machine.problems == (("proc/cpuinfo", "has no line of the form key : value"),)


def sockets_of(machine):
    return [cpuset.ids(socket.cpus) for socket in machine.sockets]


def cores_of(machine):
    return [cpuset.ids(core) for core in machine.cores]


def test_cpus_cores_and_sockets_come_from_cpuinfo_where_there_is_no_sysfs(tree):
    text = "".join(X86.format(cpu=cpu, socket=cpu % 2, core=cpu // 2 % 2, cores=2, siblings=4) for cpu in range(8))
    machine = read_machine(tree({"proc/cpuinfo": text}))
    assert cpuset.ids(machine.online) == list(range(8))
    assert sockets_of(machine) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert cores_of(machine) == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_core_numbers_that_repeat_in_a_socket_make_no_cores(tree):
    """Two dies in a socket, each numbering its cores from 0: an Opteron 6100."""
    text = "".join(X86.format(cpu=cpu, socket=0, core=cpu % 4, cores=8, siblings=8) for cpu in range(8))
    machine = read_machine(tree({"proc/cpuinfo": text}))
    assert (cores_of(machine), sockets_of(machine)) == ([], [list(range(8))])


def test_numbers_that_contradict_the_count_of_siblings_tell_nothing(tree):
    """Each CPU of a Xen guest calls itself the only one of socket 0."""
    text = "".join(X86.format(cpu=cpu, socket=0, core=0, cores=1, siblings=1) for cpu in range(4))
    machine = read_machine(tree({"proc/cpuinfo": text}))
    assert (cpuset.ids(machine.online), machine.cores, machine.sockets) == ([0, 1, 2, 3], (), ())


def test_cpuinfo_tells_the_cores_where_sysfs_has_no_sets(tree):
    files = {f"sys/devices/system/cpu/cpu{cpu}/crash_notes": "0\n" for cpu in range(4)}
    files["proc/cpuinfo"] = "".join(
        X86.format(cpu=cpu, socket=0, core=cpu // 2, cores=2, siblings=4) for cpu in range(4)
    )
    machine = read_machine(tree(files))
    assert (cores_of(machine), sockets_of(machine)) == ([[0, 1], [2, 3]], [[0, 1, 2, 3]])


@pytest.mark.parametrize(
    ("cpuinfo", "online"),
    [
        ("vendor_id : IBM/S390\nprocessor 0: version = FF\nprocessor 2: version = FF\n\ncpu number : 0\n", [0, 2]),
        ("processor : 0\ncpu : POWER6\n\nprocessor : 1\ncpu : POWER6\n\ntimebase : 512000000\n", [0, 1]),
        ("processor : 99999999\ncpu : x\n", []),
    ],
)
def test_other_architectures_list_their_cpus(tree, cpuinfo, online):
    machine = read_machine(tree({"proc/cpuinfo": cpuinfo}))
    assert (cpuset.ids(machine.online), machine.cores) == (online, ())


def test_a_listing_of_many_cpus_is_opened_once_for_all_and_once_for_the_first(tree):
    listing = "".join(X86.format(cpu=cpu, socket=0, siblings=512, core=cpu, cores=512) for cpu in range(512))
    root = tree({"proc/cpuinfo": listing})
    opened = []
    path = str(root / "proc/cpuinfo")

    def hook(event, arguments):
        # A hook stays for good: it compares with a path of this test only.
        if event == "open" and arguments[0] == path:
            opened.append(path)

    sys.addaudithook(hook)
    assert cpuset.count(read_machine(root).online) == 512
    assert len(opened) == 2


class Counted(bytes):
    """A piece of a file that notes how many bytes are copied where it is added to others."""

    copied = 0

    def __add__(self, other):
        Counted.copied += len(self) + len(other)
        return Counted(bytes(self) + other)

    def __radd__(self, other):
        Counted.copied += len(self) + len(other)
        return Counted(other + bytes(self))


def test_the_pieces_of_a_large_file_are_not_copied_again_for_each_that_follows(tmp_path, monkeypatch):
    path, size = tmp_path / "cpuinfo", 1 << 20
    path.write_text("x" * size)
    read = os.read
    monkeypatch.setattr(os, "read", lambda fd, most: Counted(read(fd, most)))
    monkeypatch.setattr(Counted, "copied", 0)
    assert files.read_text(str(path), to_end=True, limit_bytes=size) == "x" * size
    assert Counted.copied <= 2 * size
