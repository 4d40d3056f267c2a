"""The reader of cgroups in a guest with cgroup version 2, where this machine may have version 1: guest/limits.py."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from cluster.progress import Progress
from lab import qemu, real
from lab.shapes import Shape

# Sets of four CPUs tell everything apart; memory as a guest of one NUMA node has.
SHAPE = Shape(shows="four cores, to look at limits only", cores=4)
TIMEOUT_SECONDS = 900
# It says each check when it is done; a program of a check has two minutes.
SILENT_SECONDS = 300


def run(prepared: real.Prepared, folder: Path, progress: Progress) -> dict[str, str | None]:
    """Check -> what is wrong, None where nothing is. Raises LabError where the guest does not come to its end."""
    files = folder / "files"
    shutil.copytree(prepared.files, files, symlinks=True)
    shutil.copy(real.GUEST / "limits.py", files / "job" / "node.py")
    guest = qemu.Guest(
        kernel=prepared.kernel,
        initramfs=qemu.initramfs(folder / "initramfs", files),
        disk=prepared.disk,
        node_mib=real.NODE_MIB,
    )
    for _ in qemu.run(SHAPE, guest, folder, timeout_s=TIMEOUT_SECONDS, boot_s=SILENT_SECONDS, silent_s=SILENT_SECONDS):
        progress.tick(f"limits: {len(_checks(folder))} checks")
        time.sleep(real.POLL_SECONDS)
    real.need_done("limits", real.results(folder), folder)
    return _checks(folder)


def _checks(folder: Path) -> dict[str, str | None]:
    return {result["check"]: result["wrong"] for result in real.results(folder) if "check" in result}
