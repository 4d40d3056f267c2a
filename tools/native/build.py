"""Compiles runtime/native into runtime/raddle/_native/<architecture>/libraddle.so.

The library is linked to nothing, so one compiler makes it for every libc, and the same sources, compiler and options
give the same bytes. It is made again only when one of these changes. The architecture that is not this machine's needs
a cross compiler (Debian's gcc-aarch64-linux-gnu); without one it is left out.
"""

from __future__ import annotations

import fcntl
import hashlib
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from unavailable import UnavailableError

ARCHITECTURES = ("x86_64", "aarch64")
# Two architectures of this, as base64, take less than a quarter of a ConfigMap.
MAX_BYTES = 96 * 1024
ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "runtime" / "native"
TARGET = ROOT / "runtime" / "raddle" / "_native"
WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Werror")
COMPILE = (
    "-std=gnu11",
    "-Os",
    "-fPIC",
    "-ffreestanding",
    "-fvisibility=hidden",
    "-fno-stack-protector",
    # Without these gcc makes memcpy call itself, and puts in tables that only a debugger or an unwinder reads.
    "-fno-tree-loop-distribute-patterns",
    "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables",
    "-fno-ident",
    "-ffunction-sections",
    "-fdata-sections",
)
# On arm64 gcc's atomics would call libgcc to find out what the CPU can do, and a read-only part would have to end at a
# page of 64 KiB: the file would be twice as long for the sake of a few pointers.
OWN = {"x86_64": ("-Wl,-z,relro",), "aarch64": ("-mno-outline-atomics", "-Wl,-z,norelro")}
LINK = (
    "-shared",
    "-nostdlib",
    "-Wl,--hash-style=both,--build-id=none,--gc-sections,-z,now,-z,noexecstack,-z,defs,-z,text,-z,noseparate-code,-z,common-page-size=4096,-s",
    # Run by itself, it is the program of program.c.
    "-Wl,-soname,libraddle.so,-e,rd_start",
)


def compiler(architecture: str) -> str:
    """The compiler's name. Raises UnavailableError."""
    own = platform.machine() == architecture
    for name in (("gcc", "cc") if own else ()) + (f"{architecture}-linux-gnu-gcc",):
        if shutil.which(name):
            return name
    package = "gcc" if own else f"gcc-{architecture.replace('_', '-')}-linux-gnu"
    raise UnavailableError(f"no compiler for {architecture}: install {package}")


def library(architecture: str) -> Path:
    """The library, made when it isn't there or is out of date. Raises UnavailableError, CalledProcessError."""
    command = _command(architecture)
    sources = _sources()
    path = TARGET / architecture / "libraddle.so"
    stamp = path.with_suffix(".stamp")
    wanted = _fingerprint(command, sources)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent / ".lock"):
        if path.is_file() and stamp.is_file() and stamp.read_text() == wanted:
            return path
        unfinished = path.with_suffix(".new")
        link(architecture, unfinished)
        unfinished.replace(path)
        stamp.write_text(wanted)
    return path


def link(architecture: str, path: Path) -> None:
    """Makes the library again at the path. Raises UnavailableError and CalledProcessError."""
    # Names without folders, so that none of this machine's gets into the file.
    names = [source.name for source in _sources()]
    subprocess.run([*_command(architecture), "-o", str(path.absolute()), *names], cwd=SOURCES, check=True)


def _command(architecture: str) -> list[str]:
    return [compiler(architecture), *WARNINGS, *COMPILE, *OWN[architecture], *LINK]


def _sources() -> list[Path]:
    return sorted(SOURCES.glob("*.c"))


def _fingerprint(command: list[str], sources: list[Path]) -> str:
    version = subprocess.run([command[0], "--version"], capture_output=True, check=True).stdout
    digest = hashlib.sha256(version + "\0".join(command).encode())
    for file in [*sources, *sorted(SOURCES.glob("*.h"))]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
