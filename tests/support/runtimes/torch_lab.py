"""Real PyTorch for tests: Debian's, twice, and libtorch from Maven Central. What a machine lacks is skipped.

Debian's is built for the CPU only; the wheels carry CUDA and are not fetched. tools/scripts/packages installs this machine's
python3-torch. That of trixie is unpacked into the cache with all that it needs, C library and Python included, and is
started by its own dynamic linker. `probe` runs torch_probe.py in a process of its own.
"""

from __future__ import annotations

import functools
import json
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raddle import env
from raddle.planning import policy, wire
from raddle.planning.planner import Budget, Plan, plan
from runtimes import fetching, libonnxruntime, pythons
from support.runtimes import families_lab, shim_lab

PYTHON = Path("/usr/bin/python3")
PROBE = Path(__file__).with_name("torch_probe.py")
COUNTS = (env.OMP, "MKL_NUM_THREADS", env.COMPLETED)
RUNTIMES = ("onnxruntime", "torch", "openmp", "blas")
LIBTORCH_VERSION = "2.7.1"
# at::launch and its kin have no C header in the package: these declarations are ATen/Parallel.h's.
LIBTORCH_PROGRAM = """
#include <cstdio>
#include <string>
namespace at {
int get_num_threads();
void set_num_threads(int);
int get_num_interop_threads();
std::string get_parallel_info();
void init_num_threads();
}
int main(int count, char** argument) {
    if (count > 1) at::set_num_threads(std::stoi(argument[1]));
    at::init_num_threads();
    int team = 0;
    #pragma omp parallel reduction(+ : team)
    team += 1;
    std::printf("%d %d %d\\n%s", at::get_num_threads(), at::get_num_interop_threads(), team,
                at::get_parallel_info().c_str());
}
"""


class Release(NamedTuple):
    """A Python that imports torch, and torch's release."""

    python: Path
    version: str


@functools.cache
def installed() -> Release:
    """This machine's python3-torch, such as 1.13.1 (torch.__version__ there is an unfinished 1.13.0a0)."""
    try:
        command = ["dpkg-query", "--show", "--showformat=${Version}", "python3-torch"]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no python3-torch here; tools/scripts/packages installs it")
    return Release(PYTHON, found.partition("+")[0])


def trixie() -> Release:
    """Debian trixie's python3-torch, 2.6 on Python 3.13."""
    return unpacked("trixie", "trixie")


@functools.cache
def unpacked(suite: str, name: str) -> Release:
    """python3-torch of a suite of Debian, in the cache by this name: nothing is installed."""
    if platform.machine() != "x86_64":
        pytest.skip("Debian's packages are unpacked for x86-64 only")
    home = fetching.CACHE / "torch" / name
    with fetching.made(home) as folder:
        if folder:
            _unpack(suite, "python3-torch", folder)
            (python,) = (folder / "usr/bin").glob("python3.[0-9][0-9]")
            libraries = folder / "usr/lib/x86_64-linux-gnu"
            path = ":".join(str(libraries / name) for name in ("", "blas", "lapack", ".."))
            linker = libraries / "ld-linux-x86-64.so.2"
            command = f'{linker} --argv0 {folder}/python --library-path {path} {python} "$@"'
            (folder / "python").write_text(f"#!/bin/sh\nexport PYTHONHOME={folder}/usr\nexec {command}\n")
            (folder / "python").chmod(0o755)
    return Release(home / "python", (home / "version").read_text())


def python_of(suite: str) -> Path:
    """The tree of a suite's smallest Python, with the C library that it needs, in the cache."""
    return tree(suite, "python3-minimal", f"python-{suite}")


@functools.cache
def tree(suite: str, package: str, name: str) -> Path:
    """The tree of a package of a suite and of all that it needs, in the cache by this name."""
    if platform.machine() != "x86_64":
        pytest.skip("Debian's packages are unpacked for x86-64 only")
    home = fetching.CACHE / "torch" / name
    with fetching.made(home) as folder:
        if folder:
            _unpack(suite, package, folder)
    return home


def _unpack(suite: str, package: str, folder: Path) -> None:
    """The tree of a package and of all that it depends on; the package's own version in the file `version`."""
    options = libonnxruntime.apt_options(suite, folder / "apt")
    command = ("apt-get", "-qq", *options, "--yes", "--no-install-recommends", "--download-only", "install", package)
    fetching.fetch(*command)
    for archive in (folder / "apt" / "cache" / "archives").glob("*.deb"):
        fetching.fetch("dpkg-deb", "-x", archive, folder)
        if archive.name.startswith(package + "_"):
            (folder / "version").write_text(archive.name.split("_")[1].partition("+")[0])
    for unused in (folder / "apt", folder / "usr/share"):
        shutil.rmtree(unused)


