"""Processes and threads of the node by its /proc: which of them ran since the last sample, where, and for how long.

A thread whose run time is as it was has done nothing, so nothing else of it is read: that is most threads most of the
time. Everything may vanish or be another's between two reads; what can't be read is absent from the sample.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import Final

from raddle.libraries import AFTER_STEM, LIBRARIES
from raddle_operator.agent import host_files
from raddle_operator.agent.samples import ProcessSample, ThreadSample

_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC
# Of a status file, whose last lines are wanted: groups and masks of CPUs may make it long.
_STATUS_BYTES: Final = 16384
_MAPS_PIECE_BYTES: Final = 65536
_MOST_MAPS_BYTES: Final = 8 << 20
# Of one container: who has more of them costs us no more, and is told of these.
MOST_THREADS: Final = 2048
# A library may be loaded at any time, but reading maps holds up the process' own changes to them. They are read again
# when there are more threads than then, which is what matters of a runtime, and now and then.
MAPS_EVERY_S: Final = 600.0
_NS: Final = 1e-9

_LIBRARIES: Final = {one.stem.encode(): one.runtime for one in LIBRARIES}
_STEM_OF_MAPPED: Final = re.compile(
    b"/(%s)[%s][^/\\n]*$" % (b"|".join(_LIBRARIES), re.escape(AFTER_STEM.encode())), re.MULTILINE
)


class _Libraries:
    """What a process had mapped when it was last asked, None: that may not be seen; and its threads then."""

    __slots__ = ("at_s", "result", "threads")

    def __init__(self, result: tuple[str, ...] | None, threads: int, at_s: float) -> None:
        self.result, self.threads, self.at_s = result, threads, at_s


class HostProcesses:
    """Looks at processes below a folder that is the node's /proc."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
        self._libraries: dict[tuple[int, float], _Libraries] = {}

    def sample(
        self, numbers: Iterable[int], before: Mapping[int, ProcessSample], most_threads: int = MOST_THREADS
    ) -> dict[int, ProcessSample]:
        """Number -> process, of those that are there; `before` is what the last sample gave of the same container.

        At most so many threads are looked at; of the others it is told how many there are.
        """
        result = {}
        for number in numbers:
            if (process := self._process(number, before.get(number), most_threads)) is not None:
                result[number] = process
                most_threads -= len(process.threads)
        return result

    def forget(self, known: set[tuple[int, float]]) -> None:
        """Forgets all processes but these (number, start)."""
        self._libraries = {key: kept for key, kept in self._libraries.items() if key in known}

    def _process(self, number: int, before: ProcessSample | None, most_threads: int) -> ProcessSample | None:
        folder = f"{self._proc}/{number}"
        # The name and start of the process are those of its first thread, which lasts as long as it does.
        first = self._stat(folder)
        if first is None:
            return None
        known: Mapping[int, ThreadSample] = {}
        own_number = 0
        if before is not None and before.start_s == first.start_s:
            known, own_number = before.threads, before.own_pid
        else:
            own_number = parse_own_number(host_files.read(f"{folder}/status", _STATUS_BYTES)) or number
        threads = {}
        try:
            tasks = os.listdir(folder + "/task")
        except OSError:
            return None
        for task in tasks[:most_threads]:
            if (thread := self._thread(f"{folder}/task/{task}", known.get(int(task)))) is not None:
                threads[int(task)] = thread
        return ProcessSample(
            start_s=first.start_s,
            own_pid=own_number,
            command=first.name,
            runtimes=self._runtimes(number, first.start_s, len(tasks)),
            thread_count=len(tasks),
            threads=threads,
        )

    def _thread(self, folder: str, before: ThreadSample | None) -> ThreadSample | None:
        raw = host_files.read(folder + "/schedstat")
        times = parse_schedstat(raw)
        if before is not None and times is not None and raw == before.raw:
            return before
        thread = self._stat(folder)
        if thread is None:
            return None
        if times is None:
            # A kernel without these counters; the other one counts hundredths of a second.
            if before is not None and before[:3] == thread[:3]:
                return before
            return thread._replace(involuntary=_involuntary(folder))
        return thread._replace(ran_s=times[0], delay_s=times[1], involuntary=_involuntary(folder), raw=raw)

    def _stat(self, folder: str) -> ThreadSample | None:
        return parse_stat(host_files.read(folder + "/stat"), self._tick_s)

    def _runtimes(self, number: int, start_s: float, threads: int) -> tuple[str, ...] | None:
        kept, now_s = self._libraries.get((number, start_s)), time.monotonic()
        if kept is None or threads > kept.threads or now_s - kept.at_s > MAPS_EVERY_S:
            kept = _Libraries(read_libraries(f"{self._proc}/{number}/maps"), threads, now_s)
            self._libraries[number, start_s] = kept
        return kept.result


