import subprocess
import sys
from pathlib import Path

import pytest
from support.cgroup_layouts import LAYOUTS

from raddle.cpus import cpuset
from raddle.process import cgroup, cgroupfs
from raddle.process.cgroup import ResourceLimits, read_limits, usable_cpus

STATUS = "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-7\n"
RUNTIME = Path(__file__).parents[2] / "runtime"


def v2_mount(root="/", point="/sys/fs/cgroup"):
    return f"30 23 0:26 {root} {point} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def v1_mount(controllers, root="/", point=None):
    point = point or f"/sys/fs/cgroup/{controllers}"
    return f"33 23 0:28 {root} {point} rw - cgroup cgroup rw,{controllers}\n"


@pytest.fixture
def machine(tmp_path):
    """Makes a root folder: machine(cgroup text, mountinfo text, {path below the root: text})."""

    def make(own, mounts, files=None, status=STATUS):
        everything = {"proc/self/cgroup": own, "proc/self/mountinfo": mounts, "proc/self/status": status} | (
            files or {}
        )
        for path, text in everything.items():
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        return read_limits(tmp_path)

    return make


def test_a_v2_container_sees_its_own_limits_at_the_top_of_the_mount(machine):
    top = "sys/fs/cgroup"
    found = machine(
        "0::/\n",
        v2_mount(),
        {
            f"{top}/cpu.max": "150000 100000\n",
            f"{top}/cpu.max.burst": "20000\n",
            f"{top}/cpu.weight": "59\n",
            f"{top}/cpuset.cpus.effective": "2-5\n",
            f"{top}/memory.max": "536870912\n",
            f"{top}/cpu.stat": "usage_usec 5\nnr_periods 80\nnr_throttled 7\nthrottled_usec 1234\n",
        },
    )
    assert (found.quota_cpus, found.period_us, found.burst_us) == (1.5, 100000, 20000)
    assert found.quota_path.endswith("/sys/fs/cgroup")
    assert (found.cpuset, found.inherited) == (0b111100, 0b11111111)
    assert found.memory_limit_bytes == 512 << 20
    assert (found.weight, found.shares) == (59, None)
    assert (found.nr_periods, found.nr_throttled, found.throttled_us) == (80, 7, 1234)
    assert usable_cpus(found) == (0b111100, 1.5)


@pytest.mark.parametrize("layout", LAYOUTS, ids=[layout.name for layout in LAYOUTS])
def test_every_layout_tells_what_may_be_used(layout, tmp_path):
    found = read_limits(layout.make(tmp_path))
    told = {name: value for name, value in found._values() if value is not None}
    if "quota_path" in told:
        told["quota_path"] = str(Path(told["quota_path"]).relative_to(tmp_path))
    for name in ("cpuset", "inherited"):
        if name in told:
            told[name] = cpuset.format_list(told[name])
    assert told == layout.expected
    usable, quota_cpus = usable_cpus(found)
    assert (usable and cpuset.format_list(usable), quota_cpus) == layout.usable


@pytest.mark.parametrize("layout", LAYOUTS, ids=[layout.name for layout in LAYOUTS])
def test_a_session_reads_the_same_quota_as_the_limits_together(layout, tmp_path):
    whole, quota = read_limits(layout.make(tmp_path)), cgroup.CPUController(tmp_path).read()
    for name in ("quota_cpus", "quota_path", "period_us", "burst_us", "nr_periods"):
        assert getattr(quota, name) == getattr(whole, name)
    assert (quota.cpuset, quota.inherited, quota.memory_limit_bytes) == (None, None, None)


@pytest.mark.parametrize(
    ("pod", "container", "quota", "where"),
    [
        ("max 100000", "200000 100000", 2.0, "pod/box"),
        ("100000 100000", "200000 100000", 1.0, "pod"),
        ("50000 10000", "max 100000", 5.0, "pod"),
        ("200000 100000", "150000 50000", 2.0, "pod"),
        ("max 100000", "max 100000", None, "pod/box"),
    ],
)
def test_the_tightest_visible_ancestor_counts(machine, pod, container, quota, where):
    top = "sys/fs/cgroup"
    files = {f"{top}/pod/cpu.max": f"{pod}\n", f"{top}/pod/box/cpu.max": f"{container}\n"}
    files |= {f"{top}/pod/memory.max": "1000\n", f"{top}/pod/box/memory.max": "max\n"}
    files |= {f"{top}/cpuset.cpus.effective": "0-3\n", f"{top}/pod/cpuset.cpus.effective": "0-1\n"}
    found = machine("0::/pod/box\n", v2_mount(), files)
    assert found.quota_cpus == quota
    assert found.quota_path.endswith(f"/sys/fs/cgroup/{where}")
    assert found.memory_limit_bytes == 1000
    # The controller is not enabled in box: the set above is the one that holds.
    assert found.cpuset == 0b11


