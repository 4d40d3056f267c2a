"""Where raddle_operator.local makes a cgroup with a quota, in cgroup version 2 and hybrid: the guest's first process.

Writes a line of JSON per check to the second serial line: {"check", "wrong"}, `wrong` null where all is as expected.
Standard library only; it runs in the guest's Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from vm.guest import console

TOP = Path("/sys/fs/cgroup")
UNIFIED = TOP / "unified"
USER = 1000
TIMEOUT_S = 250
# More than removing takes on emulated CPUs; less than waiting for one group that can't be removed.
QUICK_S = 4.5
LIBC = ctypes.CDLL(None, use_errno=True)
# linux/sched.h, sys/mount.h
NEW_MOUNTS, NEW_CGROUP = 0x00020000, 0x02000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

# As `raddle run --limit CPUS -- COMMAND`, but for the mounts: says what came of it.
RUN = """
import contextlib, json, subprocess, sys, time
sys.path.insert(0, "/job/src")
from raddle_operator.local import container
said = []
given = container.Container(cpus=float(sys.argv[1]), variables={}, mounts=(), notes=())
with contextlib.ExitStack() as stack:
    began = time.monotonic()
    group = (entered := container.enter(given, sys.argv[2:], stack, said.append)).group
    made = time.monotonic()
    result = {"code": subprocess.run(entered.argv, env=entered.environment).returncode, "said": said}
    result |= {"waited_s": made - began, "parent": None, "type": [], "used": None, "throttled": None}
    if group is not None:
        usage, kind = group.usage(), group.paths[0] / "cgroup.type"
        result |= {
            "parent": str(group.paths[0].parent),
            "type": kind.read_text().split() if kind.exists() else [],
            "used": usage.cpu_s / (time.monotonic() - made),
            "throttled": usage.throttled_periods > 0,
        }
