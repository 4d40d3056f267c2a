"""The environment contract: every name that crosses from the webhook into a container, and RADDLE_PLAN.

The same names and semantics hold for the Python, Node.js and native shims. This module imports nothing:
it is on the fast path of every Python process in an injected container.

RADDLE_PLAN is flat text, `key=value` joined by `;`, because importing json costs more than the whole
shim may. It is untrusted input (whoever may patch pods/status can edit annotations): numbers, enums and
CPU lists only, never a path, a library or a module name. Unknown keys are ignored, so that an older shim reads a
newer plan of the same version; a version it does not know makes the shim leave the process alone.
"""

from __future__ import annotations

PLAN = "RADDLE_PLAN"
LOG = "RADDLE_LOG"  # "0": no line on stderr
LITERALS = "RADDLE_LITERALS"  # name=value;...: the plain values that the webhook wrote; no shim reads it
REPORT = "RADDLE_REPORT"  # the folder for one report a process; absent: none is asked for
ORT_INTRA = "ORT_INTRA_OP_NUM_THREADS"
ORT_INTER = "ORT_INTER_OP_NUM_THREADS"
OMP = "OMP_NUM_THREADS"
OPENBLAS = "OPENBLAS_NUM_THREADS"

# The container's annotations; the name part is the container's name.
THREADS_PREFIX = "threads.raddle.dev/"
INTER_OP_THREADS_PREFIX = "inter-op-threads.raddle.dev/"
OMP_THREADS_PREFIX = "omp-threads.raddle.dev/"
BLAS_THREADS_PREFIX = "blas-threads.raddle.dev/"
SHIM_PREFIX = "shim.raddle.dev/"
PLAN_PREFIX = "plan.raddle.dev/"
CONTAINER_PREFIXES = (
    THREADS_PREFIX,
    INTER_OP_THREADS_PREFIX,
    OMP_THREADS_PREFIX,
    BLAS_THREADS_PREFIX,
    SHIM_PREFIX,
    PLAN_PREFIX,
)

# The pod's own labels and annotations.
INJECT_LABEL = "raddle.dev/inject"  # on namespaces: enabled | labelled | disabled; on pods: enabled | disabled
POLICY_LABEL = "raddle.dev/policy"
INJECTED_LABEL = "raddle.dev/injected"
DOOR_LABEL = "raddle.dev/door"  # on pods: closed, nothing is mounted at /etc/ld.so.preload
GOVERNED_BY = "raddle.dev/governed-by"
SETTINGS_HASH = "raddle.dev/settings-hash"

# Bytes reserved at CREATE for each value, so that binding can only overwrite within them.
RESERVED_NUMBER = 4
RESERVED_SHIM = 1536
RESERVED_PLAN = 3072

VERSION = 1
MAX_THREADS = 1024
MAX_STREAMS = 65536
MAX_EXCLUSIVE_CPUS = 65536
MAX_PLAN_TEXT = 4096
MAX_GPU_MEM_BYTES = 10**19 - 1
MAX_LIST_TEXT = 1024
SPINNING = ("never", "bounded", "always")
EXECUTION_MODES = ("sequential", "parallel")
AFFINITY = ("none", "numa", "core")
EXISTING = ("respect", "override")
GRAPH_LEVELS = ("disable", "basic", "extended", "all")
OBSERVE = ("none", "sessions", "runs")
NUMA = ("single", "any")
CORE_TYPES = ("performance", "efficient", "any")
ALLOCATORS = ("system", "mimalloc", "jemalloc", "tcmalloc")

