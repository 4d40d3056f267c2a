"""A cgroup of its own for one child process, with a CPU quota, and what the kernel counts in it.

Everything is read and written through the cgroup file system, v1 or v2, whichever has the cpu controller here. The
group lies below the cgroup of this process, or below the nearest ancestor where one can be made that a process can
enter. cgroup v2 lets only its root have both processes and groups with a quota, except for threaded groups: so the
group is threaded where its parent has processes.

It is removed on exit, whatever the exit was, and its parent is as before. What a killed run left behind is removed by
the next one: a run holds the lock (flock) of its group's directory as long as it lives, in whatever PID namespace.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from raddle.process import cgroupfs

PERIOD_US = 100_000  # the kubelet's default, --cpu-cfs-quota-period
# Weight for each CPU that a pod requests: what the kubelet writes with v1, and the same proportion with v2.
_SHARES_A_CPU, _WEIGHT_A_CPU = 1024, 100
_MOST_SHARES, _MOST_WEIGHT = 262144, 10000
_LEAST_SHARES = 2  # the kernel takes less for this, and so does the kubelet
_LEAST_QUOTA_US = 1000  # the kernel refuses less, and so does Docker; the kubelet writes this
_PREFIX = "raddle-cpu-"
# At the end of a group's name: cpu was added to the parent's cgroup.subtree_control for it. In the name, since a killed
# run can't take it away, nor a run that ends while another has a group there.
_ENABLED = "+cpu"
# Locked while a run makes a group beside this file, claims those of killed runs, or takes +cpu away.
_CHANGES = "cgroup.procs"
_PATIENCE_S = 5.0  # for a process to leave its group after its end, and for another run to make or remove its group
_SLOW_S = 2.0  # what takes longer is announced
_counter = itertools.count()


class UnavailableError(Exception):
    """No cgroup with a CPU quota can be made here; the message says why, in words for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Totals since the group was made: CFS periods, and CPU and throttled time in seconds.

    `periods` counts only periods in which the group was runnable. `throttled_s` is summed over CPUs. `stalled_s` is how
    long one of its tasks waited for a CPU (PSI), None where that is not to be had.
    """

    cpu_s: float = 0.0
    periods: int = 0
    throttled_periods: int = 0
    throttled_s: float = 0.0
    stalled_s: float | None = None

    def since(self, earlier: Usage) -> Usage:
        """What was added after `earlier` was read."""
        return Usage(
            cpu_s=self.cpu_s - earlier.cpu_s,
            periods=self.periods - earlier.periods,
            throttled_periods=self.throttled_periods - earlier.throttled_periods,
            throttled_s=self.throttled_s - earlier.throttled_s,
            stalled_s=None
            if self.stalled_s is None or earlier.stalled_s is None
            else self.stalled_s - earlier.stalled_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group: `paths` are its directories, several with cgroup v1, where cpu and cpuacct may be apart."""

    version: int
    paths: tuple[Path, ...]

    def command(self, argv: list[str]) -> list[str]:
        """The command that runs `argv` inside the group from its first instruction, interpreter start included."""
        enter = "".join(f'echo $$ > "${{{i + 1}}}/cgroup.procs" && ' for i in range(len(self.paths)))
        return ["/bin/sh", "-ec", f'{enter}shift {len(self.paths)} && exec "$@"', "sh", *map(str, self.paths), *argv]

    def pids(self) -> list[int]:
        """The processes that are in it now, and in groups below it."""
        return sorted(_pids(self.paths[0]))

    def usage(self) -> Usage:
        """The kernel's counters now: cpu.stat, and with v1 cpuacct.usage (0 CPU seconds where that is not mounted)."""
        files = (self.paths[0] / "cpu.stat", self.paths[0] / "cpu.pressure", self.paths[-1] / "cpuacct.usage")
        return usage_of({path.name: path.read_text() for path in files if path.exists()})


def usage_of(files: Mapping[str, str]) -> Usage:
    """What a group's files say, by their names: cpu.stat, which must be there, cpu.pressure, cpuacct.usage of v1."""
    stat = dict(line.split() for line in files["cpu.stat"].splitlines())
    if "usage_usec" in stat:
        cpu_s, throttled_s = int(stat["usage_usec"]) / 1e6, int(stat.get("throttled_usec", 0)) / 1e6
    else:
        cpu_s = int(files.get("cpuacct.usage", 0)) / 1e9
        throttled_s = int(stat.get("throttled_time", 0)) / 1e9
    return Usage(
        cpu_s=cpu_s,
        periods=int(stat.get("nr_periods", 0)),
        throttled_periods=int(stat.get("nr_throttled", 0)),
        throttled_s=throttled_s,
        stalled_s=stalled_s(files.get("cpu.pressure", "")),
    )


def stalled_s(pressure: str) -> float | None:
    """How long, of all time, some task waited for a CPU, by a cpu.pressure; None where it says nothing.

    Documentation/accounting/psi.rst: `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`, in microseconds.
    """
    some, _, total = pressure.partition("\n")[0].rpartition("total=")
    return int(total) / 1e6 if some else None


