"""What raddle.process.cgroup reads against what a kernel enforces, with cgroup version 2: the guest's first process.

Writes a line of JSON per check to the second serial line: {"check", "wrong"}, `wrong` null where both agree.
Standard library only; it runs in the guest's Python.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vm.guest import console

TOP = Path("/sys/fs/cgroup")
CONTROLLERS = "+cpuset +cpu +memory"
RADDLE = "/opt/raddle/python"
TIMEOUT_S = 120
ZOMBIE = "\nState:\tZ"

# What each program starts with: `look` is a mapping of what is read and of what the kernel says.
LOOK = f"""
import ctypes, json, os, sys, threading, time
from pathlib import Path
sys.path.insert(0, {RADDLE!r})
from raddle import files
from raddle.cpus import cpuset
from raddle.process import cgroup
def look():
    found = cgroup.read_limits()
    usable, binding = cgroup.usable_cpus(found)
    return {{
        "quota": found.quota_cpus, "path": found.quota_path, "binding": binding, "burst": found.burst_us,
        "weight": found.weight, "memory": found.memory_limit_bytes, "cpus": cpuset.format_list(usable),
        "affinity": cpuset.format_list(cpuset.of(os.sched_getaffinity(0))),
    }}
"""
# Until the first time that it is stopped.
BURN = """
controller = cgroup.CPUController()
began, used = time.monotonic(), time.process_time()
while not controller.read().nr_throttled and time.monotonic() < began + 60:
    pass
wall, used = time.monotonic() - began, time.process_time() - used
throttled = controller.read().nr_throttled or 0
print(json.dumps({**look(), "throttled": throttled, "cpu_per_wall": used / (wall + 0.2)}))
"""


def main(send: Callable[[Mapping[str, Any]], None]) -> None:
    """Run every check."""
    (TOP / "system").mkdir()
    write(TOP / "system" / "cgroup.procs", str(os.getpid()))
    write(TOP / "cgroup.subtree_control", CONTROLLERS)
    for check in CHECKS:
        send({"check": check.__name__, "wrong": wrong(check)})


def wrong(check: Callable[[], None]) -> str | None:
    """What is not as the check says."""
    try:
        check()
    except Exception as error:  # noqa: BLE001 (the others go on)
        return repr(error)[-1000:]
    return None


def write(path: Path, text: str) -> None:
    """As the kubelet writes a limit."""
    path.write_text(text)


def expect(result: object, wanted: object) -> None:
    """Raise AssertionError unless they are equal."""
    if result != wanted:
        raise AssertionError(f"{result!r} is not {wanted!r}")


@contextlib.contextmanager
def pod(controllers: str = CONTROLLERS) -> Iterator[tuple[Path, Path]]:
    """A cgroup and one in it, without limits."""
    outer = TOP / "pod"
    inner = outer / "box"
    outer.mkdir()
    try:
        write(outer / "cgroup.subtree_control", controllers)
        inner.mkdir()
        yield outer, inner
    finally:
        for folder in sorted(outer.glob("**/"), reverse=True):
            remove(folder)


def remove(folder: Path) -> None:
    """The kernel lets go of a process a moment after its parent has waited for it."""
    ends_at = time.monotonic() + TIMEOUT_S
    while True:
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > ends_at:
                raise
            time.sleep(0.01)
        else:
            return


def started(group: Path, code: str) -> subprocess.Popen[str]:
    """A program in the cgroup."""

    def join() -> None:
        write(group / "cgroup.procs", str(os.getpid()))

    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", LOOK + code],
        preexec_fn=join,  # noqa: PLW1509 (no thread of this process holds a lock)
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )


def inside(group: Path, code: str = "print(json.dumps(look()))") -> Any:
    """What the program prints."""
    process = started(group, code)
    printed, errors = process.communicate(timeout=TIMEOUT_S)
    if process.returncode:
        raise AssertionError(errors[-900:])
    return json.loads(printed)


def the_quota_that_is_read_is_the_one_that_throttles() -> None:
    """Of a cgroup and its parent."""
    for outer_us, inner_us, where in (
        ("20000", "40000", "pod"),
        ("40000", "20000", "pod/box"),
        ("20000", "max", "pod"),
    ):
        with pod() as (outer, inner):
            write(outer / "cpu.max", outer_us)
            write(inner / "cpu.max", inner_us)
            result = inside(inner, BURN)
        expect((result["quota"], result["binding"], result["path"]), (0.2, 0.2, str(TOP / where)))
        expect((result["throttled"] > 0, result["cpu_per_wall"] <= 0.25), (True, True))


def the_cpus_that_are_read_are_those_of_the_scheduler() -> None:
    """A set that reaches beyond the parent's, none, and a CPU that goes offline."""
    with pod() as (outer, inner):
        write(outer / "cpuset.cpus", "0-2")
        write(inner / "cpuset.cpus", "1-3")
        result = inside(inner)
        expect((result["cpus"], result["affinity"]), ("1-2", "1-2"))
        write(inner / "cpuset.cpus", "\n")
        expect(inside(inner)["cpus"], "0-2")
        online = Path("/sys/devices/system/cpu/cpu2/online")
        write(online, "0")
        try:
            result = inside(inner)
            expect((result["cpus"], result["affinity"]), ("0-1", "0-1"))
        finally:
            write(online, "1")


