"""What the shim did in this process, kept in memory.

`sessions` is for anyone who asks from inside the process (`raddle.report.record.sessions`). Where RADDLE_AGENT names
the node's agent, it is sent to that too (`datagrams`).
"""

from __future__ import annotations

from typing import Any, Callable

# The newest sessions are kept; a process that makes and drops sessions for ever must not grow.
MAX_SESSIONS = 256
# A record's key for as long as its session is being created.
UNFINISHED = "unfinished"

# One mapping per session, oldest first: see observe.created for its keys.
sessions: list[dict[str, Any]] = []
# Adapter's name -> its module, once its runtime was imported.
adapters: dict[str, Any] = {}
# Reports changes to the node's agent and never raises; None: there is no agent. `datagrams` sets it.
notify_agent: Callable[[], None] | None = None


def add(session: dict[str, Any]) -> None:
    """Keeps the record of one session, or of a runtime that has none."""
    sessions.append(session)
    if len(sessions) > MAX_SESSIONS:
        del sessions[:-MAX_SESSIONS]
    if UNFINISHED not in session:
        changed()


def changed() -> None:
    """Brings the node's agent up to date, where there is one. Never raises."""
    if notify_agent is not None:
        notify_agent()
