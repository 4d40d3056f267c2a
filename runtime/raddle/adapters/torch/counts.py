"""PyTorch's counts: the plan against the environment and the facts, and what can be read off torch.

torch takes its intra-op count from torch.set_num_threads, else from MKL_NUM_THREADS, else from OMP_NUM_THREADS
(c10/core/thread_pool.cpp), at its first use. No variable sizes the inter-op pool.
"""

from __future__ import annotations

import os
import sys
from numbers import Integral
from typing import Any, Mapping

from raddle import env
from raddle.process import current, resolution

MKL = "MKL_NUM_THREADS"
IN_THE_CODE = "set in the code"
_NONE: Mapping[str, str] = {}


class Choice:
    """The counts of one process; None: torch's own.

    `set_intra_op` is the count to pass to set_num_threads, None where the environment leads to `intra_op` by itself.
    `because` says what decided where it was not simply the plan.
    """

    __slots__ = ("because", "inter_op", "intra_op", "override", "set_intra_op", "wanted")

    def __init__(self) -> None:
        self.intra_op: int | None = None
        self.inter_op: int | None = None
        self.set_intra_op: int | None = None
        self.override = False
        self.because: dict[str, str] = {}
        self.wanted = resolution.Effective()

    def line(self, version: str) -> str:
        """E.g. "torch 2.7.1: intra_op=2 (planned 4, cut to quota 2), inter_op=1"."""
        said = []
        for key, name, count in (("intraOp", "intra_op", self.intra_op), ("interOp", "inter_op", self.inter_op)):
            because = self.because.get(key, "")
            because += self.wanted.above(count) if because == IN_THE_CODE else ""
            why = f" ({because})" if because else ""
            said.append("{}={}{}".format(name, "default" if count is None else count, why))
        return f"torch {version}: {', '.join(said)}"

    def effective(self) -> dict[str, int]:
        """The counts for the record, under names that ONNX Runtime's have not; None is left out."""
        counts = {"torchIntraOp": self.intra_op, "torchInterOp": self.inter_op}
        return {name: count for name, count in counts.items() if count is not None}

    def reasons(self) -> dict[str, str]:
        """`because` under the same names."""
        names = {"intraOp": "torchIntraOp", "interOp": "torchInterOp"}
        return {names[key]: why for key, why in self.because.items()}


def choose(
    fields: Mapping[str, Any], environ: Mapping[str, str], facts: current.Facts, completed: Mapping[str, str] = _NONE
) -> Choice:
    """The counts for the plan's fields, these variables, which are not Raddle's, and facts. Pure.

    `completed` are Raddle's, which libraries saw when torch was loaded.
    """
    result = Choice()
    result.override = fields.get("existing_values") == "override"
    planned = fields.get("omp")
    # torch's pools are cut as ONNX Runtime's are: only the counts are its own.
    counts = {"intra_op": planned, "inter_op": fields.get("torch_inter_op")}
    ours = {key: value for key, value in {**fields, **counts}.items() if value is not None}
    wanted = result.wanted = resolution.resolve(ours, facts)
    result.inter_op = wanted.inter_op
    result.because = {key: wanted.because[key] for key in ("intraOp", "interOp") if key in wanted.because}
    if wanted.intra_op is None:
        return result
    name, own = environment_count(environ)
    if own is not None and not result.override:
        result.intra_op, result.because["intraOp"] = own, name
        return result
    result.intra_op = wanted.intra_op
    if environment_count({**completed, **environ})[1] != wanted.intra_op:
        result.set_intra_op = wanted.intra_op
    if own not in (None, wanted.intra_op):
        result.because.setdefault("intraOp", f"{name}={own} is overridden")
    return result


def environment_count(environ: Mapping[str, str]) -> tuple[str, int | None]:
    """The variable that torch follows and its count, ("", None) where none starts with a positive number.

    c10/core/thread_pool.cpp, get_env_num_threads: std::stoi, so that anything may follow the digits.
    """
    for name in (MKL, env.OMP):
        text = environ.get(name, "").strip()
        digits = text[: next((i for i, letter in enumerate(text) if letter not in "0123456789"), len(text))]
        if digits and int(digits[:9]) > 0:
            return name, int(digits[:9])
    return "", None


def asked_count(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> int:
    """The count of a call, 0 where it is none that torch takes: that takes numpy's whole numbers too, and no bool."""
    is_count = not kwargs and len(args) == 1 and isinstance(args[0], Integral) and not isinstance(args[0], bool)
    return int(args[0]) if is_count else 0


def native_threads() -> int:
    """Threads of this process that Python doesn't know. Raises OSError without /proc."""
    return len(os.listdir("/proc/self/task")) - len(sys._current_frames())  # noqa: SLF001
