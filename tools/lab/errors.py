"""What this package raises on purpose."""

from unavailable import UnavailableError


class LabError(RuntimeError):
    """A guest or a build failed; the message is meant for people and names the log."""


class LabUnavailableError(LabError, UnavailableError):
    """The lab can't run on this machine at all: QEMU or a kernel can't be had. The message says which and why."""
