"""An end that someone asks for, by Ctrl-C or SIGTERM.

It comes where something is awaited, and nowhere else: what is being started, ended or reckoned is not cut in two.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


class EndedError(BaseException):
    """Someone asked for an end; `status` is the exit status for the signal."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


class _Signals:
    """A process has one handler for each signal."""

    status = 0
    awaiting = False


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """Within it Ctrl-C and SIGTERM end what is `awaited`, now and from then on."""
    before = {one: signal.signal(one, _note) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        _Signals.status = 0


def _note(number: int, _: object) -> None:
    _Signals.status = _Signals.status or 128 + number
    if _Signals.awaiting:
        _Signals.awaiting = False
        raise EndedError(_Signals.status)


def status() -> int:
    """The exit status of the signal that has come, 0 while none has."""
    return _Signals.status


@contextlib.contextmanager
def awaited() -> Iterator[None]:
    """Raises EndedError where a signal has come, or comes within. What has to be undone is not begun within."""
    # In this order: a signal between the two lines is not lost.
    _Signals.awaiting = True
    try:
        if _Signals.status:
            raise EndedError(_Signals.status)
        yield
    finally:
        _Signals.awaiting = False
