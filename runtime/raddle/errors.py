"""Whose an error is that was caught around Raddle's own work, which fails open.

A signal handler of the application's runs wherever Python code does: in Raddle's too, and what it raises there (a time
limit, say) is for the application.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Readers import this module, and nothing heavy.
    from types import TracebackType
    from typing import Any

# Packages that Raddle's own work goes through, beside the standard library.
_PACKAGES = ("raddle", "onnxruntime", "torch")
_LIBRARY = os.path.dirname(os.__file__) + os.sep


def let_through(error: Exception) -> None:
    """Raises the error again where it is the application's."""
    if not is_ours(error):
        raise error


def is_ours(error: BaseException) -> bool:
    """Whether an error that was caught around Raddle's own work came out of it.

    What a signal handler raises has the handler's frame. What another thread has raised here has none
    (PyThreadState_SetAsyncExc): it has a class of the application's, or at least no words: it is made without any.
    """
    if not error.args and isinstance(error, (RuntimeError, OSError)):
        return False
    kind = type(error).__module__
    if not _is_known(kind, getattr(sys.modules.get(kind), "__file__", None)):
        return False
    at = error.__traceback__
    while at is not None:
        frame = at.tb_frame
        if not _is_known(frame.f_globals.get("__name__"), frame.f_code.co_filename):
            return False
        at = at.tb_next
    return True


def _is_known(module: Any, file: str | None) -> bool:
    """Whether Raddle's own work goes through this module; built-in ones have no file."""
    if module == "__main__":
        return False
    if file is None or str(module).partition(".")[0] in _PACKAGES:
        return True
    return file.startswith("<frozen ") or (file.startswith(_LIBRARY) and "-packages" not in file)


def without_frames(error: BaseException) -> TracebackType | None:
    """The error's traceback from the first frame on that is not Raddle's.

    Since Python 3.11 a bare `raise` adds no frame of its own, so that the application sees none of Raddle's.
    """
    at = error.__traceback__
    while at is not None and str(at.tb_frame.f_globals.get("__name__", "")).startswith("raddle."):
        at = at.tb_next
    return at
