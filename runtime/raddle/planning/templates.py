"""A policy's own variables: which names they may have, and what their values are made of.

A value is one placeholder or one whole number, and a name is one that programs give to a count: a policy can say how
many threads or processes there are, and nothing else. So who may write policies can't make a program load code, open
a door or take another's rights by them.
"""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Tuple

from raddle.planning import values


class Placeholder(NamedTuple):
    """What stands for a number of the plan."""

    meaning: str
    value: values.Value


PLACEHOLDERS: Dict[str, Placeholder] = {
    "{threads}": Placeholder("threads of one compute pool, as `intraOp`", values.compute),
    "{cpus}": Placeholder("the container's CPUs divided by its workers", values.processors),
    "{workers}": Placeholder("processes that share the container's CPUs", values.workers),
    "{interOp}": Placeholder("threads that run operators side by side, as `interOp`", values.inter_op),
    "{openmp}": Placeholder("as `OMP_NUM_THREADS`", values.openmp),
    "{spinning}": Placeholder("1 where idle threads may spin, else 0", values.spins),
}
MAX_VARIABLES = 16
# RE2 reads these as Python does: the API server's rules are made from them.
NAME = "[A-Z][A-Z0-9_]{0,61}[A-Z0-9]"
COUNTED = "THREAD|CPU|PROC|CORES|WORKER|CONCURREN|PARALLEL|JOBS|POOL|SPIN|BLOCKTIME"
REFUSED = (
    "^(RADDLE|LD|KUBERNETES)_|(^|_)(ALLOW|AUTH|DEBUG|DISABLE|ENABLE|GID|INSECURE|KEY|PASSWORD|PATH|PORT|PRELOAD|"
    "PRIVILEGED|ROOT|SECRET|SECURITY|SKIP|TLS|TOKEN|TRUST|UID|UNSAFE|USER|VERIFY)(_|$)"
)
VALUE = r"\{(threads|cpus|workers|interOp|openmp|spinning)\}|0|[1-9][0-9]{0,5}"
LONGEST_VALUE = max(map(len, PLACEHOLDERS))
# They say how many processes there are: not before a policy has, since its counts are of one of so many.
OF_PROCESSES = ("MLSERVER_PARALLEL_WORKERS", "TS_DEFAULT_WORKERS_PER_MODEL", "UVICORN_WORKERS", "WEB_CONCURRENCY")


def is_name(name: str) -> bool:
    """Whether a policy may define a variable of this name."""
    counts = re.fullmatch(NAME, name) is not None and re.search(COUNTED, name) is not None
    return counts and re.search(REFUSED, name) is None


def is_value(text: str) -> bool:
    """Whether it is one placeholder or one whole number."""
    return re.fullmatch(VALUE, text) is not None


def value(template: str) -> values.Value:
    """What computes the variable's value from a plan."""
    placeholder = PLACEHOLDERS.get(template)
    return (lambda _plan, _policy: template) if placeholder is None else placeholder.value


def listed() -> Tuple[str, str]:
    """What a name and a value may be, in words."""
    return (
        "in capitals, with a word of a count in it (" + ", ".join(COUNTED.split("|")) + ") and none of rights, files or"
        " switches",
        "one of " + ", ".join(PLACEHOLDERS) + ' or a whole number below a million, in quotes, such as "{threads}"',
    )
