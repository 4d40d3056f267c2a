"""The processes of a program: started, stopped and counted, on this machine or elsewhere (`pod`)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from raddle_operator.local import container, quota
from raddle_operator.local.container import Container, StartedContainer

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
Launcher = Callable[[Container, Sequence[str], Callable[[str], None]], AbstractContextManager[tuple[Processes, Path]]]


# Real-time signals have numbers only.
_NAMES: Final = {one.value: one.name for one in signal.Signals}


def ended(status: int, output: str) -> TrialError:
    """That a program has ended: its exit status, less than zero for a signal's number, and the end of its output."""
    how = f"with status {status}" if status >= 0 else f"by {_NAMES.get(-status, f'signal {-status}')}"
    if status == -signal.SIGKILL:
        how += ", for example because the machine or the container ran out of memory"
    return TrialError(f"the program ended {how}{last_words(output)}")


def last_words(output: str) -> str:
    """The end of what a program has said itself, as the rest of a sentence; "" where it said nothing."""
    said = [line for line in output.splitlines() if line.strip() and not line.startswith(_SHIMS)][-_LINES:]
    # Of a traceback the lines of code are indented, the error is not.
    lines = [line for line in said if not line.startswith(" ")] or said
    return ": " + "; ".join(line.strip() for line in lines) if lines else ""


class LocalProcesses:
    """Those of a program on this machine, whoever of them started which."""

    def __init__(self, entered: StartedContainer, folder: Path) -> None:
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
        """What they have used until now; without a cgroup only CPU time."""
        groups = self._groups()
        if len(groups) == 1:
            return groups[0].usage()
        if groups:
            # A scope for each that was started.
            used = [group.usage() for group in groups]
            return quota.Usage(
                cpu_s=sum(one.cpu_s for one in used),
                periods=sum(one.periods for one in used),
                throttled_periods=sum(one.throttled_periods for one in used),
                throttled_s=sum(one.throttled_s for one in used),
            )
        return quota.Usage(cpu_s=sum(one.cpu_s for one in _tree(self._roots())))

    def pause(self) -> None:
        """Stops them, so that they take nothing from another program."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets them go on."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Kills them."""
        # Who is stopped starts nothing more, and still says who started it.
        self.pause()
        self._signal(signal.SIGKILL)
        for process in self._started:
            process.wait()

    def pids(self) -> set[int]:
        """The processes that are there now; without a cgroup those that were started, and whom they have started."""
        started = {process.pid for process in self._started if process.poll() is None}
        tree = () if self._entered.group is not None else (one.pid for one in _tree(self._roots()))
        return started.union(tree, *(group.pids() for group in self._groups()))

    def _groups(self) -> list[quota.Group]:
        """Those that they are in: the one that was made for them, else the scopes of systemd-run; [] without."""
        if self._entered.group is not None:
            return [self._entered.group]
        result = [quota.group_of(process.pid) for process in self._started if process.poll() is None]
        return [group for group in result if group is not None]

    def _roots(self) -> set[int]:
        return {process.pid for process in self._started}

    def _signal(self, number: signal.Signals) -> None:
        # Once more for those that are started meanwhile.
        met: set[int] = set()
        while new := self.pids() - met:
            met |= new
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """One of /proc. `cpu_s` counts its children that have ended, too."""

    pid: int
    parent: int
    session: int
    cpu_s: float


def _tree(roots: set[int]) -> list[_Process]:
    """These, all whom they have started, and who is in a session of one of them."""
    others, result, known = list(_processes()), [], set(roots)
    while new := [one for one in others if not known.isdisjoint((one.pid, one.parent, one.session))]:
        others = [one for one in others if one not in new]
        result += new
        known.update(one.pid for one in new)
    return result


def _processes() -> Iterator[_Process]:
    """Yields all that there are. proc_pid_stat(5): the command in field 2 may hold spaces."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks = sum(map(int, fields[11:15]))
        pid, parent, session = int(path.parent.name), int(fields[1]), int(fields[3])
        yield _Process(pid=pid, parent=parent, session=session, cpu_s=ticks / _TICKS_PER_S)


@contextlib.contextmanager
def here(given: Container, command: Sequence[str], say: Callable[[str], None]) -> Iterator[tuple[LocalProcesses, Path]]:
    """A Launcher: this machine."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raddle-trial-")))
        # The program may become another user.
        folder.chmod(0o755)
        entered = container.enter(given, command, stack, say, measured=True)
        processes = LocalProcesses(entered, folder)
        stack.callback(processes.end)
        yield processes, folder
