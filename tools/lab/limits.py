"""The reader of cgroups in a guest with cgroup version 2, where this machine may have version 1: guest/limits.py."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cluster.progress import Progress
from lab import attempts, qemu, real
from lab.shapes import Shape

# Sets of four CPUs tell everything apart; memory as a guest of one NUMA node has.
SHAPE = Shape(shows="four cores, to look at limits only", cores=4)
TIMEOUT_SECONDS = 900
# It says each check when it is done; a program of a check has two minutes.
SILENT_SECONDS = 300


def run(prepared: real.Prepared, folder: Path, progress: Progress) -> Mapping[str, str | None]:
    """Check -> what is wrong, None where nothing is. Raises LabError where no attempt brings the guest to its end."""
    found: Mapping[str, str | None] = {}
    for found in attempts.attempts("limits", partial(_guest, prepared), _wrong, folder, progress):
        progress.tick(f"limits: {len(found)} checks")
        time.sleep(real.POLL_SECONDS)
    return found


def _guest(prepared: real.Prepared, work: Path) -> Iterator[Mapping[str, str | None]]:
    """What is known so far, while the guest runs; at last, all."""
    files = work / "files"
    shutil.copytree(prepared.files, files, symlinks=True)
    shutil.copy(real.GUEST / "limits.py", files / "job" / "node.py")
    guest = qemu.Guest(
        kernel=prepared.kernel,
        initramfs=qemu.initramfs(work / "initramfs", files),
        disk=prepared.disk,
        node_mib=real.NODE_MIB,
    )
    for _ in qemu.run(SHAPE, guest, work, timeout_s=TIMEOUT_SECONDS, boot_s=SILENT_SECONDS, silent_s=SILENT_SECONDS):
        yield _checks(real.results(work))
    results = real.results(work)
    real.need_done("limits", results, work)
    yield _checks(results)


def _wrong(found: Mapping[str, str | None]) -> str:
    return "; ".join(f"{check}: {wrong}" for check, wrong in found.items() if wrong)


def _checks(results: Sequence[Mapping[str, Any]]) -> Mapping[str, str | None]:
    return {result["check"]: result["wrong"] for result in results if "check" in result}
