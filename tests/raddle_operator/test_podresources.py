"""The PodResources client against a real gRPC server (grpcio), and against servers that are none."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.podresources_server import CALL, devices, packed, serving, varint

from raddle.cpus import cpuset
from raddle_operator.agent import podresources
from raddle_operator.agent.podresources import PodResourcesError, allocatable_cpus


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    path = tmp_path_factory.mktemp("pod-resources") / "kubelet.sock"
    with serving(path) as kubelet:
        yield path, kubelet


@pytest.mark.parametrize("cpus", [(), (0,), (1, 2, 3), tuple(range(2, 1024)), (0, 65535)])
def test_the_cpus_are_those_of_the_answer(served, cpus):
    path, kubelet = served
    kubelet.answer = packed(cpus)
    assert allocatable_cpus(path) == cpuset.of(list(cpus))
    assert kubelet.asked[-1] == CALL


def test_devices_and_memory_are_passed_over_however_many_there_are(served):
    path, kubelet = served
    # More than the windows that HTTP/2 starts with: the client must give back what it has read.
    kubelet.answer = devices(3_000_000) + packed([4, 5]) + varint(3 << 3 | 2) + varint(2) + b"ab"
    assert allocatable_cpus(path) == cpuset.of([4, 5])


def test_ids_may_come_one_by_one(served):
    path, kubelet = served
    kubelet.answer = varint(2 << 3) + varint(7) + packed([1]) + varint(2 << 3) + varint(9)
    assert allocatable_cpus(path) == cpuset.of([1, 7, 9])


def test_a_kubelet_without_the_call_says_so(served):
    path, kubelet = served
    kubelet.answer = grpc.StatusCode.UNIMPLEMENTED
    with pytest.raises(PodResourcesError, match=r"gRPC status 12 not here, sorry: 100 %"):
        allocatable_cpus(path)


@pytest.mark.parametrize(
    "answer",
    [b"\x12", b"\x12\x05\x01", b"\x13", b"\x80" * 11, packed([65536]), packed([2**63]), b"\x11\x00", b"\x0a\xff\x01a"],
)
def test_a_message_of_another_kind_is_refused(served, answer):
    path, kubelet = served
    kubelet.answer = answer
    with pytest.raises(PodResourcesError, match="no AllocatableResourcesResponse"):
        allocatable_cpus(path)


def test_an_answer_without_end_is_cut_off(served):
    path, kubelet = served
    kubelet.answer = devices(podresources.MAX_ANSWER_BYTES)
    with pytest.raises(PodResourcesError, match=r"longer than|gRPC status|the call was ended"):
        allocatable_cpus(path)


@given(st.binary(max_size=64))
def test_no_message_does_more_than_be_refused(message):
    with contextlib.suppress(IndexError, ValueError):
        assert all(0 <= cpu < cpuset.MAX_CPUS for cpu in podresources._cpu_ids(message))


def test_without_a_socket_nobody_answers(tmp_path):
    with pytest.raises(FileNotFoundError):
        allocatable_cpus(tmp_path / "none.sock")


@contextlib.contextmanager
def listening(tmp_path, said):
    """A server that says so many bytes and then, for None, nothing more; else it closes."""
    path = tmp_path / "other.sock"
    over = threading.Event()

    def serve():
        stream, _ = server.accept()
        with stream:
            stream.recv(65536)
            if said is None:
                over.wait()
            else:
                stream.sendall(said)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00" * 100])
def test_a_server_of_another_protocol_is_refused(tmp_path, said):
    with listening(tmp_path, said) as path, pytest.raises((PodResourcesError, ConnectionError)):
        allocatable_cpus(path)


def test_a_server_that_says_nothing_is_left(tmp_path):
    with listening(tmp_path, None) as path, pytest.raises(TimeoutError):
        allocatable_cpus(path, timeout_s=0.1)


def test_an_agent_that_is_not_told_to_ask_carries_no_http2():
    script = "import sys, raddle_operator.agent.process; assert not {'h2', 'hpack', 'hyperframe'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", script], check=True)
