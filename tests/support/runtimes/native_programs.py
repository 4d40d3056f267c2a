"""What the tests of libraddle.so share: small programs of each libc and processor, and a stand-in for ONNX Runtime.

The real runtimes are in native_lab.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from native import build
from runtimes.fetching import tool

HERE = Path(__file__).parents[2] / "native"
NATIVE = build.SOURCES
# What compilers have made, by all that it depends on.
KEPT = build.ROOT / "build" / "programs"
PLAN = "v=1;intra_op=2;inter_op=1;spinning=never"
LINE = "raddle: onnxruntime 1.23.9: intra_op=2, inter_op=1, spinning off, affinity none"


@functools.cache
def library(architecture="x86_64"):
    return build.library(architecture)


def need(*names):
    for name in names:
        tool(name)


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _kept(command, target):
    """Where the result of this command is kept: a name made of all that it depends on; None if that has the folder in it."""
    compiler = Path(shutil.which(command[0])).resolve()
    depends = [str(compiler), str(compiler.stat().st_mtime_ns), target.name]
    for part in command[1:]:
        if part == str(target):
            continue
        if Path(part).is_file():
            depends += [Path(part).name, hashlib.sha256(Path(part).read_bytes()).hexdigest()]
        elif str(target.parent) in part:
            return None
        else:
            depends.append(part)
    # Sources include each other.
    depends += [path.read_text() for folder in (NATIVE, HERE) for path in sorted(folder.glob("*.[ch]"))]
    return KEPT / hashlib.sha256("\0".join(depends).encode()).hexdigest()[:20]


class Kind:
    """Programs of one libc and processor: how they are compiled, and how they are run."""

    def __init__(self, folder, compiler, runner=(), flags=(), architecture="x86_64"):
        need(compiler, *runner[:1])
        self.folder = folder
        self.architecture = architecture
        self.runner = list(runner)
        self.compile = [compiler, "-g", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *flags]
        stub = folder / "libonnxruntime.so.1"
        self.run_checked(
            *self.compile, "-shared", "-fPIC", "-Wl,-soname,libonnxruntime.so.1", "-o", stub, HERE / "stub.c"
        )
        self.caller = folder / "caller"
        self.run_checked(*self.compile, "-o", self.caller, HERE / "caller.c", stub, "-Wl,-rpath,$ORIGIN", "-lpthread")

    @staticmethod
    def run_checked(*command):
        """Compile. What the same compiler made of the same files before is taken from build/programs."""
        command = [str(part) for part in command]
        target = Path(command[command.index("-o") + 1])
        kept = _kept(command, target)
        if kept and kept.exists():
            target.unlink(missing_ok=True)  # it may be running
            shutil.copy(kept, target)
            return
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "lacks" in done.stderr or "cannot find -l" in done.stderr:
            pytest.skip(done.stderr.strip().splitlines()[-1])
        assert done.returncode == 0, done.stderr
        if kept:
            kept.parent.mkdir(parents=True, exist_ok=True)
            new = kept.with_name(f"{kept.name}-{os.getpid()}")
            shutil.copy(target, new)
            new.replace(kept)

    def __call__(self, *arguments, plan=PLAN, preload=None, status=0, **environ):
        """(stdout's lines, stderr's lines) of the program; it has to end with this status."""
        environ = {"PATH": os.environ["PATH"], "RADDLE_PLAN": plan, **environ}
        found = preload or build.library(self.architecture)
        runner = self.runner
        if runner and runner[0].startswith("qemu"):
            # The emulator is a program of this machine: only the one that it runs is to see the library.
            runner = [*runner, "-E", f"LD_PRELOAD={found}"]
        else:
            environ["LD_PRELOAD"] = str(found)
        done = subprocess.run(
            [*runner, self.caller, *arguments], env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout.splitlines(), done.stderr.splitlines()