def planned(limit_cpus: float, **spec: Any) -> tuple[Plan, dict[str, str]]:
    """The plan of a container with this limit, and its variables as the webhook would set them."""
    wanted = policy.parse({"runtimes": list(RUNTIMES), **spec})
    made = plan(None, Budget(quota_cpus=limit_cpus), wanted)
    variables = families_lab.environment(limit_cpus, RUNTIMES, **spec)
    return made, {**variables, env.PLAN: wire.shim_text(made, wanted)}


def probe(
    folder: Path, *steps: Sequence[Any], env: Mapping[str, str], python: Path = PYTHON, **kwargs: Any
) -> tuple[list[Any], str]:
    """What each step saw in a process of its own, and stderr."""
    done = shim_lab.python(python, str(PROBE), str(folder), json.dumps(steps), env=env, check=False, **kwargs)
    return _seen(done.returncode, done.stdout, done.stderr)


def _seen(status: int, stdout: str, stderr: str) -> tuple[list[Any], str]:
    if status:
        raise AssertionError(f"the probe failed with {status}:\n{stdout}\n{stderr}")
    return json.loads(stdout.splitlines()[-1]), stderr


class Importer(shim_lab.ForkServer):
    """A process that has imported torch once, without Raddle; each probe is in one that is forked from it.

    For variants of what a process of its own shows as well. It starts with the COUNTS of its children, as torch may read
    them while it is imported, and starts no thread, so that a fork loses nothing. With "imported" as its first step a
    child activates the shim, whose hook sees an import in which only torch's own execution is left out.
    """

    def __init__(self, python: Path, folder: Path, counts: Mapping[str, str]) -> None:
        self._folder = folder
        super().__init__([python, PROBE, folder], counts)

    def probe(self, *steps: Sequence[Any], env: Mapping[str, str], cpus: Sequence[int] = ()) -> tuple[list[Any], str]:
        """What each step saw in a forked process, and stderr."""
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            said = [Path(folder, name) for name in ("stdout", "stderr")]
            outputs = {"stdout": str(said[0]), "stderr": str(said[1])}
            status = self.ask(steps=steps, env=shim_lab.environment(env), cpus=cpus, **outputs)
            assert status, f"the process that has imported torch ended with {self._process.wait()}"
            return _seen(int(status), *(path.read_text() for path in said))


def with_onnxruntime() -> Path:
    """Debian's Python with its torch, and onnxruntime from a wheel beside it."""
    installed()
    home = pythons.VENVS / "torch-beside-ort-1.31.1"
    with fetching.made(home) as folder:
        if folder:
            fetching.fetch(PYTHON, "-m", "venv", "--system-site-packages", folder)
            install = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "onnxruntime==1.31.1")
            fetching.fetch(*install)
    return home / "bin" / "python"


def libtorch() -> Path:
    """The folder of libtorch_cpu.so."""
    with fetching.made(libonnxruntime.HOME / f"libtorch-{LIBTORCH_VERSION}") as folder:
        if folder:
            artifact = f"-Dartifact=ai.djl.pytorch:pytorch-native-cpu:{LIBTORCH_VERSION}:jar:linux-x86_64"
            copy = ("mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={folder}")
            fetching.fetch(*copy, cwd=folder)
            (jar,) = folder.glob("*.jar")
            fetching.fetch("unzip", "-qo", "-j", jar, "pytorch/cpu/linux-x86_64/*", "-d", folder)
            jar.unlink()
    return libonnxruntime.HOME / f"libtorch-{LIBTORCH_VERSION}"


def libtorch_program() -> Path:
    """A C++ program linked to libtorch; its OpenMP is the one that libtorch carries. An argument is its own count."""
    library = libtorch()
    fetching.tool("g++")
    (openmp,) = library.glob("libgomp*")

    def build(home: Path) -> None:
        subprocess.run(["g++", "-O1", "-fopenmp", "-c", "main.cc"], cwd=home, check=True, timeout=120)
        linked = ["main.o", openmp, library / "libtorch_cpu.so", library / "libc10.so", f"-Wl,-rpath,{library}"]
        subprocess.run(["g++", "-o", "program", *linked], cwd=home, check=True, timeout=120)

    sources = {"main.cc": LIBTORCH_PROGRAM, "libtorch": str(library)}
    return families_lab.made("libtorch", sources, build) / "program"
