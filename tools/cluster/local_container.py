"""A container as processes of this machine, as root can make one without a container runtime.

It has a mount and a PID namespace of its own, what is mounted into it, its CPU limit as a cgroup, and this machine's
files for an image: what it writes beside its mounts is gone with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from raddle_operator.local import quota

# $1 an empty folder, $2 the container's cgroups, then source and target of each mount, --, chroot, and the command.
# What is mounted below / is mounted again, since an overlay doesn't show it.
_CONTAINER: Final = """
set -e
folder=$1 groups=$2; shift 2
mount -t tmpfs none "$folder"
root=$folder/root
mkdir "$folder/upper" "$folder/work" "$root"
mount -t overlay none -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$root"
while read -r _ _ _ _ at _; do
    case $at in
        / | "$folder"* | /proc | /proc/* | /sys | /sys/* | /dev | /dev/*) ;;
        *) if [ -e "$root$at" ]; then mount --bind "$at" "$root$at" 2>/dev/null || true; fi ;;
    esac
done < /proc/self/mountinfo
mount -t proc none "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs none "$root/sys/fs/cgroup"
case $groups in
    *:*) for kind in cpu cpuacct; do
            mkdir "$root/sys/fs/cgroup/$kind"
            mount --bind "${groups%%:*}" "$root/sys/fs/cgroup/$kind"
            groups=${groups#*:}
        done ;;
    ?*) mount --bind "$groups" "$root/sys/fs/cgroup" ;;
esac
mount -t tmpfs none "$root/dev"
mkdir "$root/dev/shm"
for name in null zero full random urandom; do
    : > "$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done
while [ "$1" != -- ]; do
    if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$root${2%/*}"; : > "$root$2"; fi
    mount --bind "$1" "$root$2"
    shift 2
done
chroot=$2; shift 2
exec "$chroot" "$root" "$@"
"""


def as_user(uid: int) -> tuple[str, ...]:
    """What to put in front of a command, so that it is another user's than root; () for root.

    This machine's files stand for an image's, and may lie where nobody else may look: so the user may read all.
    """
    if uid == 0:
        return ()
    reads = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    return (_program("setpriv"), f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *reads)


def _program(name: str) -> str:
    """This machine's; the PATH is the container's, which need not have it."""
    return shutil.which(name, path=f"{os.defpath}:/usr/sbin:/sbin") or name


@contextlib.contextmanager
def container(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    user: int = 0,
    cpus: float | None = None,
    mounts: Mapping[str, Path] | None = None,
    log: IO[bytes] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A container while it runs: the parent of its process 1. At the end of the block all of it is killed.

    `user` is a UID, and the GID too. `cpus` is its limit, None: none, as where no cgroup can be made (problem).
    `mounts` are this machine's files and folders by where the container has them. What it says goes to `log`, None:
    where this process's output goes.
    """
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="raddle-container-"))
        argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", _CONTAINER, "container", root]
        group = stack.enter_context(quota.limited(cpus)) if quota.available() is None else None
        # cpu and cpuacct of v1.
        paths = () if group is None else (group.paths[0], group.paths[-1])[: 3 - group.version]
        argv.append(":".join(map(str, paths)))
        for target, source in (mounts or {}).items():
            argv += [str(source), target]
        argv += ["--", _program("chroot"), *as_user(user), *command]
        process = subprocess.Popen(
            argv if group is None else group.command(argv),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        yield process


def problem() -> str | None:
    """Why this machine can't run a container with a CPU limit so; None where it can."""
    if os.geteuid() != 0:
        return "only root may make a container's mounts"
    return quota.available()
