"""What is recorded of a session, as far as the plan's `observe` asks: none, sessions, or runs too.

An adapter calls `begin` before it constructs a session, `created` on what that returned, and `initialized` once the
model is loaded. `timed` wraps a session's run method, in the class and only where the plan says observe=runs: the one
case in which a run costs anything, and in which a thread sleeps in the process to take totals every ten seconds, and
to look whether the program has metrics of its own by now.
Nothing here raises.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from binascii import crc32
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping

from raddle import RLock, errors, files, log
from raddle.process import totals
from raddle.report import record

if TYPE_CHECKING:
    from raddle.process.current import Facts

SAMPLE_EVERY_S = 10.0
# Of a process with more threads than this the pool's ids aren't told apart: the list would cost more than it says.
MAX_THREADS_LISTED = 256
# Bytes at each end of a model that tell it from others.
MODEL_END_BYTES = 65536
# Durations of 64 bits.
_BUCKETS = 64


class Runs:
    """Run times of one session as a histogram, and how many ran at the same time at most.

    counts[k] are the runs that took at least 2^(k-1) and less than 2^k nanoseconds, `total_ns` all of them together.
    Without a lock: a count may be lost where threads meet, `active` is a list because its append and pop are atomic.
    """

    __slots__ = ("active", "counts", "high_water", "total_ns")

    def __init__(self) -> None:
        self.active: list[None] = []
        self.counts = [0] * _BUCKETS
        self.high_water = 0
        self.total_ns = 0

    def document(self) -> dict[str, Any]:
        """The report's form: exponents that have runs, as text."""
        log2_ns = {str(exponent): count for exponent, count in enumerate(self.counts) if count}
        return {"log2ns": log2_ns, "highWater": self.high_water}


class Creation:
    """A session that is being created: when it began, and the threads that there were."""

    __slots__ = ("before", "began", "level", "reported")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.level = fields.get("observe", "sessions")
        # The model's identity and two lists of threads cost more than all else, and only a report has readers for them.
        self.reported = self.level != "none" and record.report_wanted()
        self.before = _threads() if self.reported else None
        self.began = time.perf_counter()

    def created(
        self,
        *,
        runtime: str,
        version: str,
        plan: str,
        effective: Mapping[str, Any],
        because: Mapping[str, str],
        facts: Facts,
        model: Any = None,
    ) -> dict[str, Any]:
        """The session's record, kept in `record.sessions`; {} where the plan says observe=none or it can't be made.

        effective, because   what the session got, and why that differs from the plan
        model                its path, or its bytes; they are not held
        """
        if self.level == "none":
            return {}
        try:
            made: dict[str, Any] = {
                "runtime": runtime,
                "version": version,
                "pid": os.getpid(),
                "createdAt": round(time.time(), 3),
                "plan": plan,
                "effective": effective,
                "because": because,
                "cpus": facts.cpus,
                "quotaCPUs": facts.quota_cpus,
                "throttled": facts.throttled,
                "workersSeen": facts.workers_seen,
                "totals": totals.read(facts.cgroup_path),
                record.UNFINISHED: self,
            }
            if self.reported:
                made["model"] = identity(model)
            if self.level == "runs":
                made["runs"] = Runs()
                _Sampler.start(facts.cgroup_path)
                _offer()
            record.add(made)
        except Exception as error:
            log.failed(f"{runtime} session is not recorded", error)
            return {}
        return made


def begin(fields: Mapping[str, Any]) -> Creation:
    """To be called before a session is constructed; `fields` are the plan's."""
    return Creation(fields)


