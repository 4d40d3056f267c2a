"""The loop that looks at the governed containers now and then, and keeps the report of the last two looks.

Looks are taken by the clock and not when somebody asks: so a window has always the same length whoever asks how often,
nobody can keep the agent busy, and a metric rises whether it is read or not. A look that took long makes the next one
later, so that all looks together take a hundredth of a CPU, however many threads a tenant makes.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, Protocol

from prometheus_client import CONTENT_TYPE_LATEST

from raddle.cpus.topology import Machine
from raddle_operator.agent import cadvisor, client, datagrams, governed, host_processes, kubelet, looks
from raddle_operator.agent.client import FAILURES, AgentClient
from raddle_operator.agent.datagrams import Listener, Told
from raddle_operator.agent.governed import GovernedPod
from raddle_operator.agent.host_cgroups import HostCgroups
from raddle_operator.agent.host_processes import HostProcesses
from raddle_operator.agent.looks import ContainerLook, Look
from raddle_operator.agent.reflector import Backoff, Reflector
from raddle_operator.agent.served import Served
from raddle_operator.agent.server import TEXT, Answer, Server
from raddle_operator.agent.settings import AgentSettings
from raddle_operator.effective import compare
from raddle_operator.objects import times
from raddle_operator.objects.nodereport import Level, NodeReport

log = logging.getLogger(__name__)

PODS: Final = "/api/v1/pods"

# A part of one CPU, for all looks together.
MOST_SHARE: Final = 0.01
# The kubelet looks itself only every 10 to 15 s.
KUBELET_LEAST_S: Final = 30.0
# For what they take of memory, where many containers have very many.
MOST_THREADS: Final = 20_000
# A Service sends to an agent only some moments after that has begun to listen.
REACHED_AFTER_S: Final = 30.0
# So long after a look should have been taken the loop counts as stuck.
STUCK_S: Final = 300.0


class Sight(Protocol):
    """A way to look."""

    def look(self, pods: Iterable[GovernedPod], before: Look) -> Look:
        """What can be seen of these pods' containers now. Raises OSError and the like where nothing can be."""


class KubeletSight:
    """By what the kubelet's own metrics say."""

    def __init__(self, api: AgentClient) -> None:
        self._api = api

    def look(self, pods: Iterable[GovernedPod], before: Look) -> Look:  # noqa: ARG002 (a Sight)
        """Of the containers that the kubelet tells of."""
        ids = {container.id for pod in pods for container in pod.containers}
        at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        found = cadvisor.parse(self._api.lines(cadvisor.PATH, cadvisor.ACCEPT), ids, time.time())
        return Look(at_s, {key: ContainerLook(counters, {}) for key, counters in found.items()})


class HostSight:
    """By the node's cgroups, and its /proc where that may be seen."""

    def __init__(self, cgroups: HostCgroups, processes: HostProcesses | None) -> None:
        self._cgroups, self._processes = cgroups, processes

    def look(self, pods: Iterable[GovernedPod], before: Look) -> Look:
        """Of the containers that have a cgroup."""
        at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        found, left = {}, MOST_THREADS
        for key, place in self._cgroups.places(pods).items():
            counters, known = self._cgroups.counters(place), before.containers.get(key)
            processes: Mapping[int, looks.ProcessLook] = {}
            if self._processes is not None:
                numbers = self._cgroups.processes(place)
                most = min(left, host_processes.MOST_THREADS)
                processes = self._processes.look(numbers, known.processes if known else {}, most)
                left -= sum(len(one.threads) for one in processes.values())
            found[key] = ContainerLook(counters, processes)
        if self._processes is not None:
            self._processes.forget(
                {(number, one.start_s) for look in found.values() for number, one in look.processes.items()}
            )
        return Look(at_s, found)


def sight(settings: AgentSettings, token: Callable[[], str]) -> Sight:
    """The way to look that the settings' level allows."""
    if settings.watch == Level.KUBELET:
        return KubeletSight(AgentClient(kubelet.endpoint(settings, token)))
    proc = str(settings.root).rstrip("/") + "/proc"
    processes = HostProcesses(proc) if settings.watch == Level.PROCESSES else None
    return HostSight(HostCgroups(settings.cgroups), processes)


def loops(
    settings: AgentSettings,
    api: AgentClient,
    token: Callable[[], str],
    machine: Callable[[], Machine | None],
    tell: Callable[[NodeReport | None], None],
    backoff: Backoff,
) -> tuple[Callable[[], None], ...]:
    """What has to run, each in a thread of its own: the watch of this node's pods, the looks, the server.

    `machine` is what is known of this one; `tell` is called with each report, None for a look that failed.

    Raises OSError where a port is taken.
    """
    pods = Reflector(
        api,
        PODS,
        f"spec.nodeName={settings.node_name}",
        keep=governed.read,
        changed=_nothing,
        backoff=backoff,
        streamed=True,
    )
    heard = None if settings.datagrams_port is None else Told()
    told = Served(heard.refused if heard else None)

    def tell_all(report: NodeReport | None) -> None:
        told.tell(report)
        tell(report)

    watcher = Watcher(settings, sight(settings, token), lambda: pods.values, machine, tell_all, heard)
    listeners = (Listener(heard, settings.datagrams_port or 0).run,) if heard else ()
    server = Server(
        settings.watch_port,
        {
            "/v1/report": lambda: _report(told),
            "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE_LATEST, told.metrics()),
            "/livez": lambda: _livez(watcher),
        },
    )
    # Nobody ends it but the process, so it need not look twice a second whether it should.
    return pods.run, watcher.run, partial(server.serve_forever, poll_interval=3600.0), *listeners


