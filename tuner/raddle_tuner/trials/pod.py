"""The workload's container of a tuning's pod: programs are started in it through a folder that both containers mount.

A container can't start anything in another. So the workload's one runs SUPERVISOR, which takes orders from a FIFO in
the folder and answers by another, and the tuner, beside it, gives them.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from raddle.cpus import cpuset
from raddle_operator.local import quota
from raddle_operator.local.container import Container
from raddle_tuner.trials import ending
from raddle_tuner.trials.processes import TrialError, ended, last_words
from raddle_tuner.trials.words import escaped, word

# Of proc_pid_status(5), the CPUs as a list.
_ALLOWED: Final = re.compile(r"^Cpus_allowed_list:\s*(\S+)", re.MULTILINE)
# The kubelet waits up to 5 minutes before it starts a container once more that has ended.
_ANSWER_S: Final = 330.0
_READY_S: Final = 60.0
# Who is to end has little time: the pod's grace period is 10 s.
_ANSWER_AT_THE_END_S: Final = 2.0
_STEP_S: Final = 0.1


class Pod:
    """The workload's container, through the folder. As a context manager it makes and removes the FIFOs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._orders = self._answers = self._umask = -1
        self._number = self._starts = self._programs = 0
        self._part = b""
        self._lines: deque[str] = deque()
        self._ended: dict[str, int] = {}

    def __enter__(self) -> Self:
        """Raises OSError."""
        # The other container's programs may be another user's.
        self._umask = os.umask(0)
        opened = []
        # In this order: the other side waits for the last one.
        for name in ("orders", "answers"):
            (self.folder / name).unlink(missing_ok=True)
            os.mkfifo(self.folder / name, 0o666)
            # For both ways, so that it is never without a reader or a writer.
            opened.append(os.open(self.folder / name, os.O_RDWR | os.O_NONBLOCK))
        self._orders, self._answers = opened
        return self

    def __exit__(self, *_: object) -> None:
        os.umask(self._umask)
        for name, opened in (("orders", self._orders), ("answers", self._answers)):
            os.close(opened)
            (self.folder / name).unlink(missing_ok=True)

    @property
    def starts(self) -> int:
        """How often the container has been started until now."""
        self.listen(0.0)
        return self._starts

    def ended(self, file: str) -> int | None:
        """The exit status of a program that was started from this file, as Popen's; None while it runs."""
        self.listen(0.0)
        return self._ended.get(file)

    def await_ready(self, within_s: float = _READY_S) -> None:
        """Raises TrialError where the container does not show up."""
        end_s = time.monotonic() + within_s
        with ending.awaited():
            while not self.starts:
                if time.monotonic() > end_s:
                    raise TrialError(
                        f"the container does not answer within {within_s:g} s: does its image have /bin/sh?"
                    )
                self.listen()

    def order(self, text: str, starts: int) -> list[str]:
        """The answer's lines. Raises TrialError where none comes, or the container has been started more often."""
        self._number += 1
        self._lines.clear()
        os.write(self._orders, f"{self._number} {text}\n".encode())
        begun_s = time.monotonic()
        answer: list[str] = []
        while True:
            if self._starts != starts:
                raise TrialError(_RESTARTED)
            while self._lines:
                line = self._lines.popleft()
                if line == f"done {self._number}":
                    return answer
                # An answer that came too late ends with a number of its own.
                answer = [] if line.startswith("done ") else [*answer, line]
            within_s = _ANSWER_AT_THE_END_S if ending.status() else _ANSWER_S
            if time.monotonic() - begun_s > within_s:
                raise TrialError(f"the container does not answer within {within_s:g} s")
            self.listen()

    def listen(self, wait_s: float = _STEP_S) -> None:
        """Takes in what has come, or comes within this time."""
        if not select.select([self._answers], [], [], wait_s)[0]:
            return
        *lines, self._part = (self._part + os.read(self._answers, 65536)).split(b"\n")
        for line in lines:
            first, *rest = line.decode(errors="replace").split(" ")
            if first == "ready" and rest:
                raise TrialError(
                    "the container shares its processes with others (shareProcessNamespace or hostPID), so they "
                    "can't be stopped separately"
                )
            if first == "ready":
                self._starts += 1
            elif first == "ended" and len(rest) == 2 and rest[1].isdecimal():
                status = int(rest[1])
                # How a shell says that it was a signal; a program may end with such a status too.
                self._ended[rest[0]] = 128 - status if 128 < status <= 128 + signal.SIGRTMAX else status
            else:
                self._lines.append(" ".join([first, *rest]))

    @contextlib.contextmanager
    def place(
        self, given: Container, command: Sequence[str], say: Callable[[str], None]
    ) -> Iterator[tuple[InPod, Path]]:
        """A Launcher: this container. One program at a time. Variables and command are as in a pod spec."""
        del say
        self._programs += 1
        folder = self.folder / str(self._programs)
        folder.mkdir(0o777)
        processes = InPod(self, folder, given.variables, command)
        try:
            yield processes, folder
        finally:
            processes.end()
            shutil.rmtree(folder, ignore_errors=True)

    def copied(self, path: str, to: Path) -> None:
        """Copies a file of the container. Raises TrialError with what the container says, EndedError."""
        to.touch(0o666)
        self._said(f"{path} can't be read", ["cp", "--", path, str(to)])

    def present(self, paths: Sequence[str]) -> list[str]:
        """Those of these files that the container has. Raises TrialError, EndedError."""
        script = 'for file; do if [ -e "$file" ]; then echo "$file"; fi; done'
        return self._said("the container's files can't be read", ["sh", "-c", script, "sh", *paths]).splitlines()

    def cpus(self) -> int:
        """The CPUs that the container may use now, as a mask. Raises TrialError, EndedError."""
        unknown = "the CPUs that the container may use can't be read"
        script = 'while read -r line; do echo "$line"; done </proc/self/status'
        result = _ALLOWED.search(self._said(unknown, ["sh", "-c", script]))
        if result is None:
            raise TrialError(unknown)
        return cpuset.parse_list(result[1])

    def _said(self, problem: str, words: Sequence[str]) -> str:
        """The output of a program that ends. Raises TrialError where it fails, which begins with the problem."""
        with self.place(_NOTHING, list(map(escaped, words)), print) as (processes, _):
            processes.start()
            if processes.wait():
                raise TrialError(f"{problem}{last_words(processes.output())}")
            return processes.output()


