"""A policy's own variables: which names they may have, and what their values are made of.

A value is one placeholder or one whole number, and a name is one that programs give to a count: a policy can say how
many threads or processes there are, and no file, address, switch or right.
"""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Tuple


class Placeholder(NamedTuple):
    """What stands for a number of the plan; `value` names the function of `values` that computes it."""

    meaning: str
    value: str


PLACEHOLDERS: Dict[str, Placeholder] = {
    "{threads}": Placeholder("threads of one compute pool, as `intraOp`", "compute"),
    "{cpus}": Placeholder("the container's CPUs divided by its workers", "processors"),
    "{workers}": Placeholder("processes that share the container's CPUs", "workers"),
    "{interOp}": Placeholder("threads that run operators side by side, as `interOp`", "inter_op"),
    "{openmp}": Placeholder("as `OMP_NUM_THREADS`", "openmp"),
    "{spinning}": Placeholder("1 where idle threads may spin, else 0", "spins"),
}
# With a known server's own, the plan's annotation has room for them (raddle.env.RESERVED_PLAN).
MAX_VARIABLES = 8
# RE2 reads these as Python does: the API server's rules are made from them.
NAME = "[A-Z][A-Z0-9_]{0,46}[A-Z0-9]"
# How a name ends that is one of a count.
COUNTED = (
    "(^|_)((N|NUM|MAX|MIN)_?(THREAD|CPU|CORE|PROC|WORKER|JOB|PARALLEL)|THREADS|CPUS|CORES|PROCS|PROCESSES|PROCESSORS|"
    "WORKERS|JOBS|CONCURRENCY|PARALLELISM|BLOCKTIME|SPIN|SPINNING|SPINCOUNT|"
    "(THREAD|CPU|CORE|PROC|PROCESS|WORKER|JOB|POOL|THREADPOOL|SPIN)S?_(COUNT|NUM|SIZE)|THREADS_(BATCH|HTTP)|"
    "(THREADS|WORKERS|PROCESSES)_PER_[A-Z]+)$"
)
REFUSED = (
    "^(RADDLE|LD|KUBERNETES|CUDA|OMP)_|(^|_)(ALLOW|ALLOWED|AUTH|BIND|DEBUG|DISABLE|DISABLED|ENABLE|ENABLED|EXEC|"
    "FORCE|GID|INSECURE|LIMIT|ONLY|ROOT|SKIP|TRUST|UID|UNSAFE|USE|USER)(_|$)"
)
VALUE = r"\{(threads|cpus|workers|interOp|openmp|spinning)\}|0|[1-9][0-9]{0,3}"
LONGEST_VALUE = max(map(len, PLACEHOLDERS))
# They say how many processes there are, the first one set counts: not before a policy has, since its counts are of one
# of so many.
OF_PROCESSES = ("WEB_CONCURRENCY", "UVICORN_WORKERS", "TS_DEFAULT_WORKERS_PER_MODEL", "MLSERVER_PARALLEL_WORKERS")


def is_name(name: str) -> bool:
    """Whether a policy may define a variable of this name."""
    counts = re.fullmatch(NAME, name) is not None and re.search(COUNTED, name) is not None
    return counts and re.search(REFUSED, name) is None


def is_value(text: str) -> bool:
    """Whether it is one placeholder or one whole number."""
    return re.fullmatch(VALUE, text) is not None


def value(template: str) -> str:
    """What computes the variable's value from a plan: the name of a function of `values`, or the whole number."""
    placeholder = PLACEHOLDERS.get(template)
    return template if placeholder is None else placeholder.value


def listed() -> Tuple[str, str]:
    """What a name and a value may be, in words."""
    return (
        "in capitals, end like a count (_THREADS, _WORKERS, POOL_SIZE) and contain no word of permissions or switches",
        "one of " + ", ".join(PLACEHOLDERS) + ' or a whole number up to 9999, in quotes, such as "{threads}"',
    )
