"""The reader of cgroups in a guest with cgroup version 2, where this machine may have version 1: guest/limits.py."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from lab import qemu, real, verdict
from lab.errors import LabError
from lab.shapes import Shape

# Sets of four CPUs tell everything apart; memory as a guest of one NUMA node has.
SHAPE = Shape(shows="four cores, to look at limits only", cores=4)
TIMEOUT_SECONDS = 900


def run(prepared: real.Prepared, folder: Path) -> Mapping[str, str | None]:
    """Check -> what is wrong, None where nothing is. Raises LabError where the guest does not come to its end."""
    files, work = folder / "limits", folder / "limits-guest"
    shutil.copytree(prepared.files, files, symlinks=True)
    work.mkdir()
    shutil.copy(real.GUEST / "limits.py", files / "job" / "node.py")
    guest = qemu.Guest(
        kernel=prepared.kernel,
        initramfs=qemu.initramfs(work / "initramfs", files),
        disk=prepared.disk,
        node_mib=real.NODE_MIB,
    )
    for _ in qemu.run(SHAPE, guest, work, timeout_s=TIMEOUT_SECONDS):
        time.sleep(real.POLL_SECONDS)
    results = verdict.read_results((work / "results").read_text(errors="replace"))
    if not any(result.get("done") for result in results):
        failed = next((result["failed"] for result in results if "failed" in result), "it ended early")
        raise LabError(f"the guest that checks limits failed: {failed}\n{qemu.last_lines(work)}")
    return {result["check"]: result["wrong"] for result in results if "check" in result}