_NOTHING: Final = Container(cpus=None, variables={}, mounts=(), notes=())
_RESTARTED: Final = "the container was restarted meanwhile, for example after exceeding its memory limit"


class InPod:
    """Those of a program in the workload's container of this pod."""

    def __init__(self, pod: Pod, folder: Path, variables: Mapping[str, str], command: Sequence[str]) -> None:
        self._pod = pod
        self._folder = folder
        self._variables = variables
        self._command = command
        self._starts = pod.starts
        self._started: list[str] = []

    def start(self, arguments: Sequence[str] = ()) -> None:
        """Starts the command with these arguments behind it. Raises TrialError."""
        file = f"{self._folder.name}/{len(self._started)}"
        # In their order, as one may name those before it.
        exports = "".join(f"export {name}={word(value)}\n" for name, value in self._variables.items())
        words = " ".join([*map(word, self._command), *map(shlex.quote, arguments)])
        script = self._pod.folder / file
        script.write_text(f"{exports}exec {words}\n")
        Path(f"{script}.out").touch(0o666)
        self._started.append(file)
        self._pod.order(f"start {file}", self._starts)

    def status(self) -> int | None:
        """The exit status of the first one that has ended, None while all run."""
        return next((status for file in self._started if (status := self._pod.ended(file)) is not None), None)

    def wait(self) -> int:
        """The exit status of the first one that ends. Raises TrialError, EndedError."""
        with ending.awaited():
            while (status := self.status()) is None:
                if self._pod.starts != self._starts:
                    raise TrialError(_RESTARTED)
                self._pod.listen()
        return status

    def check(self) -> None:
        """Raises TrialError where one that was started has ended, with the end of what it said."""
        if self._pod.starts != self._starts:
            raise TrialError(_RESTARTED)
        status = self.status()
        if status is not None:
            raise ended(status, self.output())

    def output(self) -> str:
        """All that they have said until now."""
        return "".join(path.read_text(errors="replace") for path in sorted(self._folder.glob("*.out")))

    def usage(self) -> quota.Usage:
        """What the container has used until now. Raises TrialError where it can't tell."""
        files: dict[str, str] = {}
        name = ""
        for line in self._pod.order("usage", self._starts):
            if line.startswith("file "):
                name = line.removeprefix("file ")
                files[name] = ""
            else:
                files[name] = files.get(name, "") + line + "\n"
        if "cpu.stat" not in files:
            raise TrialError("the container has no cpu.stat below /sys/fs/cgroup, so its CPU time is not known")
        return quota.usage_of(files)

    def pause(self) -> None:
        """Stops them, so that they take nothing from the tuner."""
        self._pod.order("signal STOP", self._starts)

    def resume(self) -> None:
        """Lets them go on."""
        self._pod.order("signal CONT", self._starts)

    def end(self) -> None:
        """Kills them. A container that does not answer says so to what is started next."""
        with contextlib.suppress(TrialError):
            self._pod.order("signal KILL", self._pod.starts)
