"""Makes sessions as an application would, and prints as JSON what can be seen of them from inside the process.

Runs under Python 3.8 and onnxruntime 1.7 too. Argument: {"model": path, "idle_s": seconds, "before": code to run before
onnxruntime is imported, "environ": {variables to set before that}, "cpus": [its mask, set before that; none: as it is],
"sessions": [null or options, ...]}. Without an argument standard input has such a request in each line, each served by a
fork of its own after numpy is imported; its exit status and what it printed are a line of JSON. Options, all of them
optional:
    intra, inter, parallel, graph   attributes of SessionOptions
    enable_..., use_...      its switches, by their own names
    entries: {key: value}    session config entries
    again: true              the former object again
    plain: true              no object
    model: path              another model
    optimized: path          where the optimized model goes
    profile: prefix          an execution profile is made, looked at and removed
    providers: [...]         names, or [name, {option: value}] pairs
    provider_options: [...]  beside names
    run_options: {}          RunOptions with these entries are passed to each run
    small_first: true        one row is run before the many, where the model lets it
    by: "iobinding"          run_with_iobinding in place of run
    set_providers: [...]     are set on the session afterwards
    drop: true               the session is not kept
    write: {path: text}      files are written first
    native_pool: [2, 1]      onnxruntime.set_global_thread_pool_sizes is called first
    native_arena: true       onnxruntime.create_and_register_allocator is called first

"reached" in the answer are the providers and their options as the native initialize_session is called with them.
"""

import contextlib
import json
import os
import pathlib
import signal
import sys
import time

# numpy's OpenBLAS would start a thread per CPU, which spin at first; nothing here multiplies by it.
BLAS = "OPENBLAS_NUM_THREADS"
GIVEN = os.environ.get(BLAS)
os.environ[BLAS] = "1"
import numpy as np  # noqa: E402

del os.environ[BLAS]
if GIVEN is not None:
    os.environ[BLAS] = GIVEN

# What stands in for onnxruntime's own functions here has frames of its.
__name__ = "onnxruntime.shim_probe"
LIMIT_S = 120


def served():
    """The request that this process serves: its argument, or in a fork one of standard input's; the others' parent ends."""
    if len(sys.argv) > 1:
        return json.loads(sys.argv[1])
    for line in sys.stdin:
        # One at a time: forks that live together are taken for workers of one server.
        with os.fdopen(os.memfd_create("out"), "r+b") as out:
            child = os.fork()
            if child == 0:
                os.dup2(out.fileno(), sys.stdout.fileno())
                signal.alarm(LIMIT_S)
                return json.loads(line)
            status = os.waitpid(child, 0)[1]
            out.seek(0)
            print(json.dumps([status, out.read().decode()]), flush=True)
    sys.exit()


REQUEST = served()
os.environ.update(REQUEST.get("environ") or {})
if REQUEST.get("cpus"):
    os.sched_setaffinity(0, REQUEST["cpus"])
exec(REQUEST.get("before") or "")  # an application's own start, written in the test

import onnxruntime as ort  # noqa: E402
from onnxruntime.capi import _pybind_state  # noqa: E402

POOLS = ("intra", "inter")
CONFIG_KEYS = (
    *(
        f"session.{pool}_op.{key}"
        for pool in POOLS
        for key in ("allow_spinning", "spin_duration_us", "spin_backoff_max")
    ),
    "session.intra_op_thread_affinities",
    "session.force_spinning_stop",
    "session.dynamic_block_base",
    "session.set_denormal_as_zero",
    "session.use_env_allocators",
    "session.use_device_allocator_for_initializers",
    "session.disable_prepacking",
)
ATTRIBUTES = {"intra": "intra_op_num_threads", "inter": "inter_op_num_threads", "optimized": "optimized_model_filepath"}
ATTRIBUTES.update({name: name for name in dir(ort.SessionOptions) if name.startswith(("enable_", "use_"))})


def threads():
    return {int(task.name) for task in pathlib.Path("/proc/self/task").iterdir()}


def settle(pool):
    """Wait until every worker has gone to sleep once: a thread ties itself to its CPUs before it looks for work."""
    deadline = time.monotonic() + 5
    while any(sleeps(tid) == 0 for tid in pool) and time.monotonic() < deadline:
        time.sleep(0.001)


def sleeps(tid):
    """How often a thread has left a CPU by itself; on a busy machine it is taken from it before it is tied."""
    return int(status("voluntary_ctxt_switches", f"/proc/self/task/{tid}/status"))


def status(key, path="/proc/self/status"):
    lines = pathlib.Path(path).read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(key))


def allowed(tid):
    return status("Cpus_allowed_list", f"/proc/self/task/{tid}/status")


def entries(options):
    found = {}
    for key in CONFIG_KEYS:
        with contextlib.suppress(RuntimeError):
            found[key] = options.get_session_config_entry(key)
    return found


def attributes(options):
    found = {key: getattr(options, name) for key, name in ATTRIBUTES.items() if hasattr(options, name)}
    found["mode"] = options.execution_mode.name
    found["graph"] = options.graph_optimization_level.name
    found["entries"] = entries(options)
    return found


