"""A cgroup of its own for one child process, with a CPU quota, and what the kernel counts in it.

Everything is read and written through the cgroup file system, v1 or v2, whichever has the cpu controller here. The
group lies below the cgroup of this process, or below the nearest ancestor that lets groups with a quota be made in it
(cgroup v2 forbids that in a group that holds processes itself). It is removed on exit, whatever the exit was; what a
killed run left behind is removed by the next one.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PERIOD_US = 100_000  # the kubelet's default, --cpu-cfs-quota-period
# Weight for each CPU that a pod requests: what the kubelet writes with v1, and the same proportion with v2.
_SHARES_A_CPU, _WEIGHT_A_CPU = 1024, 100
_MOST_SHARES, _MOST_WEIGHT = 262144, 10000
_LEAST_QUOTA_US = 1000  # the kernel refuses less, and so does Docker; the kubelet writes this
_PREFIX = "raddle-quota-"
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
        """The processes that are in it now."""
        return [int(pid) for pid in _words(self.paths[0] / "cgroup.procs")]

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
    name = f"{_PREFIX}{os.getpid()}-{next(_counter)}"
    group = _make(name, quota_cpus, requested_cpus)
    try:
        yield group
    finally:
        _remove(group.paths)


def group_of(pid: int) -> Group | None:
    """The group that a process is in; None where that is this process's own, or not to be seen."""
    try:
        own, result = _own_group("self"), _own_group(str(pid))
    except OSError:
        return None
    return result if result != own and result.paths and (result.paths[0] / "cpu.stat").exists() else None


def _own_group(process: str) -> Group:
    mounts = _cgroup_mounts()
    v1 = {
        mount / _own_path(controller, process).lstrip("/"): None
        for controller in ("cpu", "cpuacct")
        for mount, kind, options in mounts
        if kind == "cgroup" and controller in options
    }
    if v1:
        return Group(version=1, paths=tuple(v1))
    v2 = [mount / _own_path("", process).lstrip("/") for mount, kind, _ in mounts if kind == "cgroup2"]
    return Group(version=2, paths=tuple(v2[:1]))


def available() -> str | None:
    """None where a group with a quota can be made and entered, else the reason why not."""
    try:
        with limited(1.0) as group:
            entered = subprocess.run(group.command(["/bin/true"]), check=False, capture_output=True, text=True)
    except UnavailableError as error:
        return str(error)
    if entered.returncode != 0:
        return f"a process can't be moved into {group.paths[0]}: {entered.stderr.strip()}"
    return None


