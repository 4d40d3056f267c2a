"""One process of the control plane: its start, its stop, and waiting until it answers."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cluster.errors import DevclusterError
from cluster.waiting import NotInTimeError, T, wait

STOP_SECONDS = 1.0
LOG_TAIL_LINES = 15
# A control plane that lives for minutes pays more for collecting garbage than for keeping it.
LESS_GARBAGE_COLLECTION = {"GOGC": "400", "GOMEMLIMIT": "2GiB"}
# As Go says it, on Linux and macOS.
PORT_TAKEN = "address already in use"


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free now; another process may take it, so callers retry."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_alive(
    check: Callable[[], T | None],
    what: str,
    seconds: float,
    components: Sequence[Component],
    *,
    log: Callable[[], str] | None = None,
    **options: Any,
) -> T:
    """`waiting.wait` with its options, while these components live.

    Raises DevclusterError at once when one has died, NotInTimeError with what `log` says, or their own logs.
    """

    def alive() -> T | None:
        for component in components:
            component.require_alive()
        return check()

    try:
        return wait(alive, what, seconds, **options)
    except NotInTimeError as error:
        tails = [log()] if log else [component.describe_log() for component in components]
        raise NotInTimeError("\n".join((str(error), *tails))) from None


class PortTakenError(DevclusterError):
    """A component died because another process had taken its port."""


class Component:
    """A process with its log file, started in the cluster's process group and directory."""

    def __init__(self, name: str, directory: Path, group: int) -> None:
        """Describes a process that is not started yet; `group` is the process group that the janitor kills."""
        self.name = name
        self.log = directory / "logs" / f"{name}.log"
        self._directory = directory
        self._group = group
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id, or None when the process does not run."""
        return self._process.pid if self._process is not None and self.alive else None

    def start(self, command: Sequence[str]) -> None:
        """Starts the process; the log goes on where an earlier start left it."""
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                command,
                cwd=self._directory,
                env={**LESS_GARBAGE_COLLECTION, **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=self._group,
            )

    def stop(self) -> None:
        """Ends the process in order, by force after 1 s; nothing happens when it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """Ends the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def require_alive(self) -> None:
        """Raises DevclusterError with the end of the log when the process has died, PortTakenError when so it was."""
        if self._process is None or self._process.poll() is None:
            return
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            taken = PORT_TAKEN.encode() in file.read()
        kind = PortTakenError if taken else DevclusterError
        raise kind(f"{self.name} ended with exit code {self._process.returncode}\n{self.describe_log()}")

    def describe_log(self) -> str:
        """The path of the log and its last lines."""
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:] if self.log.exists() else []
        return "\n".join([f"the end of {self.log}:", *(f"  {line}" for line in lines)])
