"""The environment contract: every name that crosses from the webhook into a container, and RADDLE_PLAN.

The same names and semantics hold for the Python, Node.js and native shims. This module imports nothing:
it is on the fast path of every Python process in an injected container.

RADDLE_PLAN is flat text, `key=value` joined by `;`, because importing json costs more than the whole
shim may. It is untrusted input (whoever may patch pods/status can edit annotations): numbers and enums
only, never a path, a library or a module name. Unknown keys are ignored, so that an older shim reads a
newer plan of the same version; a version it does not know makes the shim leave the process alone.
"""

from __future__ import annotations

PLAN = "RADDLE_PLAN"
LOG = "RADDLE_LOG"  # "0": no line on stderr
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
GOVERNED_BY = "raddle.dev/governed-by"
SETTINGS_HASH = "raddle.dev/settings-hash"

# Bytes reserved at CREATE for each value, so that binding can only overwrite within them.
RESERVED_NUMBER = 4
RESERVED_SHIM = 512
RESERVED_PLAN = 2048

VERSION = 1
MAX_THREADS = 1024
MAX_STREAMS = 65536
MAX_EXCLUSIVE_CPUS = 65536
MAX_PLAN_TEXT = 4096
SPINNING = ("never", "bounded", "always")
EXECUTION_MODES = ("sequential", "parallel")
AFFINITY = ("none", "numa", "core")
EXISTING = ("respect", "override")
GRAPH_LEVELS = ("disable", "basic", "extended", "all")

# key -> (lowest, highest)
_NUMBERS = {
    "intra": (1, MAX_THREADS),  # absent: leave the count alone
    "inter": (1, MAX_THREADS),
    "spin_us": (0, 1000000),
    "excl": (0, MAX_EXCLUSIVE_CPUS),  # CPUs that are expected to be exclusive; 0: shared
    "smt": (0, 1),  # 1: use all threads of a core
    "streams": (1, MAX_STREAMS),  # workers x sessions that share the container's CPUs
    "workers": (1, MAX_STREAMS),
    "min": (1, MAX_THREADS),
    "max": (1, MAX_THREADS),
    "floor": (0, 1),  # 1: throughput, a fractional quota is rounded down; 0: latency, up
    "omp": (1, MAX_THREADS),
    "blas": (1, MAX_THREADS),
}
# key -> the words allowed
_WORDS = {
    "spin": SPINNING,
    "mode": EXECUTION_MODES,
    "graph": GRAPH_LEVELS,  # absent: leave the application's
    "aff": AFFINITY,
    "existing": EXISTING,
}
_KEYS = (*_NUMBERS, *_WORDS)


class PlanError(ValueError):
    """RADDLE_PLAN that can't be used; the message names the part, what was there and what is allowed."""


def encode(fields: dict[str, object]) -> str:
    """RADDLE_PLAN for these fields (None and absent are left out). Raises PlanError for a value outside its bounds."""
    parts = [f"v={VERSION}"]
    for key in _KEYS:
        value = fields.get(key)
        if value is not None:
            _check(key, str(value))
            parts.append(f"{key}={value}")
    return ";".join(parts)


def decode(text: str) -> dict[str, int | str]:
    """The fields of RADDLE_PLAN: integers as int, words as str; absent keys are absent. Raises PlanError."""
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
    if key in _WORDS:
        if value not in _WORDS[key]:
            raise PlanError(f"plan field {key}={value[:40]!r} must be one of {', '.join(_WORDS[key])}")
        return value
    low, high = _NUMBERS[key]
    if not (value.isascii() and value.isdigit() and len(value) <= 7 and low <= int(value) <= high):
        raise PlanError(f"plan field {key}={value[:40]!r} must be an integer from {low} to {high}")
    return int(value)
