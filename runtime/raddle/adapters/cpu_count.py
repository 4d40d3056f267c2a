"""os.cpu_count(): where a policy names the family `python`, so that the door completes PYTHON_CPU_COUNT.

Python has it by itself from 3.13 on, but reads it earlier than the shim can set it. One that the pod or the image sets
means to be read by 3.13, and does nothing here, as ever.
"""

from __future__ import annotations

import os
import sys
from typing import Mapping, Optional

from raddle import env
from raddle.adapters.metadata import copy_metadata

_VARIABLE = "PYTHON_CPU_COUNT"


def planned(environ: Mapping[str, str]) -> Optional[int]:
    """The count that Raddle has set, None where it has set none, or somebody has changed it since."""
    literals = dict(part.partition("=")[::2] for part in environ.get(env.LITERALS, "").split(";"))
    text = literals.get(_VARIABLE, "")
    if not (text.isascii() and text.isdigit() and len(text) <= env.RESERVED_NUMBER and int(text) > 0):
        return None
    return int(text) if environ.get(_VARIABLE) == text else None


def install() -> None:
    """Puts a function that returns the count in the place of os.cpu_count, which multiprocessing asks too."""
    count = planned(os.environ)
    if count is None or "cpu_count" in sys._xoptions:  # noqa: SLF001  # Python's own option
        return
    # What pools ask from 3.13 on is there from then.
    for name in ("cpu_count", "process_cpu_count"):
        if hasattr(os, name):
            _replace(name, count)


def _replace(name: str, count: int) -> None:
    original = getattr(os, name)

    def cpu_count() -> Optional[int]:
        return count

    copy_metadata(cpu_count, original)
    # By this inspect.signature goes.
    cpu_count.__wrapped__ = original  # type: ignore[attr-defined]
    # Where the function is from, and what it is pickled by.
    for module in (os, sys.modules.get(original.__module__)):
        if getattr(module, name, None) is original:
            setattr(module, name, cpu_count)
