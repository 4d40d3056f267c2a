"""CPythons of each minor version, and virtual environments with a runtime in them."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from runtimes.fetching import CACHE, fetch, made
from unavailable import UnavailableError

PYENV = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
VENVS = CACHE / "venvs"
INSTALLED_AT_ONCE = 4
VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
# Name of the cached venv -> Python and packages; pip finds a numpy that fits where none is named.
RELEASES = {
    "ort-1.16.3": ("3.11", "onnxruntime==1.16.3", "numpy<2"),
    "ort-1.19.2-py3.8": ("3.8", "onnxruntime==1.19.2"),
    "ort-1.20.1": ("3.11", "onnxruntime==1.20.1"),
    "ort-1.23.2": ("3.11", "onnxruntime==1.23.2"),  # the first with a global pool in Python
    "ort-1.25.1": ("3.11", "onnxruntime==1.25.1"),  # no bounded spinning yet
    "ort-1.26.0": ("3.11", "onnxruntime==1.26.0"),
    "ort-1.28.0": ("3.11", "onnxruntime==1.28.0"),  # the last before the environment variables
    "ort-1.29.0": ("3.11", "onnxruntime==1.29.0"),
    "ort-1.31.1": ("3.11", "onnxruntime==1.31.1"),
    "ort-1.32.0": ("3.11", "onnxruntime==1.32.0"),
    "ort-1.31.1-py3.13": ("3.13", "onnxruntime==1.31.1"),
}
# Other builds of ONNX Runtime: with OpenMP, for CUDA, for OpenVINO. And PaddlePaddle, built with MKL.
BUILDS = {
    "ort-openmp-1.7.0": ("3.8", "onnxruntime-openmp==1.7.0", "numpy<1.24"),
    "ort-gpu-1.31.1": ("3.11", "onnxruntime-gpu==1.31.1"),
    "paddle-3.3.1": ("3.11", "paddlepaddle==3.3.1"),
    "ort-openvino-1.24.1": ("3.11", "onnxruntime-openvino==1.24.1"),
}


def interpreter(version: str) -> Path:
    """A CPython of this minor version outside any venv: pyenv's, else the one that PATH names.

    Raises UnavailableError.
    """
    result = sorted((PYENV / "versions").glob(f"{version}.*/bin/python{version}"))
    if result:
        return result[-1]
    named = shutil.which(f"python{version}", path="/usr/local/bin:/usr/bin")
    if named is None:
        raise UnavailableError(f"no CPython {version} here")
    return Path(named)


def any_interpreter(pattern: str) -> Path:
    """A pyenv interpreter by a pattern of its version, for those that the shim does not support.

    Raises UnavailableError.
    """
    result = sorted((PYENV / "versions").glob(f"{pattern}/bin/python"))
    if not result:
        raise UnavailableError(f"no Python {pattern} of pyenv's here")
    return result[-1]


def venv(name: str, version: str, packages: Sequence[str], unresolved: Sequence[str] = ()) -> Path:
    """The interpreter of a cached virtual environment, made at the first call. Raises UnavailableError.

    `unresolved` are installed without their dependencies.
    """
    base = interpreter(version)
    with made(VENVS / name) as home:
        if home:
            fetch(base, "-m", "venv", home)
            install = (home / "bin" / "python", "-m", "pip", "install", "--quiet")
            fetch(*install, *packages)
            if unresolved:
                fetch(*install, "--no-deps", *unresolved)
    return VENVS / name / "bin" / "python"


def release(name: str) -> Path:
    """The interpreter of one of RELEASES or BUILDS. Raises UnavailableError."""
    made_of = _installed(name)
    if isinstance(made_of, UnavailableError):
        raise UnavailableError(*made_of.args)
    return made_of


@functools.cache
def _installed(name: str) -> Path | UnavailableError:
    """The interpreter, or why there is none. The first release that is missing has all of them made, some at a time."""
    if name in RELEASES and not (VENVS / name / "ready").exists():
        with ThreadPoolExecutor(INSTALLED_AT_ONCE) as pool:
            list(pool.map(lambda one: _install(one, *RELEASES[one]), RELEASES))
    return _install(name, *{**RELEASES, **BUILDS}[name])


def _install(name: str, version: str, *packages: str) -> Path | UnavailableError:
    try:
        return venv(name, version, packages)
    except UnavailableError as error:
        return error
