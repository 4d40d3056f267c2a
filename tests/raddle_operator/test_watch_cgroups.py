"""Containers' cgroups in trees of files as container runtimes and drivers make them, and the kubelet's own metrics."""

from dataclasses import replace

import pytest

from raddle_operator.agent import cadvisor, host_cgroups
from raddle_operator.agent.governed import GovernedContainer, GovernedPod
from raddle_operator.agent.host_cgroups import HostCgroups

UID = "1f2e0000-aaaa-4bbb-8ccc-0123456789ab"
SLICE = UID.replace("-", "_")
BOX = "9a8b" * 16
OTHER = "7c6d" * 16
POD = GovernedPod(
    namespace="models",
    name="resnet-1",
    uid=UID,
    planned={},
    containers=(GovernedContainer(name="server", id=BOX), GovernedContainer(name="starting")),
)
V2_FILES = {
    "cpu.max": "150000 100000\n",
    "cpu.stat": "usage_usec 7000000\nuser_usec 1\nnr_periods 50\nnr_throttled 5\nthrottled_usec 2500000\nnr_bursts 0\n",
    "cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\nfull avg10=0.00 avg60=0.00 total=9\n",
    "cpuset.cpus.effective": "0-3,8\n",
    "cgroup.procs": "11\n12\n0\n",
}
V1_FILES = {
    "cpu,cpuacct": {
        "cpu.cfs_quota_us": "150000\n",
        "cpu.cfs_period_us": "100000\n",
        "cpu.stat": "nr_periods 50\nnr_throttled 5\nthrottled_time 2500000000\n",
        "cpuacct.usage": "7000000000\n",
        "cgroup.procs": "11\n12\n0\n",
    },
    "cpuset": {"cpuset.effective_cpus": "0-3,8\n"},
}
# What the pods' folder, the pod's and the container's are called.
PATHS = {
    "containerd, systemd, Burstable": (f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice",
     f"cri-containerd-{BOX}.scope"),
    "containerd, systemd, Guaranteed": (f"kubepods.slice/kubepods-pod{SLICE}.slice", f"cri-containerd-{BOX}.scope"),
    "containerd, cgroupfs, BestEffort": (f"kubepods/besteffort/pod{UID}", BOX),
    "containerd, cgroupfs, Guaranteed": (f"kubepods/pod{UID}", BOX),
    "CRI-O, systemd": (f"kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE}.slice",
     f"crio-{BOX}.scope"),
    "CRI-O, cgroupfs": (f"kubepods/burstable/pod{UID}", f"crio-{BOX}"),
    "kind, systemd": (f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICE}.slice",
     f"cri-containerd-{BOX}.scope"),
    "kind, cgroupfs": (f"kubelet/kubepods/burstable/pod{UID}", BOX),
    "a kubelet with --cgroup-root": (f"tenant/a/kubepods/pod{UID}", BOX),
}  # fmt: skip


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def tree(root, version, pod, box, files=None):
    """The node's /sys/fs/cgroup with one container, another of the same pod, and services beside the pods."""
    tops = {"": files or V2_FILES} if version == 2 else files or V1_FILES
    for top, found in tops.items():
        write(root / top / pod / box, found)
        write(root / top / pod / box.replace(BOX, OTHER), {})
        write(root / top / pod / f"crio-conmon-{BOX}.scope", {})
        write(root / top / "system.slice/containerd.service", {})
    if version == 2:
        (root / "cgroup.controllers").write_text("cpu cpuset\n")
    return HostCgroups(str(root))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("pod", "box"), PATHS.values(), ids=PATHS)
def test_a_container_is_found_by_its_pod_and_its_id(tmp_path, version, pod, box):
    cgroups = tree(tmp_path, version, pod, box)
    places = cgroups.places([POD])
    assert list(places) == [BOX]
    found = cgroups.counters(places[BOX])
    assert found._replace(at_s=0.0) == (0.0, 7.0, 50, 5, 2.5, 1.5 if version == 2 else None, 1.5, "0-3,8", 3)
    assert cgroups.processes(places[BOX]) == [11, 12]