def built(wanted, former):
    if wanted is None or wanted.get("plain"):
        return None
    if wanted.get("again"):
        return former
    options = ort.SessionOptions()
    for key, name in ATTRIBUTES.items():
        if key in wanted:
            setattr(options, name, wanted[key])
    if "optimized" in wanted:
        # It warns that such a model is only for this machine.
        options.log_severity_level = 3
    if "profile" in wanted:
        options.enable_profiling = True
        options.profile_file_prefix = wanted["profile"]
    if wanted.get("parallel"):
        options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    if "graph" in wanted:
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, wanted["graph"])
    for key, value in wanted.get("entries", {}).items():
        options.add_session_config_entry(key, value)
    return options


def provider_list(given):
    return [provider if isinstance(provider, str) else tuple(provider) for provider in given]


def made(wanted, options):
    wanted = wanted or {}
    if "native_pool" in wanted:
        ort.set_global_thread_pool_sizes(*wanted["native_pool"])
    if wanted.get("native_arena"):
        state = _pybind_state
        memory = state.OrtMemoryInfo("Cpu", state.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, state.OrtMemType.DEFAULT)
        ort.create_and_register_allocator(memory, None)
    session = ort.InferenceSession(
        wanted.get("model", REQUEST["model"]),
        options,
        providers=provider_list(wanted.get("providers", ["CPUExecutionProvider"])),
        provider_options=wanted.get("provider_options"),
    )
    if "set_providers" in wanted:
        session.set_providers(provider_list(wanted["set_providers"]))
    return session


RUN_OPTIONS = {}


def run_options(wanted):
    """The application's own RunOptions, the same object for each run of the session."""
    if "run_options" not in wanted:
        return None
    if id(wanted) not in RUN_OPTIONS:
        RUN_OPTIONS[id(wanted)] = ort.RunOptions()
        for key, entry in wanted["run_options"].items():
            RUN_OPTIONS[id(wanted)].add_run_config_entry(key, entry)
    return RUN_OPTIONS[id(wanted)]


def run(session, wanted, rows=1024):
    wanted = wanted or {}
    given = session.get_inputs()[0]
    value = np.zeros([size if isinstance(size, int) else rows for size in given.shape], np.float32)
    options = run_options(wanted)
    if wanted.get("by") == "iobinding":
        binding = session.io_binding()
        binding.bind_cpu_input(given.name, value)
        binding.bind_output(session.get_outputs()[0].name)
        session.run_with_iobinding(binding, options)
    else:
        session.run(None, {given.name: value}, options)


def idle(session, wanted, seconds):
    """CPU time of the whole process in the seconds after an answer."""
    run(session, wanted)
    started = time.process_time()
    time.sleep(seconds)
    return time.process_time() - started


def nodes_run_by_caller(profile):
    """Whether the thread that called run() has run a node of the model itself."""
    events = json.loads(profile.read_text())
    profile.unlink()
    callers = {event["tid"] for event in events if event["name"] == "model_run"}
    return not callers.isdisjoint(event["tid"] for event in events if event["cat"] == "Node")


def look(session, wanted, options, pool, idle_s):
    """What can be seen of one session."""
    found = {
        "pool": len(pool),
        "threads": len(threads()),
        "affinity": [allowed(tid) for tid in pool],
        "effective": attributes(session.get_session_options()),
        "providers": session.get_providers(),
        "provider_options": session.get_provider_options(),
    }
    if idle_s:
        found["idle_cpu_s"] = min(idle(session, wanted, idle_s) for _ in range(2))
    if options is not None:
        found["after"] = attributes(options)
    if wanted and "profile" in wanted:
        found["nodes_run_by_caller"] = nodes_run_by_caller(pathlib.Path(session.end_profiling()))
    if wanted and "run_options" in wanted:
        with contextlib.suppress(RuntimeError):
            found["run_entry"] = run_options(wanted).get_run_config_entry("memory.enable_memory_arena_shrinkage")
    found["rss_mb"] = int(status("VmRSS")) / 1024
    return found


def watch_providers():
    """Notes what the extension's own class is called with, below whatever stands in front of it."""
    native = next(
        cls
        for cls in _pybind_state.InferenceSession.__mro__
        if "initialize_session" in vars(cls)
        and (not any("initialize_session" in vars(base) for base in cls.__mro__[1:]))
    )
    initialize = native.initialize_session
    reached = []

    def noted(self, *args):
        reached.append([list(args[0]), [dict(options) for options in args[1]]])
        return initialize(self, *args)

    native.initialize_session = noted
    return reached


def main():
    reached = watch_providers()
    seen, kept, options = [], [], None
    for wanted in REQUEST["sessions"]:
        for path, text in (wanted or {}).get("write", {}).items():
            pathlib.Path(path).write_text(text)
        options = built(wanted, options)
        before = threads()
        session = made(wanted, options)
        pool = sorted(threads() - before)
        if (wanted or {}).get("small_first"):
            run(session, wanted, rows=1)
        run(session, wanted)
        settle(pool)
        seen.append(look(session, wanted, options, pool, (wanted or {}).get("idle_s", REQUEST["idle_s"])))
        if not (wanted and wanted.get("drop")):
            kept.append(session)
        session = None
    record = sys.modules.get("raddle.report.record")
    found = {"sessions": seen, "records": record.sessions if record else [], "version": ort.__version__}
    print(json.dumps({**found, "reached": reached}))


main()
