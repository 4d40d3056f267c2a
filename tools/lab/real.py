"""The real run: scenarios' containers in guests, and what came of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.progress import Progress
from lab import contents, model, plans, programs, qemu, rootfs, verdict
from lab.errors import LabError, LabUnavailableError
from lab.plans import Bound
from lab.scenarios import NATIVE, PYTHON, Scenario, alike, on
from lab.shapes import get
from lab.verdict import RADDLE, STOCK, Verdict
from raddle import delivery

GUEST = Path(__file__).parent / "guest"
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
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What all guests of a run share: kernel, disk, and the files that go with every job."""

    kernel: Path
    disk: Path
    files: Path


def prepare(folder: Path, kernel: Path | None, progress: Progress) -> Prepared:
    """Find or make the kernel and the disk; write the shim and the model below `folder`. Raises LabError."""
    programs.need()
    found = Prepared(kernel=kernel or programs.kernel(progress), disk=rootfs.disk(progress), files=folder / "files")
    for name in ("proc", "sys", "dev", "root", "job"):
        (found.files / name).mkdir(parents=True)
    contents.busybox(found.files)
    for name, target in (("init.sh", "init"), ("cpus.sh", "cpus.sh")):
        shutil.copy(GUEST / name, found.files / target)
        (found.files / target).chmod(0o755)
    for name in ("node.py", "enter.py", "app.py"):
        shutil.copy(GUEST / name, found.files / "job" / name)
    # As applications import it.
    (found.files / "job" / "lab" / "guest").mkdir(parents=True)
    shutil.copy(GUEST / "threads.py", found.files / "job" / "lab" / "guest" / "threads.py")
    _compile(found.files / "job")
    model.write(found.files / "job" / "model.onnx")
    delivery.write(str(found.files / delivery.MOUNT_PATH.lstrip("/")))
    return found


def _compile(job: Path) -> None:
    """The C program, and the name of the library that it is linked to: the one in the guest's ONNX Runtime."""
    compiler = programs.find("gcc")
    (library,) = (file for file in contents.files("onnxruntime") if file.name.startswith("libonnxruntime.so."))
    if compiler is None:
        raise LabUnavailableError("not installed: gcc (tools/scripts/packages installs it as root)")
    flags = ["-std=gnu17", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{SLOTS}", "-Wl,-rpath,/job"]
    command = [compiler, *flags, GUEST / "app.c", "-o", job / "app", library.locate()]
    done = subprocess.run(list(map(str, command)), check=False, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"guest/app.c can't be compiled: {done.stderr[-1000:]}")
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
        """One for each session of the scenario. Raises LabError where the guest does not come to its end."""
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
        guest = qemu.Guest(
            kernel=self._prepared.kernel,
            initramfs=_initramfs(shape, bound, self._prepared, work),
            disk=self._prepared.disk,
            node_mib=NODE_MIB,
        )
        containers = len(sides(shape))
        watched = qemu.run(
            get(shape), guest, work, timeout_s=GUEST_SECONDS, boot_s=BOOT_SECONDS, silent_s=SILENT_SECONDS
        )
        for _ in watched:
            ended = sum("id" in result for result in results(work))
            self._progress.tick(f"{shape}: {ended} of {containers} containers")
            time.sleep(POLL_SECONDS)
        told = results(work)
        need_done(shape, told, work)
        return [one for scenario in on(shape) for one in verdict.judge(scenario, bound[scenario.name], told)]


def need_done(name: str, results: Sequence[Mapping[str, Any]], work: Path) -> None:
    """Raise LabError where the guest has not told that it did all."""
    if not any(result.get("done") for result in results):
        failed = next((result["failed"] for result in results if "failed" in result), "it ended early")
        raise LabError(f"the guest {name} failed: {failed}\n{qemu.last_lines(work)}")


def results(work: Path) -> list[dict[str, Any]]:
    """What the guest has told so far, a mapping per line."""
    return verdict.read_results((work / "results").read_text(errors="replace"))


def _bound(scenario: Scenario) -> Bound:
    node = plans.machine(scenario.shape, scenario.reserved)
    return plans.bind(plans.pod(scenario.resources, COMMANDS[scenario.program]), node, scenario.policy)


def _initramfs(shape: str, bound: Mapping[str, Bound], prepared: Prepared, work: Path) -> Path:
    root = work / "root"
    shutil.copytree(prepared.files, root, symlinks=True)
    containers = [container(scenario, side, bound[scenario.name].environ) for scenario, side in sides(shape)]
    job = {"containers": containers, "at_once": 2, "timeout_s": CONTAINER_SECONDS}
    (root / "job" / "job.json").write_text(json.dumps(job))
    made = qemu.initramfs(work / "initramfs", root)
    shutil.rmtree(root)
    return made


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
