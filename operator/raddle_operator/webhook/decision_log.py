"""The log of decisions and failures, bounded: under load a line per pod would cost more than the pod."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger("raddle_operator.webhook")

REPEAT_AFTER_S: Final = 60.0
REMEMBERED: Final = 256


class DecisionLog:
    """Writes what the webhook decides. ``decisions_per_s`` 0: no decisions; ``now_s`` is a monotonic clock."""

    def __init__(self, decisions_per_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self._per_s = decisions_per_s
        self._now_s = now_s
        self._tokens = decisions_per_s
        self._filled_at_s = now_s()
        self._unlogged = 0
        self._failures: dict[str, tuple[float, int]] = {}

    def decision(self, path: str, decision: str, reason: str, namespace: str, name: str, detail: str) -> None:
        """Writes one decision as key=value, or counts it for the next line that is written."""
        if not self._admits() or not log.isEnabledFor(logging.INFO):
            return
        unlogged, self._unlogged = self._unlogged, 0
        log.info(
            "path=%s decision=%s reason=%s namespace=%s name=%s detail=%r unlogged=%d",
            path,
            decision,
            reason or "-",
            namespace or "-",
            name or "-",
            detail[:512],
            unlogged,
        )

    def failure(self, what: str, error: BaseException) -> None:
        """Writes an error of ours with its traceback, one kind once a minute."""
        kind = f"{what}: {type(error).__name__}"
        now_s = self._now_s()
        written_at_s, unlogged = self._failures.get(kind, (-REPEAT_AFTER_S, 0))
        if now_s - written_at_s < REPEAT_AFTER_S:
            self._failures[kind] = (written_at_s, unlogged + 1)
            return
        if len(self._failures) >= REMEMBERED:
            self._failures.clear()
        self._failures[kind] = (now_s, 0)
        log.error("%s (%d more since the last such line)", kind, unlogged, exc_info=error)

    def refusal(self, what: str, detail: str) -> None:
        """Writes that a request could not be answered with a review, one kind once a minute."""
        now_s = self._now_s()
        written_at_s, unlogged = self._failures.get(what, (-REPEAT_AFTER_S, 0))
        if now_s - written_at_s < REPEAT_AFTER_S:
            self._failures[what] = (written_at_s, unlogged + 1)
            return
        if len(self._failures) >= REMEMBERED:
            self._failures.clear()
        self._failures[what] = (now_s, 0)
        log.warning("%s: %r (%d more since the last such line)", what, detail[:200], unlogged)

    def _admits(self) -> bool:
        if not self._per_s:
            return False
        now_s = self._now_s()
        self._tokens = min(max(1.0, self._per_s), self._tokens + (now_s - self._filled_at_s) * self._per_s)
        self._filled_at_s = now_s
        if self._tokens < 1:
            self._unlogged += 1
            return False
        self._tokens -= 1
        return True