def test_a_v1_container_sees_its_own_limits_through_a_mount_of_its_own_cgroup(machine):
    own = "/kubepods/pod1/box"
    cpu, cpus, memory = (f"sys/fs/cgroup/{name}" for name in ("cpu,cpuacct", "cpuset", "memory"))
    found = machine(
        f"4:memory:{own}\n3:cpuset:{own}\n2:cpu,cpuacct:{own}\n0::/\n",
        v1_mount("cpu,cpuacct", own) + v1_mount("cpuset", own) + v1_mount("memory", own),
        {
            f"{cpu}/cpu.cfs_quota_us": "50000\n",
            f"{cpu}/cpu.cfs_period_us": "100000\n",
            f"{cpu}/cpu.cfs_burst_us": "0\n",
            f"{cpu}/cpu.shares": "512\n",
            f"{cpu}/cpu.stat": "nr_periods 10\nnr_throttled 3\nthrottled_time 5000000\n",
            f"{cpus}/cpuset.cpus": "0-7\n",
            f"{cpus}/cpuset.effective_cpus": "0-3\n",
            f"{memory}/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert (found.quota_cpus, found.period_us, found.burst_us) == (0.5, 100000, 0)
    assert (found.shares, found.weight, found.memory_limit_bytes) == (512, None, None)
    assert (found.nr_periods, found.nr_throttled, found.throttled_us) == (10, 3, 5000)
    assert found.cpuset == 0b1111


def test_v1_limits_nest_too(machine):
    cpu = "sys/fs/cgroup/cpu"
    files = {}
    for path, quota in (("", -1), ("/a", 100000), ("/a/b", 300000)):
        files |= {f"{cpu}{path}/cpu.cfs_quota_us": f"{quota}\n", f"{cpu}{path}/cpu.cfs_period_us": "100000\n"}
    found = machine("1:cpu:/a/b\n", v1_mount("cpu"), files)
    assert (found.quota_cpus, found.quota_path[-6:]) == (1.0, "/cpu/a")


def test_a_hybrid_host_keeps_each_controller_where_it_is(machine):
    found = machine(
        "1:cpu:/a\n0::/b\n",
        v1_mount("cpu") + v2_mount(point="/sys/fs/cgroup/unified"),
        {
            "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "100000\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "50000\n",
            "sys/fs/cgroup/unified/b/cpu.max": "10000 100000\n",
            "sys/fs/cgroup/unified/b/memory.max": "4096\n",
        },
    )
    assert (found.quota_cpus, found.memory_limit_bytes) == (2.0, 4096)


@pytest.mark.parametrize(
    ("own", "root", "path"),
    [
        ("/", "/", []),
        ("/a/b", "/", ["a", "b"]),
        ("/a/b", "/a/b", []),
        ("/a/b/c", "/a/b", ["c"]),
        ("/", "/../..", []),  # mounted from outside the namespace: only its top is known to be above us
        ("/x", "/..", []),
        ("/../x", "/..", ["x"]),  # moved to a sibling, and the mount shows it
        ("/../x", "/", None),  # moved out of what the mount shows
        ("/a", "/b", None),
        ("/ab", "/a", None),
        ("/", "/kubepods/box", None),
    ],
)
def test_the_visible_path_of_a_process(own, root, path):
    assert cgroupfs.visible_path(own, root) == path


def test_a_mount_from_outside_the_namespace_still_shows_an_ancestor(machine):
    found = machine("0::/\n", v2_mount("/../.."), {"sys/fs/cgroup/cpu.max": "300000 100000\n"})
    assert found.quota_cpus == 3.0


def test_directories_that_are_not_there_are_out_of_sight(machine):
    found = machine("0::/host/only/box\n", v2_mount(), {"sys/fs/cgroup/host/cpu.max": "70000 100000\n"})
    assert found.quota_cpus == pytest.approx(0.7)


def test_the_mount_that_shows_more_wins(machine):
    mounts = v2_mount("/pod/box", "/small") + v2_mount("/", "/all")
    files = {
        "small/cpu.max": "max 100000\n",
        "all/pod/cpu.max": "100000 100000\n",
        "all/pod/box/cpu.max": "max 100000\n",
    }
    assert machine("0::/pod/box\n", mounts, files).quota_cpus == 1.0


def test_a_mount_point_with_a_space(machine):
    found = machine("0::/\n", v2_mount(point="/my\\040cgroups"), {"my cgroups/cpu.max": "100000 100000\n"})
    assert found.quota_cpus == 1.0


@pytest.mark.parametrize(
    "text", ["", "max 100000", "100000", "0 100000", "100000 0", "-1 100000", "1.5 1", "a b", "1 2 3", "9" * 30 + " 1"]
)
def test_a_cpu_max_that_is_no_limit(text):
    assert cgroup.parse_cpu_max(text) is None


@pytest.mark.parametrize("name", ["cgroup", "mountinfo", "status"])
@pytest.mark.parametrize("text", ["", "\x00\xff\n", "a b c d e f\n", ":::\n- - -\n", "x" * 200_000])
def test_nonsense_in_proc_gives_absent_facts(machine, name, text):
    texts = {"cgroup": "0::/\n", "mountinfo": v2_mount(), "status": STATUS} | {name: text}
    found = machine(texts["cgroup"], texts["mountinfo"], {}, texts["status"])
    assert found.quota_cpus is None
    assert found.cpuset is None


def test_a_process_that_is_gone_has_no_facts(tmp_path):
    assert read_limits(tmp_path, 12345) == ResourceLimits()
    assert usable_cpus(ResourceLimits()) == (None, None)


@pytest.mark.parametrize(
    ("facts", "online", "usable"),
    [
        ({"cpuset": 0b1100}, 0, (0b1100, None)),
        ({"cpuset": 0b1100, "inherited": 0b0110}, 0, (0b0100, None)),
        ({"cpuset": 0b1100, "inherited": 0b0011}, 0, (0b0011, None)),  # contradiction: the affinity counts
        ({"inherited": 0b1111}, 0b0111, (0b0111, None)),
        ({"inherited": 0b1000, "cpuset": 0b1100}, 0b0011, (0b1000, None)),  # lxcfs says that CPUs 0 and 1 are online
        ({"cpuset": 0b0011, "quota_cpus": 1.5}, 0, (0b0011, 1.5)),
        ({"cpuset": 0b0011, "quota_cpus": 2.0}, 0, (0b0011, None)),  # can't be used up
        ({"quota_cpus": 2.0}, 0, (None, 2.0)),
        ({"quota_cpus": 2.0}, 0b1, (0b1, None)),
    ],
)
def test_what_may_be_used(facts, online, usable):
    assert usable_cpus(ResourceLimits(**facts), online) == usable


def test_limits_are_a_value():
    one = ResourceLimits(quota_cpus=1.5, cpuset=3)
    assert one == ResourceLimits(cpuset=3, quota_cpus=1.5)
    assert hash(one) == hash(ResourceLimits(cpuset=3, quota_cpus=1.5))
    assert one != ResourceLimits(quota_cpus=1.5)
    assert one != 1.5
    assert repr(one) == "ResourceLimits(cpuset=3, quota_cpus=1.5)"
    with pytest.raises(TypeError, match="quota"):
        ResourceLimits(quota=1)


def test_importing_it_loads_nothing_heavy():
    code = "import os, sys; before = set(sys.modules); import raddle.process.cgroup; print(*sorted(set(sys.modules) - before))"
    result = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(RUNTIME)}, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [
        "__future__",
        "raddle",
        "raddle.cpus",
        "raddle.cpus.cpuset",
        "raddle.errors",
        "raddle.files",
        "raddle.process",
        "raddle.process.cgroup",
        "raddle.process.cgroupfs",
    ]
