"""Starts programs, one after another, and says what each did: runs inside the surroundings, as their first process.

A line of JSON asks: {"command", "environ", "watched", "seconds"}; a line answers: {"status", "output", "errors",
"descriptors"}. The status is the exit status, minus the signal that ended it, or null: it did not end in time.
Descriptors are those that are open when the process ends, each with what it leads to, of a watched start only: a
debugger's stop at the end shows them (PTRACE_O_TRACEEXIT), and a set-uid program has no rights while one looks.

Its text is handed to a Python as an argument, since the checkout may not be seen from there.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

NOBODY = 65534
FOLDER = "/tmp"  # a file system of its own
HEAD = 4000
PTRACE_TRACEME, PTRACE_CONT, PTRACE_SETOPTIONS = 0, 7, 0x4200
PTRACE_O_TRACEEXEC, PTRACE_O_TRACEEXIT, PTRACE_O_EXITKILL = 1 << 4, 1 << 6, 1 << 20
PTRACE_EVENT_EXIT = 6
LIBC = ctypes.CDLL(None, use_errno=True)


class Starter:
    """One process at a time."""

    def __init__(self) -> None:
        self.nothing = os.open("/dev/null", os.O_RDWR)
        self.late = False
        self.running = 0
        signal.signal(signal.SIGALRM, self._end)

    def _end(self, *_: object) -> None:
        self.late = True
        with contextlib.suppress(OSError):
            os.killpg(self.running, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.kill(self.running, signal.SIGKILL)

    def start(self, command: list[str], environ: dict[str, str], *, watched: bool, seconds: float) -> dict[str, Any]:
        """What the program did."""
        files = [os.memfd_create(name) for name in ("output", "errors")]
        self.late = False
        self.running = os.fork()
        if self.running == 0:
            self._become(command, environ, files, watched=watched)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        descriptors, status = self._follow(watched=watched)
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._clean()
        answer: dict[str, Any] = {"status": None if self.late else status, "descriptors": descriptors}
        for name, file in zip(("output", "errors"), files, strict=True):
            text = os.pread(file, os.fstat(file).st_size, 0)
            os.close(file)
            answer[name] = {"sha256": hashlib.sha256(text).hexdigest(), "head": text[:HEAD].decode("latin-1")}
        return answer

    def _become(self, command: list[str], environ: dict[str, str], files: list[int], *, watched: bool) -> None:
        try:
            for name in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(name, signal.SIG_DFL)
            os.setsid()
            for number, file in enumerate([self.nothing, *files]):
                os.dup2(file, number)
            if watched:
                LIBC.ptrace(PTRACE_TRACEME, 0, None, None)
            os.execve(command[0], command, environ)
        finally:
            os._exit(126)

    def _follow(self, *, watched: bool) -> tuple[list[str] | None, int]:
        """(descriptors at the end, status) of the process, which is waited for."""
        descriptors, known = None, False
        while True:
            _, status = os.waitpid(self.running, 0)
            if not os.WIFSTOPPED(status):
                return descriptors, os.waitstatus_to_exitcode(status)
            deliver = os.WSTOPSIG(status)
            if watched and not known:
                # The stop after the program was loaded.
                options = PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL
                LIBC.ptrace(PTRACE_SETOPTIONS, self.running, None, ctypes.c_void_p(options))
                known, deliver = True, 0
            elif status >> 16:
                deliver = 0
                if status >> 16 == PTRACE_EVENT_EXIT:
                    descriptors = self._open()
            LIBC.ptrace(PTRACE_CONT, self.running, None, ctypes.c_void_p(deliver))

    def _open(self) -> list[str]:
        folder = Path(f"/proc/{self.running}/fd")
        try:
            files = sorted(folder.iterdir(), key=lambda file: int(file.name))
            # Pipes and sockets have numbers of their own.
            return [file.name + " " + re.sub(r"\d+", "N", str(file.readlink())) for file in files]
        except OSError:
            return []

    def _clean(self) -> None:
        """Ends what the program left running, takes away what it left lying about."""
        with contextlib.suppress(OSError):
            os.kill(-1, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            for _ in range(1000):
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    time.sleep(0.001)
        for path in Path(FOLDER).iterdir():
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def main() -> None:
    """Answers until nobody asks any more."""
    if os.getpid() != 1:
        sys.exit("it would end processes that are not its own")
    asked = os.fdopen(os.dup(0), "r")
    answers = os.fdopen(os.dup(1), "w")
    os.chdir(FOLDER)
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 26, 1 << 26))
    starter = Starter()
    for line in asked:
        wanted = json.loads(line)
        print(json.dumps(starter.start(**wanted)), file=answers, flush=True)


if __name__ == "__main__":
    main()