_SWITCH = (0, 1)
# ONNX Runtime's session configuration entries that a policy may set, under ONNX Runtime's own key -> (lowest, highest).
# None names a file or a library: onnxruntime_session_options_config_keys.h.
CONFIG_ENTRIES: dict[str, tuple[int, int]] = {
    "session.intra_op.allow_spinning": _SWITCH,
    "session.inter_op.allow_spinning": _SWITCH,
    "session.intra_op.spin_duration_us": (-1, 9999999),
    "session.inter_op.spin_duration_us": (-1, 9999999),
    "session.intra_op.spin_backoff_max": (1, 64),
    "session.inter_op.spin_backoff_max": (1, 64),
    "session.force_spinning_stop": _SWITCH,
    "session.dynamic_block_base": (1, 9999),
    "session.set_denormal_as_zero": _SWITCH,
    "session.use_env_allocators": _SWITCH,
    "session.use_device_allocator_for_initializers": _SWITCH,
    "session.disable_prepacking": _SWITCH,
}
# Execution provider -> (the plan's prefix for its options, option -> (lowest, highest) or the words allowed).
PROVIDERS: dict[str, tuple[str, dict[str, tuple[int, int] | tuple[str, ...]]]] = {
    "CUDAExecutionProvider": (
        "cuda.",
        {
            "arena_extend_strategy": ("kNextPowerOfTwo", "kSameAsRequested"),
            "cudnn_conv_algo_search": ("EXHAUSTIVE", "HEURISTIC", "DEFAULT"),
            "cudnn_conv_use_max_workspace": _SWITCH,
            "cudnn_conv1d_pad_to_nc1d": _SWITCH,
            "do_copy_in_default_stream": _SWITCH,
            "enable_cuda_graph": _SWITCH,
            "use_tf32": _SWITCH,
            "fuse_conv_bias": _SWITCH,
            "gpu_mem_limit": (0, MAX_GPU_MEM_BYTES),
            "prefer_nhwc": _SWITCH,
            "sdpa_kernel": (0, 65535),
            "use_ep_level_unified_stream": _SWITCH,
        },
    ),
    "OpenVINOExecutionProvider": (
        "openvino.",
        {"num_of_threads": (0, MAX_THREADS), "num_streams": (0, MAX_THREADS)},
    ),
    "XnnpackExecutionProvider": ("xnnpack.", {"intra_op_num_threads": (0, MAX_THREADS)}),
}
# Keys of the two tables that change results or need the application's help: a policy has to name them twice.
ACKNOWLEDGED = ("enable_cuda_graph", "use_tf32", "session.set_denormal_as_zero")

# key -> (lowest, highest)
_NUMBERS: dict[str, tuple[int, int]] = {
    "intra": (1, MAX_THREADS),  # absent: leave the count alone
    "env_intra": (1, MAX_THREADS),  # Raddle's own count in ORT_INTRA; absent: intra
    "inter": (1, MAX_THREADS),
    "spin_us": (0, 1000000),
    "excl_always": _SWITCH,  # 1: what may spin for a time spins without end where the CPUs are the exclusive ones
    "over_quota": _SWITCH,  # 1: the counts may be above the quota's CPUs
    "excl": (0, MAX_EXCLUSIVE_CPUS),  # CPUs that are expected to be exclusive; 0: shared
    "smt": _SWITCH,  # 1: use all threads of a core
    "streams": (1, MAX_STREAMS),  # workers x sessions that share the container's CPUs
    "workers": (1, MAX_STREAMS),
    "runs": (1, MAX_STREAMS),  # callers that run at the same time in one process
    "min": (1, MAX_THREADS),
    "max": (1, MAX_THREADS),
    "min_inter": (1, MAX_THREADS),
    "floor": _SWITCH,  # 1: throughput, a fractional quota is rounded down; 0: latency, up
    "omp": (1, MAX_THREADS),
    "blas": (1, MAX_THREADS),
    "torch_inter": (1, MAX_THREADS),  # absent: leave torch's inter-op pool alone
    "gpu": _SWITCH,  # 1: the container has a GPU
    # How ONNX Runtime's sessions of a process share; absent and 0 of the first two: each has its own.
    "global": _SWITCH,  # 1: one thread pool for all
    "global_intra": (1, MAX_THREADS),  # that pool's size; absent: intra
    "shared_arena": _SWITCH,
    # Absent: leave the application's.
    "arena": _SWITCH,
    "mem_pattern": _SWITCH,
    "shrink": _SWITCH,  # 1: give the arena's unused memory back after each run
    **CONFIG_ENTRIES,
}
# key -> the words allowed
_WORDS: dict[str, tuple[str, ...]] = {
    "spin": SPINNING,
    "mode": EXECUTION_MODES,
    "graph": GRAPH_LEVELS,  # absent: leave the application's
    "aff": AFFINITY,
    "numa": NUMA,  # absent: one NUMA node where it holds enough of the CPUs
    "ctype": CORE_TYPES,  # absent: the fastest that there are, never two kinds in one pool
    "existing": EXISTING,
    "observe": OBSERVE,  # absent: sessions
    "alloc": ALLOCATORS,  # absent: system
}
for _prefix, _options in PROVIDERS.values():
    for _option, _allowed in _options.items():
        _table: dict[str, tuple[int, int]] | dict[str, tuple[str, ...]]
        _table = _WORDS if isinstance(_allowed[0], str) else _NUMBERS
        _table[_prefix + _option] = _allowed  # type: ignore[assignment]  # the first item tells which it is
