"""One module per runtime, named by a row of `raddle.RUNTIMES` and loaded only once the runtime itself is imported.

An adapter has these functions, and may lack the first. What they raise leaves the runtime alone with a line on stderr:

prepare(plan_text)          just before the runtime's module is executed: environment variables that it reads once.
install(module, plan_text)  just after it: what can only be set in the loaded runtime.

docs/contributing/add-a-runtime.md says how to add one; `library` has what those share whose threads are only an
argument or a setting.
"""

from __future__ import annotations

import sys
from typing import Any

from raddle import errors


def version_of(text: str) -> tuple[int, ...]:
    """(2, 7) of "2.7.1+cpu" or "2.7.0.dev20260901"; () where there is no such start."""
    parts = text.split(".")[:2]
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


def frame(depth: int) -> Any:
    """A caller's frame, 1: of this function's; None where no Python code called: a thread's function, one at exit."""
    try:
        return sys._getframe(depth)  # noqa: SLF001
    except ValueError as error:
        errors.let_through(error)
        return None
