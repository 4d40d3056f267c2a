"""OpenCV: its pool gets the plan's threads, where it would have more of them: one for each CPU of the machine."""

from __future__ import annotations

import os
from typing import Any

from raddle.adapters.library import Library

_library = Library("cv2")


def install(module: Any, plan_text: str) -> None:
    """At the import; what the code sets later wins. OpenCV's own variable is somebody's decision."""
    _library.read(module, plan_text)
    wanted = _library.wanted()
    is_own = "OPENCV_FOR_THREADS_NUM" in os.environ and not _library.override
    if wanted is None or wanted.intra_op is None or is_own or module.getNumThreads() <= wanted.intra_op:
        return
    module.setNumThreads(wanted.intra_op)
    _library.note()
