"""The guest's node, as its first process: makes containers' cgroups as the kubelet does and runs a program in each.

Reads /job/job.json: {"containers": [...], "at_once": number, "timeout_s": seconds}, where a container is
{"id", "qos", "cpuset", "quota_cpus" (null: none), "env", "command", "steps": [{"cpuset", "quota_cpus"}, ...]}.
Each step changes the container's cgroup while its program runs; the program is told by a line and looks again.
Writes a line of JSON per container to the second serial line: {"id", "looks": [...], "stderr", "code", ...}.

Standard library only; it runs in the guest's Python.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from vm.guest import console

CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100000  # the kubelet's, and the kernel's default
CONTROLLERS = "+cpuset +cpu +memory"
STDERR_CHARACTERS = 4000
ENTER = str(Path(__file__).with_name("enter.py"))
# A container: see the module.
Container = Mapping[str, Any]


def main(send: Callable[[Mapping[str, Any]], None]) -> None:
    """Run the job."""
    job = json.loads(Path("/job/job.json").read_text())
    send({"booted": True})
    prepare()
    with ThreadPoolExecutor(job["at_once"]) as pool:
        begun = [pool.submit(attempt, one, job["timeout_s"]) for one in job["containers"]]
        # As they end: the host takes a guest that writes nothing for one that hangs.
        for ended in as_completed(begun):
            send(ended.result())


def prepare() -> None:
    """The kubelet's hierarchy; with controllers, no process may be but in its leaves."""
    system = CGROUPS / "system"
    system.mkdir()
    (system / "cgroup.procs").write_text(str(os.getpid()))
    kubepods = CGROUPS / "kubepods"
    kubepods.mkdir()
    for folder in (CGROUPS, kubepods):
        (folder / "cgroup.subtree_control").write_text(CONTROLLERS)


def attempt(container: Container, timeout_s: float) -> dict[str, Any]:
    """The container's result, or why there is none."""
    try:
        return run(container, timeout_s)
    except Exception as error:  # noqa: BLE001 (the others go on)
        return {"id": container["id"], "failed": repr(error)}


def run(container: Container, timeout_s: float) -> dict[str, Any]:
    """One container from its cgroup to its end."""
    group = made(container)
    scratch = Path("/tmp") / container["id"]
    scratch.mkdir(parents=True)
    # Into the container's program only: this Python would start Raddle too.
    (scratch / "environ").write_text(json.dumps(container["env"]))
    # Without site and the environment: emulated CPUs take long to start Python.
    command = [sys.executable, "-I", "-S", ENTER, str(group), str(scratch), *container["command"]]
    errors = scratch / "stderr"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        guard = threading.Timer(timeout_s, process.kill)
        guard.start()
        try:
            looks = converse(process, group, container["steps"])
            code = process.wait()
        finally:
            guard.cancel()
            process.kill()
    output = errors.read_text(errors="replace")
    stat = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return {
        "id": container["id"],
        "looks": looks,
        "code": code,
        "stderr": output[-STDERR_CHARACTERS:],
        "affinity_errors": output.count("pthread_setaffinity_np failed"),
        "throttled_periods": int(stat.get("nr_throttled", 0)),
    }


def converse(process: subprocess.Popen[str], group: Path, steps: list[Container]) -> list[Any]:
    """What the program prints: a look per line. It waits after each, while the next limits are written."""
    assert process.stdin is not None
    assert process.stdout is not None
    looks = []
    for printed in process.stdout:
        looks.append(json.loads(printed))
        more = len(looks) <= len(steps)
        if more:
            limit(group, steps[len(looks) - 1])
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("again\n" if more else "end\n")
            process.stdin.flush()
    return looks


def made(container: Container) -> Path:
    """kubepods/[burstable/]pod<id>/container, limited: the CPU set on the container, the quota on both."""
    parent = CGROUPS / "kubepods"
    if container["qos"] != "guaranteed":
        parent = parent / container["qos"]
        parent.mkdir(exist_ok=True)
        (parent / "cgroup.subtree_control").write_text(CONTROLLERS)
    pod = parent / f"pod{container['id']}"
    pod.mkdir()
    (pod / "cgroup.subtree_control").write_text(CONTROLLERS)
    group = pod / "container"
    group.mkdir()
    limit(group, container)
    return group


def limit(group: Path, wanted: Container) -> None:
    """What the kubelet and the CPU manager write, at the start and at a resize."""
    (group / "cpuset.cpus").write_text(wanted["cpuset"])
    quota = wanted["quota_cpus"]
    text = f"{'max' if quota is None else int(quota * PERIOD_US)} {PERIOD_US}"
    for folder in (group.parent, group):
        (folder / "cpu.max").write_text(text)


if __name__ == "__main__":
    console.run(main)
