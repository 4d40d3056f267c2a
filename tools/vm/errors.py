"""What this package raises on purpose."""

from unavailable import UnavailableError


class VMError(RuntimeError):
    """A guest or a build failed; the message is meant for people and names the log."""


class VMUnavailableError(VMError, UnavailableError):
    """No guest can run on this machine at all: QEMU or a kernel can't be had. The message says which and why."""
