"""What is measured: for each runtime, the command of a program that serves as an unsuspecting user writes it.

A program prints one line of JSON once it serves on its Unix socket, and ends when its stdin closes. Those in C are
compiled here; ONNX Runtime for C and Node.js is fetched (`runtimes`).
"""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from load import server
from load.models import Model, Network
from runtimes import fetching, libonnxruntime, nodejs
from unavailable import UnavailableError

_ROOT = Path(__file__).resolve().parents[2]
BUILD = _ROOT / "build" / "load"  # outside git
_PROGRAMS = Path(__file__).with_name("programs")
_DEBIAN_PYTHON = "/usr/bin/python3"


def command(runtime: str, model: Model, socket: Path, threads: int | None = None, spin: str | None = None) -> list[str]:
    """The program's command line. `threads` and `spin` change the code, where the runtime is ONNX Runtime.

    Raises UnavailableError.
    """
    argv = RUNTIMES[runtime](model, socket)
    if runtime in ("onnxruntime-c", "onnxruntime-node"):
        return [*argv, str(threads or 0), spin or "default"]
    if threads is not None and runtime in ("onnxruntime", "blas"):
        argv += ["--threads", str(threads)]
    if spin is not None and runtime in ("onnxruntime", "blas"):
        argv += ["--spin", spin]
    return argv


def _python(model: Model, socket: Path) -> list[str]:
    return _of_onnxruntime(model.network, socket)


def _blas(model: Model, socket: Path) -> list[str]:
    return [*_of_onnxruntime(model.beside_blas, socket), "--blas-side", str(model.blas_side)]


def _of_onnxruntime(network: Network, socket: Path) -> list[str]:
    argv = [interpreter(), server.__file__, "--model", str(network.file(BUILD)), "--socket", str(socket)]
    return [*argv, *(part for folder in _packages() for part in ("--packages", folder))]


def _torch(model: Model, socket: Path) -> list[str]:
    result = subprocess.run([_DEBIAN_PYTHON, "-c", "import torch"], check=False, capture_output=True)
    if result.returncode:
        raise UnavailableError("Debian's python3-torch is not installed")
    sizes = map(str, (model.network.side, model.network.channels, model.network.layers))
    return [_DEBIAN_PYTHON, server.__file__, "--runtime", "torch", "--network", *sizes, "--socket", str(socket)]


def _onnxruntime_c(model: Model, socket: Path) -> list[str]:
    library, headers = libonnxruntime.release(libonnxruntime.WHEEL_VERSION), libonnxruntime.headers()
    links = (f"-I{headers}", f"-L{library}", f"-Wl,-rpath,{library}", "-lonnxruntime", "-lpthread")
    program = _compiled("serve_onnxruntime", *links)
    return [str(program), str(model.file(BUILD)), str(model.network.side), str(socket)]


def _openmp(model: Model, socket: Path) -> list[str]:
    return [str(_compiled("serve_openmp", "-fopenmp", "-lm")), str(model.loop_values), str(socket)]


def _node(model: Model, socket: Path) -> list[str]:
    packages = nodejs.package(f"onnxruntime-node@{nodejs.NEWEST}")
    program = str(_PROGRAMS / "serve_node.cjs")
    return [nodejs.node(), program, str(packages), str(model.file(BUILD)), str(model.network.side), str(socket)]


# "blas" is a product of matrices by numpy and a network by ONNX Runtime, one after the other.
RUNTIMES: dict[str, Callable[[Model, Path], list[str]]] = {
    "onnxruntime": _python,
    "onnxruntime-node": _node,
    "onnxruntime-c": _onnxruntime_c,
    "torch": _torch,
    "openmp": _openmp,
    "blas": _blas,
}


def interpreter() -> str:
    """The Python that a container would run: not the one of a virtual environment, which ignores the user site."""
    return getattr(sys, "_base_executable", None) or sys.executable


def _packages() -> list[str]:
    """Where this interpreter finds what the server imports, without importing it here."""
    result = [importlib.util.find_spec(name) for name in ("numpy", "onnxruntime")]
    return list(dict.fromkeys(str(Path(spec.origin).parents[1]) for spec in result if spec and spec.origin))


@functools.cache
def _compiled(name: str, *flags: str) -> Path:
    """The program, compiled again in each process that measures: sources and libraries may have changed."""
    fetching.tool("gcc")
    BUILD.mkdir(parents=True, exist_ok=True)
    target = BUILD / name
    argv = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", str(_PROGRAMS / f"{name}.c"), "-o", str(target), *flags]
    subprocess.run(argv, check=True)
    return target
