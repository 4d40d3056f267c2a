"""The guest's node, as its first process: makes containers' cgroups as the kubelet does and runs a program in each.

Reads /job/job.json: {"containers": [...], "at_once": number, "timeout_s": seconds}, where a container is
{"id", "qos", "cpuset", "quota_cpus" (null: none), "env", "command", "steps": [{"cpuset", "quota_cpus"}, ...]}.
Each step changes the container's cgroup while its program runs; the program is told by a line and looks again.
Writes a line of JSON a container to the second serial line: {"id", "looks": [...], "stderr", "code", ...}.

Standard library only; it runs in the guest's Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TextIO

CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100000  # the kubelet's, and the kernel's default
LIBC = ctypes.CDLL(None, use_errno=True)
# linux/sched.h, sys/mount.h, linux/prctl.h, sys/reboot.h
NEW_MOUNTS, NEW_CGROUP, NEW_PIDS = 0x00020000, 0x02000000, 0x20000000
MS_BIND, MS_REC, MS_PRIVATE, MS_REMOUNT, MS_RDONLY = 4096, 16384, 1 << 18, 32, 1
MNT_DETACH = 2
PR_SET_PDEATHSIG, SIGKILL = 1, 9
RB_POWER_OFF = 0x4321FEDC
CONTROLLERS = "+cpuset +cpu +memory"
STDERR_CHARACTERS = 4000
# A container: see the module.
Container = Mapping[str, Any]


def main() -> None:
    """Run the job, then power off, whatever happens."""
    job = json.loads(Path("/job/job.json").read_text())
    with Path("/dev/ttyS1").open("w", encoding="ascii") as line:
        try:
            prepare()
            with ThreadPoolExecutor(job["at_once"]) as pool:
                for result in pool.map(lambda one: attempt(one, job["timeout_s"]), job["containers"]):
                    say(line, result)
            say(line, {"done": True})
        except Exception as error:  # noqa: BLE001 (nobody else is there to say it)
            say(line, {"failed": repr(error)})
    LIBC.reboot(RB_POWER_OFF)


def say(line: TextIO, found: Mapping[str, Any]) -> None:
    """One line for the host."""
    line.write(json.dumps(found) + "\n")
    line.flush()


def prepare() -> None:
    """The kubelet's hierarchy; with controllers, no process may be but in its leaves."""
    system = CGROUPS / "system"
    system.mkdir()
    (system / "cgroup.procs").write_text(str(os.getpid()))
    kubepods = CGROUPS / "kubepods"
    kubepods.mkdir()
    for folder in (CGROUPS, kubepods):
        (folder / "cgroup.subtree_control").write_text(CONTROLLERS)


def attempt(container: Container, timeout_s: float) -> dict[str, Any]:
    """The container's result, or why there is none."""
    try:
        return run(container, timeout_s)
    except Exception as error:  # noqa: BLE001 (the others go on)
        return {"id": container["id"], "failed": repr(error)}


def run(container: Container, timeout_s: float) -> dict[str, Any]:
    """One container from its cgroup to its end."""
    group = made(container)
    scratch = Path("/tmp") / container["id"]
    (scratch / "reports").mkdir(parents=True)
    # Into the container's program only: this Python would start Raddle too.
    (scratch / "environ").write_text(json.dumps(container["env"]))
    command = [sys.executable, __file__, "enter", str(group), str(scratch), *container["command"]]
    errors = scratch / "stderr"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        guard = threading.Timer(timeout_s, process.kill)
        guard.start()
        try:
            looks = converse(process, group, container["steps"])
            code = process.wait()
        finally:
            guard.cancel()
            process.kill()
    said = errors.read_text(errors="replace")
    stat = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return {
        "id": container["id"],
        "looks": looks,
        "code": code,
        "stderr": said[-STDERR_CHARACTERS:],
        "affinity_errors": said.count("pthread_setaffinity_np failed"),
        "throttled_periods": int(stat.get("nr_throttled", 0)),
    }


def converse(process: subprocess.Popen[str], group: Path, steps: list[Container]) -> list[Any]:
    """What the program prints: a look a line. It waits after each, while the next limits are written."""
    assert process.stdin is not None
    assert process.stdout is not None
    looks = []
    for printed in process.stdout:
        looks.append(json.loads(printed))
        more = len(looks) <= len(steps)
        if more:
            limit(group, steps[len(looks) - 1])
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("again\n" if more else "end\n")
            process.stdin.flush()
    return looks


def made(container: Container) -> Path:
    """kubepods/[burstable/]pod<id>/container, limited: the CPU set on the container, the quota on both."""
    parent = CGROUPS / "kubepods"
    if container["qos"] != "guaranteed":
        parent = parent / container["qos"]
        parent.mkdir(exist_ok=True)
        (parent / "cgroup.subtree_control").write_text(CONTROLLERS)
    pod = parent / f"pod{container['id']}"
    pod.mkdir()
    (pod / "cgroup.subtree_control").write_text(CONTROLLERS)
    group = pod / "container"
    group.mkdir()
    limit(group, container)
    return group


def limit(group: Path, wanted: Container) -> None:
    """What the kubelet and the CPU manager write, at the start and at a resize."""
    (group / "cpuset.cpus").write_text(wanted["cpuset"])
    quota = wanted["quota_cpus"]
    text = f"{'max' if quota is None else int(quota * PERIOD_US)} {PERIOD_US}"
    for folder in (group.parent, group):
        (folder / "cpu.max").write_text(text)


def enter(group: str, scratch: str, *command: str) -> None:
    """Become a container: in the cgroup, with namespaces of its own for cgroups, processes and mounts; then exec."""
    Path(group, "cgroup.procs").write_text(str(os.getpid()))
    checked(LIBC.unshare(NEW_CGROUP | NEW_PIDS | NEW_MOUNTS))
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    # Gone with the process that stands for the container's runtime.
    LIBC.prctl(PR_SET_PDEATHSIG, SIGKILL)
    checked(LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    checked(LIBC.mount(b"proc", b"/proc", b"proc", 0, None))
    # Read-only as runtimes mount it; the file system itself is the node's, so only this mount may be. Linux refuses the
    # same file system at the same place twice.
    checked(LIBC.umount2(b"/sys/fs/cgroup", MNT_DETACH))
    checked(LIBC.mount(b"cgroup", b"/sys/fs/cgroup", b"cgroup2", 0, None))
    checked(LIBC.mount(None, b"/sys/fs/cgroup", None, MS_REMOUNT | MS_BIND | MS_RDONLY, None))
    checked(LIBC.mount(f"{scratch}/reports".encode(), b"/opt/raddle-report", None, MS_BIND, None))
    environ = json.loads(Path(scratch, "environ").read_text())
    os.execve(command[0], command, environ)


def checked(result: int) -> None:
    """Raise OSError for a C function's -1."""
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["enter"]:
        enter(*sys.argv[2:])
    else:
        main()
