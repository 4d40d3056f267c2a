"""Compiles runtime/native into runtime/raddle/_native/<architecture>/libraddle.so, and beside it the runner in C.

The library is linked to nothing, so one compiler makes it for every libc, and the same sources, compiler and options
give the same bytes. The runner of a model, run-model, is for `raddle tune` only, and for glibc. Each is made again only
when one of these changes. The architecture that is not this machine's needs a cross compiler (Debian's
gcc-aarch64-linux-gnu and libc6-dev-arm64-cross); without one it is left out.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
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
RUNNER = ROOT / "runtime" / "raddle" / "runner" / "run_model.c"
# For any glibc from 2.17 on: see the file. Before 2.34 dlopen was in a library of its own.
RUNNER_OPTIONS = (
    "-std=gnu11",
    "-Os",
    "-fno-ident",
    f"-I{os.path.relpath(SOURCES, RUNNER.parent)}",
    "-Wl,--wrap=__libc_start_main,--build-id=none,-z,now,-z,noexecstack,-s",
)
RUNNER_LIBRARIES = ("-Wl,--no-as-needed", "-l:libdl.so.2")


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
    return _made(TARGET / architecture / "libraddle.so", _command(architecture), _sources())


def runner(architecture: str) -> Path:
    """The runner in C, made when it isn't there or is out of date. Raises UnavailableError, CalledProcessError."""
    command = [compiler(architecture), *WARNINGS, *RUNNER_OPTIONS]
    return _made(TARGET / architecture / "run-model", command, [RUNNER], RUNNER_LIBRARIES)


def _made(path: Path, command: Sequence[str], sources: Sequence[Path], libraries: Sequence[str] = ()) -> Path:
    stamp = path.with_suffix(".stamp")
    wanted = _fingerprint([*command, *libraries], sources)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent / ".lock"):
        if path.is_file() and stamp.is_file() and stamp.read_text() == wanted:
            return path
        unfinished = path.with_suffix(".new")
        _compile(command, sources, unfinished, libraries)
        unfinished.replace(path)
        stamp.write_text(wanted)
    return path


def link(architecture: str, path: Path) -> None:
    """Makes the library again at the path. Raises UnavailableError and CalledProcessError."""
    _compile(_command(architecture), _sources(), path)


def _compile(command: Sequence[str], sources: Sequence[Path], path: Path, libraries: Sequence[str] = ()) -> None:
    # Names without folders, so that none of this machine's gets into the file.
    names = [source.name for source in sources]
    subprocess.run([*command, "-o", str(path.absolute()), *names, *libraries], cwd=sources[0].parent, check=True)


def _command(architecture: str) -> list[str]:
    return [compiler(architecture), *WARNINGS, *COMPILE, *OWN[architecture], *LINK]


def _sources() -> list[Path]:
    return sorted(SOURCES.glob("*.c"))


def _fingerprint(command: Sequence[str], sources: Sequence[Path]) -> str:
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