def initialized(made: dict[str, Any], providers: Iterable[str], inputs: Iterable[tuple[str, str, Any]]) -> None:
    """Completes the record of `created` once the model is loaded: inputs are (name, type, shape) each."""
    try:
        creation = made.pop(record.UNFINISHED, None)
        if creation is None:
            return
        made["createMs"] = round((time.perf_counter() - creation.began) * 1000, 3)
        made["providers"] = list(providers)
        made["inputs"] = [[name, kind, list(shape)] for name, kind, shape in inputs]
        if creation.before is None:
            made["tasks"] = files.tasks()
        else:
            after = _listed()
            made["tasks"], made["threads"] = len(after), sorted(after - creation.before - _Sampler.threads)
        record.changed()
    except Exception as error:
        log.failed("session's record is incomplete", error)


def timed(run: Callable[..., Any]) -> Callable[..., Any]:
    """The method with its run times counted in `self.raddle["runs"]`; as it was for a session that has none."""
    clock = time.perf_counter_ns

    def observed(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            runs = self.raddle["runs"]
        except (AttributeError, KeyError):
            return run(self, *args, **kwargs)
        active = runs.active
        active.append(None)
        if len(active) > runs.high_water:  # noqa: PLR1730  # max() would be another call, on every run
            runs.high_water = len(active)
        began = clock()
        try:
            return run(self, *args, **kwargs)
        finally:
            took = clock() - began
            runs.counts[took.bit_length()] += 1
            runs.total_ns += took
            active.pop()

    observed.__name__ = getattr(run, "__name__", "run")
    observed.__doc__ = run.__doc__
    return observed


def identity(model: Any) -> dict[str, Any] | None:
    """{"bytes": size, "head", "tail": CRC-32 of its first and last 64 KiB}; None where the model can't be read.

    A path's file is read here, since it may be gone later. Weights kept beside the file are not looked at.
    """
    try:
        if isinstance(model, (bytes, bytearray, memoryview)):
            view = memoryview(model).cast("B")
            return _identity(len(view), view[:MODEL_END_BYTES], view[-MODEL_END_BYTES:])
        file = os.open(model, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            size = os.fstat(file).st_size
            ends = (os.pread(file, MODEL_END_BYTES, at) for at in (0, max(0, size - MODEL_END_BYTES)))
            return _identity(size, *ends)
        finally:
            os.close(file)
    except (OSError, TypeError, ValueError) as error:
        errors.let_through(error)
        return None


def _identity(size: int, head: Any, tail: Any) -> dict[str, Any]:
    return {"bytes": size, "head": f"{crc32(head):08x}", "tail": f"{crc32(tail):08x}"}


def _threads() -> frozenset[int] | None:
    """Ids of this process's threads; None where there are too many or they can't be read."""
    try:
        return None if (files.tasks() or MAX_THREADS_LISTED) >= MAX_THREADS_LISTED else _listed()
    except OSError as error:
        errors.let_through(error)
        return None


def _listed() -> frozenset[int]:
    return frozenset(map(int, os.listdir("/proc/self/task")))


class _Sampler:
    """The thread of observe=runs; one per process, and none in a forked child until that creates a session itself."""

    pid = 0
    lock = RLock()
    # Its own id, which is none of a session's.
    threads: frozenset[Any] = frozenset()

    @classmethod
    def start(cls, cgroup_path: str | None) -> None:
        with cls.lock:
            if cls.pid != os.getpid():
                cls.pid = os.getpid()
                thread = threading.Thread(target=cls.sample, args=(cgroup_path,), name="raddle-observe", daemon=True)
                thread.start()
                cls.threads = frozenset([thread.native_id])

    @staticmethod
    def sample(cgroup_path: str | None) -> None:
        rest = threading.Event()
        while not rest.wait(SAMPLE_EVERY_S):
            record.sample({"at": round(time.time(), 3), **totals.read(cgroup_path)})
            record.changed()
            _offer()


def _offer() -> None:
    """Gives the program's own metrics ours, where it has prometheus_client; looked for again: it may come later."""
    if "prometheus_client" in sys.modules:
        try:
            from raddle.report import collector  # noqa: PLC0415

            collector.offer()
        except Exception as error:
            errors.let_through(error)


def _unlock() -> None:
    _Sampler.lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)
