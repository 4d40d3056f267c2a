"""What the shim says: one line on stderr for each runtime, and each complaint once per process; both as marks too.

Standard error is the application's: what it has closed, replaced or given to a file of its own is left alone.
"""

from __future__ import annotations

import os
import sys
from _signal import (  # type: ignore[import-not-found]
    SIG_BLOCK,
    SIG_IGN,
    SIG_SETMASK,
    SIGPIPE,
    getsignal,
    pthread_sigmask,
    sigpending,
    sigtimedwait,
)
from typing import Any

from raddle import STDERR, errors, files, mark

# The runtimes that a process above this one has said its line about, joined by commas, where it could say so.
ANNOUNCED = "RADDLE_ANNOUNCED"
MAX_COMPLAINTS = 256
STDERR_NUMBER = 2

# Lines of `complain`, in order, also those that RADDLE_LOG silenced.
complaints: list[str] = []
# The names in ANNOUNCED that this process, or one that it was forked from, has added.
_announced: list[str] = []


def announce(runtime: str, line: str, *, first_worker: bool = True, change: str = "") -> None:
    """Says what was configured: in the mark, and where `first_worker` is true on stderr.

    There once per runtime (an adapter's name), and once more for each `change`: other counts than those that were said.
    That is for this process and those that it starts.
    """
    mark.leave(runtime, line)
    said = [name for name in os.environ.get(ANNOUNCED, "").split(",") if name]
    name = f"{runtime}={change}" if change else runtime
    if not first_worker or len(_announced) >= MAX_COMPLAINTS:
        return
    if name not in said and name not in _announced:
        _announced.append(name)
        # Where other threads run, one of them may be reading the environment outside the interpreter's lock. Then
        # new programs that this process starts say their own line.
        if files.tasks() == 1:
            os.environ[ANNOUNCED] = ",".join([*said, name])
        _say(line)


def has_announced(runtime: str) -> bool:
    """Whether this process, or one above it, has said the runtime's line."""
    return runtime in _announced or runtime in os.environ.get(ANNOUNCED, "").split(",")


def failed(what: str, error: Exception) -> None:
    """To be called where an error of Raddle's own work is caught: complains, or raises the application's again."""
    errors.let_through(error)
    complain(f"{what}: {error!r}")


def complain(line: str) -> None:
    """Says what went wrong: each thing once per process."""
    if line not in complaints and len(complaints) < MAX_COMPLAINTS:
        complaints.append(line)
        _say(line)
        mark.leave(mark.COMPLAINT, line)


def _say(line: str) -> None:
    stream = getattr(sys, "stderr", None)
    if os.environ.get("RADDLE_LOG") == "0" or stream is None:
        return
    text = "raddle: {}\n".format(line.replace("\n", " "))
    try:
        descriptor = _descriptor(stream)
        if descriptor is None:
            stream.write(text)
            stream.flush()
            return
        if descriptor == STDERR_NUMBER and not (STDERR and os.path.samestat(STDERR, os.fstat(descriptor))):
            # Closed, and the number given to a file of the application's.
            return
        # Past the buffer: Python would end with status 120 for what it still can't write at its end.
        _write(descriptor, text.encode(stream.encoding or "utf-8", "backslashreplace"))
    except Exception as error:
        # A closed stderr is the application's choice, and so is what a stand-in raises.
        errors.let_through(error)


def _descriptor(stream: Any) -> int | None:
    """The stream's file, None where it has none: the application's own stand-in."""
    try:
        number: int = stream.fileno()
    except (AttributeError, OSError, ValueError) as error:
        errors.let_through(error)
        return None
    return number


def _write(descriptor: int, text: bytes) -> None:
    """Writes without the signal of a pipe that nobody reads: by its default action, it would end the application."""
    if getsignal(SIGPIPE) == SIG_IGN or SIGPIPE in sigpending():
        os.write(descriptor, text)
        return
    before = pthread_sigmask(SIG_BLOCK, ())
    try:
        pthread_sigmask(SIG_BLOCK, (SIGPIPE,))
        os.write(descriptor, text)
    finally:
        try:
            sigtimedwait((SIGPIPE,), 0)
        finally:
            pthread_sigmask(SIG_SETMASK, before)
