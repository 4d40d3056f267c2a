"""Real PyTorch for tests: Debian's python3-torch, and libtorch from Maven Central. What a machine lacks is skipped.

Debian's is built for the CPU only; the wheels of newer releases carry CUDA and are not fetched. `make packages` installs
it. `probe` runs torch_probe.py with it in a process of its own.
"""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import families_lab
import native_lab
import pytest
import shim_lab

from raddle import env, policy, wire
from raddle.planner import Budget, Plan, plan

PYTHON = Path("/usr/bin/python3")
PROBE = Path(__file__).with_name("torch_probe.py")
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


@functools.cache
def version() -> str:
    """The installed python3-torch's release, such as 1.13.1 (torch.__version__ there is an unfinished 1.13.0a0)."""
    try:
        command = ["dpkg-query", "--show", "--showformat=${Version}", "python3-torch"]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no python3-torch here; make packages installs it")
    return found.partition("+")[0]


def planned(limit_cpus: float, **spec: Any) -> tuple[Plan, dict[str, str]]:
    """The plan of a container with this limit, and its variables as the webhook would set them."""
    wanted = policy.parse({"runtimes": list(RUNTIMES), **spec})
    made = plan(None, Budget(quota_cpus=limit_cpus), wanted)
    variables = families_lab.environment(limit_cpus, RUNTIMES, **spec)
    return made, {**variables, env.PLAN: wire.shim_text(made, wanted)}


def probe(
    folder: Path,
    *steps: Sequence[Any],
    env: Mapping[str, str],
    python: Path = PYTHON,
    program: Sequence[str] = (),
    **kwargs: Any,
) -> tuple[list[Any], str]:
    """What each step saw, and stderr. `program` is what Python runs in the place of the probe, with its arguments."""
    arguments = [*(program or [str(PROBE)]), str(folder), json.dumps(steps)]
    done = shim_lab.python(python, *arguments, env=env, check=False, **kwargs)
    if done.returncode:
        raise AssertionError(f"the probe failed with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def with_onnxruntime() -> Path:
    """Debian's Python with its torch, and onnxruntime from a wheel beside it."""
    version()
    home = shim_lab.CACHE / "torch-beside-ort-1.31.1"
    with native_lab.made(home) as folder:
        if folder:
            native_lab.fetch(PYTHON, "-m", "venv", "--system-site-packages", folder)
            install = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "onnxruntime==1.31.1")
            native_lab.fetch(*install)
    return home / "bin" / "python"


def libtorch() -> Path:
    """The folder of libtorch_cpu.so."""
    with native_lab.made(native_lab.CACHE / f"libtorch-{LIBTORCH_VERSION}") as folder:
        if folder:
            artifact = f"-Dartifact=ai.djl.pytorch:pytorch-native-cpu:{LIBTORCH_VERSION}:jar:linux-x86_64"
            copy = ("mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={folder}")
            native_lab.fetch(*copy, cwd=folder)
            (jar,) = folder.glob("*.jar")
            native_lab.fetch("unzip", "-qo", "-j", jar, "pytorch/cpu/linux-x86_64/*", "-d", folder)
            jar.unlink()
    return native_lab.CACHE / f"libtorch-{LIBTORCH_VERSION}"


def libtorch_program() -> Path:
    """A C++ program linked to libtorch; its OpenMP is the one that libtorch carries. An argument is its own count."""
    library = libtorch()
    families_lab.tool("g++")
    (openmp,) = library.glob("libgomp*")

    def build(home: Path) -> None:
        subprocess.run(["g++", "-O1", "-fopenmp", "-c", "main.cc"], cwd=home, check=True, timeout=120)
        linked = ["main.o", openmp, library / "libtorch_cpu.so", library / "libc10.so", f"-Wl,-rpath,{library}"]
        subprocess.run(["g++", "-o", "program", *linked], cwd=home, check=True, timeout=120)

    sources = {"main.cc": LIBTORCH_PROGRAM, "libtorch": str(library)}
    return families_lab.made("libtorch", sources, build) / "program"
