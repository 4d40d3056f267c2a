"""Cgroups of the running kernel: nested, with a quota and a CPU set each, gone again at the end."""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from raddle.process import cgroupfs

# The kernel's default.
PERIOD_US = 100_000


class Box(NamedTuple):
    """One cgroup: the version and the directory of each of its controllers."""

    cpu: Path
    cpuset: Path
    version: int

    def join(self) -> None:
        """Moves the calling process, all of its threads, into it."""
        for folder in {self.cpu, self.cpuset}:
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    def joins(self) -> list[str]:
        """The files that a process writes its number to for that."""
        return [str(folder / "cgroup.procs") for folder in sorted({self.cpu, self.cpuset})]

    def limit(self, *, quota_us: int | None = None, cpus: str | None = None) -> None:
        """Sets its limits, as the kubelet does at a resize; what is None stays."""
        for path, text in self.resize(quota_us=quota_us, cpus=cpus).items():
            Path(path).write_text(text)

    def resize(self, *, quota_us: int | None = None, cpus: str | None = None) -> dict[str, str]:
        """The same as the files to write, for a process that does it itself. A quota of -1 is none."""
        files = {}
        if quota_us is not None and self.version == 1:
            files[str(self.cpu / "cpu.cfs_quota_us")] = str(quota_us)
        elif quota_us is not None:
            files[str(self.cpu / "cpu.max")] = f"{'max' if quota_us < 0 else quota_us} {PERIOD_US}"
        if cpus is not None:
            files[str(self.cpuset / "cpuset.cpus")] = cpus
        return files


@contextlib.contextmanager
def boxes(depth: int = 1) -> Iterator[list[Box]]:
    """So many cgroups, each below the one before, without limits; a skip with the reason where none can be made."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make a cgroup")
    view = cgroupfs.View("/", "/proc/self")
    folders, versions = [], []
    for controller in ("cpu", "cpuset"):
        version, directories, own_seen = view.directories(controller)
        if not own_seen or not os.access(directories[0], os.W_OK):
            pytest.skip(f"the {controller} controller's cgroup can't be written here")
        folders.append(Path(directories[0]))
        versions.append(version)
    if versions[0] != versions[1]:
        pytest.skip("the cpu and cpuset controllers are in cgroups of different versions here")
    made: list[Path] = []
    found = []
    try:
        for _ in range(depth):
            folders = [_below(folder, versions[0], made) for folder in folders]
            found.append(Box(folders[0], folders[1], versions[0]))
        yield found
    finally:
        for folder in reversed(made):
            _remove(folder)


def _remove(folder: Path) -> None:
    """The kernel lets go of a process a moment after its parent has waited for it."""
    ends_at = time.monotonic() + 10
    while True:
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > ends_at:
                raise
            time.sleep(0.01)
        else:
            return


_NAME = f"raddle-test-{uuid.uuid4().hex[:8]}"


def _below(parent: Path, version: int, made: list[Path]) -> Path:
    """A new cgroup below the parent, with the parent's CPUs."""
    folder = parent / f"{_NAME}-{len(parent.parts)}"
    try:
        if folder not in made:
            if version == 2:
                (parent / "cgroup.subtree_control").write_text("+cpu +cpuset")
            folder.mkdir()
            made.append(folder)
        if version == 1 and (folder / "cpuset.cpus").exists():
            # Empty in a new one, which no process can join.
            for name in ("cpuset.mems", "cpuset.cpus"):
                (folder / name).write_text((parent / name).read_text())
    except OSError as error:
        pytest.skip(f"no cgroup can be made in {parent}: {error.strerror}")
    return folder
