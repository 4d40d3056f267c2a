"""From reports, one after the other, to the load of each policy's containers: how long a run takes, how many come.

Only containers whose sessions count their runs (observe Runs) have one. It is that of the busiest of a container's last
windows, of five minutes each: a load is for planning, and it is the busy container that has to hold it.

What a run would take on one thread can't be seen of sessions with several. Two things are seen that it is never longer
than: the CPU time that the container used for each run, in which are the rest of a request and what the threads cost;
and the run's own time, as often as the session has threads, in which is every wait. The shorter of the two counts.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from raddle_operator.objects.load import ObservedLoad, held, middle
from raddle_operator.objects.nodereport import NodeReport, Process
from raddle_operator.objects.running import PolicyKey, policy_key

# Shims tell of runs every 30 s: the ends of a window are known as exactly as that.
WINDOW_S: Final = 300.0
# A window with fewer runs says nothing: the container was not busy.
LEAST_RUNS: Final = 30
# The windows that are remembered; those without runs are not among them, so that a night forgets nothing.
WINDOWS: Final = 12


class _Counted(NamedTuple):
    """What a process has counted since it began: runs, and their time as often as they had threads, None: not told."""

    runs: int
    threads_s: float | None


class Loads:
    """What is remembered from report to report: of each container that counts runs, its last windows."""

    def __init__(self) -> None:
        self._watched: dict[tuple[str, str], _Watched] = {}
        self._told: dict[PolicyKey, ObservedLoad] = {}

    def take(self, report: NodeReport) -> Mapping[PolicyKey, ObservedLoad]:
        """Takes the next report; returns the load of each of its policies of which one is known. Never raises."""
        watched: dict[tuple[str, str], _Watched] = {}
        result: defaultdict[PolicyKey, list[ObservedLoad]] = defaultdict(list)
        for one in report.containers:
            key = (one.uid, one.name)
            counted = {process.pid: count for process in one.processes if (count := _counted(process)) is not None}
            if counted or key in self._watched:
                watched[key] = self._watched.get(key) or _Watched()
                watched[key].take(counted, report.window_s, one.used_cpus)
            if (policy := policy_key(one.policy, one.namespace)) is not None:
                result[policy] += watched[key].busiest if key in watched else ()
        told = {policy: held(self._told.get(policy), middle(loads)) for policy, loads in result.items()}
        self._watched, self._told = watched, {policy: load for policy, load in told.items() if load is not None}
        return self._told


def _counted(process: Process) -> _Counted | None:
    sessions = [(one, one.runs) for one in process.sessions or () if one.runs is not None]
    if not sessions:
        return None
    times_s = [
        one.threads * one.run_seconds_total if one.threads and one.run_seconds_total is not None else None
        for one, runs in sessions
        if runs
    ]
    return _Counted(sum(runs for _, runs in sessions), _sum(times_s))


def _sum(values: Iterable[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


class _Watched:
    """A container: what its processes counted last, the window that is open, and the loads of those before."""

    __slots__ = ("_counted", "_cpu_s", "_elapsed_s", "_loads", "_runs", "_threads_s")

    def __init__(self) -> None:
        self._counted: Mapping[int, _Counted] = {}
        self._loads: deque[ObservedLoad] = deque(maxlen=WINDOWS)
        self._open()

    def _open(self) -> None:
        self._elapsed_s, self._runs, self._cpu_s = 0.0, 0, 0.0
        self._threads_s: float | None = 0.0

    @property
    def busiest(self) -> tuple[ObservedLoad, ...]:
        """The load of the busiest window, if any is known."""
        return (max(self._loads, key=lambda load: load.request_rate),) if self._loads else ()

    def take(self, counted: Mapping[int, _Counted], window_s: float, used_cpus: float | None) -> None:
        """Takes what a report says of it; a process that was not there, or began again, counts from then on."""
        known, self._counted = self._counted, counted
        # Runs count together with the CPU time of the same window.
        if used_cpus is None or not known:
            return
        self._elapsed_s += window_s
        self._cpu_s += used_cpus * window_s
        for pid, now in counted.items():
            before = known.get(pid)
            if before is not None and now.runs >= before.runs:
                self._runs += now.runs - before.runs
                self._threads_s = _sum((self._threads_s, _rise(before.threads_s, now.threads_s)))
        if self._elapsed_s >= WINDOW_S:
            self._close()
            self._open()

    def _close(self) -> None:
        if self._runs < LEAST_RUNS:
            return
        # Where nobody told the runs' time only the CPU time is known.
        run_time_s = min(self._cpu_s, self._threads_s or self._cpu_s) / self._runs
        rate = self._runs / self._elapsed_s
        self._loads.append(ObservedLoad(run_time_us=max(1, round(run_time_s * 1e6)), request_rate=rate))


def _rise(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else max(0.0, now - before)
