"""PaddlePaddle: its OpenMP team gets the plan's count, without the warning that an import with more than one prints.

paddle reads OMP_NUM_THREADS while it is imported, takes one thread where there is none, and warns of more: it has not
been built for them where its BLAS is OpenBLAS. Intel's OpenMP, which a build with MKL has, reads the variable again at
its first parallel loop. So during the import the variable says one, and afterwards it is back for a build with MKL.
"""

from __future__ import annotations

import os
from typing import Any

from raddle import env, log

_state: dict[str, Any] = {}


def prepare(plan_text: str) -> None:
    """Just before the import. A count of somebody else's stays, with paddle's own warning."""
    planned = str(env.decode(plan_text).get("omp", ""))
    if planned not in ("", "1") and os.environ.get(env.OMP) == planned:
        _state["planned"] = planned
        os.environ[env.OMP] = "1"


def install(module: Any, plan_text: str) -> None:  # noqa: ARG001  # every adapter is told
    """After the import."""
    planned = _state.get("planned")
    if planned is None or os.environ.get(env.OMP) != "1":
        _state.pop("planned", None)
        return
    has_mkl = getattr(getattr(module, "version", None), "with_mkl", "") == "ON"
    if has_mkl:
        os.environ[env.OMP] = planned
    del _state["planned"]
    _state.update(version=str(module.__version__), ompThreads=int(planned) if has_mkl else 1)
    why = "" if has_mkl else " (it is built without MKL)"
    log.announce("paddle", "paddle {version}: threads={ompThreads}".format(**_state) + why)


def abandon() -> None:
    """The import has failed."""
    planned = _state.pop("planned", None)
    if planned is not None and os.environ.get(env.OMP) == "1":
        os.environ[env.OMP] = planned


def effective() -> dict[str, Any]:
    """For the report."""
    return dict(_state)