def test_processes_of_cgroups_below_the_containers_count(tmp_path):
    pod, box = PATHS["CRI-O, systemd"]
    cgroups = tree(tmp_path, 2, pod, box)
    write(tmp_path / pod / box / "container", {"cgroup.procs": "13\n"})
    write(tmp_path / pod / box / "container" / "deeper", {"cgroup.procs": "14\n"})
    place = cgroups.places([POD])[BOX]
    assert cgroups.processes(place) == [11, 12, 13, 14]
    assert cgroups.counters(place).processes == 5


def test_processes_that_this_namespace_can_not_see_are_counted_where_the_kernel_lists_them(tmp_path):
    pod, box = PATHS["CRI-O, systemd"]
    unseen = tree(tmp_path / "2", 2, pod, box, V2_FILES | {"cgroup.procs": "0\n0\n"})
    silent = {"cpu,cpuacct": V1_FILES["cpu,cpuacct"] | {"cgroup.procs": ""}, "cpuset": V1_FILES["cpuset"]}
    unlisted = tree(tmp_path / "1", 1, pod, box, silent)
    assert [one.counters(one.places([POD])[BOX]).processes for one in (unseen, unlisted)] == [2, None]


def test_a_container_that_starts_again_is_found_by_its_new_id(tmp_path):
    pod, box = PATHS["containerd, cgroupfs, Guaranteed"]
    cgroups = tree(tmp_path, 2, pod, box)
    assert list(cgroups.places([POD])) == [BOX]
    again = replace(POD, containers=(GovernedContainer(name="server", id=OTHER),))
    assert list(cgroups.places([again])) == [OTHER]
    assert list(cgroups.places([])) == []


def test_the_pods_quota_holds_where_it_is_less_and_its_throttling_with_it(tmp_path):
    pod, box = PATHS["containerd, cgroupfs, Guaranteed"]
    files = V2_FILES | {"cpu.max": "max 100000\n", "cpu.stat": "usage_usec 7000000\n"}
    cgroups = tree(tmp_path, 2, pod, box, files)
    write(tmp_path / pod, {"cpu.max": "50000 100000\n", "cpu.stat": "nr_periods 9\nnr_throttled 3\n"})
    found = cgroups.counters(cgroups.places([POD])[BOX])
    assert (found.quota_cpus, found.used_s, found.periods, found.throttled_periods) == (0.5, 7.0, 9, 3)


@pytest.mark.parametrize("text", ["max 100000\n", "", "-1 100000\n", "x y z\n", "0 0\n"])
def test_what_is_no_quota_is_none(tmp_path, text):
    pod, box = PATHS["containerd, cgroupfs, Guaranteed"]
    cgroups = tree(tmp_path, 2, pod, box, V2_FILES | {"cpu.max": text})
    assert cgroups.counters(cgroups.places([POD])[BOX]).quota_cpus is None


def test_minus_one_is_no_quota_of_version_1(tmp_path):
    pod, box = PATHS["containerd, cgroupfs, Guaranteed"]
    cpu = V1_FILES["cpu,cpuacct"] | {"cpu.cfs_quota_us": "-1\n"}
    cgroups = tree(tmp_path, 1, pod, box, V1_FILES | {"cpu,cpuacct": cpu})
    assert cgroups.counters(cgroups.places([POD])[BOX]).quota_cpus is None


def test_controllers_of_version_1_may_lie_apart(tmp_path):
    pod, box = PATHS["containerd, cgroupfs, Guaranteed"]
    both = V1_FILES["cpu,cpuacct"]
    apart = {
        "cpu": {name: text for name, text in both.items() if name != "cpuacct.usage"},
        "cpuacct": {"cpuacct.usage": both["cpuacct.usage"]},
    }
    cgroups = tree(tmp_path, 1, pod, box, apart)
    found = cgroups.counters(cgroups.places([POD])[BOX])
    assert (found.used_s, found.quota_cpus, found.cpuset) == (7.0, 1.5, None)


def test_a_cgroup_that_goes_while_it_is_read_tells_nothing(tmp_path):
    pod, box = PATHS["containerd, cgroupfs, Guaranteed"]
    cgroups = tree(tmp_path, 2, pod, box)
    place = cgroups.places([POD])[BOX]
    (tmp_path / pod / box).rename(tmp_path / "gone")
    assert cgroups.counters(place)[1:] == (None,) * 8
    assert cgroups.processes(place) == []
    assert cgroups.places([POD]) == {}