def scope(quota_cpus: float) -> tuple[str, ...]:
    """What to put in front of a command, so that systemd runs it in a scope with this quota; () where it does not."""
    user = ("--user",) if os.geteuid() != 0 else ()
    command = ("systemd-run", *user, "--scope", "--quiet", "--collect", "-p", f"CPUQuota={quota_cpus * 100:g}%", "--")
    try:
        tried = subprocess.run([*command, "true"], check=False, capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return command if tried.returncode == 0 else ()


def in_us(quota_cpus: float) -> int:
    """The quota for each period, as the kubelet writes it."""
    return max(_LEAST_QUOTA_US, round(quota_cpus * PERIOD_US))


def sweep() -> None:
    """Removes groups that an earlier, killed run of this module left behind (its process id is in the name)."""
    for parent in itertools.chain.from_iterable(_parents()):
        with contextlib.suppress(OSError):
            for left in parent.glob(f"{_PREFIX}*"):
                owner = left.name.removeprefix(_PREFIX).partition("-")[0]
                if owner.isdigit() and not Path("/proc", owner).exists():
                    _remove((left,))


def _make(name: str, quota_cpus: float | None, requested_cpus: float | None) -> Group:
    refusals: list[str] = []
    v1 = [_first_writable(chain, name, refusals) for chain in _v1_chains()]
    if v1 and v1[0] is not None:
        paths = tuple(path for path in v1 if path is not None)
        return _configured(Group(version=1, paths=paths), quota_cpus, requested_cpus)
    for parent in _v2_chain():
        try:
            _delegate_cpu(parent)
            (parent / name).mkdir()
        except OSError as error:
            refusals.append(f"{parent}: {error.strerror}")
            continue
        return _configured(Group(version=2, paths=(parent / name,)), quota_cpus, requested_cpus)
    raise UnavailableError("no CPU quota: " + ("; ".join(refusals) or "no cgroup cpu controller is mounted"))


def _configured(group: Group, quota_cpus: float | None, requested_cpus: float | None) -> Group:
    quota_us = None if quota_cpus is None else in_us(quota_cpus)
    try:
        if group.version == 2:
            (group.paths[0] / "cpu.max").write_text(f"{'max' if quota_us is None else quota_us} {PERIOD_US}")
            (group.paths[0] / "cpu.weight").write_text(str(_weight(requested_cpus, _WEIGHT_A_CPU, _MOST_WEIGHT)))
        else:
            (group.paths[0] / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group.paths[0] / "cpu.cfs_quota_us").write_text(str(-1 if quota_us is None else quota_us))
            (group.paths[0] / "cpu.shares").write_text(str(_weight(requested_cpus, _SHARES_A_CPU, _MOST_SHARES)))
    except OSError as error:
        _remove(group.paths)
        raise UnavailableError(f"no CPU quota: {group.paths[0]}: {error.strerror}") from error
    return group


def _weight(requested_cpus: float | None, a_cpu: int, most: int) -> int:
    return most if requested_cpus is None else max(1, min(most, round(requested_cpus * a_cpu)))


def _first_writable(chain: list[Path], name: str, refusals: list[str]) -> Path | None:
    for parent in chain:
        try:
            (parent / name).mkdir()
        except OSError as error:
            refusals.append(f"{parent}: {error.strerror}")
        else:
            return parent / name
    return None


def _delegate_cpu(parent: Path) -> None:
    if "cpu" not in (parent / "cgroup.subtree_control").read_text().split():
        # Only the real root may hold processes and hand controllers down; elsewhere the kernel answers EBUSY.
        (parent / "cgroup.subtree_control").write_text("+cpu")


def _parents() -> list[list[Path]]:
    return [*_v1_chains(), _v2_chain()]


def _v1_chains() -> list[list[Path]]:
    """Where a v1 group may be made, nearest first: one chain for cpu and, if it is another hierarchy, cpuacct."""
    chains: list[list[Path]] = []
    for controller in ("cpu", "cpuacct"):
        for mount, kind, options in _cgroup_mounts():
            if kind == "cgroup" and controller in options:
                chain = _ancestors(mount, _own_path(controller))
                if chain not in chains:
                    chains.append(chain)
                break
        else:
            if controller == "cpu":
                return []
    return chains


def _v2_chain() -> list[Path]:
    for mount, kind, _ in _cgroup_mounts():
        if kind == "cgroup2" and "cpu" in _words(mount / "cgroup.controllers"):
            return _ancestors(mount, _own_path(""))
    return []


def _cgroup_mounts() -> list[tuple[Path, str, list[str]]]:
    lines = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [(Path(at), kind, options.split(",")) for _, at, kind, options, *_ in lines if kind.startswith("cgroup")]


def _own_path(controller: str, process: str = "self") -> str:
    for line in Path("/proc", process, "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    return "/"


def _ancestors(mount: Path, own: str) -> list[Path]:
    """The own group and those above it, nearest first, as far as they are visible below the mount."""
    inner = [mount / own.lstrip("/"), *(mount / str(up).lstrip("/") for up in Path(own).parents)]
    return [path for path in dict.fromkeys(inner) if path.is_dir()]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _remove(paths: tuple[Path, ...]) -> None:
    """Kills what is inside and removes the directories; for 5 s, as a process needs a moment to leave its group."""
    deadline = time.monotonic() + 5
    for path in paths:
        while path.exists():
            for pid in _words(path / "cgroup.procs"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(OSError):
                path.rmdir()
                break
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
