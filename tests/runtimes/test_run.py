"""`raddle run` with a real runtime: the program has the pool that a container of that limit would have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.runtime
RADDLE = str(Path(sys.executable).with_name("raddle"))
PROGRAM = """
import os, sys, onnxruntime
before = len(os.listdir("/proc/self/task"))
session = onnxruntime.InferenceSession(sys.argv[1])
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.parametrize(("limit", "threads"), [("500m", 1), ("1", 1), ("2", min(2, os.cpu_count() or 1))])
def test_onnxruntime_has_the_pool_of_a_container_with_this_limit(limit, threads, model):
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    done = subprocess.run(
        [RADDLE, "run", "--limit", limit, "--", sys._base_executable, "-c", PROGRAM, model],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": packages},
        check=True,
        capture_output=True,
        text=True,
    )
    # The thread that calls is one of the pool.
    assert int(done.stdout) == threads - 1
    assert f"intra_op={threads}," in done.stderr