@contextlib.contextmanager
def limited(quota_cpus: float | None, *, requested_cpus: float | None = None) -> Iterator[Group]:
    """A new group whose processes get `quota_cpus` CPUs together (None: counted but not limited).

    Its weight is that of a pod that requests `requested_cpus`; None: the most weight there is, so that what else runs
    on the machine is not taken for what the quota does. Raises UnavailableError where the machine does not let one be
    made. On exit its processes are killed and it is gone.
    """
    sweep()
    version, chains = _chains("self")
    settings = _settings(version, quota_cpus, requested_cpus)
    refusals: list[str] = []
    with contextlib.ExitStack() as stack:
        # cpuacct of v1 has no settings.
        paths = [
            _entered(version, chain, files, stack, refusals)
            for chain, files in zip(chains, (settings, {}), strict=False)
        ]
        if not paths or paths[0] is None:
            raise UnavailableError("no CPU quota: " + ("; ".join(refusals) or "no cgroup is mounted"))
        yield Group(version=version, paths=tuple(path for path in paths if path is not None))


def group_of(pid: int) -> Group | None:
    """The group that a process is in; None where that is this process's own, or not to be seen."""
    version, chains = _chains(str(pid))
    group = Group(version=version, paths=tuple(chain[0] for chain in chains))
    if not chains or chains == _chains("self")[1] or not (group.paths[0] / "cpu.stat").exists():
        return None
    return group


def available() -> str | None:
    """None where a group with a quota can be made and entered, else the reason why not."""
    try:
        with limited(1.0):
            return None
    except UnavailableError as error:
        return str(error)


