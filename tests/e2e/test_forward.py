"""Connections that are carried on, with real sockets."""

import socket
import socketserver
import threading

import pytest

from e2e.forward import forwarded


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)


@pytest.fixture
def echo():
    """The address of a server that says everything back, and ends a connection when its caller does."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_address
        server.shutdown()


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
    with forwarded(("127.0.0.1", 0), echo) as port:
        assert ask(port, data) == data
        assert ask(port, b"again") == b"again"


def test_a_target_that_is_not_there_ends_the_callers_connection():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        target = closed.getsockname()
    with forwarded(("127.0.0.1", 0), target) as port:
        assert ask(port, b"") == b""


def test_an_address_that_is_taken_is_said():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        forwarded(taken.getsockname(), ("127.0.0.1", 1)).__enter__()