@pytest.mark.parametrize(
    ("text", "seconds"), [("some avg10=0.00 total=2000000\n", 2.0), ("", None), ("some total=\n", None)]
)
def test_pressure_is_the_time_in_which_some_task_waited(text, seconds):
    assert host_cgroups.parse_pressure(text) == seconds


LABELS = (
    'container="server",id="/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f2e.slice/'
    f'cri-containerd-{BOX}.scope",image="registry/resnet:1",name="{BOX}",namespace="models",pod="resnet-1"'
)
TEXT = f"""# HELP container_cpu_usage_seconds_total Cumulative cpu time consumed in seconds.
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{{container="",cpu="total",id="/",image="",name="",namespace="",pod=""}} 99 1700000000123
container_cpu_usage_seconds_total{{container="server",cpu="total",{LABELS.partition(",")[2]}}} 12.5 1700000000123
container_cpu_cfs_periods_total{{{LABELS}}} 50 1700000000123
container_cpu_cfs_throttled_periods_total{{{LABELS}}} 5 1700000000123
container_cpu_cfs_throttled_seconds_total{{{LABELS}}} 2.5e-01 1700000000123
container_pressure_cpu_waiting_seconds_total{{{LABELS}}} 1.5 1700000000123
container_pressure_cpu_stalled_seconds_total{{{LABELS}}} 7 1700000000123
container_processes{{{LABELS}}} 4 1700000000123
container_spec_cpu_quota{{{LABELS}}} 150000
container_spec_cpu_period{{{LABELS}}} 100000
container_memory_rss{{{LABELS}}} 1 1700000000123
container_cpu_usage_seconds_total{{container="x",cpu="total",id="/kubepods/pod3/{OTHER}",name="{OTHER}"}} 3 1700000000123
machine_cpu_cores{{boot_id="x"}} 4
"""


def test_the_kubelets_metrics_give_the_counters_of_the_containers_that_are_wanted():
    found = cadvisor.parse(TEXT.encode().split(b"\n"), {BOX}, 0.0)
    assert found == {BOX: (1700000000.123, 12.5, 50, 5, 0.25, 1.5, 1.5, None, 4)}


@pytest.mark.parametrize(
    "path", [f"/kubepods/pod3/{OTHER}", f"/kubepods.slice/x.slice/crio-{OTHER}.scope", f"/a/crio-{OTHER}"]
)
def test_a_container_is_known_by_the_end_of_its_cgroups_path(path):
    line = f'container_cpu_usage_seconds_total{{cpu="total",id="{path}"}} 3\n'.encode()
    assert cadvisor.parse([line], {OTHER}, 5.0) == {OTHER: (5.0, 3.0, None, None, None, None, None, None, None)}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"container_cpu_usage_seconds_total",
        b'container_cpu_usage_seconds_total{id="/a/%s"}' % OTHER.encode(),
        b'container_cpu_usage_seconds_total{id="/a/%s"} NaN' % OTHER.encode(),
        b'container_cpu_usage_seconds_total{id="/a/%s"} ....' % OTHER.encode(),
        b'container_cpu_usage_seconds_total{id="/a/%s' % OTHER.encode(),
        b'container_cpu_usage_seconds_total{image="} 3 \xff",x="id=\\"/a/%s\\"} 3"} 3' % OTHER.encode(),
        b'container_cpu_cfs_periods_total{id="/a/%s"} 3 1' % OTHER.encode(),
    ],
)
def test_a_line_that_can_not_be_used_is_passed_over(line):
    assert cadvisor.parse([line], {OTHER}, 5.0) == {}


def test_a_kubelet_that_can_not_see_waits_or_does_not_count_processes_says_nought():
    lines = [
        f'container_{name}{{cpu="total",id="/a/{OTHER}"}} {value}'.encode()
        for name, value in (("cpu_usage_seconds_total", 3), ("pressure_cpu_waiting_seconds_total", 0), ("processes", 0))
    ]
    found = cadvisor.parse(lines, {OTHER}, 5.0)[OTHER]
    assert (found.waiting_s, found.processes) == (None, None)
