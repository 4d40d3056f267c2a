"""Functions in the place of a runtime's own, which look and are pickled as those are."""

from __future__ import annotations

from typing import Any

from raddle import errors


def copy_metadata(function: Any, original: Any) -> Any:
    """The function under the original's name and documentation: functools.wraps, for what may lack a part of them."""
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        try:
            setattr(function, attribute, getattr(original, attribute))
        except Exception as error:  # noqa: PERF203  # each may be missing
            errors.let_through(error)
    return function


def stand_in(function: Any, original: Any) -> Any:
    """`copy_metadata` for an extension's function: pickle wants its name, where pybind11 says what keeps its C code."""
    copy_metadata(function, original)
    function.__qualname__ = function.__name__
    return function
