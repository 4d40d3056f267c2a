"""A neighbour: another container that keeps one CPU busy.

It spins in a cgroup of its own with the CPU weight of a pod that requests one CPU, tied to the last CPU that may be
used here, for as long as the block lasts.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

from raddle_operator.local import quota

REQUESTED_CPUS = 1.0
_SPIN = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile True: pass"


@contextlib.contextmanager
def busy() -> Iterator[quota.Group]:
    """The neighbour's group, once it spins. Raises quota.UnavailableError."""
    with quota.limited(None, requested_cpus=REQUESTED_CPUS) as group:
        argv = [sys.executable, "-c", _SPIN, str(max(os.sched_getaffinity(0)))]
        process = subprocess.Popen(group.command(argv), stdout=subprocess.PIPE, start_new_session=True)
        with process:
            assert process.stdout is not None
            try:
                process.stdout.readline()
                yield group
            finally:
                process.kill()
