"""Progress of long steps: one line that is rewritten on a terminal, a line every 15 s in a log."""

from __future__ import annotations

import sys
import time
from typing import TextIO

LOG_INTERVAL_SECONDS = 15.0
CLEAR_LINE = "\r\x1b[K"


def with_its_reason_last(error: BaseException) -> str:
    """An error's text; its first line stands at the end too where more follow it, since logs are read from there."""
    text = str(error) or repr(error)
    reason = text.splitlines()[0]
    return text if text == reason else f"{text}\n{reason}"


class Progress:
    """Says what is going on and for how long, on standard error unless another stream is given."""

    def __init__(self, stream: TextIO | None = None, *, name: str = "devcluster") -> None:
        """Starts the clock; `name` begins each line."""
        self._name = name
        self._stream = stream if stream is not None else sys.stderr
        self._terminal = self._stream.isatty()
        self._start = self._shown = time.monotonic()

    def say(self, text: str) -> None:
        """Prints a line that stays."""
        self._shown = time.monotonic()
        self._stream.write(f"{CLEAR_LINE if self._terminal else ''}{self._name}: {text}\n")
        self._stream.flush()

    def tick(self, text: str) -> None:
        """Shows how a step is doing: at once on a terminal, every 15 s elsewhere."""
        now = time.monotonic()
        line = f"{self._name}: {text} ({now - self._start:.0f} s)"
        if self._terminal:
            self._stream.write(CLEAR_LINE + line)
        elif now - self._shown >= LOG_INTERVAL_SECONDS:
            self._shown = now
            self._stream.write(line + "\n")
        self._stream.flush()

    def elapsed_seconds(self) -> float:
        """The seconds since this object was made."""
        return time.monotonic() - self._start
