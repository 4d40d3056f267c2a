"""`raddle run` with a real runtime: the program has the pool that a container of that limit would have."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.runtime
RADDLE = str(Path(sys.executable).with_name("raddle"))
PACKAGES = next(path for path in sys.path if path.endswith("site-packages"))
# The interpreter of this virtual environment, and the one that it was made of.
PYTHONS = {"venv": (sys.executable, {}), "system": (sys._base_executable, {"PYTHONPATH": PACKAGES})}
PROGRAM = """
import os, sys, onnxruntime
before = len(os.listdir("/proc/self/task"))
session = onnxruntime.InferenceSession(sys.argv[1])
print(len(os.listdir("/proc/self/task")) - before, os.environ.get("PYTHONPATH"))
"""


def served(limit, python, model, path=os.environ["PATH"]):
    """The pool's size as the kernel counts it, and what was said; the image's PYTHONPATH is as it was."""
    interpreter, environment = PYTHONS[python]
    done = subprocess.run(
        [RADDLE, "run", "--limit", limit, "--", interpreter, "-c", PROGRAM, model],
        env={"PATH": path, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    workers, python_path = done.stdout.split()
    assert python_path == str(environment.get("PYTHONPATH"))
    # The thread that calls is one of the pool.
    return int(workers) + 1, done.stderr


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("limit", "threads"), [("500m", 1), ("2", min(2, os.cpu_count() or 1))])
def test_onnxruntime_has_the_pool_of_a_container_with_this_limit(limit, threads, python, model):
    counted, said = served(limit, python, model)
    assert counted == threads
    assert f"intra_op={threads}," in said


@pytest.mark.parametrize("python", PYTHONS)
def test_it_has_it_too_where_nothing_can_be_mounted(python, model, tmp_path):
    for name in ("sh", "env"):
        (tmp_path / name).symlink_to(shutil.which(name))
    threads = min(2, os.cpu_count() or 1)
    counted, said = served("2", python, model, path=str(tmp_path))
    assert counted == threads
    assert "the shim is preloaded by LD_PRELOAD" in said
    assert f"intra_op={threads}," in said
