"""Becomes a container and runs its program: enter.py CGROUP SCRATCH PROGRAM ARGUMENT...

SCRATCH holds `environ`, the program's variables as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
# linux/sched.h, sys/mount.h, linux/prctl.h
NEW_MOUNTS, NEW_CGROUP, NEW_PIDS = 0x00020000, 0x02000000, 0x20000000
MS_BIND, MS_REC, MS_PRIVATE, MS_REMOUNT, MS_RDONLY = 4096, 16384, 1 << 18, 32, 1
MNT_DETACH = 2
PR_SET_PDEATHSIG, SIGKILL = 1, 9


def enter(group: str, scratch: str, *command: str) -> None:
    """Become a container: in the cgroup, with namespaces of its own for cgroups, processes and mounts; then exec."""
    with open(f"{group}/cgroup.procs", "w") as file:  # noqa: PTH123 (pathlib is not imported)
        file.write(str(os.getpid()))
    checked(LIBC.unshare(NEW_CGROUP | NEW_PIDS | NEW_MOUNTS))
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    # Gone with the process that stands for the container's runtime.
    LIBC.prctl(PR_SET_PDEATHSIG, SIGKILL)
    checked(LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    checked(LIBC.mount(b"proc", b"/proc", b"proc", 0, None))
    # Read-only as runtimes mount it; the file system itself is the node's, so only this mount may be. Linux refuses the
    # same file system at the same place twice.
    checked(LIBC.umount2(b"/sys/fs/cgroup", MNT_DETACH))
    checked(LIBC.mount(b"cgroup", b"/sys/fs/cgroup", b"cgroup2", 0, None))
    checked(LIBC.mount(None, b"/sys/fs/cgroup", None, MS_REMOUNT | MS_BIND | MS_RDONLY, None))
    with open(f"{scratch}/environ") as file:  # noqa: PTH123
        environ = json.load(file)
    os.execve(command[0], command, environ)


def checked(result: int) -> None:
    """Raise OSError for a C function's -1."""
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    enter(*sys.argv[1:])
