"""Makes sessions as an application would, and prints as JSON what can be seen of them from inside the process.

Runs under Python 3.8 too. Argument: {"model": path, "idle_s": seconds, "sessions": [null or options, ...]}; options:
{"intra", "inter", "parallel", "graph", "entries": {key: value}, "again": true to use the former object again}.
"""

import contextlib
import json
import pathlib
import sys
import time

import numpy as np
import onnxruntime as ort

CONFIG_KEYS = (
    "session.intra_op.allow_spinning",
    "session.intra_op.spin_duration_us",
    "session.inter_op.allow_spinning",
    "session.intra_op_thread_affinities",
)


def threads():
    return {int(task.name) for task in pathlib.Path("/proc/self/task").iterdir()}


def settle(pool):
    """Wait until every worker has run once: a thread ties itself to its CPUs before it looks for work, not before birth."""
    deadline = time.monotonic() + 5
    while any(switches(tid) == 0 for tid in pool) and time.monotonic() < deadline:
        time.sleep(0.001)


def switches(tid):
    """How often a thread has left a CPU, in and out of order."""
    lines = pathlib.Path(f"/proc/self/task/{tid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if "voluntary_ctxt_switches" in line)


def allowed(tid):
    lines = pathlib.Path(f"/proc/self/task/{tid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list"))


def entries(options):
    found = {}
    for key in CONFIG_KEYS:
        with contextlib.suppress(RuntimeError):
            found[key] = options.get_session_config_entry(key)
    return found


def attributes(options):
    return {
        "intra": options.intra_op_num_threads,
        "inter": options.inter_op_num_threads,
        "mode": options.execution_mode.name,
        "graph": options.graph_optimization_level.name,
        "entries": entries(options),
    }


def built(wanted, former):
    if wanted is None:
        return None
    if wanted.get("again"):
        return former
    options = ort.SessionOptions()
    if "intra" in wanted:
        options.intra_op_num_threads = wanted["intra"]
    if "inter" in wanted:
        options.inter_op_num_threads = wanted["inter"]
    if wanted.get("parallel"):
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    if "graph" in wanted:
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, wanted["graph"])
    for key, value in wanted.get("entries", {}).items():
        options.add_session_config_entry(key, value)
    return options


def run(session):
    given = session.get_inputs()[0]
    session.run(None, {given.name: np.zeros(given.shape, np.float32)})


def idle(session, seconds):
    """CPU time of the whole process in the seconds after an answer."""
    run(session)
    started = time.process_time()
    time.sleep(seconds)
    return time.process_time() - started


def main():
    request = json.loads(sys.argv[1])
    seen, kept, options = [], [], None
    for wanted in request["sessions"]:
        options = built(wanted, options)
        before = threads()
        session = ort.InferenceSession(request["model"], options, providers=["CPUExecutionProvider"])
        pool = sorted(threads() - before)
        run(session)
        settle(pool)
        found = {
            "pool": len(pool),
            "affinity": [allowed(tid) for tid in pool],
            "effective": attributes(session.get_session_options()),
        }
        if request["idle_s"]:
            found["idle_cpu_s"] = min(idle(session, request["idle_s"]) for _ in range(3))
        if options is not None:
            found["after"] = attributes(options)
        seen.append(found)
        kept.append(session)
    record = sys.modules.get("raddle.record")
    print(json.dumps({"sessions": seen, "records": record.sessions if record else [], "version": ort.__version__}))


main()
