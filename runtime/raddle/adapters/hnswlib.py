"""hnswlib: an index adds and searches with the plan's threads; by itself it takes one for each CPU of the machine."""

from __future__ import annotations

from typing import Any

from raddle.adapters.library import Library

_library = Library("hnswlib")


def install(module: Any, plan_text: str) -> None:
    """Gives each index that is made the count that its calls take where they pass none."""
    _library.read(module, plan_text)
    for name in ("Index", "BFIndex"):
        index = getattr(module, name, None)
        _library.wrap(index, "__init__", after=_made)
        _library.setter(index, "set_num_threads")


def _made(_: None, args: tuple[Any, ...], kwargs: dict[str, Any], count: int) -> None:
    # One that is made of another, or of a pickle's parameters, has the count of those.
    if "space" in kwargs or isinstance(args[1], str):
        args[0].set_num_threads(count)
