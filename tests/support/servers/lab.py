"""Runs a row's program on the made-up machine, with what a container has there, and counts its threads from outside."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fakemachine
from cluster import kubelet_env
from cluster.waiting import wait
from raddle.machine import sysfs
from raddle_operator.cli.manifests import Manifest
from raddle_operator.cli.run import default_policy, for_everything, of_container
from raddle_operator.cli.workloads import read_policies
from raddle_operator.local import door
from raddle_operator.local.container import Container
from support.runtimes import process_lab, shim_lab
from support.servers.row import Row
from unavailable import UnavailableError

PROGRAMS = Path(__file__).parents[2] / "servers" / "programs"
CPUS = 64
LIMIT_CPUS = 2
# Sixty-four threads on two CPUs take their time, and so does the first import of a large package.
SECONDS = 240
SAMPLE_SECONDS = 0.02
NOTHING = Container(cpus=None, variables={}, mounts=(), notes=())


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Threads of all processes of a program after its work; `says` is what it tells itself, None where nothing."""

    threads: int
    processes: int
    says: int | None


def given(row: Row, root: Path) -> Container:
    """What Raddle gives the row's container on the machine in this folder."""
    made = default_policy()
    policy = Manifest(file="the row", obj={**made.obj, "spec": {**made.obj["spec"], **row.policy}}, node=made.node)
    (asked,) = read_policies([policy])
    obj = {"name": "main", "image": "app", **row.container, "resources": {"limits": {"cpu": str(LIMIT_CPUS)}}}
    machine = sysfs.read_machine(str(root))._replace(architecture=platform.machine())
    return of_container(obj, for_everything(asked), str(root), machine)


def environment(row: Row, container: Container) -> dict[str, str]:
    """The variables that the row's program starts with: the image's, the pod's, and Raddle's."""
    found = dict(row.image_env)
    pods = {entry["name"]: entry["value"] for entry in row.container.get("env", ())}
    for name, value in {**pods, **container.variables}.items():
        found[name] = kubelet_env.expand(value, found)
    return shim_lab.environment(found)


def run(row: Row, fake: fakemachine.Fake, models: Path, container: Container, *more: str) -> Seen:
    """What is seen of the program after its work. Raises UnavailableError where it can't be had here."""
    if door.problem():
        raise UnavailableError(f"nothing can be mounted here: {door.problem()}")
    here = row.program.made()
    with tempfile.TemporaryDirectory(prefix="raddle-server-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        (port,) = process_lab.free_ports(1)
        words = {
            "here": here,
            "programs": PROGRAMS,
            "models": models,
            "serving": process_lab.PROGRAMS,
            "work": work / "work",
            "port": port,
        }
        (work / "work").mkdir()
        mounts: tuple[str, ...] = ()
        if container.mounts:
            (work / "files").mkdir()
            container.write_files(work / "files")
            mounts = door.inside(work / "files")
        command = [*mounts, *(_filled(word, words) for word in (*row.program.command, *more))]
        variables = {name: _filled(value, words) for name, value in environment(row, container).items()}
        with _running(fake, command, variables, work) as process:
            return _seen(row, fake, process, port, work)


def _filled(text: str, words: Mapping[str, Any]) -> str:
    """The text with the words in braces; other braces stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda found: str(words.get(found[1], found[0])), text)


@contextlib.contextmanager
def _running(
    fake: fakemachine.Fake, command: Sequence[str], variables: Mapping[str, str], work: Path
) -> Iterator[subprocess.Popen[str]]:
    with (work / "stderr").open("w") as errors, (work / "stdout").open("w") as output:
        process = subprocess.Popen(
            fake.command(command),
            env=variables,
            cwd=work / "work",
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            text=True,
        )
        try:
            yield process
        finally:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                process.communicate("", timeout=1 if process.poll() is None else None)
            _end(fake, process)


def _end(fake: fakemachine.Fake, process: subprocess.Popen[str]) -> None:
    def gone() -> bool:
        for pid in fake.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        return not fake.pids()

    wait(gone, "the program has ended", 30)
    process.wait(30)


def _seen(row: Row, fake: fakemachine.Fake, process: subprocess.Popen[str], port: int, work: Path) -> Seen:
    most: list[tuple[int, int]] = [(0, 0)]
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            most[0] = max(most[0], _count(fake))

    if row.peak:
        threading.Thread(target=sample, daemon=True).start()
    said: list[str] = []
    answered: set[int] = set()

    def worked() -> bool:
        if process.poll() is not None:
            ends = "".join((work / name).read_text(errors="replace")[-2000:] for name in ("stdout", "stderr"))
            raise AssertionError(f"{row.name} has ended with {process.returncode}:\n{ends}")
        if row.request is None:
            said[:] = [line for line in (work / "stdout").read_text().splitlines(keepends=True) if _is_json(line)]
            return bool(said)
        url = f"http://127.0.0.1:{port}{row.request.path}"
        asked = urllib.request.Request(url, data=row.request.body, headers=dict(row.request.headers))
        with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
            if row.request.processes == 1:
                return True
            answered.add(json.load(answer)["pid"])
            return len(answered) >= row.request.processes

    try:
        wait(
            worked,
            f"{row.name} has done its work",
            SECONDS,
            refusals=(OSError, urllib.error.URLError),
            poll_seconds=0.1,
        )
    except Exception as error:
        error.add_note((work / "stderr").read_text(errors="replace")[-2000:])
        raise
    finally:
        done.set()
    threads, processes = _settled(fake)
    threads = max(threads, most[0][0])
    answer = json.loads(said[-1]) if said else {}
    return Seen(threads=threads, processes=processes, says=answer.get("says"))


def _is_json(line: str) -> bool:
    return line.startswith("{") and line.endswith("}\n")


def _settled(fake: fakemachine.Fake) -> tuple[int, int]:
    """The count once it is the same twice: threads that only answered the request may just be ending."""
    before = _count(fake)
    while True:
        time.sleep(0.3)
        now = _count(fake)
        if now == before:
            return now
        before = now


def _count(fake: fakemachine.Fake) -> tuple[int, int]:
    """How many threads there are in how many processes."""
    threads = processes = 0
    for pid in fake.pids():
        with contextlib.suppress(OSError):
            threads += len(list(Path(f"/proc/{pid}/task").iterdir()))
            processes += 1
    return threads, processes
