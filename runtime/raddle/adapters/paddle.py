"""PaddlePaddle: a build with MKL gets the plan's count, which one without has no use for.

paddle looks for OMP_NUM_THREADS while it is imported, takes one thread where there is none, and says so in the
environment; it warns of more where somebody has set them. Intel's OpenMP, which a build with MKL has, reads C's
environment again at its first parallel loop: by then the count is back there.

A predictor has a count of its own, one thread where the code says nothing: with MKL the plan's count.
"""

from __future__ import annotations

import os
from typing import Any

from raddle import COMPLETED, env, libraries, log
from raddle.adapters.library import Library

_state: dict[str, Any] = {}
_predictors = Library("paddle.inference", libraries.name_starts("paddle"), key="omp")


def prepare(plan_text: str) -> None:  # noqa: ARG001  # as all adapters'
    """Just before the import. A count of somebody else's stays, with paddle's own warning."""
    if env.OMP not in os.environ and env.OMP in COMPLETED:
        _state["planned"] = COMPLETED[env.OMP]


def install(module: Any, plan_text: str) -> None:
    """After the import."""
    has_mkl = getattr(getattr(module, "version", None), "with_mkl", "") == "ON"
    config = getattr(getattr(module, "inference", None), "Config", None)
    if has_mkl:
        _predictors.read(module, plan_text)
        _predictors.wrap(config, "__init__", after=_configured)
        _predictors.setter(config, "set_cpu_math_library_num_threads")
    planned = _state.pop("planned", "")
    if not planned:
        return
    if has_mkl:
        env.complete(env.OMP, planned)
    _state.update(version=str(module.__version__), ompThreads=int(planned) if has_mkl else 1)
    why = "" if has_mkl else " (it is built without MKL)"
    log.announce("paddle", "paddle {version}: threads={ompThreads}".format(**_state) + why)


def _configured(_: None, args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> None:  # noqa: ARG001
    # A copy of another configuration has the count of that one.
    if not any(isinstance(one, type(args[0])) for one in args[1:]):
        args[0].set_cpu_math_library_num_threads(count)


def abandon() -> None:
    """The import has failed."""
    _state.pop("planned", None)
