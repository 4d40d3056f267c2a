"""Programs under load: runners of a model, or a server, started as a container of one candidate."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from raddle_operator.local.container import Container
from raddle_tuner.trials import ending, http_load, kserve, runner_load
from raddle_tuner.trials.http_load import Request
from raddle_tuner.trials.load import Caller, LoadError
from raddle_tuner.trials.processes import Launcher, Processes, TrialError, here, last_words

__all__ = ["START_S", "Program", "Request", "Server", "TrialError", "runners", "server"]

# Importing ONNX Runtime and loading a model within a tenth of a CPU is slow.
_MOST_SOCKET_BYTES: Final = 107
START_S: Final = 120.0
# How the shim tells of it, on standard error.
_SHIM_SAID: Final = re.compile(r"raddle: onnxruntime (\d+(?:\.\d+)+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program that waits to be asked.

    `said` is what a runner says of itself (run_model.py), or a server's ONNX Runtime as the shim tells of it, {} where
    it tells of none. `started_s` is how long it took to come up.
    """

    caller: Caller
    processes: Processes
    said: Mapping[str, Any]
    started_s: float


@contextlib.contextmanager
def runners(
    given: Container,
    command: Sequence[str],
    instances: int,
    say: Callable[[str], None],
    *,
    place: Launcher = here,
    start_s: float = START_S,
) -> Iterator[Program]:
    """So many runners of a model in one quota, each the command with the socket's path behind it.

    Raises TrialError where one does not come up.
    """
    before_s = time.monotonic()
    with contextlib.ExitStack() as stack:
        processes, folder = stack.enter_context(place(given, command, say))
        listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        path = _short(folder, stack) / "socket"
        listener.bind(str(path))
        path.chmod(0o777)
        listener.listen(instances)
        for _ in range(instances):
            processes.start([str(path)])
        links = []
        said: Mapping[str, Any] = {}
        for _ in range(instances):
            link = stack.enter_context(_accepted(listener, processes, before_s + start_s))
            said = _said(link, processes, before_s + start_s)
            links.append(link)
        numbers = [link.fileno() for link in links]
        caller = Caller(runner_load.__name__, [str(number) for number in numbers], links=numbers)
        stack.callback(caller.close)
        yield Program(caller=caller, processes=processes, said=said, started_s=time.monotonic() - before_s)


def _short(folder: Path, stack: contextlib.ExitStack) -> Path:
    """The folder by a name in which a socket's path has room: sun_path holds 107 bytes, see unix(7)."""
    if len(os.fsencode(folder / "socket")) <= _MOST_SOCKET_BYTES:
        return folder
    opened = os.open(folder, os.O_PATH)
    stack.callback(os.close, opened)
    return Path(f"/proc/{os.getpid()}/fd/{opened}")


def _accepted(listener: socket.socket, processes: Processes, end_s: float) -> socket.socket:
    _await(listener, processes, end_s)
    return listener.accept()[0]


def _said(link: socket.socket, processes: Processes, end_s: float) -> Mapping[str, Any]:
    line = b""
    while not line.endswith(b"\n"):
        _await(link, processes, end_s)
        part = link.recv(4096)
        if not part:
            raise TrialError(f"the runner ended before it was ready{last_words(processes.output())}")
        line += part
    said: Mapping[str, Any] = json.loads(line)
    if "error" in said:
        raise TrialError(str(said["error"]))
    return said


def _await(readable: socket.socket, processes: Processes, end_s: float) -> None:
    """Until there is something to read. Raises TrialError where a process ends first, or it takes too long."""
    while not _readable(readable):
        try:
            processes.check()
        except TrialError:
            # It may have said why just before it ended.
            if _readable(readable):
                return
            raise
        if time.monotonic() > end_s:
            raise TrialError(f"the runner was not ready in time{last_words(processes.output())}")


def _readable(link: socket.socket) -> bool:
    with ending.awaited():
        return bool(select.select([link], [], [], 0.1)[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """How a server is started and asked. `{port}` in the command and the URL stands for a free port.

    With `kserve` the request's URL is a model's by the KServe v2 protocol, and what is posted is made of these inputs.
    """

    command: tuple[str, ...]
    request: Request
    kserve: kserve.Inputs | None = None
    start_s: float = START_S

    @property
    def own_port(self) -> bool:
        """Whether the port is its own, so that only one can live at a time."""
        return "{port}" not in " ".join((*self.command, self.request.url))


@contextlib.contextmanager
def server(
    given: Container, how: Server, instances: int, say: Callable[[str], None], *, place: Launcher = here
) -> Iterator[Program]:
    """A server that has answered.

    Raises TrialError where it does not come up, or refuses the request; InputError where none can be made.
    """
    before_s = time.monotonic()
    port = str(_free_port())
    command = [part.replace("{port}", port) for part in how.command]
    request = replace(how.request, url=how.request.url.replace("{port}", port))
    with contextlib.ExitStack() as stack:
        processes, folder = stack.enter_context(place(given, command, say))
        processes.start()

        def answer(request: Request) -> bytes:
            with ending.awaited():
                left_s = max(1.0, before_s + how.start_s - time.monotonic())
                return asyncio.run(http_load.answered(request, left_s, processes.check))

        try:
            if how.kserve is not None:
                request = _kserve_request(request, how.kserve, answer, folder / "request")
            answer(request)
        except LoadError as error:
            raise TrialError(f"{error}{last_words(processes.output())}") from None
        document = json.dumps({**asdict(request), "callers": instances})
        caller = Caller(http_load.__name__, [document])
        stack.callback(caller.close)
        shim = _SHIM_SAID.search(processes.output())
        said = {"runtime": "onnxruntime", "version": shim[1]} if shim else {}
        yield Program(caller=caller, processes=processes, said=said, started_s=time.monotonic() - before_s)


def _kserve_request(model: Request, given: kserve.Inputs, answer: Callable[[Request], bytes], file: Path) -> Request:
    """What is posted to the model, written into the file. Raises InputError, and what `answer` does."""
    metadata = answer(model)
    body, headers = kserve.request(answer(replace(model, url=kserve.server_url(model.url))), metadata, given)
    file.write_bytes(body)
    return Request(url=f"{model.url}/infer", file=str(file), headers={**headers, **model.headers})


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