print(json.dumps(result))
"""
PYTHON = (sys.executable, "-I", "-S", "-c")
BURNS = ("/bin/busybox", "timeout", "2", "/bin/busybox", "sh", "-c", "while :; do :; done")
# Until the end of its input.
STAYS = ("/bin/busybox", "cat")
LIMIT = 0.2


class Place(NamedTuple):
    """Where a program is when it makes a group, and what is to come of it.

    groups     path below the mount -> the controllers that it hands down, parents first
    own        the program's; in `busy` other processes are, too
    owned      those that are the user's, who runs the program then
    namespace  whether the program has a cgroup namespace, whose root is `own`; `writable` its mount
    below      the group that the new one is made in, None: none can be made, for the reason `says`
    """

    name: str
    groups: Mapping[str, str]
    own: str
    below: str | None
    type: str | None = None
    says: str = ""
    busy: tuple[str, ...] = ()
    owned: tuple[str, ...] = ()
    namespace: bool = False
    writable: bool = True


SLICE, SCOPE = "user.slice/user-0.slice", "user.slice/user-0.slice/session-1.scope"
SESSION = {"user.slice": "+cpu +memory", SLICE: "+cpu +memory", SCOPE: ""}
MANAGER = "user.slice/user-1000.slice/user@1000.service"
TERMINAL = f"{MANAGER}/app.slice/terminal.scope"
DELEGATED = {
    "user.slice": "+cpu +memory",
    "user.slice/user-1000.slice": "+cpu +memory",
    MANAGER: "+memory",
    f"{MANAGER}/init.scope": "",
    f"{MANAGER}/app.slice": "+memory",
    TERMINAL: "",
}
OWNED = tuple(path for path in DELEGATED if path.startswith(MANAGER))
CONTAINER = {"pod": "+cpu +cpuset +memory", "pod/box": ""}
PLACES = (
    Place("the root of the hierarchy", {}, "", below="", type="domain"),
    Place(
        "a container's namespace, its root with processes",
        CONTAINER,
        "pod/box",
        below="pod/box",
        type="threaded",
        busy=("pod/box",),
        namespace=True,
    ),
    Place(
        "a container's namespace, mounted read-only",
        CONTAINER,
        "pod/box",
        below=None,
        says="Read-only file system",
        namespace=True,
        writable=False,
    ),
    Place(
        "a container's namespace, its root and a group in it with processes",
        {**CONTAINER, "pod/box/other": ""},
        "pod/box",
        below=None,
        says="Device or resource busy",
        busy=("pod/box", "pod/box/other"),
        namespace=True,
    ),
    Place(
        "a container's namespace without the cpu controller",
        {"pod": "+memory", "pod/box": ""},
        "pod/box",
        below=None,
        says="the cpu controller is not enabled",
        namespace=True,
    ),
    Place("the scope of a session", SESSION, SCOPE, below=SCOPE, type="threaded", busy=(SCOPE,)),
    Place(
        "a scope without the cpu controller, in a slice that hands memory down",
        {**SESSION, SLICE: "+memory"},
        SCOPE,
        below=SLICE,
        type="domain",
    ),
    Place(
        "a service with processes beside a group with processes",
        {"system.slice": "+cpu +memory", "system.slice/a.service": "", "system.slice/a.service/worker": ""},
        "system.slice/a.service",
        below="system.slice",
        type="domain",
        busy=("system.slice/a.service", "system.slice/a.service/worker"),
    ),
    Place(
        "a threaded group",
        {"system.slice": "+cpu", "system.slice/a.service": "+cpu", "system.slice/a.service/threads": "threaded"},
        "system.slice/a.service/threads",
        below="system.slice/a.service/threads",
        type="threaded",
        busy=("system.slice/a.service",),
    ),
    Place("a user's scope, delegated", DELEGATED, TERMINAL, below=MANAGER, type="domain", owned=OWNED),
    Place(
        "a user's scope, delegated with the cpu controller",
        {**DELEGATED, MANAGER: "+cpu +memory", f"{MANAGER}/app.slice": "+cpu +memory"},
        TERMINAL,
        below=TERMINAL,
        type="threaded",
        owned=OWNED,
        busy=(TERMINAL,),
    ),
    Place(
        "a user's session, not delegated",
        {**DELEGATED, "user.slice/user-1000.slice/session-2.scope": ""},
        "user.slice/user-1000.slice/session-2.scope",
        below=None,
        says="Permission denied",
        owned=OWNED,
    ),
)


def main(send: Callable[[Mapping[str, Any]], None]) -> None:
    """Run every check."""
    checked(LIBC.mount(None, str(TOP).encode(), None, MS_REMOUNT, b"nsdelegate"))
    (TOP / "limited").rmdir()
    checks: dict[str, Callable[[], None]] = {check.__name__: check for check in CHECKS}
    checks = {place.name: functools.partial(is_as_expected, place) for place in PLACES} | checks
    for name, check in checks.items():
        send({"check": name, "wrong": wrong(check)})


def wrong(check: Callable[[], None]) -> str | None:
    """What is not as the check says."""
    try:
        check()
    except Exception as error:  # noqa: BLE001 (the others go on)
        return repr(error)[-1500:]
    return None


def expect(result: object, wanted: object) -> None:
    """Raise AssertionError unless they are equal."""
    if result != wanted:
        raise AssertionError(f"{result!r} is not {wanted!r}")


def checked(result: int) -> None:
    """Raise OSError for a C function's -1."""
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Made:
    """A place while it is there, with the programs that were started in it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.started: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        for path, controllers in self.place.groups.items():
            (TOP / path).mkdir(exist_ok=True)
            file = "cgroup.type" if controllers == "threaded" else "cgroup.subtree_control"
            for word in controllers.split():
                (TOP / path / file).write_text(word)
        for path in self.place.owned:
            for file in ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
                os.chown(TOP / path / file, USER, USER)
        for path in self.place.busy:
            self.start(STAYS, functools.partial(join, path))
        self.before = self.state()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.started:
            process.kill()
            process.communicate()
        for group in filter(Path.is_dir, TOP.iterdir()):
            (group / "cgroup.kill").write_text("1")
            until(functools.partial(removed, group))
        (TOP / "cgroup.subtree_control").write_text("+cpuset +cpu +memory")

    def state(self) -> dict[str, list[str]]:
        """Group -> its type, and what it hands down."""
        return {
            str(path.relative_to(TOP)): words(path / "cgroup.type") + words(path / "cgroup.subtree_control")
            for path in sorted(TOP.glob("**/"))
        }

    def start(self, command: tuple[str, ...], enter: Callable[[], object]) -> subprocess.Popen[str]:
        """The program, after `enter`."""
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command,
            preexec_fn=enter,  # noqa: PLW1509 (no thread of this process holds a lock)
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def run(self, cpus: float, *command: str) -> subprocess.Popen[str]:
        """A program that was started as by `raddle run` at this place."""
        return self.start((*PYTHON, RUN, str(cpus), *command), functools.partial(come, self.place))


def removed(group: Path) -> bool:
    """Whether it is gone with those below it; the kernel takes a moment to let go of a process."""
    for path in sorted(group.glob("**/"), reverse=True):
        with contextlib.suppress(OSError):
            path.rmdir()
    return not group.exists()


def words(path: Path) -> list[str]:
    """[] where it can't be read."""
    try:
        return path.read_text().split()
    except OSError:
        return []


