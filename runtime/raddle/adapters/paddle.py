"""PaddlePaddle: its OpenMP team gets the plan's count, without the warning that an import with more than one prints.

paddle reads OMP_NUM_THREADS while it is imported, takes one thread where there is none, and warns of more: it has not
been built for them where its BLAS is OpenBLAS. Intel's OpenMP, which a build with MKL has, reads the variable again at
its first parallel loop. So during the import the variable says one, and afterwards it is back for a build with MKL.

A predictor has a count of its own, one thread where the code says nothing: with MKL the plan's count.
"""

from __future__ import annotations

import os
from typing import Any

from raddle import env, libraries, log
from raddle.adapters.library import Library

_state: dict[str, Any] = {}
_predictors = Library("paddle.inference", libraries.name_starts("paddle"), key="omp")


def prepare(plan_text: str) -> None:
    """Just before the import. A count of somebody else's stays, with paddle's own warning."""
    planned = str(env.decode(plan_text).get("omp", ""))
    is_planned = os.environ.get(env.OMP) == planned and env.OMP not in env.set_by_code(os.environ)
    if planned not in ("", "1") and is_planned:
        _state["planned"] = planned
        os.environ[env.OMP] = "1"


def install(module: Any, plan_text: str) -> None:
    """After the import."""
    has_mkl = getattr(getattr(module, "version", None), "with_mkl", "") == "ON"
    config = getattr(getattr(module, "inference", None), "Config", None)
    if has_mkl:
        _predictors.read(module, plan_text)
        _predictors.wrap(config, "__init__", after=_configured)
        _predictors.setter(config, "set_cpu_math_library_num_threads")
    planned = _state.get("planned")
    if planned is None or os.environ.get(env.OMP) != "1":
        _state.pop("planned", None)
        return
    if has_mkl:
        os.environ[env.OMP] = planned
    del _state["planned"]
    _state.update(version=str(module.__version__), ompThreads=int(planned) if has_mkl else 1)
    why = "" if has_mkl else " (it is built without MKL)"
    log.announce("paddle", "paddle {version}: threads={ompThreads}".format(**_state) + why)


def _configured(_: None, args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> None:  # noqa: ARG001
    # A copy of another configuration has the count of that one.
    if not any(isinstance(one, type(args[0])) for one in args[1:]):
        args[0].set_cpu_math_library_num_threads(count)


def abandon() -> None:
    """The import has failed."""
    planned = _state.pop("planned", None)
    if planned is not None and os.environ.get(env.OMP) == "1":
        os.environ[env.OMP] = planned
