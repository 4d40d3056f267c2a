"""What the shims of the node's pods tell the agent, by datagrams: docs/reference/datagrams.md describes them.

Whoever reaches the port may send anything. A datagram says nothing of who has sent it, so it counts for the pod that
has the sender's address, and changes what the report says of that pod's processes; it decides nothing but the load of a
policy that asks for what is observed. What is kept is bounded, and so is the CPU time that a flood can take.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import math
import re
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from raddle.report import groups
from raddle_operator.objects import reading
from raddle_operator.objects.nodereport import Container, NodeReport, Process, Session
from raddle_operator.objects.reading import SpecError

log = logging.getLogger(__name__)

VERSION: Final = 1
MAX_BYTES: Final = 1400
MAX_PROCESSES: Final = 4096
MAX_POD_PROCESSES: Final = 128
# Of these each pod of the node has room for some, however many others speak; and addresses that are no pod's, or not
# yet, take half of all room at most.
POD_ROOM: Final = 8
# Of one process, as the report lists them; a shim keeps 256.
MAX_SESSIONS: Final = 64
# A pod may have many processes that all start at once.
POD_BURST, POD_HZ = 128, 4.0
# Of what is within that, to be read; and of anything at all, to be looked at.
NODE_BURST, NODE_HZ = 2048, 256.0
ALL_BURST, ALL_HZ = 4096, 1024.0
# A pod's address is known to the API server some moments after its first process may have spoken.
UNKNOWN_S: Final = 60.0
# One that has promised to speak again is forgotten when it has missed three times, any other after a day.
MISSED: Final = 3
SILENT_S: Final = 86400.0

_MAX_NUMBER: Final = 1 << 53
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_RUNTIME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_SOURCES: Final = ("plan", "code", "default")
_EXPONENTS: Final = {str(exponent): exponent for exponent in range(groups.SHORTEST, groups.LONGEST + 1)}


class ProcessID(NamedTuple):
    """A process of a pod: its container's name, "" where it doesn't know it, and its own number of itself."""

    container: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Datagram:
    """One datagram. `again_s`: it will speak again in so many seconds, 0: only when something changes."""

    process: ProcessID
    threads: int = 0
    again_s: int = 0
    ended: bool = False
    sessions: tuple[Session, ...] = ()


def parse(data: bytes) -> Datagram:
    """What a datagram says. Raises SpecError for anything that no shim sends."""
    if len(data) > MAX_BYTES:
        raise SpecError("datagram", f"has more than {MAX_BYTES} bytes")
    try:
        result = json.loads(data)
    # RecursionError: a list in a list in a list.
    except (ValueError, RecursionError):
        raise SpecError("datagram", "is not JSON") from None
    document = reading.as_object(result, "datagram")
    if document.get("v") != VERSION:
        raise SpecError("v", f"must be {VERSION}")
    container = reading.text(document, "container", "")
    if container and _NAME.fullmatch(container) is None:
        raise SpecError("container", "is not a container name")
    sessions: list[Session] = []
    for index, one in enumerate(reading.sequence(document, "sessions", "")):
        sessions += _sessions(reading.as_object(one, f"sessions[{index}]"), f"sessions[{index}]")
    return Datagram(
        process=ProcessID(container, _number(document, "pid", "")),
        threads=_number(document, "threads", ""),
        again_s=_number(document, "againS", ""),
        ended=document.get("ended") is True,
        sessions=tuple(sessions[:MAX_SESSIONS]),
    )


def _sessions(one: Mapping[str, Any], path: str) -> Sequence[Session]:
    """Sessions that are alike, one by one; the first has the runs of all."""
    runtime, source = reading.text(one, "runtime", path), reading.text(one, "source", path)
    if _RUNTIME.fullmatch(runtime) is None:
        raise SpecError(f"{path}.runtime", "is not a runtime name")
    if source not in _SOURCES:
        raise SpecError(f"{path}.source", f"must be one of {', '.join(_SOURCES)}")
    threads = _number(one, "threads", path) if one.get("threads") is not None else None
    silent = Session(runtime=runtime, threads=threads, source=source)
    first = silent
    if one.get("runs") is not None:
        runs = _number(one, "runs", path)
        total_s = _number(one, "runNs", path) / 1e9 if one.get("runNs") is not None else None
        seconds = _run_seconds(one, runs, path)
        first = replace(silent, runs=runs, run_seconds=seconds, run_seconds_total=total_s)
    alike = min(_number(one, "alike", path), MAX_SESSIONS)
    return [first, *[silent] * (alike - 1)] if alike else []


def _run_seconds(one: Mapping[str, Any], runs: int, path: str) -> Mapping[str, int]:
    """Upper bound in seconds -> runs not longer than that: only bounds that more runs reach than the one before."""
    counts = reading.mapping(one, "log2ns", path)
    if not counts.keys() <= _EXPONENTS.keys():
        raise SpecError(f"{path}.log2ns", "has unexpected bounds")
    result, so_far = {}, 0
    for name, exponent in _EXPONENTS.items():
        if name in counts:
            so_far += _number(counts, name, f"{path}.log2ns")
            result[f"{2**exponent / 1e9:.6g}"] = so_far
    if so_far > runs:
        raise SpecError(f"{path}.log2ns", "has more runs than the total")
    return {**result, "+Inf": runs} if result else {}


def _number(parent: Mapping[str, Any], key: str, path: str) -> int:
    value = parent.get(key)
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MAX_NUMBER:
        raise SpecError(f"{path}.{key}" if path else key, "must be a whole number from 0")
    return value


class _Allowance:
    """How much may be heard: `burst` at once, and `hz` a second."""

    __slots__ = ("_burst", "_hz", "_left", "_since")

    def __init__(self, burst: int, hz: float) -> None:
        self._burst, self._hz = burst, hz
        self._left, self._since = float(burst), 0.0

    def take(self, now: float) -> bool:
        """Whether one more may be."""
        self._left = min(self._burst, self._left + (now - self._since) * self._hz)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class _Pod:
    """The datagrams that one address has sent."""

    __slots__ = ("allowance", "datagrams", "received_at")

    def __init__(self, now: float) -> None:
        self.allowance = _Allowance(POD_BURST, POD_HZ)
        self.received_at = now
        # As they came: what hostile ones become may be twenty times as large.
        self.datagrams: dict[ProcessID, tuple[float, bytes]] = {}


class ReportedSessions:
    """Reported sessions by the senders' addresses. Times are a monotonic clock's; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, _Pod] = {}
        self._known: frozenset[str] = frozenset()
        self._node, self._all = _Allowance(NODE_BURST, NODE_HZ), _Allowance(ALL_BURST, ALL_HZ)
        self._processes = 0
        self.missed_at = -math.inf
        """When a datagram was last dropped for what others have sent: it may have been all that a shim has to say."""
        self.refused: dict[str, int] = {"rate": 0, "room": 0, "malformed": 0}
        """How many datagrams were not taken, by why."""

    def accept(self, address: str, data: bytes, now: float) -> bool:
        """Takes a datagram over, or counts it as refused; False where the node as a whole is told too much."""
        with self._lock:
            if not self._all.take(now):
                self.refused["rate"] += 1
                self.missed_at = now
                return False
            why = self._hear(address, data, now)
            if why:
                self.refused[why] += 1
        return True

    def _hear(self, address: str, data: bytes, now: float) -> str:
        is_known = address in self._known
        room = MAX_PROCESSES if is_known else MAX_PROCESSES // 2
        pod = self._pods.get(address)
        if pod is None:
            if len(self._pods) >= room and not is_known:
                self.missed_at = now
                return "room"
            pod = self._pods[address] = _Pod(now)
        pod.received_at = now
        # First its own: who sends too much takes nothing of the others'.
        if not pod.allowance.take(now):
            return "rate"
        if not self._node.take(now):
            self.missed_at = now
            return "rate"
        try:
            datagram = parse(data)
        except SpecError:
            return "malformed"
        known = pod.datagrams.pop(datagram.process, None)
        self._processes -= known is not None
        if datagram.ended:
            return ""
        if self._processes >= room and not (is_known and len(pod.datagrams) < POD_ROOM):
            self.missed_at = now
            return "room"
        if len(pod.datagrams) >= MAX_POD_PROCESSES:
            # The one that has been silent for longest: it may have ended without a word.
            del pod.datagrams[next(iter(pod.datagrams))]
            self._processes -= 1
        pod.datagrams[datagram.process] = (now, data)
        self._processes += 1
        return ""

    def by_address(self, addresses: frozenset[str], now: float) -> Mapping[str, Mapping[ProcessID, Datagram]]:
        """What the pods with these addresses have said, by address. What is out of date, or nobody's, is forgotten."""
        result: dict[str, Mapping[ProcessID, Datagram]] = {}
        with self._lock:
            self._known = addresses
            for address, pod in list(self._pods.items()):
                if address in addresses:
                    result[address] = self._datagrams(pod, now)
                elif now - pod.received_at > UNKNOWN_S:
                    self._processes -= len(pod.datagrams)
                    del self._pods[address]
        return result

    def _datagrams(self, pod: _Pod, now: float) -> Mapping[ProcessID, Datagram]:
        result = {}
        for process, (at, data) in list(pod.datagrams.items()):
            datagram = parse(data)
            if now - at > (MISSED * datagram.again_s if datagram.again_s else SILENT_S):
                del pod.datagrams[process]
                self._processes -= 1
            else:
                result[process] = datagram
        return result


