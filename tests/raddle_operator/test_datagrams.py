"""What shims tell the agent: read, kept within bounds, and put beside what the agent has seen."""

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.examples import examples
from support.runtimes import shim_lab

from cluster.waiting import wait
from raddle import env
from raddle_operator.agent import datagrams
from raddle_operator.agent.datagrams import Datagram, ProcessID, ReportedSessions
from raddle_operator.agent.governed import GovernedContainer, GovernedPod
from raddle_operator.agent.samples import ContainerSample, Counters, ProcessSample, Sample
from raddle_operator.agent.served import Served
from raddle_operator.agent.settings import AgentSettings
from raddle_operator.agent.watching import Watcher
from raddle_operator.objects.nodereport import Container, Level, NodeReport, Process, Session
from raddle_operator.objects.reading import SpecError

SERVE = {"runtime": "onnxruntime", "threads": 2, "source": "plan", "alike": 1}
IP = "10.0.0.7"


def datagram(pid=7, container="serve", **more):
    return json.dumps({"v": 1, "container": container, "pid": pid, "sessions": [SERVE], **more}).encode()


def test_a_datagram_says_what_a_process_has():
    counted = {**SERVE, "alike": 2, "runs": 12, "runNs": 15_000_000, "log2ns": {"20": 4, "21": 6}}
    default = {"runtime": "torch", "source": "default", "alike": 1}
    said = datagrams.parse(datagram(threads=9, againS=300, sessions=[counted, default]))
    first = Session(
        runtime="onnxruntime",
        threads=2,
        source="plan",
        runs=12,
        run_seconds={"0.00104858": 4, "0.00209715": 10, "+Inf": 12},
        run_seconds_total=0.015,
    )
    alike = Session(runtime="onnxruntime", threads=2, source="plan")
    other = Session(runtime="torch", source="default")
    assert said == Datagram(process=ProcessID("serve", 7), threads=9, again_s=300, sessions=(first, alike, other))


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b"", "datagram"),
        (b"\xff", "datagram"),
        (b"[" * 1400, "datagram"),
        (b"7", "datagram"),
        (b" " * 1401, "datagram"),
        (json.dumps({"v": 2}).encode(), "v"),
        (datagram(container="a\x1b[2J"), "container"),
        (datagram(pid=-1), "pid"),
        (datagram(pid=True), "pid"),
        (datagram(pid=1 << 53), "pid"),
        (datagram(sessions={}), "sessions"),
        (datagram(sessions=[7]), "sessions[0]"),
        (datagram(sessions=[{**SERVE, "runtime": "<b>"}]), "sessions[0].runtime"),
        (datagram(sessions=[{**SERVE, "source": "us"}]), "sessions[0].source"),
        (datagram(sessions=[{**SERVE, "threads": 1.5}]), "sessions[0].threads"),
        (datagram(sessions=[{**SERVE, "runs": 1, "log2ns": {"20": 2}}]), "sessions[0].log2ns"),
        (datagram(sessions=[{**SERVE, "runs": 1, "log2ns": {"999": 1}}]), "sessions[0].log2ns"),
        (datagram(sessions=[{**SERVE, "runs": 1, "log2ns": {"20": None, "21": "1"}}]), "sessions[0].log2ns.21"),
    ],
)
def test_what_no_shim_sends_is_refused_with_its_place(data, path):
    with pytest.raises(SpecError) as failure:
        datagrams.parse(data)
    assert failure.value.path == path


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
hostile = st.dictionaries(
    st.sampled_from(["runtime", "threads", "source", "alike", "runs", "runNs", "log2ns"]),
    scalars | st.dictionaries(st.sampled_from(["18", "34", "35"]), scalars, max_size=3),
)
documents = st.fixed_dictionaries(
    {"v": st.just(1)},
    optional={
        "container": scalars,
        "pid": scalars,
        "threads": scalars,
        "againS": scalars,
        "ended": scalars,
        "sessions": scalars | st.lists(hostile | scalars, max_size=4),
    },
)


@given(st.binary(max_size=64) | documents.map(lambda document: json.dumps(document).encode()))
def test_whatever_comes_is_read_within_bounds_or_refused(data):
    try:
        said = datagrams.parse(data)
    except SpecError:
        return
    assert len(said.sessions) <= datagrams.MAX_SESSIONS
    assert all(one.runtime.isprintable() and one.source in {"plan", "code", "default"} for one in said.sessions)
    for one in said.sessions:
        reached = list(one.run_seconds.values())
        assert reached == sorted(reached)


