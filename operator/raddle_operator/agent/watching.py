"""The loop that samples the governed containers periodically, and keeps the report of the last two samples.

Samples are taken by the clock and not on request: a window always has the same length however often it is requested,
nobody can keep the agent busy, and a metric rises whether it is read or not. A sample that took long makes the next one
later, so that all samples together take a hundredth of a CPU, however many threads a tenant makes.
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
from raddle_operator.agent import cadvisor, client, datagrams, governed, host_processes, kubelet, samples
from raddle_operator.agent.client import FAILURES, AgentClient
from raddle_operator.agent.datagrams import Listener, ReportedSessions
from raddle_operator.agent.governed import GovernedPod
from raddle_operator.agent.host_cgroups import HostCgroups
from raddle_operator.agent.host_processes import HostProcesses
from raddle_operator.agent.reflector import Backoff, Reflector
from raddle_operator.agent.samples import ContainerSample, Sample
from raddle_operator.agent.served import Served
from raddle_operator.agent.server import TEXT, Answer, Server
from raddle_operator.agent.settings import AgentSettings
from raddle_operator.effective import compare
from raddle_operator.objects import times
from raddle_operator.objects.nodereport import Level, NodeReport

log = logging.getLogger(__name__)

PODS: Final = "/api/v1/pods"

# A part of one CPU, for all samples together.
MOST_SHARE: Final = 0.01
# The kubelet looks itself only every 10 to 15 s.
KUBELET_LEAST_S: Final = 30.0
# For what they take of memory, where many containers have very many.
MOST_THREADS: Final = 20_000
# A Service sends to an agent only some moments after that has begun to listen.
REACHED_AFTER_S: Final = 30.0
# So long after a sample should have been taken the loop counts as stuck.
STUCK_S: Final = 300.0


class Sampler(Protocol):
    """A way to take samples."""

    def sample(self, pods: Iterable[GovernedPod], before: Sample) -> Sample:
        """What can be seen of these pods' containers now. Raises OSError and the like where nothing can be."""


class KubeletSampler:
    """By what the kubelet's own metrics say."""

    def __init__(self, api: AgentClient) -> None:
        self._api = api

    def sample(self, pods: Iterable[GovernedPod], before: Sample) -> Sample:  # noqa: ARG002 (a Sampler)
        """Of the containers that the kubelet tells of."""
        ids = {container.id for pod in pods for container in pod.containers}
        at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        result = cadvisor.parse(self._api.lines(cadvisor.PATH, cadvisor.ACCEPT), ids, time.time())
        return Sample(at_s, {key: ContainerSample(counters, {}) for key, counters in result.items()})


class HostSampler:
    """By the node's cgroups, and its /proc where that may be seen."""

    def __init__(self, cgroups: HostCgroups, processes: HostProcesses | None) -> None:
        self._cgroups, self._processes = cgroups, processes

    def sample(self, pods: Iterable[GovernedPod], before: Sample) -> Sample:
        """Of the containers that have a cgroup."""
        at_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        result, left = {}, MOST_THREADS
        for key, place in self._cgroups.places(pods).items():
            counters, known = self._cgroups.counters(place), before.containers.get(key)
            processes: Mapping[int, samples.ProcessSample] = {}
            if self._processes is not None:
                numbers = self._cgroups.processes(place)
                most = min(left, host_processes.MOST_THREADS)
                processes = self._processes.sample(numbers, known.processes if known else {}, most)
                left -= sum(len(one.threads) for one in processes.values())
            result[key] = ContainerSample(counters, processes)
        if self._processes is not None:
            self._processes.forget(
                {(number, one.start_s) for look in result.values() for number, one in look.processes.items()}
            )
        return Sample(at_s, result)


def sampler(settings: AgentSettings, token: Callable[[], str]) -> Sampler:
    """The way to take samples that the settings' level allows."""
    if settings.watch == Level.KUBELET:
        return KubeletSampler(AgentClient(kubelet.endpoint(settings, token)))
    proc = str(settings.root).rstrip("/") + "/proc"
    processes = HostProcesses(proc) if settings.watch == Level.PROCESSES else None
    return HostSampler(HostCgroups(settings.cgroups), processes)