def merged(
    report: NodeReport,
    datagrams: Mapping[str, Mapping[ProcessID, Datagram]],
    addresses: Mapping[str, str],
    node_ip: str = "",
) -> NodeReport:
    """The report with the reported sessions as its processes' sessions; `addresses` are the pods' by uid.

    A process that the report lists keeps the rest; where its level sees no processes at all there is one for each that
    has spoken, and no more than the container has: one that was killed has not said that it ends. Pods of the node's
    network share its address, so that nobody knows who speaks: they get nothing.
    """
    shared = [ip for ip in addresses.values() if ip]
    usable = {uid: ip for uid, ip in addresses.items() if ip and ip != node_ip and shared.count(ip) == 1}
    names: dict[str, list[str]] = {}
    for one in report.containers:
        names.setdefault(one.uid, []).append(one.name)
    containers = tuple(
        _with_sessions(
            one, datagrams.get(usable[one.uid], {}) if one.uid in usable else {}, alone=len(names[one.uid]) == 1
        )
        for one in report.containers
    )
    return replace(report, containers=containers)


def _with_sessions(container: Container, datagrams: Mapping[ProcessID, Datagram], *, alone: bool) -> Container:
    mine = {
        process.pid: datagram
        for process, datagram in datagrams.items()
        if process.container == container.name or (alone and not process.container)
    }
    if not mine:
        return container
    if container.processes:
        processes = tuple(
            replace(one, sessions=mine[one.pid].sessions) if one.pid in mine else one for one in container.processes
        )
    else:
        # The last ones to speak are last.
        gone = 0 if container.process_count is None else len(mine) - container.process_count
        processes = tuple(
            Process(pid=pid, command="", threads=datagram.threads, sessions=datagram.sessions)
            for pid, datagram in list(mine.items())[max(0, gone) :]
        )
    return replace(container, processes=processes)


