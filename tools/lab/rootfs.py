"""The guest's disk: this Python with ONNX Runtime and numpy, the libraries they need, and busybox; made once."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from cluster.progress import Progress
from lab import cache, contents, programs
from lab.errors import LabError, LabUnavailableError

# ONNX Runtime and what it imports; all of them are in the developer's environment, by version and hash.
DISTRIBUTIONS = ("onnxruntime", "numpy", "flatbuffers", "protobuf", "packaging")
FOLDERS = ("dev", "job", "opt", "proc", "root", "sys", "run", "lib64")
FREE_MIB = 32


def disk(progress: Progress) -> Path:
    """The disk's image. Raises LabUnavailableError where a package is missing, LabError where mke2fs fails."""
    name = f"disk-{_key()}"
    return cache.made(name, "the guest's disk with Python and ONNX Runtime", _make, progress) / "disk.img"


def versions() -> dict[str, str]:
    """Package -> version in the guest."""
    try:
        return {name: metadata.version(name) for name in DISTRIBUTIONS}
    except metadata.PackageNotFoundError as error:
        raise LabUnavailableError(
            f"{error} is not in this Python's environment; make setup makes one that has it"
        ) from None


def installed(file: metadata.PackagePath) -> str:
    """The path of a package's file in the guest."""
    return f"/{contents.SITE_PACKAGES / file}"


def _key() -> str:
    sources = (Path(__file__).read_text(), Path(contents.__file__).read_text())
    parts = (sys.version, *map(str, versions().items()), *sources)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _make(home: Path) -> None:
    root = home / "root"
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    contents.python(root, DISTRIBUTIONS)
    image(root, home / "disk.img")
    shutil.rmtree(root)


def image(root: Path, into: Path, *, free_mib: int = FREE_MIB) -> None:
    """Write the files below `root` as an ext4 file system with this much room. Raises LabError where mke2fs fails."""
    mke2fs = programs.find("mke2fs")
    assert mke2fs is not None
    size_mib = sum(path.lstat().st_size for path in root.rglob("*")) // 2**20
    # ext4 itself takes its part, and a file takes whole blocks.
    size = f"{size_mib * 5 // 4 + free_mib}M"
    command: list[str | Path] = [mke2fs, "-q", "-t", "ext4", "-d", root, into, size]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"mke2fs failed: {done.stderr[-500:]}")
