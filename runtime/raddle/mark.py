"""Marks: what the shim did, as the name of a mapping that anyone who may read /proc/PID/maps of this process sees.

The native library leaves the same (native/log.c); docs/reference/marks.md describes both. There is one mark for each
runtime, its latest, and one for the latest complaint. It is a page that nobody touches, so it takes no memory; it holds
no file open, and a child of a fork has none of its parent's.
"""

from __future__ import annotations

import os
from _thread import allocate_lock

from raddle import errors

PREFIX = b"raddle: "
MAX_BYTES = 249
MAX_MARKS = 16
COMPLAINT = "complaint"

_MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}
_CLOEXEC, _NOEXEC_SEAL = 1, 8
_PROT_READ, _MAP_PRIVATE, _DONTFORK = 1, 2, 10
_FAILED = 2**64 - 1


class _Marks:
    """Those of one process: what each is about -> its name and its address."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415  # ONNX Runtime's and torch's numpy has loaded it

        self.pid = os.getpid()
        self.lock = allocate_lock()
        self.marks: dict[str, tuple[bytes, int]] = {}
        self.number = _MEMFD_CREATE[os.uname().machine]
        # An object of our own: what an application has told its own of libc's functions is not changed.
        libc = ctypes.CDLL(None)
        address, size = ctypes.c_void_p, ctypes.c_size_t
        self.create, self.map, self.advise, self.unmap = libc.syscall, libc.mmap, libc.madvise, libc.munmap
        self.create.argtypes = (ctypes.c_long, ctypes.c_char_p, ctypes.c_uint)
        self.map.argtypes = (address, size, *[ctypes.c_int] * 3, ctypes.c_long)
        self.map.restype = address
        self.advise.argtypes = (address, size, ctypes.c_int)
        self.unmap.argtypes = (address, size)

    def leave(self, about: str, name: bytes) -> None:
        """Puts the mark in the place of the one before about the same; without a name it only goes."""
        before, address = self.marks.get(about, (b"", 0))
        if before == name or (not address and len(self.marks) >= MAX_MARKS):
            return
        if not name:
            self.unmap(address, 1)
            del self.marks[about]
            return
        made = self._named(name)
        if made:
            self.marks[about] = name, made
            if address:
                self.unmap(address, 1)

    def _named(self, name: bytes) -> int:
        """The address of a mapping of this name, 0 where there can be none."""
        file = self.create(self.number, name, _CLOEXEC | _NOEXEC_SEAL)
        if file < 0:
            # Linux before 6.3 does not know the seal; later ones may ask for it.
            file = self.create(self.number, name, _CLOEXEC)
        if file < 0:
            return 0
        try:
            made = self.map(None, 1, _PROT_READ, _MAP_PRIVATE, file, 0)
        finally:
            os.close(file)
        if made in (None, _FAILED):
            return 0
        self.advise(made, 1, _DONTFORK)
        return int(made)


_marks: _Marks | None = None


def leave(about: str, line: str) -> None:
    """Leaves the line as the mark of a runtime (an adapter's name), or of COMPLAINT; "" takes it back. Never raises."""
    global _marks  # noqa: PLW0603  # one per process
    try:
        marks = _marks
        if marks is None or marks.pid != os.getpid():
            marks = _marks = _Marks()
        # Who finds it taken may be a signal handler in the middle of it, or another thread, which says the same.
        if marks.lock.acquire(blocking=False):
            try:
                name = (PREFIX + line.encode("ascii", "replace"))[:MAX_BYTES].replace(b"\0", b"?")
                marks.leave(about, name if line else b"")
            finally:
                marks.lock.release()
    except Exception as error:
        errors.let_through(error)
