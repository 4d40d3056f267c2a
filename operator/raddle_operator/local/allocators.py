"""The memory allocators that an image has, by the files that the native shim looks for (runtime/native/preload.c)."""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

# As a policy names them -> their files.
FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "Mimalloc": ("libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so.2.0", "libmimalloc.so"),
    "Jemalloc": ("libjemalloc.so.2", "libjemalloc.so.1", "libjemalloc.so"),
    "Tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so", "libtcmalloc.so"),
}
# `{}` is the architecture.
FOLDERS: Final = (
    "/lib/{}-linux-gnu/",
    "/usr/lib/{}-linux-gnu/",
    "/lib64/",
    "/usr/lib64/",
    "/lib/",
    "/usr/lib/",
    "/usr/local/lib/",
)


def paths() -> tuple[str, ...]:
    """Where the shim looks for them on this architecture."""
    return tuple(_path(folder, file) for files in FILES.values() for file in files for folder in FOLDERS)


def named(there: Collection[str]) -> tuple[str, ...]:
    """The allocators of which one of these files is, as a policy names them.

    The shim leaves one alone that does not fit a program.
    """
    return tuple(
        name
        for name, files in FILES.items()
        if any(_path(folder, file) in there for file in files for folder in FOLDERS)
    )


def here() -> tuple[str, ...]:
    """Those of this machine."""
    return named([path for path in paths() if Path(path).exists()])


def _path(folder: str, file: str) -> str:
    return folder.format(platform.machine()) + file
