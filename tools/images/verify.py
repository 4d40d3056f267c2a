"""Whether an image does what it is for, tried in it: as its own user, with nothing but its own files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from images import buildah
from images.build import Built
from images.model import ARCHITECTURES, ImagesError, own_architecture

# What each process imports beyond the command line.
_PROCESSES: Final = (
    "import raddle_operator.controller.process, raddle_operator.webhook.process, raddle_operator.agent.process"
)
_USER: Final = "import os, sys; assert os.getuid() == 65532, os.getuid(); from raddle import delivery"
_SHIMS: Final = "assert delivery.architectures() == delivery.ARCHITECTURES; delivery.files()"
_LOADS: Final = "import raddle_tuner.trials.http_load, raddle_tuner.trials.runner_load"
_LIBRARY: Final = "/opt/raddle-operator/lib"
_LAUNCHER: Final = "/opt/raddle-operator/bin/raddle"
COMMANDS: Final = {
    "operator": [
        ["python3", "-c", f"{_USER}; {_SHIMS}"],
        ["python3", "-c", _PROCESSES],
        *(
            ["raddle", name, "--help"]
            for name in ("controller", "webhook", "agent", "plan", "explain", "topology", "selftest")
        ),
    ],
    "agent": [["python3", "-c", f"{_USER}; import psutil, yaml"], ["raddle", "agent", "--help"]],
    "tuner": [["python3", "-c", f"{_USER}; {_SHIMS}; {_LOADS}"], ["raddle", "tuner", "--help"]],
}


def works(built: Built) -> str:
    """What was tried, as text; that nothing was where the machine can't run it. Raises ImagesError."""
    machine = ARCHITECTURES[built.architecture]
    emulator = None if built.architecture == own_architecture() else shutil.which(f"qemu-{machine}-static")
    if built.architecture != own_architecture() and emulator is None:
        return f"not run: this machine has another architecture and no qemu-{machine}-static"
    if emulator is not None:
        return _emulated(built, Path(emulator))
    container = buildah.run("from", "--pull-never", built.name).strip()
    try:
        for command in COMMANDS[built.image.folder]:
            buildah.run("run", "--isolation", "chroot", container, "--", *command)
    finally:
        buildah.run("rm", container)
    return f"{len(COMMANDS[built.image.folder])} commands ran"


def _emulated(built: Built, emulator: Path) -> str:
    """The same commands in the image's root, each instruction emulated."""
    prefix = ["/emulator", "-E", f"PYTHONPATH={_LIBRARY}", "/usr/bin/python3.11"]
    with buildah.mounted(built.name) as root:
        shutil.copy(emulator, root / "emulator")
        for name, *rest in COMMANDS[built.image.folder]:
            command = [*prefix, *([_LAUNCHER] if name == "raddle" else []), *rest]
            chroot = ["chroot", "--userspec=65532:65532", str(root), *command]
            run = subprocess.run(chroot, capture_output=True, text=True, check=False)
            if run.returncode != 0:
                raise ImagesError(f"{built.name}: {name} {' '.join(rest)} failed:\n{run.stderr[-2000:]}")
    return f"{len(COMMANDS[built.image.folder])} commands ran, emulated"
