"""Whose an error is that was caught around Raddle's own work, which fails open.

A signal handler of the application's runs wherever Python code does: in Raddle's too, and what it raises there (a time
limit, say) is for the application.
"""

from __future__ import annotations

import os
import sys
from _signal import NSIG, getsignal  # type: ignore[import-not-found]

from raddle import RUNTIMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Readers import this module, and nothing heavy.
    from types import CodeType, FrameType, TracebackType
    from typing import Any

_LIBRARY = os.path.dirname(os.__file__) + os.sep


def let_through(error: Exception) -> None:
    """Raises the error again where it is the application's."""
    if not is_ours(error):
        raise error


def is_ours(error: BaseException) -> bool:
    """Whether an error that was caught around Raddle's own work came out of it.

    What a signal handler raises has the handler's frame. Any other frame of the application's is that of a function
    that Raddle has called: one in the place of the library's own, such as eventlet's os.open, an audit hook, a class of
    options.
    What another thread has raised here has no such frame (PyThreadState_SetAsyncExc): it has a class of the
    application's, or at least no words: it is made without any.
    """
    at, has_called = error.__traceback__, False
    while at is not None:
        frame = at.tb_frame
        module = str(frame.f_globals.get("__name__"))
        is_known = _is_known(module, frame.f_code.co_filename)
        if not module.startswith("raddle.") and _is_installed(frame.f_code):
            return False
        # Not of a frame that goes on: `f_locals` would keep what it holds.
        if not is_known and _is_given(frame):
            return False
        has_called = has_called or not is_known
        at = at.tb_next
    if has_called:
        return True
    if not error.args and isinstance(error, (RuntimeError, OSError)):
        return False
    kind = type(error).__module__
    return _is_known(kind, getattr(sys.modules.get(kind), "__file__", None))


def _is_given(frame: FrameType) -> bool:
    """Whether the frame that was running is one of the arguments, as it is of a signal handler's and a tracer's."""
    code, running = frame.f_code, frame.f_back
    if running is None:
        return False
    # Behind the named ones comes `*arguments`.
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 1]
    arguments = [frame.f_locals.get(name) for name in names]
    return any(one is running or (type(one) is tuple and any(each is running for each in one)) for one in arguments)


def _is_installed(code: CodeType) -> bool:
    """Whether it is a signal handler's now: one that deletes its arguments is not known by them."""
    for number in range(1, NSIG):
        handler: Any = getsignal(number)
        # Of functools.partial, and of a method.
        for attribute in ("func", "__func__"):
            handler = getattr(handler, attribute, handler)
        if getattr(handler, "__code__", None) is code:
            return True
    return False


def _is_known(module: Any, file: str | None) -> bool:
    """Whether Raddle's own work goes through this module; built-in ones have no file."""
    if module == "__main__":
        return False
    package = str(module).partition(".")[0]
    # Raddle's own work goes through itself, the runtimes and the standard library.
    if file is None or package == "raddle" or any(name.partition(".")[0] == package for name in RUNTIMES):
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
