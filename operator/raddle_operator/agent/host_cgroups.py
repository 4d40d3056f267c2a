"""The governed containers' cgroups in the host's hierarchy, read-only: versions 1 and 2, by either driver.

    systemd    kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope
    cgroupfs   kubepods/burstable/podUID/ID

All of it may lie deeper (kind, a kubelet with --cgroup-root). So nothing is composed: the folder of all pods is looked
for once, below it a pod's by its UID, and in that the container's by its ID, whatever stands before and after.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from raddle.cpus import cpuset
from raddle.process.cgroup import parse_cpu_max, parse_cpu_stat
from raddle_operator.agent import host_files
from raddle_operator.agent.governed import GovernedPod
from raddle_operator.agent.samples import Counters

# Folders of version 1's controllers, as distributions name them.
_CPU: Final = ("cpu,cpuacct", "cpuacct,cpu", "cpu")
_ACCOUNTING: Final = ("cpu,cpuacct", "cpuacct,cpu", "cpuacct")
_CPUSET: Final = ("cpuset",)
# How deep the folder of all pods may lie, and what a container's own cgroups are followed to.
_MOST_DEPTH: Final = 4
_MOST_FOLDERS: Final = 64
# /proc/PID numbers of one container that are looked at.
MOST_PROCESSES: Final = 256


class Place(NamedTuple):
    """Where a container's cgroup is, below a hierarchy's top; `pod` is its pod's."""

    path: str
    pod: str


