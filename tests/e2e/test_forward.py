"""Connections that are carried on, with real sockets."""

import socket
import threading

import pytest

from e2e.forward import Forward


@pytest.fixture
def echo():
    """A server that says everything back, and ends a connection when its caller does."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(65536):
                    connection.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def ask(port, data):
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


def test_bytes_go_there_and_back(echo):
    data = bytes(range(256)) * 4096
    with Forward(("127.0.0.1", 0), echo) as forward:
        assert ask(forward.port, data) == data
        assert ask(forward.port, b"again") == b"again"


def test_a_target_that_is_not_there_ends_the_callers_connection():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        target = closed.getsockname()
    with Forward(("127.0.0.1", 0), target) as forward:
        assert ask(forward.port, b"") == b""


def test_an_open_connection_does_not_keep_it_from_ending(echo):
    with Forward(("127.0.0.1", 0), echo) as forward:
        connection = socket.create_connection(("127.0.0.1", forward.port), timeout=10)
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
    with connection:
        assert connection.recv(1) == b""


def test_an_address_that_is_taken_is_said():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        Forward(taken.getsockname(), ("127.0.0.1", 1)).__enter__()
