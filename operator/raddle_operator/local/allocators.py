"""The memory allocators that an image has, by the files that the native shim looks for (runtime/native/preload.c)."""

from __future__ import annotations

import platform
from collections.abc import Mapping
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


def present(root: Path = Path("/")) -> tuple[str, ...]:
    """The allocators below a root folder, as a policy names them. The shim leaves one alone that fits no program."""
    folders = [root / folder.format(platform.machine()).lstrip("/") for folder in FOLDERS]
    return tuple(
        name for name, files in FILES.items() if any((folder / file).exists() for folder in folders for file in files)
    )
