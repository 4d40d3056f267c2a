"""What guests and images are filled with: busybox, this Python with its packages, the libraries that these load."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from vm import programs

VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
# Below a tree's root.
PYTHON = Path("python") / "bin" / "python3"
SITE_PACKAGES = Path("python") / "lib" / VERSION / "site-packages"
PASSWD = "root:x:0:0:root:/root:/bin/sh\n"
LEFT_OUT = ("test", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "site-packages", "dist-packages")
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")


def busybox(root: Path) -> None:
    """Busybox as bin/busybox and bin/sh. Needs programs.need() to have passed."""
    result = programs.find("busybox")
    assert result is not None
    (root / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy(result, root / "bin" / "busybox")
    (root / "bin" / "sh").symlink_to("busybox")


def system(root: Path) -> None:
    """Busybox, a user's name and a folder for what is temporary: what programs take for granted."""
    for folder in ("etc", "tmp"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc" / "passwd").write_text(PASSWD)
    busybox(root)


def python(root: Path, distributions: Iterable[str]) -> None:
    """A system with this interpreter at PYTHON, its library, these packages beside it, and the libraries of all."""
    system(root)
    program = root / PYTHON
    program.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(sys.executable).resolve(), program)
    ignored = shutil.ignore_patterns(*LEFT_OUT, "config-*", "_tkinter*", "*.a")
    library = root / "python" / "lib" / VERSION
    shutil.copytree(sysconfig.get_path("stdlib"), library, symlinks=False, ignore=ignored)
    for name in distributions:
        for file in files(name):
            target = root / SITE_PACKAGES / file
            target.parent.mkdir(parents=True, exist_ok=True)
            # With the time of the file, by which Python knows that its bytecode is of it.
            shutil.copy2(Path(str(file.locate())), target)
    libraries([program, *(root / "python").rglob("*.so"), *(root / "python").rglob("*.so.*")], root)


def files(distribution: str) -> list[metadata.PackagePath]:
    """What of a package is copied: not its programs, which lie outside its folder, nor its tests."""
    result = metadata.files(distribution) or []
    inside = [file for file in result if ".." not in file.parts and "tests" not in file.parts]
    return [file for file in inside if Path(str(file.locate())).is_file()]


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
            result = _LIBRARY.search(line)
            if result:
                yield Path(result[1])
