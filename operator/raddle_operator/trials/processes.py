"""The processes of a program: started, stopped and counted, on this machine or elsewhere (`pod`)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Protocol

from raddle_operator.local import container, quota
from raddle_operator.local.container import Container, Entered

_LINES: Final = 3
# What the shim says on standard error is no reason for an end.
_SHIMS: Final = "raddle: "
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class TrialError(Exception):
    """A candidate can't be measured; the message says why, in words for people."""


class Processes(Protocol):
    """All processes of a program, wherever they are. What they do may raise TrialError."""

    def start(self, arguments: Sequence[str] = ()) -> None:
        """Starts the command with these arguments behind it."""

    def check(self) -> None:
        """Raises TrialError where one that was started has ended, with the end of what it said."""

    def output(self) -> str:
        """All that they have said until now."""

    def usage(self) -> quota.Usage:
        """What they have used until now."""

    def pause(self) -> None:
        """Stops them, so that they take nothing from another program."""

    def resume(self) -> None:
        """Lets them go on."""

    def end(self) -> None:
        """Kills them."""


# Where programs are started: it makes of what a container gets, a command, and what to tell users, the processes of
# one program, none of them started yet, and a folder that they and this process see at the same path.
Place = Callable[[Container, Sequence[str], Callable[[str], None]], AbstractContextManager[tuple[Processes, Path]]]


def ended(status: int, output: str) -> TrialError:
    """That a program has ended: its exit status, less than zero for a signal's number, and the end of its output."""
    how = f"with status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
    return TrialError(f"the program ended {how}{last_words(output)}")


def last_words(output: str) -> str:
    """The end of what a program has said itself, as the rest of a sentence; "" where it said nothing."""
    said = [line for line in output.splitlines() if line.strip() and not line.startswith(_SHIMS)][-_LINES:]
    # Of a traceback the lines of code are indented, the error is not.
    lines = [line for line in said if not line.startswith(" ")] or said
    return ": " + "; ".join(line.strip() for line in lines) if lines else ""


class Here:
    """Those of a program on this machine, whoever of them started which."""

    def __init__(self, entered: Entered, folder: Path) -> None:
        self._entered = entered
        self._stderr = folder / "stderr"
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, arguments: Sequence[str] = ()) -> None:
        """Starts the command with these arguments behind it. Raises TrialError."""
        with self._stderr.open("ab") as stderr:
            try:
                process = subprocess.Popen(
                    [*self._entered.argv, *arguments],
                    env=dict(self._entered.environment),
                    stdin=subprocess.DEVNULL,
                    stdout=stderr,
                    stderr=stderr,
                    start_new_session=True,  # Ctrl-C is for the program that measures, which ends this one in order
                )
            except OSError as error:
                raise TrialError(f"{self._entered.argv[0]}: {error.strerror}") from None
        self._started.append(process)

    def check(self) -> None:
        """Raises TrialError where one that was started has ended, with the end of what it said."""
        for process in self._started:
            code = process.poll()
            if code is not None:
                raise ended(code, self.output())

    def output(self) -> str:
        """All that they have said until now."""
        return self._stderr.read_text(errors="replace")

    def usage(self) -> quota.Usage:
        """What they have used until now; without a cgroup only CPU time of those that were started."""
        if self._entered.group is not None:
            return self._entered.group.usage()
        return quota.Usage(cpu_s=sum(_cpu_s(process.pid) for process in self._started))

    def pause(self) -> None:
        """Stops them, so that they take nothing from another program."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets them go on."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Kills them."""
        self._signal(signal.SIGKILL)
        for process in self._started:
            process.wait()

    def pids(self) -> set[int]:
        """The processes that are there now; without a cgroup those that were started."""
        started = {process.pid for process in self._started if process.poll() is None}
        return started.union(self._entered.group.pids() if self._entered.group is not None else ())

    def _signal(self, number: signal.Signals) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        # Those that made a session of their own.
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _cpu_s(pid: int) -> float:
    """proc_pid_stat(5): utime and stime are fields 14 and 15; the command in field 2 may hold spaces."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


@contextlib.contextmanager
def here(given: Container, command: Sequence[str], say: Callable[[str], None]) -> Iterator[tuple[Here, Path]]:
    """A Place: this machine."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raddle-trial-")))
        # The program may become another user.
        folder.chmod(0o755)
        entered = container.enter(given, command, stack, say, measured=True)
        processes = Here(entered, folder)
        stack.callback(processes.end)
        yield processes, folder
