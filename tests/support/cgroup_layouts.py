"""Layouts of cgroups as container runtimes and init systems make them, and what a process may use in each.

One table for every language that reads them: tests/raddle reads all facts in Python, tests/contract the quota in C and
Node.js too. `recorded` layouts lack /proc/PID/mountinfo or /proc/PID/cgroup, as only trees do that a tool recorded.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

CPU, CPUSET, MEMORY = "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpuset", "sys/fs/cgroup/memory"
TOP = "sys/fs/cgroup"
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f2e.slice"
BOX = POD + "/cri-containerd-9a8b.scope"


class Layout(NamedTuple):
    """A tree below a root, and what is to be read from it.

    files      path -> text; "-> target" makes a symbolic link
    reads      attribute of cgroup.ResourceLimits -> value; those not named are None, but for `inherited`, which is the
               status file's. CPU sets are kernel lists, quota_path is relative to the root
    usable     cgroup.usable_cpus of it, the set as a kernel list
    """

    name: str
    files: dict[str, str]
    reads: dict[str, object]
    usable: tuple[str | None, float | None]
    recorded: bool = False

    @property
    def expected(self) -> dict[str, object]:
        """What is to be read, the affinity with it."""
        status = self.files.get("proc/self/status", "").rpartition("Cpus_allowed_list:\t")
        return {"inherited": status[2].strip(), **self.reads} if status[1] else self.reads

    def make(self, root: Path) -> Path:
        """The root, with the files below it."""
        for path, text in self.files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if text.startswith("-> "):
                target.symlink_to(text[3:])
            else:
                target.write_text(text)
        return root


def proc(cgroup: str, mountinfo: str, cpus: str = "0-7", thread: str = "") -> dict[str, str]:
    """/proc of the process: its cgroup lines, its mounts, its affinity; `thread`: cgroup lines of the calling one."""
    files = {
        "proc/self/cgroup": cgroup,
        "proc/self/mountinfo": "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n" + mountinfo,
        "proc/self/status": f"Name:\tpython\nCpus_allowed_list:\t{cpus}\n",
    }
    if thread:
        files |= {path.replace("self", "thread-self"): text for path, text in files.items()}
        files["proc/thread-self/cgroup"] = thread
    return files


def v2_mount(root: str = "/", point: str = "/sys/fs/cgroup") -> str:
    return f"30 23 0:26 {root} {point} rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def v1_mounts(root: str = "/", *points: str) -> str:
    points = points or ("cpu,cpuacct", "cpuset", "memory", "freezer")
    lines = "25 23 0:22 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n"
    for point in points:
        lines += f"33 25 0:28 {root} /sys/fs/cgroup/{point} ro,nosuid master:11 - cgroup cgroup rw,{point}\n"
    return lines


def v1_lines(path: str, *more: str) -> str:
    lines = [f"12:freezer:{path}", f"7:cpuset:{path}", f"4:memory:{path}", f"3:cpu,cpuacct:{path}", *more]
    return "".join(line + "\n" for line in lines)


def v2(folder: str, cpu: str = "", cpus: str = "", memory: str = "", **more: str) -> dict[str, str]:
    """The files of one cgroup of version 2; `cpu`: cpu.max, `cpus`: what is effective, `memory`: memory.max."""
    texts = {"cgroup.procs": "", "cpu.max": cpu, "cpuset.cpus.effective": cpus, "memory.max": memory}
    texts |= {name.replace("_", "."): text for name, text in more.items()}
    return {f"{folder}/{name}": f"{text}\n" for name, text in texts.items() if text or name == "cgroup.procs"}


def v1(below: str, quota_us: int | None = None, cpus: str = "", memory: int | None = None) -> dict[str, str]:
    """The files of one cgroup of version 1 in three hierarchies, `below` the top of each."""
    files = {f"{hierarchy}{below}/cgroup.procs": "" for hierarchy in (CPU, CPUSET, MEMORY)}
    if quota_us is not None:
        files |= {f"{CPU}{below}/cpu.cfs_quota_us": f"{quota_us}\n", f"{CPU}{below}/cpu.cfs_period_us": "100000\n"}
    if cpus:
        files |= {f"{CPUSET}{below}/cpuset.{name}": f"{cpus}\n" for name in ("cpus", "effective_cpus")}
    if memory is not None:
        files[f"{MEMORY}{below}/memory.limit_in_bytes"] = f"{memory}\n"
    return files


UNLIMITED = 9223372036854771712  # as version 1 writes it
WHOLE_TOP = v2(TOP, cpus="0-7")

LAYOUTS = [
    Layout(
        "Docker, version 1: the container's own cgroup is the root of each mount",
        proc(v1_lines("/docker/4f5e"), v1_mounts("/docker/4f5e")) | v1("", 150000, "0-3", 536870912),
        {"quota_cpus": 1.5, "quota_path": CPU, "period_us": 100000, "cpuset": "0-3", "memory_limit_bytes": 536870912},
        ("0-3", 1.5),
    ),
    Layout(
        "Docker, version 1, private namespace",
        proc(v1_lines("/"), v1_mounts()) | v1("", -1, "0-7", UNLIMITED),
        {"quota_path": CPU, "cpuset": "0-7"},
        ("0-7", None),
    ),
    Layout(
        "Docker, version 2: private namespace, the container at the top",
        proc("0::/\n", v2_mount()) | v2(TOP, "50000 100000", "0-7", "max", cpu_weight="39", cpu_max_burst="25000"),
        {"quota_cpus": 0.5, "quota_path": TOP, "period_us": 100000, "burst_us": 25000, "weight": 39, "cpuset": "0-7"},
        ("0-7", 0.5),
    ),
    Layout(
        "Docker, version 2, host namespace: the daemon's slice limits it more",
        proc("0::/system.slice/docker-4f5e.scope\n", v2_mount())
        | WHOLE_TOP
        | v2(f"{TOP}/system.slice", "200000 100000", "0-7", "8589934592")
        | v2(f"{TOP}/system.slice/docker-4f5e.scope", "400000 100000", "0-5", "max"),
        {
            "quota_cpus": 2.0,
            "quota_path": f"{TOP}/system.slice",
            "period_us": 100000,
            "cpuset": "0-5",
            "memory_limit_bytes": 8589934592,
        },
        ("0-5", 2.0),
    ),
    Layout(
        "containerd, systemd driver, version 2, private namespace: the pod's limit is out of sight",
        proc("0::/\n", v2_mount()) | v2(TOP, "max 100000", "0-7", "max", cpu_weight="1"),
        {"quota_path": TOP, "weight": 1, "cpuset": "0-7"},
        ("0-7", None),
    ),
    Layout(
        "containerd, systemd driver, version 2, host namespace: the pod's limit holds for each container",
        proc(f"0::{BOX}\n", v2_mount())
        | WHOLE_TOP
        | v2(TOP + "/kubepods.slice", "max 100000", "0-7", "16000000000")
        | v2(TOP + POD, "250000 100000", "0-7", "2147483648", cpu_max_burst="0")
        | v2(TOP + BOX, "max 100000", "0-7", "max", cpu_weight="20"),
        {
            "quota_cpus": 2.5,
            "quota_path": TOP + POD,
            "period_us": 100000,
            "burst_us": 0,
            "weight": 20,
            "cpuset": "0-7",
            "memory_limit_bytes": 2147483648,
        },
        ("0-7", 2.5),
    ),
    Layout(
        "containerd, version 1, cgroupfs driver told systemd's path: a name with colons",
        proc(
            v1_lines("/system.slice/kubepods-pod1f2e.slice:cri-containerd:9a8b", "0::/"),
            v1_mounts("/system.slice/kubepods-pod1f2e.slice:cri-containerd:9a8b"),
        )
        | v1("", 75000, "1,3"),
        {"quota_cpus": 0.75, "quota_path": CPU, "period_us": 100000, "cpuset": "1,3"},
        ("1,3", 0.75),
    ),
    Layout(
        "CRI-O, version 2, host namespace, the process in a cgroup of crun's below the scope",
        proc("0::/kubepods.slice/kubepods-pod7.slice/crio-77.scope/container\n", v2_mount())
        | WHOLE_TOP
        | v2(TOP + "/kubepods.slice/kubepods-pod7.slice", "300000 100000")
        | v2(TOP + "/kubepods.slice/kubepods-pod7.slice/crio-77.scope", "100000 100000", "2-3")
        | v2(TOP + "/kubepods.slice/kubepods-pod7.slice/crio-77.scope/container"),
        {
            "quota_cpus": 1.0,
            "quota_path": TOP + "/kubepods.slice/kubepods-pod7.slice/crio-77.scope",
            "period_us": 100000,
            "cpuset": "2-3",
        },
        ("2-3", 1.0),
    ),
    Layout(
        "kind, version 1: a pod in a node that is itself a container",
        proc(
            v1_lines("/docker/node1/kubelet/kubepods/besteffort/pod3/box3"),
            v1_mounts("/docker/node1/kubelet/kubepods/besteffort/pod3/box3"),
        )
        | v1("", -1, "0-7"),
        {"quota_path": CPU, "cpuset": "0-7"},
        ("0-7", None),
    ),
    Layout(
        "kind, version 2, host namespace of the node: the node's own limit is at the top",
        proc("0::/kubelet.slice/kubelet-kubepods.slice/cri-containerd-3.scope\n", v2_mount())
        | v2(TOP, "350000 100000", "0-5", "max")
        | v2(TOP + "/kubelet.slice", "max 100000", "0-5")
        | v2(TOP + "/kubelet.slice/kubelet-kubepods.slice", "max 100000", "0-5")
        | v2(TOP + "/kubelet.slice/kubelet-kubepods.slice/cri-containerd-3.scope", "400000 100000", "0-5"),
        {"quota_cpus": 3.5, "quota_path": TOP, "period_us": 100000, "cpuset": "0-5"},
        ("0-5", 3.5),
    ),
    Layout(
        "k3s, cgroupfs driver, version 2, host namespace",
        proc("0::/kubepods/burstable/pod5/box5\n", v2_mount())
        | WHOLE_TOP
        | v2(TOP + "/kubepods", "max 100000", "0-7")
        | v2(TOP + "/kubepods/burstable", "max 100000", "0-7")
        | v2(TOP + "/kubepods/burstable/pod5", "120000 100000", "0-7")
        | v2(TOP + "/kubepods/burstable/pod5/box5", "60000 50000", "0-7"),
        {"quota_cpus": 1.2, "quota_path": TOP + "/kubepods/burstable/pod5/box5", "period_us": 50000, "cpuset": "0-7"},
        ("0-7", 1.2),
    ),
    Layout(
        "Amazon ECS, version 1: the task's cgroup is above the mount",
        proc(v1_lines("/ecs/task9/box9"), v1_mounts("/ecs/task9/box9"))
        | v1("", -1, "0-7", UNLIMITED)
        | {f"{MEMORY}/memory.stat": "cache 0\nhierarchical_memory_limit 1073741824\ntotal_rss 5\n"},
        {"quota_path": CPU, "cpuset": "0-7", "memory_limit_bytes": 1073741824},
        ("0-7", None),
    ),
    Layout(
        "systemd's hybrid mode: controllers in version 1, a unified hierarchy without any",
        proc(
            v1_lines("/user.slice", "1:name=systemd:/user.slice/session-2.scope", "0::/user.slice/session-2.scope"),
            v1_mounts() + v2_mount(point="/sys/fs/cgroup/unified"),
        )
        | v1("", -1, "0-7", UNLIMITED)
        | v1("/user.slice", 300000, "0-3")
        | v2(f"{TOP}/unified/user.slice/session-2.scope"),
        {"quota_cpus": 3.0, "quota_path": CPU + "/user.slice", "period_us": 100000, "cpuset": "0-3"},
        ("0-3", 3.0),
    ),
    Layout(
        "the other hybrid: the CPU controllers unified, one other controller in version 1",
        proc("5:net_cls:/old\n0::/new\n", v1_mounts("/", "net_cls") + v2_mount(point="/sys/fs/cgroup/unified"))
        | v2(f"{TOP}/unified", cpus="0-7")
        | v2(f"{TOP}/unified/new", "180000 100000", "4-7", "1000000"),
        {
            "quota_cpus": 1.8,
            "quota_path": f"{TOP}/unified/new",
            "period_us": 100000,
            "cpuset": "4-7",
            "memory_limit_bytes": 1000000,
        },
        ("4-7", 1.8),
    ),
    Layout(
        "each controller of version 1 in another cgroup, cpu and cpuacct mounted together and linked",
        proc("7:cpuset:/sets/a\n3:cpu,cpuacct:/time/b\n4:memory:/\n", v1_mounts())
        | v1("", -1, "0-7")
        | v1("/sets/a", cpus="6-7")
        | v1("/time/b", 20000)
        | {"sys/fs/cgroup/cpu": "-> cpu,cpuacct", "sys/fs/cgroup/cpuacct": "-> cpu,cpuacct"},
        {"quota_cpus": 0.2, "quota_path": CPU + "/time/b", "period_us": 100000, "cpuset": "6-7"},
        ("6-7", 0.2),
    ),
    Layout(
        "OpenRC: cpu and cpuacct mounted apart",
        proc("2:cpuacct:/x\n1:cpu:/box\n", v1_mounts("/", "cpu", "cpuacct"))
        | {
            "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "90000\n",
            "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "30000\n",
            "sys/fs/cgroup/cpu/box/cpu.shares": "205\n",
        },
        {"quota_cpus": 3.0, "quota_path": "sys/fs/cgroup/cpu/box", "period_us": 30000, "shares": 205},
        ("0-7", 3.0),
    ),
    Layout(
        "LXC, version 2: systemd in the container, the limit at the namespace's root",
        proc("0::/init.scope\n", v2_mount()) | v2(TOP, "150000 100000", "0-1", "900") | v2(TOP + "/init.scope"),
        {"quota_cpus": 1.5, "quota_path": TOP, "period_us": 100000, "cpuset": "0-1", "memory_limit_bytes": 900},
        ("0-1", 1.5),
    ),
    Layout(
        "LXC, version 1 without a namespace: the own cgroup at its full path",
        proc(
            "3:cpu,cpuacct:/lxc/c1\n",
            v1_mounts("/lxc/c1", "cpu,cpuacct/lxc/c1").replace("rw,cpu,cpuacct/lxc/c1", "rw,cpu"),
        )
        | v1("/lxc/c1", 110000),
        {"quota_cpus": 1.1, "quota_path": CPU + "/lxc/c1", "period_us": 100000},
        ("0-7", 1.1),
    ),
    Layout(
        "rootless Podman, version 2: no cpu controller was delegated",
        proc("0::/\n", v2_mount()) | v2(TOP, memory="max") | {f"{TOP}/cpu.stat": "usage_usec 7\nuser_usec 7\n"},
        {"quota_path": TOP},
        ("0-7", None),
    ),
    Layout(
        "a sandbox such as gVisor: no cgroup at all",
        proc("", "31 22 0:5 / /proc rw - proc none rw\n", "0-3"),
        {},
        ("0-3", None),
    ),
    Layout(
        "a sandbox with cgroups in /proc and nothing mounted",
        proc("3:cpu:/box\n0::/box\n", "", "0-3"),
        {},
        ("0-3", None),
    ),
    Layout(
        "the application made a cgroup for its workers, without controllers",
        proc("0::/app/workers\n", v2_mount())
        | v2(TOP, "200000 100000", "0-3", "5000", cpu_weight="79")
        | v2(TOP + "/app")
        | v2(TOP + "/app/workers"),
        {
            "quota_cpus": 2.0,
            "quota_path": TOP,
            "period_us": 100000,
            "weight": 79,
            "cpuset": "0-3",
            "memory_limit_bytes": 5000,
        },
        ("0-3", 2.0),
    ),
    Layout(
        "the cpu controller ends above the process's cgroup: its statistics are its own, the weight an ancestor's",
        proc("0::/pod/box\n", v2_mount())
        | WHOLE_TOP
        | v2(TOP + "/pod", "max 100000", "0-3", cpu_weight="10")
        | v2(TOP + "/pod/box"),
        {"quota_path": TOP + "/pod/box", "weight": 10, "cpuset": "0-3"},
        ("0-3", None),
    ),
    Layout(
        "a threaded cgroup limits the calling thread and those that it starts",
        proc("0::/pod\n", v2_mount(), thread="0::/pod/io\n")
        | v2(TOP + "/pod", "300000 100000", "0-7")
        | v2(TOP + "/pod/io", "40000 100000", "0-1"),
        {"quota_cpus": 0.4, "quota_path": TOP + "/pod/io", "period_us": 100000, "cpuset": "0-1"},
        ("0-1", 0.4),
    ),
    Layout(
        "a cgroup that was removed under the process: what is above still holds",
        proc("0::/pod/box (deleted)\n", v2_mount()) | WHOLE_TOP | v2(TOP + "/pod", "130000 100000", "0-3"),
        {"quota_cpus": 1.3, "quota_path": TOP + "/pod", "period_us": 100000, "cpuset": "0-3"},
        ("0-3", 1.3),
    ),
    Layout(
        "the host's hierarchy mounted beside the own one: limits of both count",
        proc("0::/\n", v2_mount("/../..", "/host/sys/fs/cgroup") + v2_mount())
        | v2("host/sys/fs/cgroup", "600000 100000", "0-7")
        | v2(TOP, "700000 100000", "0-6"),
        {"quota_cpus": 6.0, "quota_path": "host/sys/fs/cgroup", "period_us": 100000, "cpuset": "0-6"},
        ("0-6", 6.0),
    ),
    Layout(
        "only the host's hierarchy mounted: its limit counts, its statistics are of others",
        proc("0::/\n", v2_mount("/../..")) | v2(TOP, cpus="0-3", cpu_stat="usage_usec 1\nnr_periods 5"),
        {"cpuset": "0-3"},
        ("0-3", None),
    ),
    Layout(
        "a process that was moved to a neighbour of its namespace's root, which the mount shows",
        proc("0::/../other\n", v2_mount("/.."))
        | v2(TOP, "max 100000", "0-7")
        | v2(TOP + "/other", "70000 100000", "5"),
        {"quota_cpus": 0.7, "quota_path": TOP + "/other", "period_us": 100000, "cpuset": "5"},
        ("5", 0.7),
    ),
    Layout(
        "a process that was moved out of what the mount shows",
        proc("0::/../other\n", v2_mount()) | v2(TOP, "70000 100000", "5"),
        {},
        ("0-7", None),
    ),
    Layout(
        "a mount that another covers is not looked through",
        proc("0::/a\n", v2_mount("/") + v2_mount("/elsewhere")) | v2(TOP + "/a", "10000 100000", "5"),
        {},
        ("0-7", None),
    ),
    Layout(
        "a partition: its CPUs are not among its parent's",
        proc("0::/pod/box\n", v2_mount())
        | v2(TOP, cpus="0-3")
        | v2(TOP + "/pod", "max 100000", "0-3")
        | v2(TOP + "/pod/box", "max 100000", "4-7", cpuset_cpus_partition="root"),
        {"quota_path": TOP + "/pod/box", "cpuset": "4-7"},
        ("4-7", None),
    ),
    Layout(
        "exclusive CPUs since Kubernetes 1.33: no quota in the container or the pod",
        proc("0::/\n", v2_mount(), "2-5") | v2(TOP, "max 100000", "2-5", "4294967296", cpu_weight="157"),
        {"quota_path": TOP, "weight": 157, "cpuset": "2-5", "memory_limit_bytes": 4294967296},
        ("2-5", None),
    ),
    Layout(
        "exclusive CPUs before: a quota that as many CPUs cannot use up",
        proc("0::/\n", v2_mount(), "2-5") | v2(TOP, "400000 100000", "2-5"),
        {"quota_cpus": 4.0, "quota_path": TOP, "period_us": 100000, "cpuset": "2-5"},
        ("2-5", None),
    ),
    Layout(
        "a process that took fewer CPUs than its cpuset has",
        proc("0::/\n", v2_mount(), "3") | v2(TOP, "150000 100000", "0-7"),
        {"quota_cpus": 1.5, "quota_path": TOP, "period_us": 100000, "cpuset": "0-7"},
        ("3", None),
    ),
    Layout(
        "an empty effective set, as between two writes: the one above holds",
        proc("0::/box\n", v2_mount()) | v2(TOP, cpus="0-3") | v2(TOP + "/box", "max 100000", "\n"),
        {"quota_path": TOP + "/box", "cpuset": "0-3"},
        ("0-3", None),
    ),
    Layout(
        "an old kernel's cpuset: no effective set, and no prefix",
        proc("7:cpuset:/box\n", v1_mounts("/", "cpuset")) | {f"{CPUSET}/cpus": "0-7\n", f"{CPUSET}/box/cpus": "0,2\n"},
        {"cpuset": "0,2"},
        ("0,2", None),
    ),
    Layout(
        "a mount point and a cgroup with odd names",
        proc("0::/a b#c\n", v2_mount(point="/my\\040cgroups\\134x")) | v2("my cgroups\\x/a b#c", "30000 100000"),
        {"quota_cpus": 0.3, "quota_path": "my cgroups\\x/a b#c", "period_us": 100000},
        ("0-7", 0.3),
    ),
    Layout(
        "recorded by hwloc: the cpuset's path and a table of mounts",
        {
            "proc/self/cpuset": "/uid_8/job_9\n",
            "proc/mounts": "none /cgroup/memory cgroup rw,relatime,memory 0 0\nnone /cgroup/unified cgroup2 rw 0 0\n",
        }
        | v2("cgroup/unified/uid_8", "300000 100000")
        | v2("cgroup/unified/uid_8/job_9", cpus="0-5"),
        {"quota_cpus": 3.0, "quota_path": "cgroup/unified/uid_8", "period_us": 100000, "cpuset": "0-5"},
        ("0-5", 3.0),
        recorded=True,
    ),
    Layout(
        "recorded with the old cpuset file system",
        {
            "proc/self/cpuset": "/four\n",
            "proc/mounts": "none /dev/cpuset cpuset rw 0 0\n",
            "dev/cpuset/four/cpus": "4-7\n",
            "proc/self/status": "Cpus_allowed:\tff\n",
        },
        {"cpuset": "4-7", "inherited": "0-7"},
        ("4-7", None),
        recorded=True,
    ),
    Layout(
        "recorded without mountinfo: the process's own table of mounts",
        {"proc/self/cgroup": "0::/a\n", "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"}
        | WHOLE_TOP
        | v2(TOP + "/a", "100000 50000", "1"),
        {"quota_cpus": 2.0, "quota_path": TOP + "/a", "period_us": 50000, "cpuset": "1"},
        ("1", None),
        recorded=True,
    ),
    Layout(
        "recorded without any mounts, version 2: the top of the usual place",
        v2(TOP, "100000 50000", "2-4", cgroup_controllers="cpuset cpu"),
        {"quota_cpus": 2.0, "quota_path": TOP, "period_us": 50000, "cpuset": "2-4"},
        ("2-4", 2.0),
        recorded=True,
    ),
    Layout(
        "recorded without any mounts, version 1, below /cgroup",
        {path.replace("sys/fs/", ""): text for path, text in v1("", 50000, "2-4", 7000).items()},
        {
            "quota_cpus": 0.5,
            "quota_path": "cgroup/cpu,cpuacct",
            "period_us": 100000,
            "cpuset": "2-4",
            "memory_limit_bytes": 7000,
        },
        ("2-4", 0.5),
        recorded=True,
    ),
]
