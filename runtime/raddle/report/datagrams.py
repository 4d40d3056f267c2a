"""Reports to the node's agent how this process's sessions run: one UDP datagram to RADDLE_AGENT.

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


class DatagramSender:
    """What one process has sent last, and how much it may send."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = threading.Lock()
        self.behind = False
        self.tokens = float(MAX_BURST)
        self.refilled = 0.0
        self.sent: list[dict[str, Any]] | None = None
        self.sent_at = 0.0

    def send_if_due(self, where: str, now: float) -> None:
        """Sends what there is if it is time, by the monotonic clock. Raises as `send`."""
        self.tokens = min(MAX_BURST, self.tokens + (now - self.refilled) / REFILL_S)
        self.refilled = now
        if self.tokens < 1:
            return
        reported = sessions()
        if self.sent is None:
            if not reported:
                return
        elif _without_runs(reported) == _without_runs(self.sent):
            every_s = AGAIN_S if reported == self.sent else RUNS_EVERY_S
            if now - self.sent_at < every_s:
                return
        self.tokens -= 1
        again_s = AGAIN_S if any("runs" in one for one in reported) else 0
        send(where, {"threads": files.tasks() or 0, "againS": again_s}, reported)
        if self.sent is None:
            atexit.register(_last)
        self.sent, self.sent_at = reported, now


_sender = DatagramSender()


def _own() -> DatagramSender:
    """A forked child tells of its own sessions, and has nobody who would release its parent's lock."""
    global _sender  # noqa: PLW0603  # one per process
    if _sender.pid != os.getpid():
        _sender = DatagramSender()
    return _sender


def changed() -> None:
    """Tells the agent what is new, if it may be told now. Never raises."""
    where = os.environ.get(env.AGENT)
    if not where:
        return
    sender = _own()
    sender.behind = True
    try:
        # The holder of the lock tells for the others too; it may be this very thread, which a signal has stopped.
        while sender.behind and sender.lock.acquire(blocking=False):
            try:
                sender.behind = False
                sender.send_if_due(where, time.monotonic())
            finally:
                sender.lock.release()
    except Exception as error:
        # The agent is the platform's; the application must not notice.
        errors.let_through(error)


def _last() -> None:
    """At exit: the agent can forget this process."""
    try:
        where, sender = os.environ.get(env.AGENT), _own()
        if where and sender.sent is not None:
            # Registered again in a child that was forked, and tells, too.
            sender.sent = None
            send(where, {"ended": True}, [])
    except Exception:
        pass


def sessions() -> list[dict[str, Any]]:
    """This process's sessions as a datagram has them, at most sixteen groups."""
    result = []
    for group in groups.read()[:MAX_GROUPS]:
        one: dict[str, Any] = {"runtime": group.runtime[:40], "source": group.source, "alike": group.alike}
        if group.threads is not None:
            one["threads"] = group.threads
        if group.counts is not None:
            log2_ns = {str(exponent): count for exponent, count in groups.buckets(group.counts) if count}
            one.update(runs=sum(group.counts), runNs=group.total_ns, log2ns=log2_ns)
        result.append(one)
    return result


def _without_runs(reported: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name not in ("runs", "runNs", "log2ns")} for one in reported]


def send(where: str, facts: Mapping[str, Any], reported: list[dict[str, Any]]) -> None:
    """Sends one datagram to RADDLE_AGENT's value.

    Raises ValueError or OSError for what is no address or can't be sent.
    """
    family, address, container = destination(where)
    data = message(container, facts, reported)
    # Non-blocking from its first moment on: a default timeout of the application's doesn't count. Closed at once: an
    # application may close all files, and give the number to one of its own.
    kind = _socket.SOCK_DGRAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC
    udp = _socket.socket(family, kind)
    try:
        udp.sendto(data, _socket.MSG_DONTWAIT | _socket.MSG_NOSIGNAL, address)
    finally:
        udp.close()


def message(container: str, facts: Mapping[str, Any], reported: list[dict[str, Any]]) -> bytes:
    """The datagram, with as many of the sessions as fit."""
    document = {"v": VERSION, "container": container, "pid": os.getpid(), **facts, "sessions": reported}
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


record.notify_agent = changed
