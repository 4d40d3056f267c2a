"""scikit-learn and XGBoost, which read the limit by themselves: in a worker, too, their OpenMP has the whole count.

Each worker has as many threads without Raddle, and would be slower with fewer whenever the others wait.
"""

from __future__ import annotations

from typing import Any

from raddle.adapters import openmp


def prepare(plan_text: str) -> None:  # noqa: ARG001  # as every adapter's
    """Just before the import, which may import numpy, and loads the library's OpenMP."""
    openmp.keep_whole()


def install(module: Any, plan_text: str) -> None:
    """Nothing is left to be done."""
