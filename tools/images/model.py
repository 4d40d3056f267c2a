"""What is built: four images for two architectures, from one context, at one time of the sources."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from unavailable import UnavailableError

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / "images"
# What the Dockerfiles' build stages read; .dockerignore names the same.
CONTEXT: Final = (
    *("LICENSE", "README.md", "crds", "images", "operator", "pyproject.toml", "runtime", "tuner"),
    *("tools/native", "tools/unavailable.py"),
)
_MADE: Final = frozenset({"__pycache__", "_native"})
# As an image's platform names them, and as `uname -m` does.
ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}


class ImagesError(RuntimeError):
    """A build failed; the message is meant for people."""


class ImagesUnavailableError(ImagesError, UnavailableError):
    """Images can't be built on this machine at all; the message says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image. `folder` is that of its Dockerfile below images/, `name` its repository's.

    `libraries` are Debian's packages that the wheels among its requirements are linked to, beside Python's own.
    """

    folder: str
    name: str
    requirements: str | None = None
    libraries: tuple[str, ...] = ()

    @property
    def dockerfile(self) -> Path:
        """Its Dockerfile."""
        return FOLDER / self.folder / "Dockerfile"


IMAGES: Final = (
    Image(folder="operator", name="raddle", requirements="requirements-operator.txt"),
    Image(folder="agent", name="raddle-agent", requirements="requirements-agent.txt"),
    # onnx, SciPy and numpy are C++.
    Image(folder="tuner", name="raddle-tuner", requirements="requirements-tuner.txt", libraries=("libstdc++6",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What an image is made of: the version, the commit, its time (seconds since 1970) and a hash of all that.

    `folder` is a copy of the build context. `revision` ends in -dirty where files differ from the commit, and is
    "unknown" outside a git checkout.
    """

    version: str
    revision: str
    epoch_seconds: int
    fingerprint: str
    folder: Path

    @property
    def created(self) -> str:
        """The time as RFC 3339."""
        return datetime.fromtimestamp(self.epoch_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def snapshot(folder: Path) -> Sources:
    """Copies the context into `folder`, so that a checkout that changes meanwhile changes no build; says what it is.

    SOURCE_DATE_EPOCH, where it is set, is the time, else the commit's. Raises OSError and ImagesError.
    """
    digest = hashlib.sha256()
    for path in context_files():
        content = path.read_bytes()
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + content + b"\0")
    shutil.copy(ROOT / ".dockerignore", folder)
    version = re.search(r'__version__ = "([^"]+)"', (folder / "runtime" / "raddle" / "__init__.py").read_text())
    if version is None:
        raise ImagesError("runtime/raddle/__init__.py has no __version__")
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _git("log", "-1", "--format=%ct", "--", *CONTEXT) or "0"
    revision = _git("log", "-1", "--format=%H", "--", *CONTEXT) or "unknown"
    changed = _git("status", "--porcelain", "--", *CONTEXT)
    # Both are in the image, so they are part of what it is made of.
    digest.update(f"{epoch}\0{revision}\0{changed}".encode())
    return Sources(
        version=version[1],
        revision=revision + ("-dirty" if changed else ""),
        epoch_seconds=int(epoch),
        fingerprint=digest.hexdigest()[:16],
        folder=folder,
    )


def own_architecture() -> str:
    """This machine's, as images name it. Raises ImagesUnavailableError for one that Raddle has no shim for."""
    for name, machine in ARCHITECTURES.items():
        if machine == platform.machine():
            return name
    raise ImagesUnavailableError(
        f"there are images for {', '.join(ARCHITECTURES)}, this machine is {platform.machine()}"
    )


def cache() -> Path:
    """`raddle/images` below $XDG_CACHE_HOME, or below ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "raddle" / "images"


def context_files() -> list[Path]:
    """The context's files, sorted, without what a build or a test run leaves behind."""
    result: list[Path] = []
    for name in CONTEXT:
        start = ROOT / name
        below = sorted(start.rglob("*")) if start.is_dir() else [start]
        result.extend(path for path in below if path.is_file() and not _MADE.intersection(path.parts))
    return result


def _git(*arguments: str) -> str:
    """What git says, "" where there is no git or no repository."""
    try:
        run = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""
