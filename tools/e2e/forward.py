"""Carries TCP connections from the nodes to the API server, which listens on the loopback interface only."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator

CHUNK_BYTES = 1 << 16


@contextlib.contextmanager
def forwarded(listen: tuple[str, int], target: tuple[str, int]) -> Iterator[int]:
    """Connect who calls `listen` to `target`; the port that listens is given, as 0 is any.

    Connections that are open at the end of the block last until one of their ends is closed. Raises OSError where the
    address can't be had.
    """

    class Carry(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError), socket.create_connection(target) as there:
                back = threading.Thread(target=_copy, args=(there, self.request), daemon=True)
                back.start()
                _copy(self.request, there)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
        block_on_close = False
        request_queue_size = 128

    with Server(listen, Carry) as server:
        threading.Thread(target=server.serve_forever, name="forward", daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Until `source` says no more, which `sink` is told."""
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
