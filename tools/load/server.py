"""The measured process: it serves a model the way an unsuspecting user writes it.

Run as a file, not as a module, so that its environment is exactly what the caller gives it. It says on stdout, as one
line of JSON, that it is ready and what it is; it serves until its stdin closes. Each connection is one caller: a thread
of its own that reads a request of a few bytes, runs the model on an input made beforehand, and writes the bytes back.
`--packages` stands for the image's own site-packages: an entry added in code changes neither the environment nor what
a `.pth` of the user site did before.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import pathlib
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

INPUTS = 16


def main() -> None:
    """Load, announce, serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runtime", choices=("onnxruntime", "torch"), default="onnxruntime")
    parser.add_argument("--model")  # an ONNX file
    parser.add_argument("--network", type=int, nargs=3, metavar=("SIDE", "CHANNELS", "LAYERS"))  # torch's
    parser.add_argument("--socket", required=True)
    parser.add_argument("--packages", action="append", default=[])
    parser.add_argument("--blas-side", type=int, default=0)
    # What a user can write into the code of ONNX Runtime: a count; never, always or microseconds.
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--spin", default="default")
    arguments = parser.parse_args()
    sys.path.extend(arguments.packages)
    make = {"onnxruntime": _onnxruntime, "torch": _torch}[arguments.runtime]
    answer, version, pool_threads = make(arguments)

    # Lazy work of the first runs belongs to start-up.
    for number in range(3):
        answer(number)

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(arguments.socket)
    listener.listen(64)
    threading.Thread(target=_accept, args=(listener, answer), daemon=True).start()
    ready = {
        "version": version,
        "pool_threads": pool_threads,
        "raddle": any(name.startswith("raddle") for name in sys.modules),
    }
    print(json.dumps(ready), flush=True)
    sys.stdin.read()  # the parent is gone or has had enough
    os._exit(0)


Answer = Callable[[int], object]
# Each maker returns what answers a request, the runtime's version, and the threads of its pool, the caller included.


def _onnxruntime(arguments: argparse.Namespace) -> tuple[Answer, str, int]:
    import numpy as np
    import onnxruntime

    before = _threads()
    if arguments.threads or arguments.spin != "default":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = arguments.threads
        if arguments.spin != "default":
            allowed = "0" if arguments.spin == "never" else "1"
            options.add_session_config_entry("session.intra_op.allow_spinning", allowed)
        if arguments.spin.isdigit():
            options.add_session_config_entry("session.intra_op.spin_duration_us", arguments.spin)
        session = onnxruntime.InferenceSession(arguments.model, options)
    else:
        session = onnxruntime.InferenceSession(arguments.model)
    pool_threads = _threads() - before + 1
    rng = np.random.default_rng(7)
    feed = session.get_inputs()[0]
    images = [rng.standard_normal(feed.shape, dtype=np.float32) for _ in range(INPUTS)]
    left, right = (rng.standard_normal((arguments.blas_side,) * 2, dtype=np.float32) for _ in range(2))

    def answer(number: int) -> None:
        if arguments.blas_side:
            np.matmul(left, right)
        session.run(None, {feed.name: images[number % INPUTS]})

    return answer, str(onnxruntime.__version__), pool_threads


def _torch(arguments: argparse.Namespace) -> tuple[Answer, str, int]:
    """Convolutions of the same sizes, scripted."""
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(7)
    side, channels, layers = arguments.network
    steps: list[Any] = []
    for depth in (3, *[channels] * (layers - 1)):
        steps += [torch.nn.Conv2d(depth, channels, 3, padding=1), torch.nn.ReLU()]
    network = torch.jit.script(torch.nn.Sequential(*steps).eval())
    images = [torch.randn(1, 3, side, side) for _ in range(INPUTS)]

    def answer(number: int) -> None:
        with torch.no_grad():
            network(images[number % INPUTS])

    before = _threads()
    answer(0)
    return answer, str(torch.__version__), _threads() - before + 1


def _threads() -> int:
    return len(list(pathlib.Path("/proc/self/task").iterdir()))


def _accept(listener: socket.socket, answer: Answer) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_serve, args=(connection, answer), daemon=True).start()


def _serve(connection: socket.socket, answer: Answer) -> None:
    for number in itertools.count():
        request = connection.recv(8)
        if not request:
            return
        answer(number)
        connection.sendall(request)


if __name__ == "__main__":
    main()