# --- kept -------------------------------------------------------------------------------------------------------------


def test_a_process_is_known_by_what_it_has_said_last_and_until_it_says_that_it_ends():
    told = ReportedSessions()
    told.accept(IP, datagram(), 0.0)
    told.accept(IP, datagram(sessions=[]), 1.0)
    told.accept(IP, datagram(pid=8), 1.0)
    assert told.by_address(frozenset([IP]), 2.0)[IP].keys() == {ProcessID("serve", 7), ProcessID("serve", 8)}
    assert told.by_address(frozenset([IP]), 2.0)[IP][ProcessID("serve", 7)].sessions == ()
    told.accept(IP, datagram(ended=True), 3.0)
    assert told.by_address(frozenset([IP]), 3.0)[IP].keys() == {ProcessID("serve", 8)}


@pytest.mark.parametrize(
    ("again_s", "at", "known"), [(300, 900.0, True), (300, 901.0, False), (0, 80_000.0, True), (0, 90_000.0, False)]
)
def test_one_that_is_silent_for_longer_than_it_promised_is_forgotten(again_s, at, known):
    told = ReportedSessions()
    told.accept(IP, datagram(againS=again_s), 0.0)
    assert bool(told.by_address(frozenset([IP]), at)[IP]) == known


def test_a_pod_that_the_api_server_shows_later_is_heard_from_its_first_word_on():
    told = ReportedSessions()
    told.accept(IP, datagram(), 0.0)
    assert told.by_address(frozenset(), 50.0) == {}
    assert told.by_address(frozenset([IP]), 51.0)[IP]
    assert told.by_address(frozenset(), 61.0) == {}
    assert told.by_address(frozenset([IP]), 61.0) == {}


def test_a_pod_that_says_too_much_loses_its_own_words_and_nobody_elses():
    told = ReportedSessions()
    for number in range(1000):
        told.accept(IP, datagram(pid=number), 0.0)
    told.accept("10.0.0.8", datagram(), 0.0)
    found = told.by_address(frozenset([IP, "10.0.0.8"]), 0.0)
    assert len(found[IP]) == datagrams.POD_BURST
    assert found["10.0.0.8"].keys() == {ProcessID("serve", 7)}
    refused = f'raddle_agent_datagrams_refused_total{{reason="rate"}} {1000.0 - datagrams.POD_BURST}'
    assert refused in Served(told.refused).metrics().decode().splitlines()


def test_a_pod_that_sends_without_end_leaves_the_others_theirs():
    told = ReportedSessions()
    for number in range(datagrams.ALL_BURST - 100):
        told.accept(IP, datagram(pid=number), 0.0)
    told.accept("10.0.0.8", datagram(), 0.0)
    assert told.by_address(frozenset(["10.0.0.8"]), 0.0)["10.0.0.8"]
    assert told.missed_at == -math.inf


def crowd(told, addresses, now):
    """Has all of them speak of so many processes as they may, as fast as is heard."""
    for address in addresses:
        for number in range(datagrams.POD_BURST):
            now += 1 / datagrams.NODE_HZ
            told.accept(address, datagram(pid=number), now)
    return now


def test_however_many_others_speak_each_pod_of_the_node_has_room_for_some():
    pods = [f"10.0.1.{number}" for number in range(40)]
    told = ReportedSessions()
    told.by_address(frozenset([*pods, IP]), 0.0)
    now = crowd(told, pods, 0.0)
    assert told.refused["room"]
    for number in range(10):
        told.accept(IP, datagram(pid=number), now)
    assert len(told.by_address(frozenset([*pods, IP]), now)[IP]) == datagrams.POD_ROOM
    assert told.missed_at == now


def test_addresses_that_are_no_pods_leave_room_for_those_that_are():
    forged = [f"192.0.2.{number}" for number in range(40)]
    told = ReportedSessions()
    told.by_address(frozenset([IP]), 0.0)
    now = crowd(told, forged, 0.0)
    crowd(told, [IP], now)
    assert len(told.by_address(frozenset([IP]), now)[IP]) == datagrams.MAX_POD_PROCESSES


