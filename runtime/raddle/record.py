"""What the shim did in this process: kept in memory, and said on stderr in one line.

`sessions` is for anyone who asks from inside the process (`raddle.record.sessions`). Nothing is written anywhere unless
RADDLE_REPORT names a folder: see `report`.
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

from raddle import env, errors, shim, totals

# The runtimes that a process above this one has said its line about, joined by commas, where it could say so.
ANNOUNCED = "RADDLE_ANNOUNCED"
# The newest sessions are kept; a process that makes and drops sessions for ever must not grow.
MAX_SESSIONS = 256
MAX_SAMPLES = 30
STDERR_NUMBER = 2
# A record's key for as long as its session is being created.
UNFINISHED = "unfinished"

# One mapping a session, oldest first: see observe.Creation for its keys.
sessions: list[dict[str, Any]] = []
# Totals every ten seconds, oldest first, where the plan says observe=runs.
samples: list[dict[str, Any]] = []
# Lines of `complain`, in order, also those that RADDLE_LOG silenced.
complaints: list[str] = []
# The names in ANNOUNCED that this process, or one that it was forked from, has added.
_announced: list[str] = []


def add(session: dict[str, Any]) -> None:
    """Keeps the record of one session, or of a runtime that has none."""
    sessions.append(session)
    if len(sessions) > MAX_SESSIONS:
        del sessions[:-MAX_SESSIONS]
    if UNFINISHED not in session:
        changed()


def sample(totals: dict[str, Any]) -> None:
    """Keeps one sample of `totals.read`, with `at` in seconds."""
    samples.append(totals)
    if len(samples) > MAX_SAMPLES:
        del samples[:-MAX_SAMPLES]


def announce(runtime: str, line: str) -> None:
    """Says what was configured: once per runtime (an adapter's name), for this process and those forked from it."""
    said = [name for name in os.environ.get(ANNOUNCED, "").split(",") if name]
    if runtime not in said and runtime not in _announced:
        _announced.append(runtime)
        # Where other threads run, one of them may be reading the environment outside the interpreter's lock. Then
        # new programs that this process starts say their own line.
        if totals.tasks() == 1:
            os.environ[ANNOUNCED] = ",".join([*said, runtime])
        _say(line)


def failed(what: str, error: Exception) -> None:
    """To be called where an error of Raddle's own work is caught: complains, or raises the application's again."""
    errors.let_through(error)
    complain(f"{what}: {error!r}")


def complain(line: str) -> None:
    """Says what went wrong: each thing once per process."""
    if line not in complaints and len(complaints) < MAX_SESSIONS:
        complaints.append(line)
        _say(line)
        changed()


def report_wanted() -> bool:
    """True where RADDLE_REPORT names a folder."""
    return bool(os.environ.get(env.REPORT))


def changed() -> None:
    """Brings the process's report up to date, where one is asked for. Never raises."""
    if report_wanted():
        try:
            # Imported here: without reports no process pays for it.
            from raddle import report  # noqa: PLC0415

            report.changed()
        except Exception as error:
            errors.let_through(error)


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
        if descriptor == STDERR_NUMBER and not (shim.STDERR and os.path.samestat(shim.STDERR, os.fstat(descriptor))):
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
