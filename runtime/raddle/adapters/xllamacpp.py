"""xllamacpp: the parameters of a server begin with the plan's threads; those of a batch follow them."""

from __future__ import annotations

from typing import Any

from raddle.adapters.library import Library

_library = Library("xllamacpp")


def install(module: Any, plan_text: str) -> None:
    """What the code sets in the parameters afterwards replaces it."""
    _library.read(module, plan_text)
    _library.wrap(module.CommonParams, "__init__", after=_made)


def _made(_: None, args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> None:  # noqa: ARG001
    args[0].cpuparams.n_threads = count
