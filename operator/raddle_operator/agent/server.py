"""The agent's port: GET /v1/report, /metrics and /livez, of answers that are made already.

Whoever can reach the port may ask, so a client takes one of a few places, and only for some seconds.
"""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

MOST_CLIENTS: Final = 16
CLIENT_TIMEOUT_S: Final = 10.0

Answer = tuple[HTTPStatus, str, bytes]
TEXT: Final = "text/plain; charset=utf-8"


class Server(http.server.ThreadingHTTPServer):
    """Answers GET of the paths that it is given, over IPv6 and IPv4 where the machine has both."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, answers: Mapping[str, Callable[[], Answer]], host: str = "") -> None:
        self.answers = answers
        self._places = threading.BoundedSemaphore(MOST_CLIENTS)
        dual = not host and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler, bind_and_activate=False)
        try:
            if dual:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self.server_bind()
            self.server_activate()
        except OSError:
            self.server_close()
            raise

    def server_bind(self) -> None:
        """Binds, without HTTPServer's look-up of the host's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "agent", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answers in a thread of its own; closes the connection where all places are taken."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answers, and gives the place back."""
        # A client that sends a byte now and then would never be too late for a single read.
        end = threading.Timer(CLIENT_TIMEOUT_S, _shut, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients come and go as they like: that is for no log."""


class _Handler(http.server.BaseHTTPRequestHandler):
    # HTTP/1.0: a connection for each request, so that nobody keeps a place.
    protocol_version = "HTTP/1.0"
    server: Server

    def do_GET(self) -> None:
        """Answers."""
        answer = self.server.answers.get(self.path.partition("?")[0])
        status, kind, body = answer() if answer else (HTTPStatus.NOT_FOUND, TEXT, b"not found\n")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """What the Server header says."""
        return "raddle-agent"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the library's name)
        """Nothing: a line for each probe would hide the rest."""


def _shut(request: socket.socket) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)