def join(path: str) -> None:
    """Move into a group."""
    (TOP / path / "cgroup.procs").write_text(str(os.getpid()))


def come(place: Place) -> None:
    """Be as the program at this place is."""
    if place.groups.get(place.own) == "threaded":
        # From the domain that it belongs to.
        join(str(Path(place.own).parent))
    join(place.own)
    if place.namespace:
        checked(LIBC.unshare(NEW_CGROUP | NEW_MOUNTS))
        checked(LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
        checked(LIBC.umount2(str(TOP).encode(), MNT_DETACH))
        checked(LIBC.mount(b"cgroup", str(TOP).encode(), b"cgroup2", 0, None))
        if not place.writable:
            checked(LIBC.mount(None, str(TOP).encode(), None, MS_REMOUNT | MS_BIND | MS_RDONLY, None))
    if place.owned:
        os.setgroups([])
        os.setgid(USER)
        os.setuid(USER)


def outcome(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What the run says at the end of its input."""
    printed, errors = process.communicate(timeout=TIMEOUT_S)
    if process.returncode:
        raise AssertionError(errors[-1200:])
    result: dict[str, Any] = json.loads(printed)
    return result


def is_as_expected(place: Place) -> None:
    """The group is where it should be and holds; afterwards all is as before."""
    with Made(place) as made:
        result = outcome(made.run(LIMIT, *BURNS))
        expect(made.state(), made.before)
    if place.below is None:
        (said,) = result["said"]
        expect((result["parent"], place.says in said, "runs without a quota" in said, said), (None, True, True, said))
        return
    parent = TOP if place.namespace else TOP / place.below
    expect((result["parent"], result["type"], result["said"]), (str(parent), [place.type], []))
    holds(result)


def holds(result: Mapping[str, Any]) -> None:
    """The quota does."""
    expect((result["throttled"], result["used"] < 1.5 * LIMIT, result), (True, True, result))


def scope() -> Place:
    """Where nothing hands cpu down, and somebody is."""
    return next(place for place in PLACES if place.own == SCOPE and place.busy)


def until(done: Callable[[], object]) -> None:
    """Wait."""
    ends_at = time.monotonic() + TIMEOUT_S
    while not done():
        if time.monotonic() > ends_at:
            raise AssertionError("not in time")
        time.sleep(0.05)


def ours() -> list[Path]:
    """The groups of ours that there are, parents first."""
    return sorted(path for path in TOP.glob("**/raddle-cpu-*/"))


def names(group: Path) -> list[str]:
    """What is in it."""
    return [word for thread in words(group / "cgroup.threads") for word in words(Path("/proc", thread, "comm"))]


def nested(made: Made) -> tuple[subprocess.Popen[str], int]:
    """A run in a run: the outer one, and the number of the inner one."""
    outer = made.run(0.9, *PYTHON, RUN, "0.8", *STAYS)
    until(lambda: len(ours()) == 2 and "busybox" in names(ours()[1]))
    expect(ours()[1].parent, ours()[0])
    return outer, int(words(ours()[0] / "cgroup.threads")[0])


def what_killed_runs_left_is_gone_after_the_next_and_nobody_waits() -> None:
    """One within the other."""
    with Made(scope()) as made:
        outer, inner = nested(made)
        outer.kill()
        os.kill(inner, signal.SIGKILL)
        outer.wait()
        expect(len(ours()), 2)
        result = outcome(made.run(LIMIT, *BURNS))
        expect((ours(), made.state()), ([], made.before))
        expect((result["waited_s"] < QUICK_S, result), (True, result))
        holds(result)


def a_living_run_in_the_group_of_a_killed_one_goes_on() -> None:
    """The group that it is in stays until it has ended."""
    with Made(scope()) as made:
        outer, inner = nested(made)
        outer.kill()
        outer.wait()
        left = ours()
        result = outcome(made.run(LIMIT, *BURNS))
        expect((ours(), names(left[1])), (left, ["busybox"]))
        expect((result["waited_s"] < QUICK_S, result), (True, result))
        os.kill(inner, signal.SIGKILL)
        until(lambda: not Path("/proc", str(inner)).exists() or "Z" in words(Path("/proc", str(inner), "stat"))[2])
        outcome(made.run(LIMIT, *BURNS))
        expect((ours(), made.state()), ([], made.before))


def a_run_that_ends_leaves_the_quota_of_another() -> None:
    """They share what was added to their parent, until the last of them ends."""
    with Made(scope()) as made:
        first = made.run(0.9, *STAYS)
        until(lambda: [names(group) for group in ours()] == [["busybox"]])
        second = made.run(0.3, *STAYS)
        until(lambda: [names(group) for group in ours()] == [["busybox"]] * 2)
        outcome(first)
        (left,) = ours()
        expect((left / "cpu.max").read_text(), "30000 100000\n")
        outcome(second)
        expect((ours(), made.state()), ([], made.before))


def what_others_limit_meanwhile_stays_limited() -> None:
    """A group beside ours, whose quota would be gone with the controller."""
    place = Place("", {"a.slice": "+memory", "a.slice/own": "", "a.slice/other": ""}, "a.slice/own", None)
    with Made(place) as made:
        process = made.run(0.9, *STAYS)
        limit = TOP / "a.slice" / "other" / "cpu.max"
        until(limit.exists)
        limit.write_text("50000 100000")
        outcome(process)
        expect(limit.read_text(), "50000 100000\n")


def a_hybrid_hierarchy_has_its_group_in_version_1() -> None:
    """The cpu controller in version 1, version 2 beside it without one. What is mounted stays so: it is the last."""
    (TOP / "cgroup.subtree_control").write_text("-cpu")
    # Whoever has lost its parent is this process's, and keeps its group's controllers until it is waited for.
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    checked(LIBC.umount2(str(TOP).encode(), MNT_DETACH))
    checked(LIBC.mount(b"tmpfs", str(TOP).encode(), b"tmpfs", 0, None))
    for folder, kind, options in ((TOP / "cpu,cpuacct", b"cgroup", b"cpu,cpuacct"), (UNIFIED, b"cgroup2", None)):
        folder.mkdir()
        # The controller is free once the last of the groups that had it has gone.
        until(lambda: LIBC.mount(b"cgroup", str(folder).encode(), kind, 0, options) == 0)  # noqa: B023 (called at once)
    for own in (TOP / "cpu,cpuacct" / "system.slice", UNIFIED / "system.slice"):
        own.mkdir()
    enter = functools.partial((TOP / "cpu,cpuacct" / "system.slice" / "cgroup.procs").write_text, "0")
    made = Made(Place("", {}, "", None))
    result = outcome(made.start((*PYTHON, RUN, str(LIMIT), *BURNS), enter))
    expect((result["parent"], result["said"]), (str(TOP / "cpu,cpuacct" / "system.slice"), []))
    holds(result)
    expect(ours(), [])


CHECKS = (
    what_killed_runs_left_is_gone_after_the_next_and_nobody_waits,
    a_living_run_in_the_group_of_a_killed_one_goes_on,
    a_run_that_ends_leaves_the_quota_of_another,
    what_others_limit_meanwhile_stays_limited,
    a_hybrid_hierarchy_has_its_group_in_version_1,
)


if __name__ == "__main__":
    console.run(main)
