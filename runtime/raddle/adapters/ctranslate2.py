"""CTranslate2: the workers of a model share the plan's threads of OpenMP, where the code says nothing of theirs.

By itself each worker takes OMP_NUM_THREADS, else up to four, however many workers there are.
"""

from __future__ import annotations

import os
from typing import Any

from raddle import env
from raddle.adapters.library import UNSET, Library, place
from raddle.process import machine_counts

_library = Library("ctranslate2", key="omp")


def install(module: Any, plan_text: str) -> None:
    """Wraps the constructors of the models, Translator and Whisper and the like."""
    _library.read(module, plan_text)
    for one in list(vars(module).values()):
        if isinstance(one, type) and place(getattr(one, "__init__", None), "intra_threads") is not None:
            _library.wrap(one, "__init__", before=_given)


def _given(args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    threads, wanted = kwargs.get("intra_threads"), _library.wanted()
    is_copied = wanted is not None and machine_counts.is_copied(threads, wanted)
    is_own = (threads not in UNSET and not is_copied) or bool(os.environ.get(env.OMP))
    if is_own and not _library.override:
        return args, kwargs
    return args, {**kwargs, "intra_threads": max(1, count // (kwargs.get("inter_threads") or 1))}
