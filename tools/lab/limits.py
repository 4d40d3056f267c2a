"""What reads and makes cgroups, in a guest with cgroup version 2, where this machine may have version 1.

The guest runs one of guest/limits.py, guest/quotas.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import raddle
import raddle_operator.local
from cluster.progress import Progress
from lab import real
from vm import qemu
from vm.shapes import Shape

# Sets of four CPUs tell everything apart; quotas need one. Memory as a guest of one NUMA node has.
SHAPES = {
    "limits": Shape(shows="four cores, to look at limits only", cores=4),
    "quotas": Shape(shows="one core, to make quotas only", cores=1),
}
TIMEOUT_SECONDS = 900
# It says each check when it is done; a program of a check has two minutes.
SILENT_SECONDS = 300
_COMPILED = shutil.ignore_patterns("__pycache__", "_native")


def run(checks: str, prepared: real.Prepared, folder: Path, progress: Progress) -> dict[str, str | None]:
    """Check -> what is wrong, None where nothing is. Raises VMError where the guest does not come to its end.

    `checks` names the guest's program, one of SHAPES.
    """
    files = folder / "files"
    shutil.copytree(prepared.files, files, symlinks=True)
    shutil.copy(real.GUEST / f"{checks}.py", files / "job" / "node.py")
    for package in (raddle, raddle_operator.local):
        home = Path(package.__path__[0])
        shutil.copytree(home, files / "job" / "src" / Path(*package.__name__.split(".")), ignore=_COMPILED)

    def watch() -> None:
        progress.tick(f"{checks}: {sum('check' in result for result in qemu.read_results(folder))} checks")

    qemu.run(
        SHAPES[checks],
        prepared.guest(files, folder),
        folder,
        timeout_s=TIMEOUT_SECONDS,
        boot_s=SILENT_SECONDS,
        silent_s=SILENT_SECONDS,
        watch=watch,
    )
    return {result["check"]: result["wrong"] for result in qemu.completed(folder) if "check" in result}
