"""numexpr: its pool gets the plan's threads of OpenMP, where the code and the environment say nothing of theirs.

It takes them from os.environ, where Raddle's OMP_NUM_THREADS is not, and by itself one for each CPU of the machine, up
to 16.
"""

from __future__ import annotations

import os
from typing import Any

from raddle import env
from raddle.adapters.library import Library

_library = Library("numexpr", (b"interpreter.",), key="omp")
# It takes the last one, its most, for its count too.
_OWN = ("NUMEXPR_NUM_THREADS", env.OMP, "NUMEXPR_MAX_THREADS")


def install(module: Any, plan_text: str) -> None:
    """At the import; what the code sets later wins."""
    _library.read(module, plan_text)
    wanted = _library.wanted()
    is_own = any(os.environ.get(name) for name in _OWN)
    if wanted is None or wanted.intra_op is None or (is_own and not _library.override):
        return
    count = min(wanted.intra_op, module.MAX_THREADS)
    if count < module.nthreads:
        module.set_num_threads(count)
        _library.note(count)
