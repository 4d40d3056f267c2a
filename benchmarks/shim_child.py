"""The measured process of `shim.py`: makes onnxruntime sessions and prints their times as JSON."""

from __future__ import annotations

import json
import socket
import sys
import time
from typing import Any


def first(model: str, *, planned: bool) -> dict[str, float]:
    """Milliseconds of the import and of the first session in this process; without a plan it has the same settings."""
    started = time.perf_counter()
    import onnxruntime

    imported = time.perf_counter()
    options = onnxruntime.SessionOptions() if planned else _as_planned()
    before = time.perf_counter()
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return {"import": (imported - started) * 1000, "session": (time.perf_counter() - before) * 1000}


def _as_planned() -> Any:
    """What the plan of `shim.py` comes to, set in code."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def later(model: str, repetitions: int) -> dict[str, list[float]]:
    """Milliseconds of sessions in turns: the wrapper, and the constructor that it wraps, with the same settings."""
    import onnxruntime
    from onnxruntime.capi import _pybind_state as binding

    wrapped = binding.InferenceSession
    original = wrapped.__mro__[1]
    result: dict[str, list[float]] = {}

    def make(constructor: Any, options: Any) -> float:
        started = time.perf_counter()
        session = constructor(options, model, True, False)
        session.initialize_session([], [], set())
        return (time.perf_counter() - started) * 1000

    for turn in range(repetitions + 10):
        once = {
            "default options, with": make(wrapped, binding.get_default_session_options()),
            "default options, without": make(original, _as_planned()),
            "the code's options, with": make(wrapped, onnxruntime.SessionOptions()),
            "the code's options, without": make(original, _as_planned()),
        }
        if turn >= 10:
            for what, value in once.items():
                result.setdefault(what, []).append(value)
    return result


def runs(model: str, repetitions: int) -> dict[str, list[float]]:
    """Microseconds of a run in turns of a hundred: counted as with observe=runs, and not."""
    import numpy as np
    import onnxruntime
    from onnxruntime.capi import _pybind_state as binding

    from raddle.report import observe

    session = binding.InferenceSession(onnxruntime.SessionOptions(), model, True, False)
    session.initialize_session([], [], set())
    bare = binding.InferenceSession.__mro__[1].run
    counted = observe.timed(bare)
    session.raddle = {"runs": observe.Runs()}
    feed = {"x": np.zeros(1, np.float32)}
    result: dict[str, list[float]] = {"with": [], "without": []}

    def turn(run: Any) -> float:
        started = time.perf_counter()
        for _ in range(100):
            run(session, ["y"], feed, None)
        return (time.perf_counter() - started) * 10000

    for number in range(repetitions + 10):
        once = {"with": turn(counted), "without": turn(bare)}
        if number >= 10:
            for what, value in once.items():
                result[what].append(value)
    return result


def tell(repetitions: int) -> dict[str, list[float]]:
    """Percent of a CPU that it takes to tell the agent of one session, and of as many as are kept, whose runs come."""
    from raddle.report import datagrams, observe, record

    result: dict[str, list[float]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as agent:
        agent.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{agent.getsockname()[1]}/serve"
        for name, count in (("one", 1), ("all", record.MAX_SESSIONS)):
            sizes = [1 + number % 20 for number in range(count)]
            record.sessions[:] = [
                {"runtime": "onnxruntime", "effective": {"intraOp": size}, "runs": observe.Runs()} for size in sizes
            ]
            sender = datagrams.DatagramSender()
            for turn in range(repetitions + 10):
                took_s = 0.0
                # As the thread of observe=runs looks, while runs come all the time.
                for sample in range(6):
                    for session in record.sessions:
                        session["runs"].counts[18 + turn % 16] += 1
                    before = time.process_time()
                    sender.send_if_due(where, 60.0 * turn + observe.REPEAT_EVERY_S * sample)
                    took_s += time.process_time() - before
                if turn >= 10:
                    result.setdefault(name, []).append(took_s / 60 * 100)
    return result


def main() -> None:
    """Arguments: first, first-planned, later, runs or tell, the model, how many sessions or turns of each kind."""
    what, model, repetitions = sys.argv[1:]
    result: Any
    if what == "tell":
        result = tell(int(repetitions))
    elif what in ("later", "runs"):
        result = (later if what == "later" else runs)(model, int(repetitions))
    else:
        result = first(model, planned=what == "first-planned")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
