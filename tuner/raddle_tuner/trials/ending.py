"""An end that someone asks for, by Ctrl-C or SIGTERM, or by closing the terminal.

It comes where something is awaited, and nowhere else: what is being started, ended or reckoned is not cut in two.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from typing import Final


class EndedError(BaseException):
    """Someone asked for an end; `status` is the exit status for the signal."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


_ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class _Signals:
    """A process has one handler for each signal."""

    status = 0
    awaiting = False


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """Within it each of these signals ends what is `awaited`, now and from then on; not SIGHUP under nohup(1)."""
    under_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    before = {one: signal.signal(one, _note) for one in _ENDS if not (under_nohup and one is signal.SIGHUP)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        _Signals.status = 0


def _note(number: int, _: object) -> None:
    if number == signal.SIGHUP:
        _leave_terminal()
    _Signals.status = _Signals.status or 128 + number
    if _Signals.awaiting:
        _Signals.awaiting = False
        raise EndedError(_Signals.status)


def _leave_terminal() -> None:
    """What is written to a terminal that is gone goes nowhere: it would fail, and nothing be ended in order."""
    outputs = select.poll()
    for output in (1, 2):
        outputs.register(output, 0)
    for output, item in outputs.poll(0):
        if item & select.POLLHUP:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, output)
            os.close(nowhere)


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
