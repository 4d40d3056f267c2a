"""User namespaces of pods: they need containerd 2.0, runc 1.2 and a kernel that maps the owners of mounts."""

from __future__ import annotations

import re
import subprocess
from typing import Final

from e2e import imagevolumes

RUNC: Final = (1, 2)


def unavailable() -> str:
    """Why no pod of this machine's node can have one; "" where it can."""
    if reason := imagevolumes.unavailable():
        return reason.replace("has no image volumes", "has no user namespaces")
    said = subprocess.run(["runc", "--version"], check=False, capture_output=True, text=True).stdout
    found = re.search(r"runc version (\d+)\.(\d+)", said)
    if found is None:
        return "runc does not say its version"
    if (int(found[1]), int(found[2])) < RUNC:
        return f"runc {found[1]}.{found[2]} is installed, and maps no owners of mounts: {'.'.join(map(str, RUNC))} does"
    return ""
