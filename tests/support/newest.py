"""The newest ONNX Runtime and PyTorch that the registries give, beside the pinned ones of the labs.

Each registry is asked by its own client, once a day; the answer is kept below ~/.cache/raddle/newest. What can't be had
skips the test with the reason: only a release that is there, and works otherwise than the pinned ones, fails it.

PyTorch is Debian's in sid, which is built for the CPU only; PyPI's asks for gigabytes of CUDA.
"""

from __future__ import annotations

import fcntl
import functools
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from support import native_lab, shim_lab, torch_lab

CACHE = Path.home() / ".cache" / "raddle" / "newest"
DAY_S = 86400
TIMEOUT_S = 120
PYTHON = "3.11"
MAVEN = "com.microsoft.onnxruntime:onnxruntime"


@functools.cache
def version(registry: str) -> str:
    """The newest version of ONNX Runtime in pypi, npm or maven, or of PyTorch in debian."""
    CACHE.mkdir(parents=True, exist_ok=True)
    known = CACHE / registry
    with known.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not known.exists() or known.stat().st_mtime < time.time() - DAY_S:
            try:
                known.write_text({"pypi": _pypi, "npm": _npm, "maven": _maven, "debian": _debian}[registry]())
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"{registry} does not tell its newest release: {error}")
    return known.read_text()


def _pypi() -> str:
    # "onnxruntime (1.31.1)", of those that this Python can have.
    python = shim_lab.interpreter(PYTHON)
    if python is None:
        pytest.skip(f"no CPython {PYTHON} here")
    return _said(str(python), "-m", "pip", "index", "versions", "onnxruntime").split()[1].strip("()")


def _npm() -> str:
    return _said("npm", "view", "onnxruntime-node", "version").strip()


def _maven() -> str:
    # Only what is there under this name is fetched: its file is named by the version.
    with tempfile.TemporaryDirectory() as folder:
        _said("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={MAVEN}:RELEASE:pom", f"-DoutputDirectory={folder}")
        (pom,) = Path(folder).iterdir()
        return pom.stem.rpartition("-")[2]


def _debian() -> str:
    # "Candidate: 2.14.1+dfsg-1": what is before the plus is torch's own.
    with tempfile.TemporaryDirectory() as folder:
        policy = _said("apt-cache", *torch_lab.apt_options("sid", Path(folder)), "policy", "python3-torch")
    return policy.partition("Candidate: ")[2].partition("+")[0]


def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    return done.stdout


def wheel(found: str) -> Path:
    """The interpreter that has this version of PyPI's."""
    try:
        python = shim_lab.venv(f"ort-{found}", PYTHON, [f"onnxruntime=={found}"])
    except subprocess.SubprocessError as error:
        pytest.skip(f"onnxruntime {found} can't be installed here: {error}")
    assert python is not None
    return python


def native_program(found: str) -> native_lab.Program:
    """A C program that is linked to the library of PyPI's wheel."""
    (library,) = (wheel(found).parents[1] / "lib").glob("python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*.*")
    with native_lab.made(CACHE / f"library-{found}") as folder:
        for name in ("libonnxruntime.so", "libonnxruntime.so.1") if folder else ():
            (folder / name).symlink_to(library)
    program = native_lab.compiled("caller", "caller.c", CACHE / f"library-{found}")
    return native_lab.Program("c", found, (str(program),), {})


def torch(found: str) -> Path:
    """The Python that has this version of Debian's."""
    python = torch_lab.unpacked("sid", f"sid-{found}").python
    for other in python.parents[1].glob("sid-*"):
        # A gigabyte each.
        if other.is_dir() and other != python.parent:
            shutil.rmtree(other)
    return python