def parse_stat(text: bytes, tick_s: float) -> ThreadSample | None:
    """The thread of a stat file, proc_pid_stat(5); None for what is no such file.

    Its name stands in parentheses and may hold any bytes, parentheses and newlines too, but is the only such field.
    """
    before, _, after = text.rpartition(b")")
    fields = after.split()
    try:
        return ThreadSample(
            start_s=int(fields[19]) * tick_s,
            name=clean_name(before.partition(b"(")[2]),
            ran_s=(int(fields[11]) + int(fields[12])) * tick_s,
            delay_s=None,
            involuntary=None,
            cpu=int(fields[36]),
            raw=b"",
        )
    except (IndexError, ValueError):
        return None


def parse_schedstat(text: bytes) -> tuple[float, float] | None:
    """(run time, time runnable but not running) in seconds; None where the kernel does not count them."""
    fields = text.split()
    if len(fields) < 2 or not fields[0].isdigit() or not fields[1].isdigit() or fields[0] == b"0":
        return None
    return int(fields[0]) * _NS, int(fields[1]) * _NS


def parse_involuntary(status: bytes) -> int | None:
    """How often a thread was preempted, of a status file; None where it does not say."""
    value = status.rpartition(b"nonvoluntary_ctxt_switches:")[2].strip()
    return int(value) if value.isdigit() else None


def _involuntary(folder: str) -> int | None:
    return parse_involuntary(host_files.read(folder + "/status", _STATUS_BYTES))


def parse_own_number(status: bytes) -> int | None:
    """The number of a process in its innermost PID namespace, of a status file; None where it does not say."""
    # The name stands before it, with its newlines escaped.
    numbers = status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()
    return int(numbers[-1]) if numbers and numbers[-1].isdigit() else None


def clean_name(name: bytes) -> str:
    """A thread's name as text that can be shown: what is no printable character of UTF-8 becomes a question mark."""
    text = name.decode("utf-8", "replace")
    return text if text.isprintable() and "\ufffd" not in text else "".join(map(_shown, text))


def _shown(character: str) -> str:
    return character if character.isprintable() and character != "\ufffd" else "?"


def read_libraries(path: str) -> tuple[str, ...] | None:
    """The runtimes of which a process has libraries mapped, sorted; None where it may not be seen."""
    result: set[str] = set()
    left = b""
    read_bytes = 0
    try:
        fd = os.open(path, _FLAGS)
        try:
            while read_bytes < _MOST_MAPS_BYTES and (piece := os.read(fd, _MAPS_PIECE_BYTES)):
                read_bytes += len(piece)
                whole, _, rest = (left + piece).rpartition(b"\n")
                result |= {_LIBRARIES[stem] for stem in _STEM_OF_MAPPED.findall(whole)}
                left = rest
        finally:
            os.close(fd)
    except OSError:
        return None
    # A process that is gone, or a thread of the kernel, has an empty one.
    return tuple(sorted(result)) if read_bytes else None