# The node, for a container with exclusive CPUs (`machine_part`): CPU lists as the kernel's, several of them joined by
# "|". One that can't be used is "", and then the CPUs are only counted.
LISTS = (
    "cpus",  # CPUs of the node; absent: nothing is known of it
    "cores",  # first threads of the cores that have several, then their second ones in the same order, and so on
    "nodes",  # NUMA nodes by number
    "sockets",  # absent: none divides a NUMA node; likewise L3 domains
    "l3",
    "kinds",  # kinds of core, the slowest first; absent: one
    "slow",  # how many of them are the slow ones that a pool leaves out together; absent: each is for itself
    "isolated",
    "gpu_nodes",  # which of the NUMA nodes have a GPU, counted from 0
)
_LIST_CHARACTERS = "0123456789,-:/|"
_KEYS = (*_NUMBERS, *_WORDS, *LISTS)


class PlanError(ValueError):
    """RADDLE_PLAN that can't be used; the message names the part, what was there and what is allowed."""


def encode(fields: dict[str, object]) -> str:
    """RADDLE_PLAN for these fields (None and absent are left out). Raises PlanError for a value outside its bounds."""
    parts = [f"v={VERSION}"]
    for key in _KEYS:
        value = fields.get(key)
        if value is not None:
            if _check(key, str(value)) == "" != value:
                raise PlanError(f"plan field {key}={value!r:.40} must be CPU lists")
            parts.append(f"{key}={value}")
    return ";".join(parts)


def decode(text: str) -> dict[str, int | str]:
    """The fields of RADDLE_PLAN: integers as int, words and lists as str; absent keys are absent. Raises PlanError."""
    if len(text) > MAX_PLAN_TEXT:
        raise PlanError(f"plan is {len(text)} characters long, at most {MAX_PLAN_TEXT} are allowed")
    fields: dict[str, int | str] = {}
    version = None
    for part in text.split(";"):
        key, equals, value = part.partition("=")
        if not equals:
            raise PlanError(f"plan part {part[:40]!r} is not key=value")
        if key == "v":
            version = value
        elif key in _KEYS:
            fields[key] = _check(key, value)
    if version != str(VERSION):
        raise PlanError(f"plan version is {version and version[:20]!r}, this shim reads version {VERSION}")
    return fields


def _check(key: str, value: str) -> int | str:
    if key in LISTS:
        return value if len(value) <= MAX_LIST_TEXT and not value.strip(_LIST_CHARACTERS) else ""
    if key in _WORDS:
        if value not in _WORDS[key]:
            raise PlanError(f"plan field {key}={value[:40]!r} must be one of {', '.join(_WORDS[key])}")
        return value
    low, high = _NUMBERS[key]
    digits = value[1:] if low < 0 and value.startswith("-") else value
    # Bounded before int(): a number of a million digits takes seconds to read.
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20 and low <= int(value) <= high):
        raise PlanError(f"plan field {key}={value[:40]!r} must be an integer from {low} to {high}")
    return int(value)
