"""The processes beside this one that do the same: a server's workers, as /proc shows them (proc(5))."""

from __future__ import annotations

import os
import time

from raddle import errors

# Sibling processes and threads of the parent that are looked at.
MAX_SIBLINGS = 1024
MAX_PARENT_THREADS = 4096
# A worker that started after this one may not have come to its runtime before this age.
STARTING_S = 10


def same_program() -> list[int]:
    """Ids of the parent's children that run the same command line, digits aside, this process among them.

    Digits are left out because a pool numbers its workers' pipes and sockets. Empty where the kernel does not list
    children (/proc/<pid>/task/<tid>/children, CONFIG_PROC_CHILDREN). Raises OSError where it hides the parent.
    """
    parent = os.getppid()
    if parent == 0:
        return [os.getpid()]
    mine = _command_line("self")
    result: list[int] = []
    # A child is listed by the thread that made it; each thread and each child may end meanwhile.
    for thread in os.listdir(f"/proc/{parent}/task")[:MAX_PARENT_THREADS]:
        try:
            for child in _read(f"/proc/{parent}/task/{thread}/children").split():
                if len(result) < MAX_SIBLINGS and _runs(child.decode(), mine):
                    result.append(int(child))
        except OSError as error:  # noqa: PERF203  # as above
            errors.let_through(error)
    return result


def _runs(pid: str, command_line: bytes) -> bool:
    try:
        return _command_line(pid) == command_line
    except OSError as error:
        errors.let_through(error)
        return False


def serving(siblings: list[int], starts: tuple[bytes, ...]) -> list[int]:
    """Those that have mapped a file whose name begins so, or may be about to: started after this one, seconds ago.

    One that started before this one has had the time: its maps tell. What can't be read for lack of rights counts.
    """
    me = os.getpid()
    started, now = _start_s(me), time.clock_gettime(time.CLOCK_BOOTTIME)
    result = []
    for sibling in siblings:
        try:
            if sibling != me and not _has_mapped(sibling, starts):
                theirs = _start_s(sibling)
                if (theirs, sibling) < (started, me) or now - theirs > STARTING_S:
                    continue
        except PermissionError as error:
            errors.let_through(error)
        except OSError as error:
            errors.let_through(error)
            continue
        result.append(sibling)
    return result


def _start_s(pid: int) -> float:
    """When the process was started, in seconds of the clock BOOTTIME: proc(5), /proc/<pid>/stat, field 22."""
    # The program's name, in brackets, may hold anything.
    return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def _has_mapped(pid: int, starts: tuple[bytes, ...]) -> bool:
    """Whether a file whose name begins with one of these is mapped in the process."""
    file = os.open(f"/proc/{pid}/maps", os.O_RDONLY | os.O_CLOEXEC)
    try:
        rest = b""
        while True:
            chunk = os.read(file, 65536)
            lines = (rest + chunk).split(b"\n")
            if any(line.rpartition(b"/")[2].startswith(starts) for line in lines):
                return True
            if not chunk:
                return False
            rest = lines[-1]
    finally:
        os.close(file)


def _command_line(pid: str) -> bytes:
    return _read(f"/proc/{pid}/cmdline").translate(None, b"0123456789")


def _read(path: str) -> bytes:
    # open() would build a buffered reader and ask for the file's size first: three times the cost.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        # The kernel gives a page at a time.
        return b"".join(iter(lambda: os.read(file, 65536), b""))
    finally:
        os.close(file)
