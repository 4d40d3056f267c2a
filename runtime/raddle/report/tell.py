"""Tells the node's agent what this process's sessions got, and how long they run: one UDP datagram to RADDLE_AGENT.

docs/reference/datagrams.md describes it. It is sent when a session was made, sixteen in a burst and then one in ten
seconds at most; where runs are observed, also from that thread: every half minute if runs came, and every five minutes
in any case, since an agent that was started again knows nothing. It holds no file open and waits for nothing, not even
for the kernel; what can't be sent is not sent.
"""

from __future__ import annotations

# The extension: `socket`'s own class may be another's, such as gevent's, whose methods switch to another greenlet.
import _socket
import atexit
import json
import os
import threading
import time
from typing import Any, Mapping

from raddle import env, errors, files
from raddle.report import groups, record

VERSION = 1
# No network splits it.
MAX_BYTES = 1400
MAX_GROUPS = 16
MAX_BURST = 16
REFILL_S = 10.0
RUNS_EVERY_S = 30.0
AGAIN_S = 300


class Teller:
    """What one process has told last, and how much it may say."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.behind = False
        self.tokens = float(MAX_BURST)
        self.refilled = 0.0
        self.told: list[dict[str, Any]] | None = None
        self.told_at = 0.0

    def tell(self, where: str, now: float) -> None:
        """Sends what there is if it is time, by the monotonic clock. Raises as `send`."""
        self.tokens = min(MAX_BURST, self.tokens + (now - self.refilled) / REFILL_S)
        self.refilled = now
        if self.tokens < 1:
            return
        said = sessions()
        if self.told is None:
            if not said:
                return
        elif _without_runs(said) == _without_runs(self.told):
            every_s = AGAIN_S if said == self.told else RUNS_EVERY_S
            if now - self.told_at < every_s:
                return
        self.tokens -= 1
        again_s = AGAIN_S if any("runs" in one for one in said) else 0
        send(where, {"threads": files.tasks() or 0, "againS": again_s}, said)
        if self.told is None:
            atexit.register(_last)
        self.told, self.told_at = said, now


_teller = Teller()


def _own() -> Teller:
    """A forked child tells of its own sessions, and has nobody who would release its parent's lock."""
    global _teller  # noqa: PLW0603  # one per process
    if _teller.pid != os.getpid():
        _teller = Teller()
    return _teller


def changed() -> None:
    """Tells the agent what is new, if it may be told now. Never raises."""
    where = os.environ.get(env.AGENT)
    if not where:
        return
    teller = _own()
    teller.behind = True
    try:
        # The holder of the lock tells for the others too; it may be this very thread, which a signal has stopped.
        while teller.behind and teller.lock.acquire(blocking=False):
            try:
                teller.behind = False
                teller.tell(where, time.monotonic())
            finally:
                teller.lock.release()
    except Exception as error:
        # The agent is the platform's; the application must not notice.
        errors.let_through(error)


def _last() -> None:
    """At exit: the agent can forget this process."""
    try:
        where, teller = os.environ.get(env.AGENT), _own()
        if where and teller.told is not None:
            # Registered again in a child that was forked, and tells, too.
            teller.told = None
            send(where, {"ended": True}, [])
    except Exception:
        pass


def sessions() -> list[dict[str, Any]]:
    """This process's sessions as a datagram has them, at most sixteen groups."""
    found = []
    for group in groups.read()[:MAX_GROUPS]:
        one: dict[str, Any] = {"runtime": group.runtime[:40], "source": group.source, "alike": group.alike}
        if group.threads is not None:
            one["threads"] = group.threads
        if group.counts is not None:
            log2_ns = {str(exponent): count for exponent, count in groups.buckets(group.counts) if count}
            one.update(runs=sum(group.counts), runNs=group.total_ns, log2ns=log2_ns)
        found.append(one)
    return found


def _without_runs(said: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name not in ("runs", "runNs", "log2ns")} for one in said]


def send(where: str, facts: Mapping[str, Any], said: list[dict[str, Any]]) -> None:
    """Sends one datagram to RADDLE_AGENT's value.

    Raises ValueError or OSError for what is no address or can't be sent.
    """
    family, address, container = destination(where)
    data = message(container, facts, said)
    # Non-blocking from its first moment on: a default timeout of the application's doesn't count. Closed at once: an
    # application may close all files, and give the number to one of its own.
    kind = _socket.SOCK_DGRAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC
    sender = _socket.socket(family, kind)
    try:
        sender.sendto(data, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL, address)
    finally:
        sender.close()


def message(container: str, facts: Mapping[str, Any], said: list[dict[str, Any]]) -> bytes:
    """The datagram, with as many of the sessions as fit."""
    document = {"v": VERSION, "container": container, "pid": os.getpid(), **facts, "sessions": said}
    while len(data := json.dumps(document, separators=(",", ":")).encode()) > MAX_BYTES:
        document["sessions"] = document["sessions"][:-1]
    return data


def destination(where: str) -> tuple[int, tuple[str, int], str]:
    """The address family, host and port, and the container's name, of "host:port/container".

    Raises OSError for a host that is no address: a name would have to be asked for, which takes time.
    """
    place, _, container = where.partition("/")
    host, _, port = place.rpartition(":")
    host = host.strip("[]")
    family = _socket.AF_INET6 if ":" in host else _socket.AF_INET
    _socket.inet_pton(family, host)
    return int(family), (host, int(port)), container[:63]


record.tell_agent = changed
