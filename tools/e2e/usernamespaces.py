"""User namespaces of pods: they need containerd 2.0, runc 1.2 and a kernel that maps the owners of mounts."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Final

from e2e import imagevolumes

OLDEST_RUNC: Final = (1, 2)


def unavailable() -> str:
    """Why no pod of this machine's node can have one; "" where it can."""
    path = imagevolumes.search_path()
    if not path:
        return f"containerd is not built ({imagevolumes.COMMAND}), and the installed one has no user namespaces"
    runc = shutil.which("runc", path=path)
    said = subprocess.run([runc, "--version"], check=False, capture_output=True, text=True).stdout if runc else ""
    found = re.search(r"runc version (\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < OLDEST_RUNC:
        return f"runc {'.'.join(map(str, OLDEST_RUNC))} is not built ({imagevolumes.COMMAND}, with libseccomp-dev)"
    return ""
