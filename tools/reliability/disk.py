"""No space is left where the shim writes its reports, or where its own files were to lie.

Each process is real ONNX Runtime with the variables and files that a kubelet would give a pod's container.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from cluster import kubelet_env
from cluster.namespaces import TestNamespace
from cluster.waiting import wait
from load import models
from raddle import delivery, env
from reliability import truth
from reliability.model import BrokenError, Check, Result, broken_unless
from reliability.world import World
from unavailable import UnavailableError

RUNS: Final = 20
TREE_SIZES: Final = 12
PAGE_BYTES: Final = 4096
PROCESS_SECONDS: Final = 60.0
ROOM: Final = "room"
PROGRAM: Final = f"""
import os, sys
import numpy, onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
[wanted] = session.get_inputs()
image = numpy.zeros(wanted.shape, numpy.float32)
for number in range({RUNS}):
    session.run(None, {{wanted.name: image}})
    if number == {RUNS} // 2 and sys.argv[2:]:
        with open(os.path.join(sys.argv[2], "filler"), "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                assert error.errno == {errno.ENOSPC}
print("served", number + 1)
"""


class _Process:
    """How processes are started: with the container's variables, and the model."""

    def __init__(self, environment: Mapping[str, str], folder: Path) -> None:
        """`folder` is for the model."""
        self._environment = environment
        self._model = models.SMALL.file(folder)

    def problem(self, moved: Mapping[Path, Path], *arguments: str) -> str:
        """Run one with folders of its environment replaced; what is wrong with it, "" where it served everything."""
        environment = dict(self._environment)
        for old, new in moved.items():
            environment = {name: value.replace(str(old), str(new)) for name, value in environment.items()}
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(self._model), *arguments],
            check=False, capture_output=True, text=True, env={**kept, **environment}, timeout=PROCESS_SECONDS,
        )  # fmt: skip
        if (done.returncode, done.stdout) == (0, f"served {RUNS}\n"):
            return ""
        return f"exit code {done.returncode}: {done.stdout}{done.stderr[-500:]}"


def disk_full(world: World) -> Result:
    """Start processes with room, with a full volume for reports, with one that fills, and with parts of the shim."""
    if os.geteuid() != 0:
        raise UnavailableError("not root: no small volumes can be mounted")
    with world.namespace(world.raddle) as space, tempfile.TemporaryDirectory(prefix="raddle-disk-") as name:
        folder = Path(name)
        environment = _environment(space, folder / "container")
        shim, reports = (folder / "container" / path.lstrip("/") for path in _MOUNTS)
        process = _Process(environment, folder)
        problems = {"with room": process.problem({})}
        written = len(list(reports.glob("*.json")))
        with _volume(folder / "full", 16 * PAGE_BYTES) as full:
            (full / "filler").write_bytes(bytes(os.statvfs(full).f_bavail * PAGE_BYTES))
            problems["reports' volume full"] = process.problem({reports: full})
            in_full = len(list(full.glob("*.json")))
        with _volume(folder / "filling", 32 * PAGE_BYTES) as filling:
            problems["reports' volume fills meanwhile"] = process.problem({reports: filling}, str(filling))
            parts = list(filling.glob(".*.tmp"))
        sizes = _sizes(folder / "whole")
        for size in sizes:
            with _volume(folder / "partly", size) as partly:
                whole = _write_what_fits(partly)
                problems[f"{size} bytes of shim"] = process.problem({shim: partly})
            if whole:
                raise BrokenError(f"the shim's tree fits into {size} bytes, which were to be too few")
    failed = {what: text for what, text in problems.items() if text}
    return Result(
        {
            "processes": str(len(problems)),
            "runs served": f"{RUNS * (len(problems) - len(failed))} of {RUNS * len(problems)}",
            "failed, reports' volume full or filling": str(sum(what.startswith("reports") for what in failed)),
            f"failed, shim's volume full after {sizes[0]} to {sizes[-1]} bytes": str(
                sum(what.endswith("shim") for what in failed)
            ),
            "reports with room": str(written),
            "half reports left": str(len(parts)),
        },
        (
            *broken_unless(
                every_process_serves_all_and_ends_well=not failed,
                a_report_is_written_where_there_is_room=written == 1,
                none_is_where_there_is_none=in_full == 0,
                no_half_report_is_left=not parts,
            ),
            *(f"{what}: {text}" for what, text in failed.items()),
        ),
    )


_MOUNTS: Final = (delivery.MOUNT_PATH, delivery.REPORT_PATH)


def _environment(space: TestNamespace, root: Path) -> dict[str, str]:
    """What a container of a governed pod starts with; its mounts are below `root`."""
    one = truth.capped("app", 2)
    # By variables: the processes start where the mounts are not.
    one["spec"] |= {"reports": True, "shim": "ConfigMap", "imageEnv": {"PYTHONPATH": ""}}
    space.store(one)
    space.governed("app")
    # Only then has the webhook seen the shim's ConfigMap.
    wait(lambda: "PYTHONPATH" in str(space.probe(truth.of_app("app", "probe"))["spec"]), "the pod is given a shim")
    space.create(truth.of_app("app", "app-0"))
    found = kubelet_env.environment(space.client, space.bound("app-0"), "serve", root)
    if env.REPORT not in found or "PYTHONPATH" not in found:
        raise BrokenError(f"the container is given no shim or no folder for reports: {sorted(found)}")
    return found


@contextlib.contextmanager
def _volume(folder: Path, size: int) -> Iterator[Path]:
    """A volume of so many bytes."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


def _sizes(whole: Path) -> list[int]:
    """Sizes of volumes that are too small for the shim's tree, from a page on, in whole pages."""
    delivery.write(str(whole))
    pages = sum(-(-path.stat().st_size // PAGE_BYTES) for path in whole.rglob("*") if path.is_file())
    shutil.rmtree(whole)
    return [max(1, pages * number // TREE_SIZES) * PAGE_BYTES for number in range(TREE_SIZES)]


def _write_what_fits(folder: Path) -> bool:
    """Write the shim's tree until the volume is full, which leaves one file cut off; whether all of it fitted."""
    try:
        delivery.write(str(folder))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    return True


CHECKS: Final = (
    Check(
        "disk-full",
        "No space is left in the volume of the reports, at once or while the process runs, or in that of the shim's"
        " files, which are cut off at twelve places.",
        "Every process of ONNX Runtime serves all its runs and ends with 0.",
        disk_full,
    ),
)