def loops(
    settings: AgentSettings,
    api: AgentClient,
    token: Callable[[], str],
    machine: Callable[[], Machine | None],
    publish: Callable[[NodeReport | None], None],
    backoff: Backoff,
) -> tuple[Callable[[], None], ...]:
    """What has to run, each in a thread of its own: the watch of this node's pods, the samples, the server.

    `machine` is what is known of this one; `publish` is called with each report, None for a sample that failed.

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
    reported = None if settings.datagrams_port is None else ReportedSessions()
    served = Served(reported.refused if reported else None)

    def publish_all(report: NodeReport | None) -> None:
        served.update(report)
        publish(report)

    watcher = Watcher(settings, sampler(settings, token), lambda: pods.values, machine, publish_all, reported)
    listeners = (Listener(reported, settings.datagrams_port or 0).run,) if reported else ()
    server = Server(
        settings.watch_port,
        {
            "/v1/report": lambda: _report(served),
            "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE_LATEST, served.metrics()),
            "/livez": lambda: _livez(watcher),
        },
    )
    # Nobody ends it but the process, so it need not look twice a second whether it should.
    return pods.run, watcher.run, partial(server.serve_forever, poll_interval=3600.0), *listeners


def _report(served: Served) -> Answer:
    document = served.document
    if document is None:
        return HTTPStatus.SERVICE_UNAVAILABLE, TEXT, b"no window of two looks yet\n"
    return HTTPStatus.OK, client.JSON, document


def _livez(watcher: Watcher) -> Answer:
    if watcher.alive():
        return HTTPStatus.OK, TEXT, b"ok\n"
    return HTTPStatus.INTERNAL_SERVER_ERROR, TEXT, b"the loop is stuck\n"


def _nothing() -> None:
    """The next sample sees it."""


class Watcher:
    """Takes samples until the process ends, and publishes each window's report; None where the last sample failed."""

    def __init__(
        self,
        settings: AgentSettings,
        sampler: Sampler,
        pods: Callable[[], list[GovernedPod]],
        machine: Callable[[], Machine | None],
        publish: Callable[[NodeReport | None], None],
        reported: ReportedSessions | None = None,
    ) -> None:
        """`reported` holds the sessions that shims report, None: they are not received."""
        assert settings.watch is not None
        self._node, self._level = settings.node_name, settings.watch
        self._interval_s = settings.watch_interval_s
        if self._level == Level.KUBELET:
            self._interval_s = max(self._interval_s, KUBELET_LEAST_S)
        self._sampler, self._pods, self._machine, self._publish = sampler, pods, machine, publish
        self._reported, self._node_ip = reported, settings.node_ip
        # Of a process that began before then silence says nothing.
        self._listening_s = time.clock_gettime(time.CLOCK_BOOTTIME) + REACHED_AFTER_S
        self._first_cpusets: dict[tuple[compare.Key, str], str] = {}
        self._last: Sample | None = None
        self._next_s = time.monotonic()
        self._last_error = ""

    def run(self) -> None:
        """Looks for ever; the thread that runs it is a daemon."""
        while True:
            pause_s = self.sample()
            self._next_s = time.monotonic() + pause_s
            time.sleep(pause_s)

    def sample(self) -> float:
        """Takes one sample and makes the report; the seconds until the next one."""
        began_s = time.thread_time()
        pods = self._pods()
        before = self._last or Sample(0.0, {})
        try:
            after = self._sampler.sample(pods, before)
        except FAILURES as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                log.warning("observation failed level=%s error=%r", self._level, self._last_error)
            # A report of long ago would be taken for one of now.
            self._publish(None)
            return self._interval_s
        self._last_error = ""
        if self._last is not None:
            at = times.rfc3339(time.time())
            seen = samples.report(self._node, self._level, at, pods, before, after, self._received_from_s())
            self._publish(self._compared(self._with_sessions(seen, pods), pods))
        self._last = after
        return max(self._interval_s, (time.thread_time() - began_s) / MOST_SHARE)

    def _received_from_s(self) -> float:
        """Since when, after the machine's boot, all that shims have sent was received."""
        if self._reported is None:
            return math.inf
        missed_s = time.clock_gettime(time.CLOCK_BOOTTIME) - (time.monotonic() - self._reported.missed_at)
        return max(self._listening_s, missed_s)

    def _with_sessions(self, report: NodeReport, pods: Iterable[GovernedPod]) -> NodeReport:
        """The report with the sessions that the shims have reported."""
        if self._reported is None:
            return report
        addresses = {pod.uid: pod.ip for pod in pods}
        sessions = self._reported.by_address(frozenset(addresses.values()), time.monotonic())
        return datagrams.merged(report, sessions, addresses, self._node_ip)

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
        """Whether samples are taken as they should be."""
        return time.monotonic() < self._next_s + STUCK_S
