"""OpenMP and the BLAS that follows it, in a worker: the count that the door has completed, divided by the workers.

A worker's door can't know how many others there will be. They are there when the worker imports numpy, which nearly
every library with OpenMP needs, and before most of these are loaded and read the count. LightGBM loads its own before,
and a fork has its parent's numpy: so the import of those that are used most is another moment.
"""

from __future__ import annotations

import os
from typing import Any

from raddle import COMPLETED, env, libraries, mark
from raddle.process import current, resolution

_COUNTS = (env.OMP, env.OPENBLAS, "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
# A process beside this one that has none of these files, nor this mark, is no worker: multiprocessing's Manager.
_MARK = "OpenMP: threads="
_RUNTIMES = {one.runtime for one in libraries.LIBRARIES if one.family in ("openmp", "blas", "mkl", "blis")}
_SIGNS = (
    *(start for runtime in _RUNTIMES for start in libraries.name_starts(runtime)),
    b"memfd:" + mark.PREFIX + _MARK.encode(),
)
# As the door has completed them.
_undivided = {name: int(COMPLETED[name]) for name in _COUNTS if COMPLETED.get(name, "").isdigit()}
_divided: set[str] = set()


def prepare(plan_text: str) -> None:
    """Just before the import. Counts of the user's or of a framework's are not listed, or in os.environ, and stay."""
    counts = {name: count for name, count in _undivided.items() if name not in os.environ}
    if not counts:
        return
    # Before it is loaded, for those that import it at the same time.
    most = max(counts.values())
    mark.leave("openmp", f"{_MARK}{most}")
    fields = env.decode(plan_text)
    facts = current.read_facts(fields, _SIGNS)
    wanted = resolution.resolve({**fields, "intra_op": most}, facts)
    shares = facts.workers_seen > 1 and wanted.intra_op is not None
    changed = [name for name, count in counts.items() if shares and count > (wanted.intra_op or 0)]
    for name in changed:
        env.complete(name, str(wanted.intra_op))
    if changed:
        _divided.update(changed)
        mark.leave("openmp", f"{_MARK}{wanted.intra_op} ({wanted.because['intraOp']})")


def install(module: Any, plan_text: str) -> None:  # noqa: ARG001  # as all adapters'
    """Now the library's file says that this is a worker."""
    if not _divided:
        mark.leave("openmp", "")
