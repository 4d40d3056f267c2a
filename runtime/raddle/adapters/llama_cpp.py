"""llama-cpp-python: a model gets the plan's threads where the code passes none, not half of the CPUs, and all."""

from __future__ import annotations

from typing import Any

from raddle.adapters.library import Library

_library = Library("llama_cpp")


def install(module: Any, plan_text: str) -> None:
    """For tokens one by one, and for those of a prompt."""
    _library.read(module, plan_text)
    _library.argument(module.Llama, "__init__", "n_threads", "n_threads_batch")
