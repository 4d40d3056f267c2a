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


class Choice:
    """The counts of one process; None: torch's own.

    `set_intra` is the count to pass to set_num_threads, None where the environment leads to `intra` by itself.
    `because` says what decided where it was not simply the plan.
    """

    __slots__ = ("because", "inter", "intra", "override", "set_intra")

    def __init__(self) -> None:
        self.intra: int | None = None
        self.inter: int | None = None
        self.set_intra: int | None = None
        self.override = False
        self.because: dict[str, str] = {}

    def line(self, version: str) -> str:
        """E.g. "torch 2.7.1: intra_op=2 (planned 4, cut to quota 2), inter_op=1"."""
        said = []
        for key, count in (("intra", self.intra), ("inter", self.inter)):
            why = f" ({self.because[key]})" if key in self.because else ""
            said.append("{}_op={}{}".format(key, "default" if count is None else count, why))
        return f"torch {version}: {', '.join(said)}"

    def effective(self) -> dict[str, int]:
        """The counts for the record, under names that ONNX Runtime's have not; None is left out."""
        counts = {"torchIntra": self.intra, "torchInter": self.inter}
        return {name: count for name, count in counts.items() if count is not None}

    def reasons(self) -> dict[str, str]:
        """`because` under the same names."""
        names = {"intra": "torchIntra", "inter": "torchInter"}
        return {names[key]: why for key, why in self.because.items()}


def choose(fields: Mapping[str, Any], environ: Mapping[str, str], facts: current.Facts) -> Choice:
    """The counts for the plan's fields, these variables and facts. Pure."""
    result = Choice()
    result.override = fields.get("existing") == "override"
    planned = fields.get("omp")
    # torch's pools are cut as ONNX Runtime's are: only the counts are its own.
    counts = {"intra": planned, "inter": fields.get("torch_inter")}
    ours = {key: value for key, value in {**fields, **counts}.items() if value is not None}
    wanted = resolution.resolve(ours, facts)
    result.inter = wanted.inter
    result.because = {key: wanted.because[key] for key in counts if key in wanted.because}
    if wanted.intra is None:
        return result
    name, own = environment_count(environ)
    if own not in (None, planned) and not result.override:
        result.intra, result.because["intra"] = own, name
        return result
    result.intra = wanted.intra
    if own != wanted.intra:
        result.set_intra = wanted.intra
        why = f"{env.OMP} is not set" if own is None else f"{name}={own} is overridden"
        result.because.setdefault("intra", why)
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