def scope(quota_cpus: float) -> tuple[str, ...]:
    """What to put in front of a command, so that systemd runs it in a scope with this quota; () where it does not."""
    user = ("--user",) if os.geteuid() != 0 else ()
    command = ("systemd-run", *user, "--scope", "--quiet", "--collect", "-p", f"CPUQuota={quota_cpus * 100:g}%", "--")
    try:
        with _announced("waiting for systemd-run"):
            tried = subprocess.run([*command, "true"], check=False, capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return command if tried.returncode == 0 else ()


def in_us(quota_cpus: float) -> int:
    """The quota for each period, as the kubelet writes it."""
    return max(_LEAST_QUOTA_US, round(quota_cpus * PERIOD_US))


def sweep() -> None:
    """Removes what killed runs left behind: each group of ours, with all below it, where no living run holds one.

    Not the group that this process is in: it may be the program of a run that was killed.
    """
    _, chains = _chains("self")
    for chain in chains:
        for parent in chain:
            with contextlib.suppress(OSError), contextlib.ExitStack() as claims:
                with _locked(parent / _CHANGES):
                    left = [one for one in parent.glob(f"{_PREFIX}*") if one not in chain and _claimed(one, claims)]
                for one in left:
                    _remove(one)


def _claimed(tree: Path, claims: contextlib.ExitStack) -> bool:
    """Whether no run held any group of the tree; then this one does."""
    try:
        with contextlib.ExitStack() as stack:
            for folder, _, _ in os.walk(tree):
                if Path(folder).name.startswith(_PREFIX):
                    stack.enter_context(_locked(Path(folder), patience_s=0))
            claims.enter_context(stack.pop_all())
    except OSError:
        return False
    return True


def _chains(process: str) -> tuple[int, list[list[Path]]]:
    """The cgroup version that has the cpu controller, and a process's own group and those above it, nearest first.

    With v1 two such lists, where cpu and cpuacct are apart. [] where no group can be seen.
    """
    view = cgroupfs.View("/", cgroupfs.process_folder("/", process))
    seen = [view.directories(controller)[:2] for controller in ("cpu", "cpuacct")]
    version = seen[0][0]
    chains = [list(map(Path, folders)) for its_version, folders in seen if its_version == version and folders]
    return version, [chain for index, chain in enumerate(chains) if chain not in chains[:index]]


def _settings(version: int, quota_cpus: float | None, requested_cpus: float | None) -> dict[str, str]:
    """What is written into a group's files, in order."""
    quota_us = None if quota_cpus is None else in_us(quota_cpus)
    if version == 2:
        return {
            "cpu.weight": str(_weight(requested_cpus, _WEIGHT_A_CPU, _MOST_WEIGHT)),
            "cpu.max": f"{'max' if quota_us is None else quota_us} {PERIOD_US}",
        }
    return {
        "cpu.shares": str(_weight(requested_cpus, _SHARES_A_CPU, _MOST_SHARES)),
        "cpu.cfs_period_us": str(PERIOD_US),
        "cpu.cfs_quota_us": str(-1 if quota_us is None else quota_us),
    }


def _weight(requested_cpus: float | None, a_cpu: int, most: int) -> int:
    return most if requested_cpus is None else max(_LEAST_SHARES, min(most, round(requested_cpus * a_cpu)))


def _entered(
    version: int, chain: list[Path], settings: Mapping[str, str], stack: contextlib.ExitStack, refusals: list[str]
) -> Path | None:
    """A new group with these settings, below the nearest that lets a process of ours be moved into one."""
    for parent in chain:
        with contextlib.ExitStack() as attempt:
            try:
                with _announced(f"making a cgroup below {parent}"):
                    path = attempt.enter_context(_child(version, parent))
                    _enter(path, settings)
            except OSError as error:
                refusals.append(f"{parent}: {error.strerror}")
            else:
                stack.enter_context(attempt.pop_all())
                return path
    return None


@contextlib.contextmanager
def _child(version: int, parent: Path) -> Iterator[Path]:
    """A new group in this one, which can have a quota and processes; at the end it is gone, with all that is in it."""
    with contextlib.ExitStack() as stack:
        with _locked(parent / _CHANGES):
            enabled = version == 1 or "cpu" in _words(parent / "cgroup.subtree_control")
            if not enabled and "cpu" not in _words(parent / "cgroup.controllers"):
                raise OSError(errno.ENOENT, "the cpu controller is not enabled in it")
            mark = "" if enabled and not any(parent.glob(f"{_PREFIX}*{_ENABLED}")) else _ENABLED
            path = _new(parent, mark)
            stack.enter_context(_locked(path))
            stack.callback(_remove, path)
            if not enabled:
                (parent / "cgroup.subtree_control").write_text("+cpu")
            if _words(path / "cgroup.type") == ["domain", "invalid"]:
                (path / "cgroup.type").write_text("threaded")
        yield path


def _new(parent: Path, mark: str) -> Path:
    while True:
        path = parent / f"{_PREFIX}{os.getpid()}-{next(_counter)}{mark}"
        # A process of another PID namespace may have the same number.
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path


def _enter(path: Path, settings: Mapping[str, str]) -> None:
    """Raises OSError where the group does not take its settings, or a process of ours can't be moved into it."""
    for name, text in settings.items():
        (path / name).write_text(text)
    with subprocess.Popen(["/bin/sh", "-c", "read -r _"], stdin=subprocess.PIPE) as child:
        try:
            (path / "cgroup.procs").write_text(str(child.pid))
        except OSError as error:
            raise OSError(error.errno, f"no process can be moved into a group of it: {error.strerror}") from error
        finally:
            child.kill()
    lost = [name for name, text in settings.items() if (path / name).read_text().split() != text.split()]
    if lost:
        raise OSError(errno.EIO, f"a group of it does not keep its {', '.join(lost)}")


@contextlib.contextmanager
def _locked(path: Path, *, patience_s: float = _PATIENCE_S) -> Iterator[None]:
    """The lock of a file, which ends with this process at the latest. Raises OSError where another keeps it so long."""
    descriptor = os.open(path, os.O_RDONLY)
    ends_at = time.monotonic() + patience_s
    try:
        with _announced(f"waiting for another run, which holds the lock of {path}"):
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= ends_at:
                        raise OSError(errno.EBUSY, "another run holds its lock") from None
                    time.sleep(0.01)
        yield
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Removes a group and those below it, and takes away what was added to the parent once no run needs it."""
    _clear(path)
    if path.name.endswith(_ENABLED):
        with contextlib.suppress(OSError), _locked(path.parent / _CHANGES):
            # With settings of their own, others rely on it. The kernel itself keeps it for groups below them.
            if not any(one.name.startswith(_PREFIX) or _is_set(one) for one in path.parent.iterdir() if one.is_dir()):
                (path.parent / "cgroup.subtree_control").write_text("-cpu")


def _is_set(group: Path) -> bool:
    return _words(group / "cpu.max")[:1] not in ([], ["max"]) or _words(group / "cpu.weight") not in ([], ["100"])


def _clear(top: Path) -> None:
    """Kills what is in a group and removes it with those below; waits only for what it could kill."""
    ends_at = time.monotonic() + _PATIENCE_S
    with _announced(f"removing {top}"):
        while top.exists() and time.monotonic() < ends_at:
            pids = _pids(top)
            try:
                for pid in pids - {0}:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                for folder, _, _ in os.walk(top, topdown=False):
                    Path(folder).rmdir()
            except OSError as error:
                if 0 in pids or error.errno not in {errno.EBUSY, errno.ENOENT}:
                    return
                time.sleep(0.01)


def _pids(top: Path) -> set[int]:
    """The processes in a group and in those below it; 0 stands for those of another PID namespace."""
    result: set[int] = set()
    for folder, _, _ in os.walk(top):
        result.update(map(int, _words(Path(folder, "cgroup.procs"))))
        # Of a threaded group only these can be read.
        result.update(_process_of(int(thread)) for thread in _words(Path(folder, "cgroup.threads")))
    return result


def _process_of(thread: int) -> int:
    words = _words(Path("/proc", str(thread), "status"))
    return int(words[words.index("Tgid:") + 1]) if "Tgid:" in words else thread


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


@contextlib.contextmanager
def _announced(what: str) -> Iterator[None]:
    """Says on standard error what is being done, if it is slow."""
    timer = threading.Timer(_SLOW_S, print, (f"raddle: still {what}",), {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
