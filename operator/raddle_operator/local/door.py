"""The mounts of a container on this machine: a program sees the shim's files where a pod would mount them.

The program runs in mount and user namespaces of its own (util-linux's unshare), with an overlay over /opt and /etc that
has what the kubelet would mount; nothing of it is seen outside, and nothing is left behind. What the program writes
into /etc and /opt is gone with it, but for folders of /opt that were there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

from raddle import delivery

# A tmpfs holds what the overlays write, so that they need no folder of the machine's. An overlay doesn't show what is
# mounted below its folder: container engines mount three files into /etc.
_ABOVE: Final = """
set -e
folder=$1; shift
mount -t tmpfs none /mnt
for above in /opt /etc; do
    mkdir -p /mnt$above/upper /mnt$above/work /mnt$above/real
    mount --rbind $above /mnt$above/real
    mount -t overlay none -o lowerdir=$above,upperdir=/mnt$above/upper,workdir=/mnt$above/work $above
done
(
    cd /mnt/opt/real
    for name in *; do
        if [ -d "$name" ] && [ ! -L "$name" ]; then mount --rbind "$name" "/opt/$name"; fi
    done
)
for name in hostname hosts resolv.conf; do
    if grep -q " /etc/$name " /proc/self/mountinfo; then mount --bind "/mnt/etc/real/$name" "/etc/$name"; fi
done
"""
_MOUNT: Final = f"""
mkdir -p {delivery.MOUNT_PATH}
mount -o bind,ro "$folder" {delivery.MOUNT_PATH}
: > {delivery.PRELOAD_FILE}
mount -o bind,ro "$folder/{delivery.PRELOAD_KEY}" {delivery.PRELOAD_FILE}
umount -l /mnt
exec "$@"
"""
# Who is not root may mount in a user namespace only, by capabilities that the program is not to have.
_AS_USER: Final = ("--user", "--map-current-user", "--keep-caps")
_WITHOUT_CAPABILITIES: Final = ("setpriv", "--inh-caps=-all", "--ambient-caps=-all")


def inside(folder: Path) -> tuple[str, ...]:
    """What to put in front of a command, so that it runs where `folder` (delivery.write) is mounted as in a pod."""
    return _in_namespace(_ABOVE + _MOUNT, folder)


def _in_namespace(script: str, folder: Path) -> tuple[str, ...]:
    unshare: tuple[str, ...] = ("unshare", "--mount")
    then: tuple[str, ...] = ()
    if os.geteuid() != 0:
        unshare += _AS_USER
        then = _WITHOUT_CAPABILITIES if shutil.which(_WITHOUT_CAPABILITIES[0]) else ()
    return (*unshare, "sh", "-c", script, "raddle", str(folder), *then)


@cache
def problem(folder: Path = Path("/")) -> str:
    """Why this machine can't run a program that way, in a line; "" where it can.

    A folder below /mnt is hidden while the mounts are made.
    """
    try:
        done = subprocess.run(
            [
                *_in_namespace(
                    _ABOVE + '[ -d "$folder" ] || { echo "$folder is below /mnt" >&2; exit 1; }; exec "$@"', folder
                ),
                "true",
            ],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["unshare failed"])[-1]
