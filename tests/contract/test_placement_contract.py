"""Python, Node.js and the native shim place a container's threads alike: on any machine, any set of it, any wish.

The machines are the committed ones and made-up ones with every oddity that a tree may have. Reading and deciding are
compared together. The native parts run under the sanitizers.
"""

import importlib.util
import random
from pathlib import Path

import pytest

import machines
from raddle import cpuset, env
from raddle.adapters import live
from raddle.adapters.ort_affinity import affinity_text
from raddle.placement import Wish, place, tie
from raddle.sysfs import read_machine

SEED = 20261123
CPU, NODE = "sys/devices/system/cpu", "sys/devices/system/node"


def load(name):
    """A neighbour's harness: both languages are asked as there."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


native = load("test_native_contract")
answers = native.answers
node_answers = native.cases.answers


# --- made-up machines -----------------------------------------------------------------------------------------------


def mask_text(cpus):
    """ "3,80000000" for CPUs 31, 32 and 33."""
    mask = cpuset.of(cpus)
    words = []
    while mask:
        words.append(f"{mask & 0xFFFFFFFF:08x}")
        mask >>= 32
    return ",".join(reversed(words)) or "0"


class Tree:
    """One machine's files; what is drawn is kept here so that the parts agree, or contradict each other on purpose."""

    def __init__(self, rng):
        self.rng = rng
        self.files = {"proc/cpuinfo": "processor\t: 0\nmodel name\t: made up\nflags\t\t: fpu lm\n"}
        self.cores = self.numbered_cores()
        # Offline CPUs have no topology directory.
        gone = {cpu for core in self.cores for cpu in core if rng.random() < 0.1} if rng.random() < 0.3 else set()
        self.cores = [left for left in ([cpu for cpu in core if cpu not in gone] for core in self.cores) if left]
        self.cpus = sorted(cpu for core in self.cores for cpu in core)
        self.files[f"{CPU}/online"] = machines.as_list(self.cpus)
        self.files[f"{CPU}/present"] = machines.as_list(sorted({*self.cpus, *gone}))
        self.topology()
        self.sockets()
        self.nodes()
        self.caches()
        self.kinds()
        if rng.random() < 0.2:
            isolated = rng.sample(self.cpus, rng.randint(1, len(self.cpus)))
            self.files[f"{CPU}/isolated"] = machines.as_list(isolated)
        self.gpus()

    def numbered_cores(self):
        """Siblings side by side, apart as on most servers, or anywhere; with holes in the numbering."""
        rng = self.rng
        count, threads = rng.randint(1, 16), rng.choice([1, 2, 2, 2, 4])
        stride, first = rng.choice([1, 1, 1, 2, 3]), rng.choice([0, 0, 0, 5, 60])
        ids = [first + stride * number for number in range(count * threads)]
        order = rng.choice(["beside", "apart", "apart", "any"])
        if order == "any":
            rng.shuffle(ids)
        if order == "apart":
            return [sorted(ids[core::count]) for core in range(count)]
        return [sorted(ids[core * threads : (core + 1) * threads]) for core in range(count)]

    def shares(self, parts):
        """The cores in so many groups: in order, or in turn as boards with two sockets number them."""
        if self.rng.random() < 0.3:
            return [self.cores[part::parts] for part in range(parts)]
        cuts = sorted(self.rng.randint(0, len(self.cores)) for _ in range(parts - 1))
        return [self.cores[low:high] for low, high in zip([0, *cuts], [*cuts, len(self.cores)], strict=True)]

    def topology(self):
        rng = self.rng
        names = rng.choice([["core_cpus_list", "thread_siblings_list"], ["thread_siblings_list"], ["core_cpus"]])
        silent = self.silent = rng.choice([0, 0, 0, 0, 0.3])
        # The shims ask a container's own CPUs only, and a sibling outside might speak for a silent one.
        for core in [core for core in self.cores if rng.random() >= silent]:
            for cpu in core:
                for name in names:
                    text = machines.as_list(core) if name.endswith("list") else mask_text(core)
                    self.files[f"{CPU}/cpu{cpu}/topology/{name}"] = text

    def sockets(self):
        name = self.rng.choice(["package_cpus_list", "core_siblings_list", "package_cpus"])
        for share in self.shares(self.rng.choice([1, 2, 2, 4])):
            cpus = sorted(cpu for core in share for cpu in core)
            for cpu in cpus:
                text = machines.as_list(cpus) if name.endswith("list") else mask_text(cpus)
                self.files[f"{CPU}/cpu{cpu}/topology/{name}"] = text

    def nodes(self):
        rng = self.rng
        count = rng.choice([0, 1, 2, 2, 2, 4, 5])
        ids = sorted(rng.sample(range(rng.choice([count, 2 * count + 1, 80]) or 1), count)) if count else []
        self.node_ids = ids
        for node, share in zip(ids, self.shares(count) if count else [], strict=True):
            cpus = sorted(cpu for core in share for cpu in core)
            if rng.random() < 0.05:
                cpus = self.cpus
            if rng.random() < 0.05:
                continue
            if rng.random() < 0.1:
                self.files[f"{NODE}/node{node}/cpumap"] = mask_text(cpus)
            else:
                self.files[f"{NODE}/node{node}/cpulist"] = machines.as_list(cpus)
            self.files[f"{NODE}/node{node}/meminfo"] = f"Node {node} MemTotal: 1024 kB"
        if ids:
            self.files[f"{NODE}/online"] = machines.as_list(ids)

    def caches(self):
        rng = self.rng
        index = rng.choice([3, 3, 3, 2, 0])
        ids = rng.choice([["-1"] * 8, [str(99 - number) for number in range(8)], ["x"] * 8])
        for number, share in enumerate(self.shares(rng.choice([1, 2, 4, 8]))):
            cpus = sorted(cpu for core in share for cpu in core)
            if rng.random() < 0.1:
                continue
            for cpu in cpus:
                folder = f"{CPU}/cpu{cpu}/cache"
                for other in range(4):
                    self.files[f"{folder}/index{other}/level"] = "3" if other == index else "1"
                self.files[f"{folder}/index{index}/id"] = ids[number]
                name, text = ("shared_cpu_list", machines.as_list(cpus))
                if number % 4 == 3:
                    name, text = ("shared_cpu_map", mask_text(cpus))
                self.files[f"{folder}/index{index}/{name}"] = text

    def kinds(self):
        rng = self.rng
        # Python tells kinds by their caches where CPUs name their siblings in the oldest way too, as all kernels do.
        told = f"{CPU}/cpu{self.cpus[0]}/topology/thread_siblings_list" in self.files
        how = rng.choice(["none", "pmu", "capacity", "one pmu", "caches" if told and not self.silent else "none"])
        fast, slow = self.shares(2)
        fast, slow = ([cpu for core in share for cpu in core] for share in (fast, slow))
        if how in ("none", "pmu", "one pmu"):
            self.files["sys/devices/cpu/type"] = "4"
        if how == "pmu":
            self.files["sys/devices/cpu_core/cpus"] = machines.as_list(fast)
            self.files["sys/devices/cpu_atom/cpus"] = machines.as_list(slow)
        elif how == "one pmu":
            self.files["sys/devices/cpu_core/cpus"] = machines.as_list(self.cpus)
        elif how == "capacity":
            self.capacities(
                rng.choice([[1024], [1024, 400], [1024, 800, 400], [1024, 800, 400, 400], [1024, 997, 731, 718]])
            )
        elif how == "caches":
            for cpus, size, khz in ((fast, "48K", 5200000), (slow, "32K", 3900000)):
                for cpu in cpus:
                    self.files[f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq"] = str(khz)
                    for cache, text in (("index0", size), ("index1", "32K")):
                        self.files[f"{CPU}/cpu{cpu}/cache/{cache}/size"] = text

    def capacities(self, values):
        """An Arm machine of clusters."""
        self.files["proc/cpuinfo"] = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
        for capacity, share in zip(values, self.shares(len(values)), strict=True):
            for core in share:
                for cpu in core:
                    self.files[f"{CPU}/cpu{cpu}/cpu_capacity"] = str(capacity)

    def gpus(self):
        rng = self.rng
        for number in range(rng.choice([0, 0, 1, 2])):
            vendor, kind = rng.choice([
                ("0x10de", "0x030200"), ("0x1002", "0x120000"), ("0x8086", "0x030000"), ("0x1a03", "0x030000"),
                ("0x8086", "0x038000"),
            ])  # fmt: skip
            folder = f"sys/bus/pci/devices/0000:{number:02x}:00.0"
            self.files[f"{folder}/vendor"], self.files[f"{folder}/class"] = vendor, kind
            self.files[f"{folder}/numa_node"] = str(rng.choice([-1, *self.node_ids]))


def made_up(rng, into):
    """A machine below the folder."""
    for name, text in Tree(rng).files.items():
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return into


# --- what is asked, and what Python says ----------------------------------------------------------------------------


def random_set(rng, online):
    """Some of the machine's CPUs: all, a run, whole halves, any."""
    first, size = rng.randrange(len(online)), rng.randint(1, len(online))
    return rng.choice([
        online,
        online[first : first + size],
        online[:: rng.choice([2, 3])],
        online[len(online) // 2 :],
        rng.sample(online, size),
    ])  # fmt: skip


def random_fields(rng, size):
    """The plan of a container that has so many exclusive CPUs."""
    fields = {"excl": size, "aff": rng.choice(["numa", "core"]), "spin": "bounded"}
    for key, words in (("numa", env.NUMA), ("ctype", env.CORE_TYPES)):
        if rng.random() < 0.4:
            fields[key] = rng.choice(words)
    for key in ("smt", "gpu"):
        if rng.random() < 0.4:
            fields[key] = rng.randint(0, 1)
    fields["intra"] = rng.randint(1, size)
    fields["min"] = rng.choice([1, 1, 2, size])
    return fields


class Case:
    """One container on one machine."""

    def __init__(self, rng, root, machine):
        self.root, self.machine = root, machine
        self.cpus = cpuset.of(random_set(rng, cpuset.ids(machine.online)))
        size = cpuset.count(self.cpus)
        self.fields = random_fields(rng, size)
        self.wish = Wish(
            self.fields.get("numa", "auto"),
            self.fields.get("ctype", "auto"),
            bool(self.fields.get("smt")),
            bool(self.fields.get("gpu")),
        )
        self.placed = place(machine, size, self.wish, self.cpus)
        self.count = rng.choice([1, 2, self.placed.threads, self.placed.threads, size, size + 1, rng.randint(1, size)])
        self.quota = rng.choice([None, None, size, size / 2, 1.5])

    def line(self):
        quota = "" if self.quota is None else self.quota
        parts = (self.root, env.encode(self.fields), cpuset.format_list(self.cpus), self.count, quota)
        return "\t".join(map(str, parts))

    def groups(self, **siblings):
        return tie(self.machine, self.cpus, self.count, self.fields["aff"], self.wish, **siblings)

    def text(self):
        """As ort_affinity.planned gives it to ONNX Runtime."""
        text = affinity_text(self.groups())
        return text or (affinity_text(self.groups(siblings=False)) if self.fields["aff"] == "numa" else "")

    def answer(self, workers):
        found = live.resolve(self.fields, live.Facts(self.cpus, self.quota, placed=self.placed))
        reasons = [found.because.get("intra", ""), found.because.get("spin", "")]
        return "|".join(
            map(str, [self.placed.threads, self.placed.because, found.intra, found.spin, *reasons, workers])
        )


def same(ask, cases, *, strings):
    """Each case is answered as Python answers it: the count and why, what it comes to, and the workers' CPUs."""
    for case, found in zip(cases, ask([case.line() for case in cases], "--place"), strict=True):
        workers = case.text() if strings else ";".join(map(cpuset.format_list, case.groups()))
        assert found == case.answer(workers), case.line()


@pytest.fixture(scope="module")
def made_up_cases(tmp_path_factory):
    rng = random.Random(SEED)
    cases = []
    for number in range(80):
        root = made_up(rng, tmp_path_factory.mktemp("machine") / str(number))
        machine = read_machine(str(root))
        cases += [Case(rng, root, machine) for _ in range(8)]
    # They are worth something: pools are cut, kinds are told apart, and counts are above what was placed.
    words = {case.placed.because.partition(" ")[2] for case in cases}
    assert {
        "physical cores",
        "physical cores of one type on one NUMA node",
        "CPUs of one type",
        "physical cores of the faster types",
        "physical cores on one socket",
    } <= words
    assert sum(case.placed.threads < case.count <= cpuset.count(case.cpus) for case in cases) > 60
    return cases


def named_cases(name):
    rng = random.Random(SEED)
    root = machines.path(name)
    machine = read_machine(str(root))
    return [Case(rng, root, machine) for _ in range(25)]


@pytest.mark.parametrize("name", machines.names())
def test_node_places_a_pool_on_a_named_machine_as_python_does(name):
    same(node_answers, named_cases(name), strings=True)


@pytest.mark.parametrize("name", machines.names())
def test_the_native_shim_places_a_pool_on_a_named_machine_as_python_does(name, answers):
    same(answers, named_cases(name), strings=False)


def test_node_places_a_pool_on_any_machine_as_python_does(made_up_cases):
    same(node_answers, made_up_cases, strings=True)


def test_the_native_shim_places_a_pool_on_any_machine_as_python_does(made_up_cases, answers):
    same(answers, made_up_cases, strings=False)


def test_more_cpus_than_onnx_runtime_can_name_are_placed_by_the_native_shim_and_counted_by_node(tmp_path, answers):
    contents = machines.synthesize(sockets=2, numa_nodes=4, l3_domains=16, cores=640, threads=2)
    wanted = ("topology/core_cpus_list", "/cpulist", "cpu/online", "index3/level", "index3/shared_cpu_list")
    root = machines.write({name: text for name, text in contents.items() if name.endswith(wanted)}, tmp_path)
    machine = read_machine(str(root))
    rng = random.Random(SEED)
    cases = [Case(rng, root, machine) for _ in range(4)]
    assert cases[0].machine.online.bit_length() == 1280
    same(answers, cases, strings=False)
    same(node_answers, cases, strings=True)
