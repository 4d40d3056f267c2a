"""Other ways to end a command that clean up as Ctrl-C does."""

from __future__ import annotations

import signal
from typing import NoReturn


def interrupt_on(*numbers: signal.Signals) -> None:
    """Raises KeyboardInterrupt in the main thread for these signals too; what nohup ignores stays ignored."""
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
