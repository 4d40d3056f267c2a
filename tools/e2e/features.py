"""What this machine's node can do for pods beyond Debian's packages: Node.js, user namespaces.

User namespaces need containerd 2, runc 1.2 and a kernel that maps the owners of mounts. Debian has neither; where they
are built, this machine's node runs on them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Final

from cluster import binaries, build

COMMAND: Final = "python -m cluster build --containerd"
OLDEST_RUNC: Final = (1, 2)


def without_nodejs() -> str:
    """Why no pod can have Node.js here; "" where one can."""
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    return f"no {' and no '.join(missing)} on this machine" if missing else ""


def without_user_namespaces() -> str:
    """Why no pod can have a user namespace here; "" where one can."""
    path = search_path()
    if not path:
        return f"containerd is not built ({COMMAND}), and the installed one has no user namespaces"
    runc = shutil.which("runc", path=path)
    output = subprocess.run([runc, "--version"], check=False, capture_output=True, text=True).stdout if runc else ""
    result = re.search(r"runc version (\d+)\.(\d+)", output)
    if result is None or (int(result[1]), int(result[2])) < OLDEST_RUNC:
        return f"runc {'.'.join(map(str, OLDEST_RUNC))} is not built ({COMMAND}, with libseccomp-dev)"
    return ""


def search_path() -> str:
    """$PATH with the built containerd, its shim and, where it is built, runc in front; "" without containerd."""
    folders = [build.built(program, binaries.cache_folder()) for program in binaries.containerd()]
    if None in folders:
        return ""
    runc = build.built(binaries.runc(), binaries.cache_folder())
    return os.pathsep.join([*map(str, folders), *([str(runc)] if runc else []), os.environ.get("PATH", "")])
