"""The descriptions of thread pools: while a large model loads, others that come and go leave its places alone."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[1] / "runtime" / "native"
PARTS = ("sys", "text", "cpuset", "elf", "threads")
SANITIZED = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def test_a_session_that_loads_slowly_keeps_its_places_while_others_come_and_go(tmp_path):
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc here")
    built = tmp_path / "pools"
    sources = [HERE / "native" / "pools.c", *(NATIVE / f"{part}.c" for part in PARTS)]
    warnings = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    command = [compiler, *SANITIZED, *warnings, "-DRD_HOSTED", f"-I{NATIVE}", "-o", built, *sources, "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "cannot find -lasan" in done.stderr:
        pytest.skip("gcc has no sanitizers here")
    assert done.returncode == 0, done.stderr
    done = subprocess.run([built], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "held\n"), done.stderr
