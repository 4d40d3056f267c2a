"""Which runtime a container runs, as its image, command and variables tell, and how many threads it makes by itself."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from raddle import env
from raddle.planning.families import DEFAULT
from raddle_operator.objects.commands import words
from raddle_operator.objects.pods import Container
from raddle_operator.presets import matching
from raddle_operator.presets.rows import APP, CORES, CPUS, LIMIT, OWN, Preset

MAX_THREADS: Final = 65536
_LEFT: Final = re.compile(r"0*|-[0-9]*")


class Runtime(NamedTuple):
    """A runtime, and what says how many threads it makes.

    `stock`: as in presets.yaml, what it makes untold. `flags` of the command come first, then the first of `counts`
    that the pod spec sets. `sets` are the variables that would tell it. `preset` is None where variables tell of
    the runtime.
    """

    title: str
    stock: str
    counts: tuple[str, ...]
    sets: tuple[str, ...]
    flags: tuple[str, ...] = ()
    preset: Preset | None = None


class Threads(NamedTuple):
    """How many threads one process computes with, None where that can't be told, and why; `own`: by which setting.

    A flag that has its value in the same word ends with "=".
    """

    number: int | None
    because: str
    own: str = ""


class _Sign(NamedTuple):
    """A runtime that variables of these names tell of, with the variables that say its count."""

    title: str
    names: tuple[str, ...]
    counts: tuple[str, ...]
    stock: str = CPUS


# The first one counts: what is more special than OpenMP stands before it.
_SIGNS: Final = (
    _Sign("ONNX Runtime", (env.ORT_INTRA, env.ORT_INTER), (env.ORT_INTRA,), CORES),
    _Sign(
        "TensorFlow",
        ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS"),
        ("TF_NUM_INTRAOP_THREADS",),
    ),
    _Sign(
        "PyTorch",
        ("TORCH_HOME", "TORCHINDUCTOR_COMPILE_THREADS", "HF_HOME", "TRANSFORMERS_CACHE", "SENTENCE_TRANSFORMERS_HOME"),
        (env.OMP,),
    ),
    _Sign("Numba", ("NUMBA_NUM_THREADS",), ("NUMBA_NUM_THREADS",)),
    _Sign("MKL", ("MKL_NUM_THREADS", "MKL_DYNAMIC"), ("MKL_NUM_THREADS", env.OMP)),
    _Sign("OpenBLAS", (env.OPENBLAS,), (env.OPENBLAS, env.OMP)),
    _Sign("OpenMP", (env.OMP, "OMP_WAIT_POLICY", "OMP_PROC_BIND", "KMP_BLOCKTIME", "KMP_AFFINITY"), (env.OMP,)),
)
# Family of a policy -> the variable of a count that it gets, for servers that may run several.
_OF_FAMILIES: Final = (
    ("onnxruntime", env.ORT_INTRA),
    ("torch", env.OMP),
    ("openmp", env.OMP),
    ("blas", env.OPENBLAS),
    ("tensorflow", "TF_NUM_INTRAOP_THREADS"),
)


def known(container: Container) -> Runtime | None:
    """The runtime of a container without what Raddle has set; None where nothing tells of one."""
    preset = matching.find(container)
    if preset is not None and preset.stock != APP:
        return _of_preset(preset)
    return next((_of_sign(sign) for sign in _SIGNS if not container.env.keys().isdisjoint(sign.names)), None)


def governed() -> Runtime:
    """The runtime of a container that Raddle has given values and nothing else tells of."""
    return Runtime("by policy", OWN, (), ())


def _of_sign(sign: _Sign) -> Runtime:
    return Runtime(sign.title, sign.stock, sign.counts, sign.counts)


def _of_preset(preset: Preset) -> Runtime:
    beating = [one for others in preset.beaten_by.values() for one in others]
    flags = (*preset.flags, *(one for one in beating if one.startswith("-")))
    if preset.variables:
        others = [one for one in beating if not one.startswith("-")]
        return Runtime(preset.title, preset.stock, (*preset.variables, *others), (*preset.variables,), flags, preset)
    families = preset.runtimes or DEFAULT
    counts = tuple(dict.fromkeys(name for family, name in _OF_FAMILIES if family in families))
    # Told by an argument only.
    sets = () if preset.stock.isdecimal() or (preset.alone and not preset.unless) else counts
    return Runtime(preset.title, preset.stock, counts, sets, flags, preset)


def threads(
    container: Container,
    runtime: Runtime,
    *,
    cpus: int | None,
    cores: int | None,
    limit_cpus: float | None,
) -> Threads:
    """The threads that one process of a container computes with on a node of so many CPUs and cores (None: unknown).

    The container is without what Raddle has set.
    """
    told = _by_flag(words(container.arguments), runtime.flags)
    if told is not None:
        return told
    for name in runtime.counts:
        result = _by_variable(container, name)
        if result is not None:
            return result
    if container.env_from:
        return Threads(None, "envFrom may set it")
    return _untold(runtime, cpus, cores, limit_cpus)


def _by_flag(arguments: Sequence[str], flags: Iterable[str]) -> Threads | None:
    """What the last flag of the command says; None where there is none."""
    wanted, result = frozenset(flags), None
    for word, after in pairwise((*arguments, "")):
        name, equals, value = word.partition("=")
        if name not in wanted:
            continue
        said = value if equals else after
        count = _count(said)
        if count is not None:
            result = Threads(count, name, name + equals)
        # 0 and llama.cpp's -1: as if there were none. A reference or a text of the server's own says another number.
        elif not _LEFT.fullmatch(said.strip("\"'")):
            result = Threads(None, f"{name} may say it")
    return result


def _by_variable(container: Container, name: str) -> Threads | None:
    entry = container.effective(name)
    if entry is None:
        return None
    if entry.value is None or entry.value.startswith("$("):
        return Threads(None, f"{name} comes from a reference")
    # Of nested teams, the outer one's.
    count = _count(entry.value.partition(",")[0])
    return None if count is None else Threads(count, name, name)


def _untold(runtime: Runtime, cpus: int | None, cores: int | None, limit_cpus: float | None) -> Threads:
    if runtime.stock == OWN:
        return Threads(None, "it decides that itself")
    if runtime.stock == LIMIT and limit_cpus is not None:
        return Threads(max(1, math.ceil(limit_cpus)), "it reads the limit")
    if cpus is None:
        return Threads(None, "the node's CPUs are not known")
    if runtime.stock.isdecimal():
        return Threads(min(int(runtime.stock), cpus), f"{runtime.stock} untold")
    if runtime.stock == CORES and cores is not None:
        return Threads(cores, "the node's cores")
    return Threads(cpus, "the node's CPUs")


def _count(text: str) -> int | None:
    """A number of threads; None for what is none, and for 0, which leaves it to the runtime."""
    stripped = text.strip().strip("\"'")
    if not (stripped.isascii() and stripped.isdecimal() and len(stripped) <= 5):
        return None
    return min(int(stripped), MAX_THREADS) or None
