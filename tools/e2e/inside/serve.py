"""A server with ONNX Runtime as a user writes it who thinks of no threads: default options, a thread a connection.

    serve.py MODEL PORT

It prints a line of JSON, {"threads": those of the session's pool and its caller}, once it listens. `GET /` runs the
model once, `GET /ready` does not. Each request is a connection of its own, as behind a Service.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WARM_UP_RUNS = 5
BACKLOG = 128


def main() -> None:
    """Serve until it is stopped."""
    import numpy as np
    import onnxruntime as ort

    before = threads()
    session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
    pool = threads() - before
    given = session.get_inputs()[0]
    value = np.random.default_rng(7).standard_normal(given.shape, dtype=np.float32)
    for _ in range(WARM_UP_RUNS):
        session.run(None, {given.name: value})

    class Handler(BaseHTTPRequestHandler):
        """Answers one request."""

        def do_GET(self) -> None:
            """Run the model, unless it is asked only whether it could."""
            if self.path == "/":
                session.run(None, {given.name: value})
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        """With room for those who wait while the container is throttled."""

        request_queue_size = BACKLOG

    server = Server(("", int(sys.argv[2])), Handler)
    # The first process of a container is not ended by a signal that it has no handler for.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(json.dumps({"threads": 1 + pool}), flush=True)
    server.serve_forever()


def threads() -> int:
    """How many threads this process has."""
    return len(list(Path("/proc/self/task").iterdir()))


if __name__ == "__main__":
    main()
