"""OpenMP and the BLAS that follows it, in a worker: the count that the door has completed, divided by the workers.

A worker's door can't know how many others there will be. They are there when the worker imports numpy, which nearly
every library with OpenMP needs, and before any of these is loaded and reads the count.
"""

from __future__ import annotations

from typing import Any

from raddle import COMPLETED, env, mark
from raddle.process import current, resolution

_COUNTS = (env.OMP, env.OPENBLAS, "MKL_NUM_THREADS", "BLIS_NUM_THREADS")


def prepare(plan_text: str) -> None:
    """Just before the import. Counts of the user's or of a framework's are not listed, and stay."""
    fields, counts = env.decode(plan_text), [name for name in _COUNTS if COMPLETED.get(name, "").isdigit()]
    if not counts:
        return
    facts = current.read_facts(fields)
    wanted = resolution.resolve({**fields, "intra_op": max(int(COMPLETED[name]) for name in counts)}, facts)
    changed = [name for name in counts if wanted.intra_op is not None and int(COMPLETED[name]) > wanted.intra_op]
    for name in changed:
        env.complete(name, str(wanted.intra_op))
    if changed:
        mark.leave("openmp", f"OpenMP: threads={wanted.intra_op} ({wanted.because['intraOp']})")


def install(module: Any, plan_text: str) -> None:
    """Nothing is left to be done."""
