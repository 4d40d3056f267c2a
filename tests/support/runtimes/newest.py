"""The newest ONNX Runtime and PyTorch that the registries give, beside the pinned ones of the labs.

Each registry is asked by its own client, once a day; the answer is kept below ~/.cache/raddle/newest. What can't be had
skips the test with the reason: only a release that is there, and works otherwise than the pinned ones, fails it.

PyTorch is Debian's in sid, which is built for the CPU only; PyPI's asks for gigabytes of CUDA.
"""

from __future__ import annotations

import fcntl
import functools
import shutil
import tempfile
import time
from pathlib import Path

from runtimes import fetching, libonnxruntime, pythons
from support.runtimes import native_lab, torch_lab

CACHE = fetching.CACHE / "newest"
DAY_S = 86400
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
            known.write_text({"pypi": _pypi, "npm": _npm, "maven": _maven, "debian": _debian}[registry]())
    return known.read_text()


def _pypi() -> str:
    # "onnxruntime (1.31.1)", of those that this Python can have.
    python = pythons.interpreter(PYTHON)
    return fetching.fetch(str(python), "-m", "pip", "index", "versions", "onnxruntime").split()[1].strip("()")


def _npm() -> str:
    return fetching.fetch("npm", "view", "onnxruntime-node", "version").strip()


def _maven() -> str:
    # Only what is there under this name is fetched: its file is named by the version.
    with tempfile.TemporaryDirectory() as folder:
        fetching.fetch(
            "mvn", "-q", "-B", "dependency:copy", f"-Dartifact={MAVEN}:RELEASE:pom", f"-DoutputDirectory={folder}"
        )
        (pom,) = Path(folder).iterdir()
        return pom.stem.rpartition("-")[2]


def _debian() -> str:
    # "Candidate: 2.14.1+dfsg-1": what is before the plus is torch's own.
    with tempfile.TemporaryDirectory() as folder:
        policy = fetching.fetch(
            "apt-cache", *libonnxruntime.apt_options("sid", Path(folder)), "policy", "python3-torch"
        )
    return policy.partition("Candidate: ")[2].partition("+")[0]


def wheel(found: str) -> Path:
    """The interpreter that has this version of PyPI's."""
    return pythons.venv(f"ort-{found}", PYTHON, [f"onnxruntime=={found}"])


def native_program(found: str) -> native_lab.Program:
    """A C program that is linked to the library of PyPI's wheel."""
    (library,) = (wheel(found).parents[1] / "lib").glob("python3*/site-packages/onnxruntime/capi/libonnxruntime.so.*.*")
    with fetching.made(CACHE / f"library-{found}") as folder:
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
