"""The machines that other projects recorded, where their archive is beside this repository."""

from __future__ import annotations

import functools
import re
import tarfile
from pathlib import Path

import pytest

ARCHIVE = Path(__file__).resolve().parents[3] / "shared" / "machines" / "captures.tar.xz"
# Half of 14,000 files: what no reader of topology could want.
UNREAD = re.compile(
    "/(power|stats|ondemand|state[0-9]+|size_of|ways_of|number_of|coherency|physical_line|type$)|proc/[^cmsv]"
)
NAMES = (
    "hwloc-16em64t-4s2c2t-offlines",
    "hwloc-20em64t-hybrid-1p6c2t+2ca4co1t",
    "hwloc-32amd64-4s2n4c-cgroup2",
    "hwloc-48amd64-4pa2n6c-sparse",
    "hwloc-64intel64-fakeKNL-SNC4-hybrid",
    "iree-x86_64_ryzen9_7950x",
    "lscpu-arm-A510-A710-A715-X3",
    "lscpu-ppc64-POWER7",
    "lscpu-s390-lpar-drawer",
    "nto-worker2",
)


def unpack(into: Path, name: str = "") -> Path:
    """The folder with all machines, or with one; skips the test where the archive isn't there."""
    if not ARCHIVE.is_file():
        pytest.skip(f"the recorded machines of other projects are not here: {ARCHIVE}")
    for member, content in _contents():
        if _belongs(member.name, name):
            _write(into / member.name, member, content)
    return into


@functools.cache
def _contents() -> list[tuple[tarfile.TarInfo, bytes]]:
    """What is in the archive and is read: once a process, since to unpack it takes a second."""
    found = []
    with tarfile.open(ARCHIVE) as tar:
        for member in tar:
            if not UNREAD.search(member.name):
                file = tar.extractfile(member) if member.isreg() else None
                found.append((member, file.read() if file else b""))
    return found


def _write(path: Path, member: tarfile.TarInfo, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        path.mkdir(exist_ok=True)
    elif member.issym():
        path.symlink_to(member.linkname)
    else:
        path.write_bytes(content)


def _belongs(path: str, name: str) -> bool:
    return not name or name in path.split("/")[:2]


def cpus(text):
    """The CPUs of a list such as 0-3,8, read by no code of the project."""
    found = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
