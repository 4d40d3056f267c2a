"""The mounts of a container on this machine: a program sees the shim's files where a pod would mount them.

The program runs in mount and user namespaces of its own (util-linux's unshare), with an overlay over /opt and /etc that
has what the kubelet would mount; nothing of it is seen outside, and nothing is left behind.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from raddle import delivery

# A tmpfs holds what the overlays write, so that they need no folder of the machine's.
_SCRIPT: Final = """
set -e
folder=$1; shift
mount -t tmpfs none /mnt
for above in /opt /etc; do
    mkdir -p /mnt$above/upper /mnt$above/work
    mount -t overlay none -o lowerdir=$above,upperdir=/mnt$above/upper,workdir=/mnt$above/work $above
done
mkdir -p {mount}
: > {file}
mount --bind "$folder" {mount}
mount --bind "$folder/{key}" {file}
umount -l /mnt
exec "$@"
"""


def inside(folder: Path) -> tuple[str, ...]:
    """What to put in front of a command, so that it runs where `folder` (delivery.write) is mounted as in a pod."""
    script = _SCRIPT.format(mount=delivery.MOUNT_PATH, file=delivery.PRELOAD_FILE, key=delivery.PRELOAD_KEY)
    user = () if os.geteuid() == 0 else ("--user", "--map-current-user", "--keep-caps")
    return ("unshare", *user, "--mount", "sh", "-c", script, "raddle", str(folder))


@cache
def problem() -> str:
    """Why this machine can't run a program that way, in a line; "" where it can."""
    try:
        script = _SCRIPT.partition("mkdir -p {mount}")[0] + "exec true"
        user = () if os.geteuid() == 0 else ("--user", "--map-current-user", "--keep-caps")
        done = subprocess.run(
            ["unshare", *user, "--mount", "sh", "-c", script, "raddle", "/"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["unshare failed"])[-1]
