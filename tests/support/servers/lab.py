"""Runs a row's program on the made-up machine, with what a container has there, and counts its threads from outside."""

from __future__ import annotations

import concurrent.futures
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
from raddle import delivery
from raddle.machine import sysfs
from raddle_operator.cli.manifests import Manifest
from raddle_operator.cli.offline import default_policy, for_everything, of_container
from raddle_operator.cli.workloads import read_policies
from raddle_operator.local import door
from raddle_operator.local.container import Container
from support.runtimes import process_lab, shim_lab
from support.servers.row import Request, Row
from unavailable import UnavailableError

PROGRAMS = Path(__file__).parents[2] / "servers" / "programs"
CPUS = 64
# Sixty-four threads on two CPUs take their time, and so does the first import of a large package.
SECONDS = 240
SAMPLE_SECONDS = 0.02
# Who ask a server for work at the same time, at least one for each of its processes.
CLIENTS = 4
# Each program has one of its own, as in a container: children of one with one command count as a server's workers.
_PARENT = ("sh", "-c", '"$@"; exit', "sh")
NOTHING = Container(cpus=None, variables={}, mounts=(), notes=())


@dataclass(frozen=True, kw_only=True)
class Seen:
    """Threads of each process of a program after its work, the fewest first.

    `says` is what it tells itself, of each process where there are several; None where nothing.
    """

    each: tuple[int, ...]
    says: int | tuple[int, ...] | None

    @property
    def threads(self) -> int:
        """All of them."""
        return sum(self.each)

    @property
    def processes(self) -> int:
        """How many there are."""
        return len(self.each)


def given(row: Row, root: Path) -> Container:
    """What Raddle gives the row's container on the machine in this folder."""
    made = default_policy()
    policy = Manifest(file="the row", obj={**made.obj, "spec": {**made.obj["spec"], **row.policy}}, node=made.node)
    (asked,) = read_policies([policy])
    obj = {"name": "main", "image": "app", **row.container, "resources": {"limits": {"cpu": str(row.limit_cpus)}}}
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
    with running(row, fake, models, container, *more) as program:
        return program.seen


@dataclass(frozen=True, kw_only=True)
class Running:
    """A row's program that has done its first unit of work and waits for more."""

    row: Row
    seen: Seen
    process: subprocess.Popen[str]
    port: int
    work: Path

    def units_per_second(self, seconds: float) -> float:
        """How fast it works when asked for nothing but work, for about so long."""
        if self.row.request is not None:
            return _served(self.row.request, self.port, seconds)
        assert self.process.stdin is not None
        before = len(_said(self.work))
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        wait(lambda: len(_said(self.work)) > before, f"{self.row.name} works on", SECONDS, poll_seconds=0.02)
        answer = _said(self.work)[-1]
        return float(answer["units"]) / float(answer["seconds"])


@contextlib.contextmanager
def running(row: Row, fake: fakemachine.Fake, models: Path, container: Container, *more: str) -> Iterator[Running]:
    """The program, started and once asked for work. Raises UnavailableError where it can't be had here."""
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
            "limit": row.limit_cpus,
            "port": port,
        }
        (work / "work").mkdir()
        mounts: tuple[str, ...] = ()
        if container.mounts:
            (work / "files").mkdir()
            delivery.write(str(work / "files"))
            mounts = door.inside(work / "files")
        command = [*mounts, *(_filled(word, words) for word in (*row.program.command, *more))]
        variables = {name: _filled(value, words) for name, value in environment(row, container).items()}
        with _started(fake, command, variables, work) as process:
            seen = _seen(row, fake, process, port, work)
            yield Running(row=row, seen=seen, process=process, port=port, work=work)


def _served(request: Request, port: int, seconds: float) -> float:
    """Requests a second that are answered to so many clients."""
    end = time.monotonic() + seconds
    start = time.monotonic()

    def ask_again() -> int:
        units = 0
        while time.monotonic() < end:
            _ask(request, port)
            units += 1
        return units

    count = max(CLIENTS, request.processes)
    with concurrent.futures.ThreadPoolExecutor(count) as clients:
        units = sum(future.result() for future in [clients.submit(ask_again) for _ in range(count)])
    return units / (time.monotonic() - start)


def _ask(request: Request, port: int) -> bytes:
    url = f"http://127.0.0.1:{port}{request.path}"
    asked = urllib.request.Request(url, data=request.body, headers=dict(request.headers))
    with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
        said: bytes = answer.read()
        return said


def _filled(text: str, words: Mapping[str, Any]) -> str:
    """The text with the words in braces; other braces stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda found: str(words.get(found[1], found[0])), text)


@contextlib.contextmanager
def _started(
    fake: fakemachine.Fake, command: Sequence[str], variables: Mapping[str, str], work: Path
) -> Iterator[subprocess.Popen[str]]:
    with (work / "stderr").open("w") as errors, (work / "stdout").open("w") as output:
        process = subprocess.Popen(
            (*_PARENT, *fake.command(command)),
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
    most: list[tuple[int, ...]] = [()]
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            most[0] = max(most[0], _count(fake), key=sum)

    if row.peak:
        threading.Thread(target=sample, daemon=True).start()
    answered: dict[int, int | None] = {}

    def worked() -> bool:
        if process.poll() is not None:
            ends = "".join((work / name).read_text(errors="replace")[-2000:] for name in ("stdout", "stderr"))
            raise AssertionError(f"{row.name} has ended with {process.returncode}:\n{ends}")
        if row.request is None:
            return bool(_said(work))
        answer = _ask(row.request, port)
        if row.request.processes == 1:
            return True
        one = json.loads(answer)
        answered[one["pid"]] = one.get("says")
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
    each = max(_settled(fake), most[0], key=sum)
    said = _said(work)
    says = said[-1].get("says") if said else [one for one in answered.values() if one is not None] or None
    return Seen(each=each, says=tuple(sorted(says)) if isinstance(says, list) else says)


def _said(work: Path) -> list[dict[str, Any]]:
    """The lines of JSON that the program has written so far."""
    lines = (work / "stdout").read_text(errors="replace").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}\n")]


def _settled(fake: fakemachine.Fake) -> tuple[int, ...]:
    """The count once it is the same twice: threads that only answered the request may just be ending."""
    before = _count(fake)
    while True:
        time.sleep(0.3)
        now = _count(fake)
        if now == before:
            return now
        before = now


def _count(fake: fakemachine.Fake) -> tuple[int, ...]:
    """How many threads each process has."""
    each = []
    for pid in fake.pids():
        with contextlib.suppress(OSError):
            each.append(len(list(Path(f"/proc/{pid}/task").iterdir())))
    return tuple(sorted(each))
