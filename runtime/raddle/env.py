"""The environment contract: every name that crosses from the webhook into a container, and RADDLE_PLAN.

The same names and semantics hold for the Python and the native shim. The plan's keys and their bounds are in `keys`,
which is made from `raddle.planning`. Each Python process that imports a runtime compiles both again: they are short.

RADDLE_PLAN is flat text, `key=value` joined by `;`, because importing json costs more than the whole
shim may. It is untrusted input (anyone who may patch pods/status can edit annotations): numbers, enums and
CPU lists only, never a path, a library or a module name. Unknown keys are ignored, so that an older shim reads a
newer plan of the same version; a version it does not know makes the shim leave the process alone.
"""

from __future__ import annotations

import os

from raddle import COMPLETED as _COMPLETED
from raddle import in_c, in_list
from raddle.keys import NUMBERS, WORDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Mapping

PLAN = "RADDLE_PLAN"
LITERALS = "RADDLE_LITERALS"  # name=value;...: the plain values that the webhook wrote, and those to complete
COMPLETED = "RADDLE_COMPLETED"  # name=value;...: what the door has completed in this process
AGENT = "RADDLE_AGENT"  # host:port/container: the node's agent, an address, and as whom to speak; absent: to nobody
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
MAX_LIST_TEXT = 1024

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
_KEYS = (*NUMBERS, *WORDS, *LISTS)


class PlanError(ValueError):
    """RADDLE_PLAN that can't be used; the message names the part, what was there and what is allowed."""


def complete(name: str, value: str) -> None:
    """Changes what the door has completed: in C's environment, and in the list by which a child's door takes it out."""
    _COMPLETED[name] = value
    os.putenv(name, in_c(name, value))
    os.putenv(COMPLETED, in_list(_COMPLETED))


def effective(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that this process's libraries see: those of its environment, and what the door has completed."""
    return {**_COMPLETED, **environ}


def encode(fields: dict[str, object]) -> str:
    """RADDLE_PLAN for these fields (None and absent are left out). Raises PlanError for a value outside its bounds."""
    parts = [f"v={VERSION}"]
    for key in _KEYS:
        value = fields.get(key)
        if value is not None:
            text = str(value)
            if _check(key, text) == "" != text:
                raise PlanError(f"plan field {key}={value!r:.40} must be CPU lists")
            parts.append(f"{key}={text}")
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
    if key in NUMBERS:
        low, high = NUMBERS[key]
        digits = value[1:] if low < 0 and value.startswith("-") else value
        # Bounded before int(): a number of a million digits takes seconds to read.
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 20 and low <= int(value) <= high):
            raise PlanError(f"plan field {key}={value[:40]!r} must be an integer from {low} to {high}")
        return int(value)
    if key in WORDS:
        if value not in WORDS[key]:
            raise PlanError(f"plan field {key}={value[:40]!r} must be one of {', '.join(WORDS[key])}")
        return value
    return value if len(value) <= MAX_LIST_TEXT and not value.strip(_LIST_CHARACTERS) else ""