class Hearing(RuleBasedStateMachine):
    """Any pods that say anything at any time."""

    def __init__(self):
        super().__init__()
        self.told = ReportedSessions()
        self.now = 0.0
        self.known = 0

    @rule(pod=st.integers(0, 300), count=st.integers(1, 400), first=st.integers(0, 1000), ended=st.booleans())
    def speak(self, pod, count, first, ended):
        for number in range(count):
            data = datagram(pid=first + number, ended=ended)
            if not self.told.accept(f"10.0.{pod // 256}.{pod % 256}", data, self.now):
                break

    @rule(seconds=st.floats(0, 1000))
    def wait(self, seconds):
        self.now += seconds

    @rule(pods=st.frozensets(st.integers(0, 300), max_size=10))
    def sample(self, pods):
        found = self.told.by_address(frozenset(f"10.0.{pod // 256}.{pod % 256}" for pod in pods), self.now)
        assert all(len(said) <= datagrams.MAX_POD_PROCESSES for said in found.values())
        self.known += len(pods)

    @invariant()
    def what_is_kept_is_counted_and_bounded(self):
        kept = sum(len(pod.datagrams) for pod in self.told._pods.values())
        assert kept == self.told._processes <= datagrams.MAX_PROCESSES + datagrams.POD_ROOM * self.known


TestHearing = Hearing.TestCase
TestHearing.settings = examples(0.2, stateful_step_count=20)


# --- merged -----------------------------------------------------------------------------------------------------------


def report(*containers):
    return NodeReport(node="n", level=Level.PROCESSES, at="", window_s=15.0, containers=containers)


def container(name="serve", uid="u1", *processes):
    return Container(namespace="ns", pod="p-" + uid, uid=uid, name=name, processes=processes)


SAID = Datagram(process=ProcessID("serve", 7), threads=9, sessions=(Session(runtime="onnxruntime", threads=2),))


def test_sessions_come_to_the_process_that_has_spoken():
    seen, other = Process(pid=7, command="python3", threads=5), Process(pid=8, command="sh", threads=1)
    found = datagrams.merged(report(container("serve", "u1", seen, other)), {IP: {SAID.process: SAID}}, {"u1": IP})
    assert found == report(
        container("serve", "u1", Process(pid=7, command="python3", threads=5, sessions=SAID.sessions), other)
    )


def test_where_no_processes_are_seen_those_are_told_of_that_have_spoken():
    found = datagrams.merged(report(container()), {IP: {SAID.process: SAID}}, {"u1": IP})
    assert found.containers[0].processes == (Process(pid=7, command="", threads=9, sessions=SAID.sessions),)


def test_one_that_was_killed_is_no_process_where_the_container_has_fewer_than_have_spoken():
    told = ReportedSessions()
    for now, pid in enumerate((7, 8, 9, 10, 8)):
        told.accept(IP, datagram(pid=pid), float(now))
    heard = told.by_address(frozenset([IP]), 5.0)

    def pids(count):
        merged = datagrams.merged(report(replace(container(), process_count=count)), heard, {"u1": IP})
        return [one.pid for one in merged.containers[0].processes]

    assert [pids(count) for count in (2, 4, 9, None)] == [[10, 8], [7, 9, 10, 8], [7, 9, 10, 8], [7, 9, 10, 8]]


def test_what_only_a_shim_has_told_of_is_no_thread_that_the_agent_has_seen():
    served = Served()
    served.update(datagrams.merged(report(container()), {IP: {SAID.process: SAID}}, {"u1": IP}))
    assert [line for line in served.metrics().decode().splitlines() if not line.startswith("#")] == []


def test_one_that_does_not_know_its_container_is_of_the_only_one():
    nameless = {IP: {ProcessID("", 7): SAID}}
    assert datagrams.merged(report(container()), nameless, {"u1": IP}).containers[0].processes
    two = report(container(), container("other"))
    assert datagrams.merged(two, nameless, {"u1": IP}) == two


@pytest.mark.parametrize(
    ("addresses", "node_ip"),
    [({"u1": "10.0.0.9"}, ""), ({"u1": ""}, ""), ({}, ""), ({"u1": IP, "u2": IP}, ""), ({"u1": IP}, IP)],
    ids=["another's", "none yet", "unknown", "shared with another pod", "the node's"],
)
def test_nothing_is_told_of_a_pod_that_is_not_known_by_its_address(addresses, node_ip):
    seen = report(container())
    assert datagrams.merged(seen, {IP: {SAID.process: SAID}, "": {SAID.process: SAID}}, addresses, node_ip) == seen


