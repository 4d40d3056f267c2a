"""No space is left where the shim's files were to lie.

Each process is real ONNX Runtime with the variables and files that a kubelet would give a pod's container.
"""

import contextlib
import os
import shutil
import subprocess
import sys

import pytest
from support.reliability import truth

from cluster import kubelet_env
from cluster.waiting import wait
from load import models
from raddle import delivery
from raddle_operator.injection.volumes import SHIM_VOLUME
from unavailable import UnavailableError

RUNS, TREE_SIZES, PAGE_BYTES, PROCESS_SECONDS = 20, 12, 4096, 60
PROGRAM = f"""
import sys
import numpy, onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
[wanted] = session.get_inputs()
image = numpy.zeros(wanted.shape, numpy.float32)
for number in range({RUNS}):
    session.run(None, {{wanted.name: image}})
print("served", number + 1)
"""


@pytest.fixture
def environment(space, tmp_path):
    """What a container of a governed pod starts with; its volumes are below `container`."""
    one = truth.capped("app", 2)
    space.store(one)
    space.governed("app")
    # Only then has the webhook seen the shim's ConfigMap.
    wait(
        lambda: delivery.PRELOAD_FILE in str(space.probe(truth.of_app("app", "probe"))["spec"]),
        "the pod is given a shim",
    )
    space.create(truth.of_app("app", "app-0"))
    found = kubelet_env.environment(space.client, space.bound("app-0"), "serve", tmp_path / "container")
    assert "LD_PRELOAD" in found
    return found


@pytest.fixture
def problem(environment, tmp_path):
    """problem({old: new}, …): what is wrong with a process whose folders are moved, "" where it served everything."""
    model = models.SMALL.file(tmp_path)

    def run(moved):
        given = dict(environment)
        for old, new in moved.items():
            given = {name: value.replace(str(old), str(new)) for name, value in given.items()}
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(model)],
            check=False, capture_output=True, text=True, env=kept | given, timeout=PROCESS_SECONDS,
        )  # fmt: skip
        if (done.returncode, done.stdout) == (0, f"served {RUNS}\n"):
            return ""
        return f"exit code {done.returncode}: {done.stdout}{done.stderr[-500:]}"

    return run


@pytest.mark.failure(
    "disk-full",
    "No space is left in the volume of the shim's files after some of them, at twelve places.",
    "Every process of ONNX Runtime serves all its runs and ends with 0.",
)
def test_a_process_serves_all_its_runs_whatever_of_the_shim_finds_no_space(problem, tmp_path, figures):
    shim = tmp_path / "container" / SHIM_VOLUME
    problems = {"with room": problem({})}
    sizes = too_small(tmp_path / "whole")
    for size in sizes:
        with volume(tmp_path / "partly", size) as partly:
            with pytest.raises(OSError, match="No space left"):
                delivery.write(str(partly))
            problems[f"{size} bytes of shim"] = problem({shim: partly})
    failed = {what: text for what, text in problems.items() if text}
    figures |= {
        "processes": len(problems),
        "runs served": f"{RUNS * (len(problems) - len(failed))} of {RUNS * len(problems)}",
        f"failed, shim's volume full after {sizes[0]} to {sizes[-1]} bytes": sum(
            what.endswith("shim") for what in failed
        ),
    }
    assert failed == {}


@contextlib.contextmanager
def volume(folder, size):
    """A volume of so many bytes."""
    if os.geteuid() != 0:
        raise UnavailableError("not root: no small volumes can be mounted")
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


def too_small(whole):
    """Sizes of volumes that are too small for the shim's tree, from a page on, in whole pages."""
    delivery.write(str(whole))
    pages = sum(-(-path.stat().st_size // PAGE_BYTES) for path in whole.rglob("*") if path.is_file())
    shutil.rmtree(whole)
    return [max(1, pages * number // TREE_SIZES) * PAGE_BYTES for number in range(TREE_SIZES)]
