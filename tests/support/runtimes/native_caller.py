"""Programs of native_lab, told what to do line by line, and looked at from outside while they wait.

The eyes are /proc's: the same for C, C++, Java and Node.js.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from runtimes.libonnxruntime import MAVEN_VERSIONS, VERSIONS
from support.runtimes import shim_lab
from support.runtimes.native_lab import Program, model, preload, program

TIMEOUT_S = 60
IDLE_S = 0.15
# What a thread that goes to sleep at once may use in that time.
NONE_S = 0.004
# Each release by the C API; and each way to reach it, with the oldest and the newest that there is.
C = tuple(("c", version) for version in VERSIONS)
CALLERS = (*C, ("cpp", VERSIONS[-1]), ("java", MAVEN_VERSIONS[0]), ("java", MAVEN_VERSIONS[-1]))


class Thread(NamedTuple):
    """A thread as the kernel shows it: `cpus` is the list of those that it may run on."""

    tid: int
    name: str
    cpus: str


def under(plan: str | None, **extra: str) -> dict[str, str]:
    """The environment of a container with the native shim and this plan ("v=1;" is added); None: the shim alone."""
    found = {"LD_PRELOAD": str(preload()), **extra}
    return found if plan is None else {**found, "RADDLE_PLAN": f"v=1;{plan}".rstrip(";")}


def started(
    kind: str,
    version: str,
    plan: str | None,
    *,
    variables: Mapping[str, str] | None = None,
    cpus: Sequence[int] | None = None,
    make_env: str = "env",
    before: Callable[[], object] | None = None,
) -> Caller:
    """A caller under this plan, on the first two CPUs unless others are named, that has its environment."""
    caller = Caller(
        program(kind, version),
        under(plan, **(variables or {})),
        cpus=cpus or sorted(os.sched_getaffinity(0))[:2],
        before=before,
    )
    caller.do(make_env)
    return caller


class Caller:
    """A running caller.

    with Caller(program("c", "1.20.0"), under("intra_op=2")) as caller:
        pool = caller.session()
    """

    def __init__(
        self,
        chosen: Program,
        env: Mapping[str, str],
        *,
        cpus: Sequence[int] | None = None,
        prefix: Sequence[str] = (),
        before: Callable[[], object] | None = None,
    ) -> None:
        def prepare() -> None:
            if cpus is not None:
                os.sched_setaffinity(0, cpus)
            if before is not None:
                before()

        self.program = chosen
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # closed by __exit__
        self._process = subprocess.Popen(
            [*prefix, *chosen.command],
            env=shim_lab.environment({"CALLER_MODEL": str(model()), **chosen.env, **env}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            # So that its children end with it.
            start_new_session=True,
            # The tests start no threads that hold locks.
            preexec_fn=prepare,  # noqa: PLW1509
        )
        self._read = b""
        self.exit_code: int | None = None
        self.greeting = self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._errors.close()

    def end(self) -> int:
        """Ends the program by ending its input, as a pipe's reader ends; its exit status."""
        if self.exit_code is None:
            try:
                self._process.communicate(timeout=TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._kill()
                raise
            self.exit_code = self._process.returncode
        return self.exit_code

    def _kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr(self) -> str:
        """Everything written there so far."""
        self._errors.seek(0)
        return self._errors.read()

    @property
    def lines(self) -> list[str]:
        """Raddle's own lines on standard error."""
        return [line for line in self.stderr.splitlines() if line.startswith("raddle: ")]

    def _answer(self) -> str:
        assert self._process.stdout is not None
        while True:
            line, newline, rest = self._read.partition(b"\n")
            if newline:
                self._read = rest
                if line.startswith(b"= "):
                    return line[2:].decode(errors="replace")
                continue
            ready, _, _ = select.select([self._process.stdout], [], [], TIMEOUT_S)
            more = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            if not more:
                self._kill()
                how = "ended" if ready else "hangs"
                raise AssertionError(f"{self.program} {how} ({self._process.wait()}):\n{self.stderr}")
            self._read += more

    def ask(self, command: str) -> str:
        """The answer to one command: "ok" or "error <text>"."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()
        return self._answer()

    def do(self, *commands: str) -> None:
        """Each must be answered by ok."""
        for command in commands:
            answer = self.ask(command)
            assert answer == "ok", (command, answer, self.stderr)

    def session(self, options: str | None = None, *, name: str = "s", verb: str = "session") -> list[Thread]:
        """Makes and runs a session with these options ("intra=2 ..."; None: no options object); its pool's threads."""
        if options is not None:
            self.do(f"options {name} {options}".rstrip())
        before = self.tids()
        self.do(f"{verb} {name} {'-' if options is None else name}", f"run {name}")
        return self.settled(self.tids() - before)

    def pool(self) -> list[Thread]:
        """All threads that the shim made, by their names."""
        return [thread for thread in self.settled(self.tids()) if thread.name.startswith("ort-")]

    def tids(self) -> set[int]:
        """Numbers of all threads."""
        return {int(task.name) for task in Path(f"/proc/{self.pid}/task").iterdir()}

    def settled(self, pool: Iterable[int]) -> list[Thread]:
        """These threads, once each has run: a thread takes its name and its CPUs after birth."""
        pool = sorted(pool)
        deadline = time.monotonic() + 5
        while any(self._switches(tid) == 0 for tid in pool) and time.monotonic() < deadline:
            time.sleep(0.001)
        return [self.thread(tid) for tid in pool]

    def thread(self, tid: int) -> Thread:
        """One thread's name and CPUs."""
        status = self._status(tid)
        return Thread(tid, status["Name"], status["Cpus_allowed_list"])

    def _status(self, tid: int) -> dict[str, str]:
        lines = Path(f"/proc/{self.pid}/task/{tid}/status").read_text().splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def _switches(self, tid: int) -> int:
        status = self._status(tid)
        return int(status["voluntary_ctxt_switches"]) + int(status["nonvoluntary_ctxt_switches"])

    def rss_kb(self) -> int:
        """Resident memory."""
        return int(self._status(self.pid)["VmRSS"].split()[0])

    def mapped(self) -> set[str]:
        """Names of the libraries in its memory."""
        lines = Path(f"/proc/{self.pid}/maps").read_text().splitlines()
        return {Path(line.split(None, 5)[5]).name for line in lines if ".so" in line}

    def idle_cpu_s(self, pool: Iterable[Thread], name: str = "s") -> float:
        """CPU time of the pool's threads in the time after a run: the least of three, for threads that must sleep."""
        return min(self._after_runs(pool, name))

    def sleeps(self, pool: Iterable[Thread], name: str = "s") -> bool:
        """Whether that time is as good as none; the first run of three that shows it is the last."""
        return any(used_s < NONE_S for used_s in self._after_runs(pool, name))

    def spins(self, pool: Iterable[Thread], more_than_s: float, name: str = "s") -> bool:
        """Whether it is more than that after one of three runs: others use this machine too."""
        return any(used_s > more_than_s for used_s in self._after_runs(pool, name))

    def _after_runs(self, pool: Iterable[Thread], name: str) -> Iterator[float]:
        for _ in range(3):
            self.do(f"run {name}")
            before = self._cpu_s(pool)
            time.sleep(IDLE_S)
            yield self._cpu_s(pool) - before

    def _cpu_s(self, pool: Iterable[Thread]) -> float:
        return sum(int(Path(f"/proc/{self.pid}/task/{t.tid}/schedstat").read_text().split()[0]) for t in pool) / 1e9
