"""This process's sessions in few words: those that are alike together. For the node's agent and for metrics."""

from __future__ import annotations

import os
from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from raddle import env
from raddle.report import record

# Durations below 2^18 ns (0.26 ms) count as that, and those from 2^34 ns (17 s) on have no bucket.
SHORTEST, LONGEST = 18, 34
# A session's count of threads, under the names that adapters give it.
_COUNTS = ("intraOp", "torchIntraOp", "omp")
# The whole reason where a runtime follows a variable that is not the plan's.
_VARIABLES = ("MKL_NUM_THREADS", env.OMP, env.OMP + " has another value")


class Group(NamedTuple):
    """`alike` sessions of one runtime that have as many threads, None: the runtime's own choice.

    `source` says who has set them: plan, code or default. `counts` are their runs as observe.Runs has them, None where
    they aren't observed, and `total_ns` the time of these.
    """

    runtime: str
    threads: Optional[int]
    source: str
    alike: int
    counts: Optional[List[int]]
    total_ns: int


def read() -> List[Group]:
    """The groups, those with the most threads first."""
    result: dict[Tuple[str, Optional[int], str], Group] = {}
    own = os.getpid()
    for session in list(record.sessions):
        # A forked child has its parent's records.
        if session.get("pid", own) != own or record.UNFINISHED in session:
            continue
        key = (str(session.get("runtime", "")), *in_effect(session))
        group = result.get(key) or Group(*key, 0, None, 0)
        counts, total_ns = group.counts, group.total_ns
        if "runs" in session:
            runs = session["runs"]
            counts = [one + more for one, more in zip(counts or [0] * len(runs.counts), runs.counts)]
            total_ns += runs.total_ns
        result[key] = group._replace(alike=group.alike + 1, counts=counts, total_ns=total_ns)
    return sorted(result.values(), key=lambda group: -group.alike * (group.threads or 0))


def in_effect(session: Mapping[str, Any]) -> Tuple[Optional[int], str]:
    """A session's threads and who has set them, as in a group."""
    effective = session.get("effective") or {}
    key = next((key for key in _COUNTS if isinstance(effective.get(key), int)), None)
    if key is None:
        return None, "default"
    why = str((session.get("because") or {}).get(key, ""))
    # What the environment says is the user's too.
    is_theirs = why.startswith(("set in the code", "set in the environment")) or why in _VARIABLES
    return effective[key], "code" if is_theirs else "plan"


def buckets(counts: List[int]) -> Iterable[Tuple[int, int]]:
    """(exponent, runs that took less than 2^exponent ns and not less than the one before), of few exponents."""
    yield SHORTEST, sum(counts[: SHORTEST + 1])
    yield from ((exponent, counts[exponent]) for exponent in range(SHORTEST + 1, LONGEST + 1))