# --- heard ------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def listening(told, host):
    """A listener on any port, which has ended when this has."""
    made = datagrams.Listener(told, 0, host)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        yield made
    finally:
        made.close()
        thread.join()


@pytest.mark.parametrize(("host", "to"), [("", "127.0.0.1"), ("", "::1"), ("127.0.0.1", "127.0.0.1")])
def test_what_arrives_by_either_family_counts_for_its_senders_address(host, to):
    told = ReportedSessions()
    with listening(told, host) as listener:
        family = socket.AF_INET6 if ":" in to else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as sender:
            try:
                sender.sendto(datagram(), (to, listener.port))
            except OSError:
                pytest.skip(f"this machine has no {to}")
        wait(lambda: told.by_address(frozenset([to]), time.monotonic()).get(to), "the datagram")


def test_a_flood_of_datagrams_is_dropped_and_the_listener_ends_when_told_to():
    told = ReportedSessions()
    with listening(told, "127.0.0.1") as listener, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for number in range(5000):
            sender.sendto(datagram(pid=number), ("127.0.0.1", listener.port))
        wait(lambda: told.refused["rate"], "refusals")
    assert len(told.by_address(frozenset(["127.0.0.1"]), time.monotonic())["127.0.0.1"]) <= datagrams.MAX_POD_PROCESSES


def test_a_port_that_is_taken_is_said_at_once():
    with listening(ReportedSessions(), "127.0.0.1") as first, pytest.raises(OSError, match="in use"):
        datagrams.Listener(ReportedSessions(), first.port, "127.0.0.1")


class Sampler:
    """Sees a container, and its processes' numbers where it was given any."""

    def __init__(self, processes):
        self.processes = processes
        self.at_s = 0.0

    def sample(self, pods, before):
        self.at_s += 1.0
        (pod,) = pods
        return Sample(self.at_s, {pod.containers[0].id: ContainerSample(Counters(self.at_s), self.processes)})


PROCESS = """
import os, sys
from raddle.process import current
from raddle.report import datagrams, observe
made = observe.created({"observe": "runs"}, runtime="toy", version="1", plan="", effective={"intraOp": 4},
                                                  because={"intraOp": "set in the code"}, facts=current.Facts(3, None))
made["runs"].counts[20], made["runs"].total_ns = 5, 4000000
observe.initialized(made, [])
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("level", [Level.KUBELET, Level.PROCESSES])
def test_what_a_real_process_tells_is_in_the_next_report_of_the_watching_agent(level):
    told, reports = ReportedSessions(), []
    settings = AgentSettings(node_name="n", watch=level, watch_interval_s=1.0)
    runtime = Path(shim_lab.__file__).parents[3] / "runtime"
    with listening(told, "127.0.0.1") as listener:
        environ = {**os.environ, "PYTHONPATH": str(runtime), env.AGENT: f"127.0.0.1:{listener.port}/serve"}
        with subprocess.Popen(
            [sys.executable, "-c", PROCESS], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            pid = int(process.stdout.readline())
            seen = ProcessSample(start_s=0.0, own_pid=pid, command="python3", runtimes=(), thread_count=1, threads={})
            sampler = Sampler({1: seen} if level == Level.PROCESSES else {})
            pod = GovernedPod(
                namespace="ns",
                name="p",
                uid="u1",
                ip="127.0.0.1",
                planned={},
                containers=(GovernedContainer(name="serve", id="c1"),),
            )
            watcher = Watcher(settings, sampler, lambda: [pod], lambda: None, reports.append, told)
            watcher.sample()

            def sessions():
                watcher.sample()
                return [one.sessions for one in reports[-1].containers[0].processes if one.sessions]

            found = wait(sessions, "the sessions")
            process.stdin.close()
            assert process.wait() == 0
    seconds = {"0.00104858": 5, "+Inf": 5}
    expected = Session(runtime="toy", threads=4, source="code", runs=5, run_seconds=seconds, run_seconds_total=0.004)
    assert found == [(expected,)]
    assert reports[-1].containers[0].processes[0].pid == pid