class Listener:
    """Hears datagrams, in the thread that runs it, until it is closed."""

    def __init__(self, sessions: ReportedSessions, port: int, host: str = "") -> None:
        """Opens the port, 0: any free one; "" is every address, IPv6 and IPv4. Raises OSError."""
        self._sessions = sessions
        has_v6 = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if has_v6 or ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            if has_v6:
                self._socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self._socket.bind((host, port))
        except OSError:
            self._socket.close()
            raise
        self.port: Final[int] = self._socket.getsockname()[1]
        self._closing = threading.Event()

    def close(self) -> None:
        """Ends `run`, in whichever thread."""
        self._closing.set()
        # Wakes it, which a close would not.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        """Hears until `close` is called."""
        with self._socket:
            self._listen()

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                data, sender = self._socket.recvfrom(MAX_BYTES + 1)
            except OSError as error:
                if self._closing.is_set():
                    return
                log.warning("datagrams: %s", error)
                self._closing.wait(1.0)
                continue
            if self._closing.is_set():
                return
            if not self._sessions.accept(_address(sender[0]), data, time.monotonic()):
                # The kernel drops what comes meanwhile, at far less cost.
                self._closing.wait(1 / ALL_HZ)


def _address(text: str) -> str:
    """An address as the API server writes a pod's: IPv4 also where it came by a socket for both."""
    try:
        result = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    mapped = result.ipv4_mapped if isinstance(result, ipaddress.IPv6Address) else None
    return str(mapped or result)
