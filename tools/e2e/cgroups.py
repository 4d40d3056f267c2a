"""The kubelet's control groups on this machine: whether there are some already, and their removal at the end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from cluster.waiting import settled
from e2e.errors import E2EError

# cgroupRoot / of the kubelet, and what containerd makes outside it for nobody.
NAME = "kubepods"
EMPTY_SECONDS = 120.0
POLL_SECONDS = 0.1


def hierarchies(mounts: str) -> list[Path]:
    """Where control groups are mounted, of either version, from the text of /proc/mounts."""
    fields = (line.split() for line in mounts.splitlines())
    return [Path(entry[1]) for entry in fields if len(entry) > 2 and entry[2] in {"cgroup", "cgroup2"}]


def refuse_another_node(roots: Iterable[Path] | None = None) -> None:
    """Raise E2EError where a kubelet's pods run on this machine; what an ended run left is removed."""
    for folder in _pods_folders(roots):
        if any(_processes(group) for group in _bottom_up(folder)):
            raise E2EError(f"{folder} has processes: this machine is a Kubernetes node already, or another run is on")
    remove(roots)


def remove(roots: Iterable[Path] | None = None) -> None:
    """Remove the kubelet's groups once they are empty. Raises E2EError naming those that do not get empty in time."""
    nothing: list[Path] = []
    left = settled(lambda: [one for one in _pods_folders(roots) if not _removed(one)], nothing, EMPTY_SECONDS)
    if left:
        raise E2EError(f"control groups are left: {', '.join(map(str, left))}")


def _pods_folders(roots: Iterable[Path] | None) -> list[Path]:
    result = hierarchies(Path("/proc/mounts").read_text()) if roots is None else list(roots)
    return [root / NAME for root in result if (root / NAME).is_dir()]


def _removed(folder: Path) -> bool:
    for group in _bottom_up(folder):
        with contextlib.suppress(OSError):
            group.rmdir()
    return not folder.exists()


def _bottom_up(folder: Path) -> Iterator[Path]:
    for path, _, _ in os.walk(folder, topdown=False):
        yield Path(path)


def _processes(group: Path) -> str:
    try:
        return (group / "cgroup.procs").read_text().strip()
    except OSError:
        return ""
