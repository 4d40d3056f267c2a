"""What the tests of servers share: the environment that a pod's container would start with, and real servers in it.

The environment is what the webhook's own decision gives a pod with this command and this CPU limit; no kubelet is here,
so annotations are resolved and the mount's path is replaced as one would.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster import decided, kubelet_env, objects
from cluster.waiting import wait
from raddle import delivery
from raddle_operator.injection import decide, shipped
from runtimes import fetching, pythons
from support.runtimes import shim_lab, torch_lab

PROGRAMS = Path(__file__).parents[2] / "runtimes" / "processes"
PACKAGES = ["onnxruntime==1.31.1", "gunicorn==23.0.0", "uvicorn==0.38.0", "joblib==1.5.2", "threadpoolctl==3.6.0"]


def interpreter() -> Path:
    """Python with the servers."""
    return pythons.venv("servers", "3.11", PACKAGES)


def torchserve() -> Path:
    """Debian's Python with its torch, and TorchServe beside it; skips the test where torch isn't here."""
    torch_lab.installed()
    home = pythons.VENVS / "torchserve-0.12.0"
    with fetching.made(home) as folder:
        if folder:
            fetching.fetch(torch_lab.PYTHON, "-m", "venv", "--system-site-packages", folder)
            packages = ("torchserve==0.12.0", "torch-model-archiver==0.12.0")
            fetching.fetch(folder / "bin" / "python", "-m", "pip", "install", "--quiet", *packages)
    return home / "bin"


def container_env(
    command: Sequence[str],
    mount: Path | None,
    *,
    limit_cpus: float | None,
    policy: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables of a container with this command, limit and own variables, under a policy with these fields.

    The shim is at its place, for a process behind the door; or below `mount`, for one of Python that begins with it.
    """
    if platform.machine() not in delivery.architectures():
        pytest.skip(f"no native shim for {platform.machine()} is built here")
    entries = [{"name": name, "value": value} for name, value in (env or {}).items()]
    limit = None if limit_cpus is None else f"{limit_cpus:g}"
    pod = objects.pod(objects.container(cpu=limit, command=list(command), env=entries), namespace="models")
    facts = decide.Facts(
        smallest_cores=len(os.sched_getaffinity(0)),
        config_map_present=True,
        architectures=frozenset([platform.machine()]),
    )
    governing = objects.policy("all", "models", **(policy or {}))
    changed = decided.injected(pod, governing, facts, decide.Settings(shim=shipped.shim()))
    found = kubelet_env.variables(changed, "serve")
    return found if mount is None else {**found, **shim_lab.python_path(mount)}


@contextlib.contextmanager
def server(
    command: Sequence[str], env: Mapping[str, str], folder: Path, port: int | None = None
) -> Iterator[tuple[int, Path]]:
    """A running server: its port ("{port}" in the command is replaced) and the file that takes its stderr."""
    if port is None:
        (port,) = free_ports(1)
    errors = folder / "stderr"
    argv = [word.replace("{port}", str(port)) for word in command]
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            argv, env=shim_lab.environment(env), stdout=stderr, stderr=stderr, cwd=PROGRAMS, start_new_session=True
        )
    try:
        _wait_until_it_answers(process, port, errors)
        yield port, errors
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, errors: Path) -> None:
    def answers() -> bool:
        assert process.poll() is None, f"the server has ended:\n{errors.read_text()[-3000:]}"
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True

    wait(answers, "the server listens", 60, refusals=(OSError,))


def workers(port: int, count: int, path: str = "/") -> dict[int, dict[str, Any]]:
    """What each of `count` workers says of itself, by process id: asked until all have answered."""
    found: dict[int, dict[str, Any]] = {}

    def complete() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            said = json.loads(answer.read())
            found[said["pid"]] = said
        return len(found) == count

    # A server that is not ready refuses.
    wait(complete, f"{count} workers have answered", 60, refusals=(urllib.error.HTTPError,), poll_seconds=0)
    return found


def program(name: str, *arguments: str, env: Mapping[str, str], python: Path, prefix: Sequence[str] = ()) -> Any:
    """The last line that a program of tests/runtimes/processes prints, as JSON, and its stderr."""
    done = subprocess.run(
        [*prefix, str(python), str(PROGRAMS / name), *arguments],
        env=shim_lab.environment(env),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def run(command: Sequence[str], env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """The command, run to its end; AssertionError with what it said where it failed."""
    done = subprocess.run(
        list(command), env=shim_lab.environment(env), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done
