"""Image volumes: they need containerd 2.2, which Debian has not. Where it is built, this machine's node runs on it.

containerd 2.1 mounts them too and ignores their subPath (https://github.com/containerd/containerd/issues/11580).
Kubernetes 1.34 has them behind settings.IMAGE_VOLUME.
"""

from __future__ import annotations

import os
from typing import Final

from cluster import binaries, build
from cluster.versions import DEFAULT_CONTAINERD

COMMAND: Final = "python -m cluster build --containerd"


def unavailable() -> str:
    """Why no pod can have an image volume here; "" where one can."""
    if search_path():
        return ""
    return f"containerd {DEFAULT_CONTAINERD} is not built ({COMMAND}), and the installed one has no image volumes"


def search_path() -> str:
    """$PATH with the built containerd, its shim and, where it is built, runc in front; "" without containerd."""
    folders = [build.built(program, binaries.cache_folder()) for program in binaries.containerd()]
    if None in folders:
        return ""
    runc = build.built(binaries.runc(), binaries.cache_folder())
    return os.pathsep.join([*map(str, folders), *([str(runc)] if runc else []), os.environ.get("PATH", "")])
