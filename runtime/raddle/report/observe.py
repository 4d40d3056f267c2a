"""What is recorded of a session, as far as the plan's `observe` asks: none, sessions, or runs too.

An adapter calls `created` once it has constructed a session, and `initialized` once the model is loaded. `timed` wraps
a session's run method, in the class and only where the plan says observe=runs: the one case in which a run costs
anything, and in which a thread sleeps in the process to send the agent what is new every ten seconds, and to look
whether the program has metrics of its own by now.
Nothing here raises.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping

from raddle import RLock, errors, log
from raddle.report import record

if TYPE_CHECKING:
    from raddle.process.current import Facts

REPEAT_EVERY_S = 10.0
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


def created(
    fields: Mapping[str, Any],
    *,
    runtime: str,
    version: str,
    plan: str,
    effective: Mapping[str, Any],
    because: Mapping[str, str],
    facts: Facts,
) -> dict[str, Any]:
    """The record of a session, kept in `record.sessions`; {} where the plan says observe=none or it can't be made.

    fields               the plan's
    effective, because   what the session got, and why that differs from the plan
    """
    level = fields.get("observe", "sessions")
    if level == "none":
        return {}
    try:
        made: dict[str, Any] = {
            "runtime": runtime,
            "version": version,
            "pid": os.getpid(),
            "plan": plan,
            "effective": effective,
            "because": because,
            "cpus": facts.cpus,
            "quotaCPUs": facts.quota_cpus,
            "throttled": facts.throttled,
            "workersSeen": facts.workers_seen,
            record.UNFINISHED: True,
        }
        if level == "runs":
            made["runs"] = Runs()
            _Repeater.start()
            _offer()
        record.add(made)
    except Exception as error:
        log.failed(f"{runtime} session is not recorded", error)
        return {}
    return made


def initialized(made: dict[str, Any], providers: Iterable[str]) -> None:
    """Completes the record of `created` once the model is loaded."""
    try:
        if made.pop(record.UNFINISHED, None):
            made["providers"] = list(providers)
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


class _Repeater:
    """The thread of observe=runs; one per process, and none in a forked child until that creates a session itself."""

    pid = 0
    lock = RLock()

    @classmethod
    def start(cls) -> None:
        with cls.lock:
            if cls.pid != os.getpid():
                cls.pid = os.getpid()
                threading.Thread(target=cls.repeat, name="raddle-observe", daemon=True).start()

    @staticmethod
    def repeat() -> None:
        rest = threading.Event()
        while not rest.wait(REPEAT_EVERY_S):
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
    _Repeater.lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)