def a_cgroup_without_controllers_has_its_parents_limits() -> None:
    """As an application makes one for its workers."""
    with pod() as (_, inner):
        write(inner / "cpu.max", "50000 100000")
        write(inner / "cpuset.cpus", "1")
        (inner / "workers").mkdir()
        result = inside(inner / "workers")
        expect((result["quota"], result["path"], result["cpus"]), (0.5, str(inner), "1"))


def a_thread_in_a_threaded_cgroup_reads_its_own_limits() -> None:
    """And so do the threads that it starts."""
    with pod("+cpuset +cpu") as (outer, inner):
        write(inner / "cgroup.type", "threaded")
        write(outer / "cpu.max", "90000 100000")
        write(inner / "cpu.max", "30000 100000")
        write(inner / "cpuset.cpus", "0")
        code = f"""
seen = []
def alone():
    Path({str(inner / "cgroup.threads")!r}).write_text(str(threading.get_native_id()))
    seen.append(look())
thread = threading.Thread(target=alone)
thread.start()
thread.join()
print(json.dumps([*seen, look()]))
"""
        alone, main_thread = inside(outer, code)
        expect((alone["quota"], alone["cpus"], alone["affinity"]), (0.3, "0", "0"))
        expect((main_thread["quota"], main_thread["cpus"]), (0.9, "0-3"))


def a_partition_has_cpus_that_its_parent_has_not() -> None:
    """So the sets of ancestors say nothing."""
    with pod() as (_, inner):
        alone = TOP / "alone"
        alone.mkdir()
        try:
            write(alone / "cpuset.cpus", "3")
            write(alone / "cpuset.cpus.partition", "root")
            expect(inside(alone)["cpus"], "3")
            expect(inside(inner)["cpus"], "0-2")
        finally:
            remove(alone)


def a_namespace_shows_what_its_mounts_show() -> None:
    """The host's mount, the host's and one of its own, its own alone."""
    code = """
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x02020000) == 0
assert libc.mount(b"none", b"/", None, 16384 | 1 << 18, None) == 0
seen = [look()]
assert libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0
os.mkdir("/tmp/own")
assert libc.mount(b"none", b"/tmp/own", b"cgroup2", 0, None) == 0
seen.append(look())
assert libc.umount2(b"/sys/fs/cgroup", 2) == 0
print(json.dumps([*seen, look()]))
"""
    with pod() as (outer, inner):
        write(outer / "cpu.max", "60000 100000")
        write(inner / "cpu.max", "70000 100000")
        write(inner / "cpuset.cpus", "1-2")
        result = inside(inner)
        expect((result["quota"], result["path"]), (0.6, str(outer)))
        host, both, own = inside(inner, code)
        expect((host["quota"], host["path"], host["cpus"]), (None, None, "1-2"))
        expect((both["quota"], both["path"], both["cpus"]), (0.7, "/tmp/own", "1-2"))
        expect((own["quota"], own["path"], own["cpus"]), (0.7, "/tmp/own", "1-2"))


def a_resize_is_followed_in_both_directions() -> None:
    """By the same process."""
    code = "for line in sys.stdin: print(json.dumps(look()), flush=True)"
    with pod() as (_, inner), started(inner, code) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for quota, cpus in (("max", "0-3"), ("50000", "0"), ("150000", "1-3"), ("20000", "2-3"), ("max", "0-3")):
            write(inner / "cpu.max", quota)
            write(inner / "cpuset.cpus", cpus)
            print(file=process.stdin, flush=True)
            result = json.loads(process.stdout.readline())
            quota_cpus = None if quota == "max" else int(quota) / 100000
            expect((result["quota"], result["cpus"], result["affinity"]), (quota_cpus, cpus, cpus))
        process.stdin.close()
        process.wait(TIMEOUT_S)


def a_cgroup_that_is_gone_leaves_its_parents_limits() -> None:
    """The kernel still names it, as deleted."""
    with pod() as (outer, inner):
        write(outer / "cpu.max", "80000 100000")
        pid = os.fork()
        if not pid:
            write(inner / "cgroup.procs", str(os.getpid()))
            os._exit(0)
        while ZOMBIE not in Path(f"/proc/{pid}/status").read_text():
            time.sleep(0.01)
        remove(inner)
        code = f"print(json.dumps([cgroup.read_limits('/', {pid}).quota_cpus, open('/proc/{pid}/cgroup').read()]))"
        result = inside(TOP / "system", code)
        os.waitpid(pid, 0)
        expect(result, [0.8, "0::/pod/box (deleted)\n"])


def burst_weight_and_memory_are_told() -> None:
    """They bound no count of threads."""
    with pod() as (_, inner):
        for name, text in (("cpu.max", "50000"), ("cpu.max.burst", "20000"), ("cpu.weight", "39")):
            write(inner / name, text)
        write(inner / "memory.max", str(300 << 20))
        result = inside(inner)
        expect((result["quota"], result["burst"], result["weight"], result["memory"]), (0.5, 20000, 39, 300 << 20))


CHECKS = (
    the_quota_that_is_read_is_the_one_that_throttles,
    the_cpus_that_are_read_are_those_of_the_scheduler,
    a_cgroup_without_controllers_has_its_parents_limits,
    a_thread_in_a_threaded_cgroup_reads_its_own_limits,
    a_partition_has_cpus_that_its_parent_has_not,
    a_namespace_shows_what_its_mounts_show,
    a_resize_is_followed_in_both_directions,
    a_cgroup_that_is_gone_leaves_its_parents_limits,
    burst_weight_and_memory_are_told,
)


if __name__ == "__main__":
    console.run(main)