def _report(told: Served) -> Answer:
    document = told.document
    if document is None:
        return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"no window of two looks yet\n"
    return HTTPStatus.OK, client.JSON, document


def _livez(watcher: Watcher) -> Answer:
    if watcher.alive():
        return HTTPStatus.OK, TEXT, b"ok\n"
    return HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, b"the loop is stuck\n"


def _nothing() -> None:
    """The next look sees it."""


class Watcher:
    """Looks until the process ends, and tells each window's report; None where the last look failed."""

    def __init__(
        self,
        settings: AgentSettings,
        sight: Sight,
        pods: Callable[[], list[GovernedPod]],
        machine: Callable[[], Machine | None],
        tell: Callable[[NodeReport | None], None],
        heard: Told | None = None,
    ) -> None:
        """`heard` is what shims have told, None: they are not heard."""
        assert settings.watch is not None
        self._node, self._level = settings.node_name, settings.watch
        self._interval_s = settings.watch_interval_s
        if self._level == Level.KUBELET:
            self._interval_s = max(self._interval_s, KUBELET_LEAST_S)
        self._sight, self._pods, self._machine, self._tell = sight, pods, machine, tell
        self._heard, self._node_ip = heard, settings.node_ip
        # Of a process that began before then silence says nothing.
        self._listening_s = time.clock_gettime(time.CLOCK_BOOTTIME) + REACHED_AFTER_S
        self._first_cpusets: dict[tuple[compare.Key, str], str] = {}
        self._last: Look | None = None
        self._next_s = time.monotonic()
        self._said = ""

    def run(self) -> None:
        """Looks for ever; the thread that runs it is a daemon."""
        while True:
            pause_s = self.look()
            self._next_s = time.monotonic() + pause_s
            time.sleep(pause_s)

    def look(self) -> float:
        """Takes one look and makes the report; the seconds until the next one."""
        began_s = time.thread_time()
        pods = self._pods()
        before = self._last or Look(0.0, {})
        try:
            after = self._sight.look(pods, before)
        except FAILURES as error:
            if str(error) != self._said:
                self._said = str(error)
                log.warning("look failed level=%s error=%r", self._level, self._said)
            # A report of long ago would be taken for one of now.
            self._tell(None)
            return self._interval_s
        self._said = ""
        if self._last is not None:
            at = times.rfc3339(time.time())
            seen = looks.report(self._node, self._level, at, pods, before, after, self._heard_from_s())
            self._tell(self._compared(self._with_sessions(seen, pods), pods))
        self._last = after
        return max(self._interval_s, (time.thread_time() - began_s) / MOST_SHARE)

    def _heard_from_s(self) -> float:
        """Since when, after the machine's boot, all that shims have said was heard."""
        if self._heard is None:
            return math.inf
        missed_s = time.clock_gettime(time.CLOCK_BOOTTIME) - (time.monotonic() - self._heard.missed_at)
        return max(self._listening_s, missed_s)

    def _with_sessions(self, report: NodeReport, pods: Iterable[GovernedPod]) -> NodeReport:
        """The report with what the shims have told."""
        if self._heard is None:
            return report
        addresses = {pod.uid: pod.ip for pod in pods}
        told = self._heard.told(frozenset(addresses.values()), time.monotonic())
        return datagrams.merged(report, told, addresses, self._node_ip)

    def _compared(self, report: NodeReport, pods: Iterable[GovernedPod]) -> NodeReport:
        """The report with what was planned, and what is not as planned."""
        planned = {(pod.uid, name): plan for pod in pods for name, plan in pod.planned.items()}
        seen = {(one.uid, one.name): one.cpuset for one in report.containers if one.cpuset is not None}
        # One that was started again has bound its threads anew, and has another id.
        ids = {(pod.uid, one.name): one.id for pod in pods for one in pod.containers}
        known = self._first_cpusets
        self._first_cpusets = {(key, ids[key]): known.get((key, ids[key]), seen[key]) for key in seen if key in ids}
        first = {key: cpus for (key, _), cpus in self._first_cpusets.items()}
        return compare.compared(report, planned, first, self._machine())

    def alive(self) -> bool:
        """Whether looks are taken as they should be."""
        return time.monotonic() < self._next_s + STUCK_S
