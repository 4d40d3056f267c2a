"""Bounded reads of the kernel's small text files, shared by the readers of sysfs and cgroups.

The kernel's files are short, but a bind mount, a FIFO or a device may stand where one is expected
inside a container: a read never blocks and never takes more than `LIMIT_BYTES`.
"""

from __future__ import annotations

import os

from raddle import errors

LIMIT_BYTES = 65536
# kernfs hands out at most a page at a time, so a full page says that there may be more.
_PAGE_BYTES = 4096
_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


def read_text(path: str, dir_fd: int | None = None, to_end: bool = False, limit_bytes: int = LIMIT_BYTES) -> str:
    """The file's text, undecodable bytes replaced.

    `to_end` is for procfs, whose files may come in pieces shorter than a page. Raises OSError when
    the file can't be read, ValueError when it is longer than `limit_bytes`.
    """
    fd = os.open(path, _FLAGS, dir_fd=dir_fd)
    try:
        chunks = [os.read(fd, _PAGE_BYTES)]
        length = len(chunks[0])
        while chunks[-1] and (to_end or len(chunks[-1]) == _PAGE_BYTES):
            chunks.append(os.read(fd, _PAGE_BYTES))
            length += len(chunks[-1])
            if length > limit_bytes:
                raise ValueError(f"longer than {limit_bytes} bytes")
    finally:
        os.close(fd)
    return b"".join(chunks).decode("utf-8", "replace")


def text_or_nothing(path: str, to_end: bool = False, limit_bytes: int = LIMIT_BYTES) -> str:
    """As `read_text`; "" where the file can't be read, which a parser takes for an absent fact."""
    try:
        return read_text(path, None, to_end, limit_bytes)
    except (OSError, ValueError) as error:
        errors.let_through(error)
        return ""


def read_head(path: str) -> str:
    """The first piece of the file, at most a page: enough of /proc/cpuinfo for its first CPU. Raises OSError."""
    fd = os.open(path, _FLAGS)
    try:
        return os.read(fd, _PAGE_BYTES).decode("utf-8", "replace")
    finally:
        os.close(fd)


def tasks() -> int | None:
    """Threads of this process, None where that can't be read."""
    try:
        # A folder has two links, and one from each folder in it: no list is made.
        return max(1, os.stat("/proc/self/task").st_nlink - 2)
    except OSError as error:
        errors.let_through(error)
        return None
