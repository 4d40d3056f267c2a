"""Kills a cluster's processes and removes its directory when the owner goes, however it goes.

Run as `python janitor.py OWNER_PID DIRECTORY` in a process group of its own, which all components join. Its
standard input is a pipe that the owner never writes to: end of file means that the owner is gone, also after SIGKILL.
A pipe and not PR_SET_PDEATHSIG, because that signal comes when the *thread* that started a process ends. The owner's
pid is checked too, since a child that the owner forked may still hold the pipe open.
"""

import os
import select
import shutil
import signal
import sys
from pathlib import Path

OWNER_CHECK_SECONDS = 1.0


def main(owner_pid: int, directory: Path) -> None:
    """Waits for the owner to go, then kills this process group and removes the directory."""
    # The terminal's Ctrl-C goes to the owner's group, but a supervisor may signal all processes: the owner decides.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.getppid() == owner_pid:
        readable, _, _ = select.select([0], [], [], OWNER_CHECK_SECONDS)
        if readable and not os.read(0, 1):
            break
    group = os.getpgrp()
    # The group leader can't leave its group, so a child does the work from outside.
    if os.fork():
        signal.pause()
    os.setsid()
    os.killpg(group, signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
