"""The disk of the lab's guests: this Python with ONNX Runtime and numpy, made once."""

from __future__ import annotations

import hashlib
import shutil
import sys
from importlib import metadata
from pathlib import Path

from cluster.progress import Progress
from vm import cache, contents
from vm.disk import image
from vm.errors import VMUnavailableError

# ONNX Runtime and what it imports; all of them are in the developer's environment, by version and hash.
DISTRIBUTIONS = ("onnxruntime", "numpy", "flatbuffers", "protobuf", "packaging")
FOLDERS = ("dev", "job", "opt", "proc", "root", "sys", "run", "lib64")


def disk(progress: Progress) -> Path:
    """The disk's image. Raises VMUnavailableError where a package is missing, VMError where mke2fs fails."""
    name = f"disk-{_key()}"
    return cache.made(name, "the guest's disk with Python and ONNX Runtime", _make, progress) / "disk.img"


def versions() -> dict[str, str]:
    """Package -> version in the guest."""
    try:
        return {name: metadata.version(name) for name in DISTRIBUTIONS}
    except metadata.PackageNotFoundError as error:
        raise VMUnavailableError(
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
