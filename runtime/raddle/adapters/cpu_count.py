"""os.cpu_count() before Python 3.13, which has PYTHON_CPU_COUNT by itself: where a policy names the family `python`.

Then the webhook has written the variable, and lists it in RADDLE_LITERALS. One that the pod or the image sets means to
be read by 3.13, and does nothing here, as ever.
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
    if count is None:
        return
    original = os.cpu_count

    def cpu_count() -> Optional[int]:
        return count

    copy_metadata(cpu_count, original)
    # By this inspect.signature goes.
    cpu_count.__wrapped__ = original  # type: ignore[attr-defined]
    # Where the function is from, and what it is pickled by.
    for module in (os, sys.modules.get(original.__module__)):
        if getattr(module, "cpu_count", None) is original:
            module.cpu_count = cpu_count  # type: ignore[union-attr]