class HostCgroups:
    """Reads below the folder where the host's /sys/fs/cgroup is. A container that can't be found is absent."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.version = 2 if os.path.exists(root + "/cgroup.controllers") else 1
        self._cpu, self._accounting, self._cpuset = (
            root if self.version == 2 else _first_folder(root, names) for names in (_CPU, _ACCOUNTING, _CPUSET)
        )
        self._tops: tuple[str, ...] = ()
        self._places: dict[str, Place] = {}

    def places(self, pods: Iterable[GovernedPod]) -> Mapping[str, Place]:
        """The container's ID -> its place, of those that have one now."""
        wanted = {container.id: pod for pod in pods for container in pod.containers if container.id}
        self._places = {
            key: place for key, place in self._places.items() if key in wanted and os.path.isdir(self._cpu + place.path)
        }
        if missing := wanted.keys() - self._places.keys():
            self._find({key: wanted[key] for key in missing})
        return self._places

    def _find(self, wanted: Mapping[str, GovernedPod]) -> None:
        if not any(os.path.isdir(self._cpu + top) for top in self._tops):
            self._tops = tuple(_pods_tops(self._cpu, "", _MOST_DEPTH))
        folders = [*self._tops]
        for top in self._tops:
            folders += [path for path in _folders(self._cpu, top) if "burstable" in path or "besteffort" in path]
        pods = [path for folder in folders for path in _folders(self._cpu, folder)]
        for key, pod in wanted.items():
            # systemd's names have no "-" but between the slices.
            names = (f"pod{pod.uid}", f"pod{pod.uid.replace('-', '_')}")
            for path in pods:
                if path.rpartition("/")[2].removesuffix(".slice").endswith(names):
                    for below in _folders(self._cpu, path):
                        if _names(below, key):
                            self._places[key] = Place(path=below, pod=path)

    def counters(self, place: Place) -> Counters:
        """What the cgroup says now."""
        at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        # The kubelet gives the pod a quota too; it is the smaller one where the pod has a limit and the container none.
        quotas = {path: quota for path in (place.path, place.pod) if (quota := self._quota(path)) is not None}
        limiting = min(quotas, key=quotas.__getitem__, default=place.path)
        text = self._read(self._cpu, place.path, "cpu.stat")
        stat = parse_cpu_stat(text if limiting == place.path else self._read(self._cpu, limiting, "cpu.stat"))
        throttled_us = stat.get("throttled_us")
        return Counters(
            at_s=at_s,
            used_s=self._used_s(place.path, text),
            periods=_whole(stat.get("nr_periods")),
            throttled_periods=_whole(stat.get("nr_throttled")),
            throttled_s=float(throttled_us) / 1e6 if throttled_us is not None else None,
            waiting_s=self._waiting_s(place.path),
            quota_cpus=quotas.get(limiting),
            cpuset=self._cpus(place),
            # Version 1 doesn't list those that this namespace can't see.
            processes=len(self._numbers(place)) or None,
        )

    def processes(self, place: Place) -> list[int]:
        """Numbers of its processes, those of the cgroups below it too; a number that this namespace lacks is absent."""
        return [number for number in self._numbers(place) if number][:MOST_PROCESSES]

    def _numbers(self, place: Place) -> list[int]:
        """One of each process, 0 where this namespace lacks it."""
        result: list[int] = []
        folders = [place.path]
        for number, path in enumerate(folders):
            result += map(int, self._read(self._cpu, path, "cgroup.procs").split())
            if number < _MOST_FOLDERS:
                folders += _folders(self._cpu, path)
        return result

    def _quota(self, path: str) -> float | None:
        if self.version == 2:
            text = self._read(self._cpu, path, "cpu.max")
        else:
            words = (self._read(self._cpu, path, f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
            text = " ".join(words)
        result = parse_cpu_max(text)
        return result[0] if result else None

    def _used_s(self, path: str, stat: str) -> float | None:
        if self.version == 1:
            text = self._read(self._accounting, path, "cpuacct.usage").strip()
            return int(text) / 1e9 if text.isdecimal() else None
        for line in stat.split("\n"):
            name, _, value = line.partition(" ")
            if name == "usage_usec" and value.isdecimal():
                return int(value) / 1e6
        return None

    def _waiting_s(self, path: str) -> float | None:
        return parse_pressure(self._read(self._cpu, path, "cpu.pressure")) if self.version == 2 else None

    def _cpus(self, place: Place) -> str | None:
        """Of the nearest cgroup that has the cpuset controller, as a list in the kernel's form."""
        name = "cpuset.cpus.effective" if self.version == 2 else "cpuset.effective_cpus"
        for path in (place.path, place.pod):
            try:
                if mask := cpuset.parse_list(self._read(self._cpuset, path, name)):
                    return cpuset.format_list(mask)
            except ValueError:
                continue
        return None

    @staticmethod
    def _read(top: str, path: str, name: str) -> str:
        return host_files.read(f"{top}{path}/{name}").decode("ascii", "replace") if top else ""


def parse_pressure(text: str) -> float | None:
    """Seconds that some task waited for a CPU, of a cpu.pressure file; None where it says nothing."""
    for line in text.split("\n"):
        total = line.rpartition(" total=")[2]
        if line.startswith("some ") and total.isdecimal():
            return int(total) / 1e6
    return None


def _whole(value: float | str | None) -> int | None:
    return None if value is None else int(value)


def _first_folder(root: str, names: Iterable[str]) -> str:
    return next((path for name in names if os.path.isdir(path := f"{root}/{name}")), "")


def _names(path: str, container_id: str) -> bool:
    """Whether the folder is the container's: ID, cri-containerd-ID.scope, crio-ID; not crio-conmon-ID.scope."""
    name = path.rpartition("/")[2].removesuffix(".scope")
    before = name.removesuffix(container_id)
    return before != name and "conmon" not in before


def _pods_tops(top: str, path: str, depth: int) -> Iterator[str]:
    """Folders of all pods: kubepods, kubepods.slice, kubelet-kubepods.slice."""
    for below in _folders(top, path):
        if below.rpartition("/")[2].removesuffix(".slice").endswith("kubepods"):
            yield below
        elif depth > 1:
            yield from _pods_tops(top, below, depth - 1)


def _folders(top: str, path: str) -> list[str]:
    """Paths of the folders in it; none where it is gone."""
    try:
        with os.scandir(top + path) as entries:
            return sorted(f"{path}/{entry.name}" for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
