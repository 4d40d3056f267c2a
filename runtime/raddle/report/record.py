"""What the shim did in this process, kept in memory.

`sessions` is for anyone who asks from inside the process (`raddle.report.record.sessions`). Nothing is written anywhere
unless RADDLE_REPORT names a folder (`report`), and nobody is told unless RADDLE_AGENT names an agent (`tell`).
"""

from __future__ import annotations

import os
from typing import Any, Callable

from raddle import env, log

# The newest sessions are kept; a process that makes and drops sessions for ever must not grow.
MAX_SESSIONS = 256
MAX_SAMPLES = 30
# A record's key for as long as its session is being created.
UNFINISHED = "unfinished"

# One mapping per session, oldest first: see observe.Creation for its keys.
sessions: list[dict[str, Any]] = []
# Totals every ten seconds, oldest first, where the plan says observe=runs.
samples: list[dict[str, Any]] = []
# Adapter's name -> its module, once its runtime was imported.
adapters: dict[str, Any] = {}
# Tells the node's agent what is new and never raises; None: there is none to tell. `tell` puts it here.
tell_agent: Callable[[], None] | None = None


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


def report_wanted() -> bool:
    """True where RADDLE_REPORT names a folder."""
    return bool(os.environ.get(env.REPORT))


def changed() -> None:
    """Brings the process's report and the node's agent up to date, where they are wanted. Never raises."""
    if log.update_report is not None:
        log.update_report()
    if tell_agent is not None:
        tell_agent()
