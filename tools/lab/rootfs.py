"""The guest's disk: this Python with ONNX Runtime and numpy, the libraries they need, and busybox; made once."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from devcluster.progress import Progress
from lab import cache, programs
from lab.errors import LabError, LabUnavailableError

# ONNX Runtime and what it imports; all of them are in the developer's environment, by version and hash.
DISTRIBUTIONS = ("onnxruntime", "numpy", "flatbuffers", "protobuf", "packaging")
LEFT_OUT = ("test", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "site-packages", "dist-packages")
FOLDERS = ("bin", "dev", "etc", "job", "opt", "proc", "root", "sys", "tmp", "run", "python/bin", "python/lib", "lib64")
FREE_MIB = 32
VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")


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


def files(distribution: str) -> list[metadata.PackagePath]:
    """What of a package is in the guest. Programs lie outside its folder and are not."""
    found = metadata.files(distribution) or []
    return [file for file in found if ".." not in file.parts and "tests" not in file.parts]


def installed(file: metadata.PackagePath) -> str:
    """The path of a package's file in the guest."""
    return f"/python/lib/{VERSION}/site-packages/{file}"


def _key() -> str:
    parts = (sys.version, *map(str, versions().items()), Path(__file__).read_text())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def _make(home: Path) -> None:
    root = home / "root"
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    busybox = programs.find("busybox")
    assert busybox is not None
    shutil.copy(busybox, root / "bin" / "busybox")
    (root / "bin" / "sh").symlink_to("busybox")
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    python = _python(root / "python")
    libraries([python, *(root / "python").rglob("*.so"), *(root / "python").rglob("*.so.*")], root)
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


def _python(into: Path) -> Path:
    """The interpreter below `into`, with the standard library and the packages where it looks for them."""
    program = into / "bin" / "python3"
    shutil.copy(Path(sys.executable).resolve(), program)
    library = into / "lib" / VERSION
    ignored = shutil.ignore_patterns(*LEFT_OUT, "config-*", "_tkinter*", "*.a")
    shutil.copytree(sysconfig.get_path("stdlib"), library, symlinks=False, ignore=ignored)
    packages = library / "site-packages"
    for name in DISTRIBUTIONS:
        for file in files(name):
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            # With the time of the file, by which Python knows that its bytecode is of it.
            shutil.copy2(Path(str(file.locate())), target)
    return program


def libraries(binaries: Iterable[Path], root: Path) -> None:
    """Copy what the dynamic linker would load for these, to the same paths."""
    for library in sorted(set(_needed(binaries))):
        # Those that came along with a package are there already.
        if not library.resolve().is_relative_to(root.resolve()):
            target = root / library.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, target)


def _needed(binaries: Iterable[Path]) -> Iterator[Path]:
    for binary in binaries:
        # Of a library that this machine can't load, ldd says nothing.
        done = subprocess.run(["ldd", binary], check=False, capture_output=True, text=True)
        for line in done.stdout.splitlines():
            found = _LIBRARY.search(line)
            if found:
                yield Path(found[1])
