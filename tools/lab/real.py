"""The real run: scenarios' containers in guests, and what came of them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.progress import Progress
from lab import plans, rootfs, verdict
from lab.plans import Bound
from lab.scenarios import NATIVE, PYTHON, Scenario, alike, on
from lab.verdict import RADDLE, STOCK, Verdict
from raddle import delivery
from vm import contents, disk, model, programs, qemu
from vm.errors import VMError, VMUnavailableError
from vm.shapes import get

GUEST = Path(__file__).parent / "guest"
VM_GUEST = Path(qemu.__file__).parent / "guest"
SLOTS = GUEST.parents[2] / "runtime" / "native"
COMMANDS = {
    PYTHON: ["/python/bin/python3", "/job/app.py", "/job/model.onnx"],
    NATIVE: ["/job/app", "/job/model.onnx"],
}
BASE_ENVIRONMENT = {"PATH": "/python/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
# Python, ONNX Runtime and the model need 200 MiB per container.
NODE_MIB = 512
# Under software emulation on a machine that does something else too.
GUEST_SECONDS = 3600
CONTAINER_SECONDS = 600
# It takes ten seconds where nothing else runs.
BOOT_SECONDS = 300
# Longer than a container may take.
SILENT_SECONDS = CONTAINER_SECONDS + 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What all guests of a run share: kernel, disk, and the files that go with every job."""

    kernel: Path
    disk: Path
    files: Path

    def guest(self, root: Path, folder: Path) -> qemu.Guest:
        """A guest that runs `root`/job/node.py; its initramfs is written to `folder`, and `root` is removed."""
        disk.initramfs(folder / "initramfs", root, GUEST / "start.sh")
        return qemu.Guest(kernel=self.kernel, initramfs=folder / "initramfs", disk=self.disk, node_mib=NODE_MIB)


def prepare(folder: Path, kernel: Path | None, progress: Progress) -> Prepared:
    """Find or make the kernel and the disk; write the shim and the model below `folder`. Raises VMError."""
    programs.need()
    result = Prepared(kernel=kernel or programs.kernel(progress), disk=rootfs.disk(progress), files=folder / "files")
    job = result.files / "job"
    # As the programs import it.
    (job / "vm" / "guest").mkdir(parents=True)
    for name in ("console.py", "session.py"):
        shutil.copy(VM_GUEST / name, job / "vm" / "guest")
    for name in ("node.py", "enter.py", "app.py"):
        shutil.copy(GUEST / name, job)
    _compile(job)
    model.write(job / "model.onnx")
    delivery.write(str(result.files / delivery.MOUNT_PATH.lstrip("/")))
    return result


def _compile(job: Path) -> None:
    """The C program, and the name of the library that it is linked to: the one in the guest's ONNX Runtime."""
    compiler = programs.find("gcc")
    (library,) = (file for file in contents.files("onnxruntime") if file.name.startswith("libonnxruntime.so."))
    if compiler is None:
        raise VMUnavailableError("not installed: gcc (tools/scripts/packages installs it as root)")
    flags = ["-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{SLOTS}", "-Wl,-rpath,/job"]
    command = [compiler, *flags, GUEST / "app.c", "-o", job / "app", library.locate()]
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
    if done.returncode:
        raise VMError(f"guest/app.c can't be compiled: {done.stderr[-1000:]}")
    (job / "libonnxruntime.so.1").symlink_to(rootfs.installed(library))


class Guests:
    """The guests of one run, each booted when it is first asked for, with all scenarios of its shape."""

    def __init__(self, prepared: Prepared, folder: Path, progress: Progress) -> None:
        self._prepared = prepared
        self._folder = folder
        self._progress = progress
        self._known: dict[str, list[Verdict]] = {}
        self._booted = 0

    def verdicts(self, scenario: Scenario) -> list[Verdict]:
        """One for each session of the scenario. Raises VMError where the guest does not come to its end."""
        if scenario.shape not in self._known:
            self._known[scenario.shape] = self._boot(scenario.shape)
        return [one for one in self._known[scenario.shape] if one.scenario == scenario.name]

    def forget(self, scenario: Scenario) -> None:
        """Have the scenario's guest booted again when it is next asked for."""
        self._known.pop(scenario.shape, None)

    def _boot(self, shape: str) -> list[Verdict]:
        bound = {scenario.name: _bound(scenario) for scenario in on(shape)}
        self._booted += 1
        work = self._folder / f"{shape}-{self._booted}"
        work.mkdir()
        guest = _guest(shape, bound, self._prepared, work)
        containers = len(sides(shape))

        def watch() -> None:
            ended = sum("id" in result for result in qemu.read_results(work))
            self._progress.tick(f"{shape}: {ended} of {containers} containers")

        qemu.run(
            get(shape),
            guest,
            work,
            timeout_s=GUEST_SECONDS,
            boot_s=BOOT_SECONDS,
            silent_s=SILENT_SECONDS,
            watch=watch,
        )
        results = qemu.completed(work)
        return [one for scenario in on(shape) for one in verdict.judge(scenario, bound[scenario.name], results)]


def _bound(scenario: Scenario) -> Bound:
    node = plans.machine(scenario.shape, scenario.reserved)
    return plans.bind(plans.pod(scenario.resources, COMMANDS[scenario.program]), node, scenario.policy)


def _guest(shape: str, bound: Mapping[str, Bound], prepared: Prepared, work: Path) -> qemu.Guest:
    root = work / "root"
    shutil.copytree(prepared.files, root, symlinks=True)
    containers = [container(scenario, side, bound[scenario.name].environ) for scenario, side in sides(shape)]
    job = {"containers": containers, "at_once": 2, "timeout_s": CONTAINER_SECONDS}
    (root / "job" / "job.json").write_text(json.dumps(job))
    return prepared.guest(root, work)


def sides(shape: str) -> list[tuple[Scenario, str]]:
    """The containers of a shape: each scenario with Raddle, and without where no other is alike."""
    return [
        (scenario, side)
        for scenario in on(shape)
        for side in (RADDLE, STOCK)
        if side == RADDLE or alike(scenario) == scenario.name
    ]


def container(scenario: Scenario, side: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The guest's order for one container; see guest/node.py."""
    steps = [{"cpuset": limits.cpuset, "quota_cpus": limits.quota_cpus} for limits, _ in scenario.sessions]
    return {
        "id": f"{scenario.name}-{side}",
        "qos": scenario.qos,
        **steps[0],
        "steps": steps[1:],
        "command": COMMANDS[scenario.program],
        "env": {**BASE_ENVIRONMENT, **(environ if side == RADDLE else {})},
    }
