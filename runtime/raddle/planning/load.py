"""What a thread count and a spin limit are expected to give under a known load: a model, and the choice by it.

The model is one pool that serves one request at a time, as a session's caller does, with requests that come evenly.
A run that takes `run_time_s` on one thread takes a part of it on n threads, and more CPU time; a CPU limit is CPU time
for each period of CFS bandwidth control (Documentation/scheduler/sched-bwc.rst), so a request that meets the end of the
period's CPU time waits for the next period. It is simulated request by request: short, exact about periods, and the
same on every machine. What it leaves out is said where it is used: `DISTURBANCE_S`.

The constants were measured by `python -m load table` with convolutions; another model has other ones. They decide only
between neighbours: what is feasible is decided by run time, rate and limit.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log, sqrt
from typing import List, NamedTuple, Optional, Tuple

# The kubelet's cpu.cfs_period_us, which nearly nobody changes.
PERIOD_S = 0.1
# What each worker adds to the duration of a run, in seconds: where it still looks for work as the run begins, where it
# only does so between the run's operators, and where it sleeps between them too. CPUs sleep the deeper the longer they
# have been idle: waking one takes half of that time, within these bounds.
JOIN_SPINNING_S, JOIN_WOKEN_S, JOIN_SLEEPING_S = 0.0001, 0.0002, (0.0003, 0.003)
# What each worker adds to the CPU time of a run: a part of the run (waiting for the others), and seconds (waking up).
WORKER_SHARE, WORKER_S = 0.05, 0.0002
# What a run that has waited for its request takes longer than one of many in a row: a part of it, and seconds. Caches
# and clocks have cooled down.
COOLED_SHARE, COOLED_S = 0.015, 0.0001
# What one percent of the runs lose to others on their CPU, however short they are.
DISTURBANCE_S = 0.001
# Where threads spin, one percent of the runs wait besides for one of them that has to share a CPU with the thread that
# spins for it: half of how long the pool was idle, within these bounds.
SHARED_CPU_S = (0.001, 0.004)
# The standard deviation of a run's duration, as a part of it.
DEVIATION_SHARE = 0.15
# Each CPU takes the limit's time in slices (sched_cfs_bandwidth_slice_us); what is left of one is missing elsewhere.
SLICE_S = 0.005
# Requests that are simulated; the first half only fills the queue.
REQUESTS = 120
# Where the requests come in less time than so many periods take, periods are shortened, with their CPU time: else none
# would use it up, however much more is asked for.
LEAST_PERIODS = 2
# Settings whose figures are this near are equal in them: the model is no more exact.
TIE = 1.05
# Settings that are compared have at most so many threads.
MOST_THREADS = 32
# Rarer requests count as ones that come so: none meets another one, and the clock keeps its microseconds.
LONGEST_INTERVAL_S = 1e6
_NEARLY_NOTHING_S = 1e-9


class Load(NamedTuple):
    """What is known of a container's load: one run on one thread, and how many requests come."""

    run_time_s: float
    requests_per_s: float


class Setting(NamedTuple):
    """A pool: `threads`, the caller's among them, and for how long an idle worker looks for work (0: it sleeps)."""

    threads: int
    spin_s: float = 0.0


class Expected(NamedTuple):
    """What the model says of a setting.

    p50_s, p99_s   latency from the moment a request is due, so with its time in the queue
    cpus           CPU time used, in CPUs
    throttled      share of the periods in which the limit's CPU time was used up
    """

    p50_s: float
    p99_s: float
    cpus: float
    throttled: float


def run_of(load: Load, setting: Setting, *, idle_s: float) -> Tuple[float, float]:
    """(duration, CPU time) in seconds of one run, not throttled, when the pool has been idle for `idle_s`."""
    workers = setting.threads - 1
    if setting.spin_s:
        join_s = JOIN_SPINNING_S if idle_s < setting.spin_s else JOIN_WOKEN_S
    else:
        join_s = _half_of(idle_s, JOIN_SLEEPING_S)
    run_time_s = load.run_time_s * (1 + COOLED_SHARE) + COOLED_S
    duration_s = run_time_s / setting.threads + workers * join_s
    if not setting.spin_s:
        # The caller does alone what no worker has come for.
        duration_s = min(duration_s, run_time_s)
    return duration_s, run_time_s * (1 + workers * WORKER_SHARE) + workers * WORKER_S


def expected(load: Load, setting: Setting, limit_cpus: Optional[float], *, own_cpus: bool = False) -> Expected:
    """What the model says; `limit_cpus` None: no limit, `own_cpus`: nobody else runs on the container's CPUs."""
    budget_s = None
    # So many threads can't use up a limit that is as high.
    if limit_cpus is not None and setting.threads > limit_cpus:
        budget_s = max(limit_cpus * PERIOD_S / 2, limit_cpus * PERIOD_S - (setting.threads - 1) * SLICE_S)
    # A little less than the rate says, so that requests of a round one do not all meet the same part of a period.
    interval_s = min(1 / load.requests_per_s, LONGEST_INTERVAL_S) * (1 - 1 / REQUESTS)
    period_s = min(PERIOD_S, REQUESTS * interval_s / LEAST_PERIODS)
    clock = _Clock(budget_s, period_s)
    latencies_s: List[float] = []
    idle_s = duration_s = 0.0
    for number in range(REQUESTS):
        due_s = number * interval_s
        idle_s = max(0.0, due_s - clock.now_s)
        clock.idle(setting.spin_s, setting.threads - 1, until_s=due_s)
        duration_s, cpu_s = run_of(load, setting, idle_s=idle_s)
        clock.run(duration_s, cpu_s / duration_s)
        latencies_s.append(clock.now_s - due_s)
    late_s = sorted(latencies_s[REQUESTS // 2 :])
    waits_s = _waiting_s(duration_s, interval_s)
    p99_s = late_s[-1] + DISTURBANCE_S + waits_s * log(100)
    if setting.spin_s:
        p99_s += 0.0 if own_cpus else _half_of(idle_s, SHARED_CPU_S)
    elif setting.threads > 1:
        # Waking the workers may take twice as long as it does on average.
        p99_s += _half_of(idle_s, JOIN_SLEEPING_S)
    return Expected(
        p50_s=late_s[len(late_s) // 2] + waits_s * log(2),
        p99_s=p99_s,
        cpus=clock.used_s / max(clock.now_s, REQUESTS * interval_s),
        throttled=clock.throttled_periods / ceil(clock.now_s / period_s),
    )


def _half_of(idle_s: float, bounds_s: Tuple[float, float]) -> float:
    least_s, most_s = bounds_s
    return min(most_s, max(least_s, idle_s / 2))


def _waiting_s(duration_s: float, interval_s: float) -> float:
    """What requests wait on average since runs differ: little, but where a run leaves little of the interval.

    Kingman's formula for heavy traffic, by which waiting is distributed exponentially. What more than saturates a pool
    is in the simulation, so here some slack is left.
    """
    deviation_s = DEVIATION_SHARE * duration_s
    return deviation_s**2 / (2 * max(interval_s - duration_s, deviation_s / 10))


@lru_cache(maxsize=1024)
def best(
    load: Load,
    *,
    limit_cpus: Optional[float],
    most_threads: int,
    spins_s: Tuple[float, ...],
    least_threads: int = 1,
    own_cpus: bool = False,
) -> Setting:
    """The setting with the lowest expected p99 or one within TIE of it, of these the same by p50, then by CPU time.

    `limit_cpus` and `own_cpus` as for `expected`. One thread has nobody to wait for: its spin limit is 0.
    """
    # Beyond that each thread adds more to a run than it takes from it.
    most = min(most_threads, MOST_THREADS, 1 + ceil(sqrt(load.run_time_s / JOIN_SPINNING_S)))
    counts = compared(least_threads, max(most, least_threads))
    settings = [Setting(threads, spin_s) for threads in counts for spin_s in (spins_s if threads > 1 else (0.0,))]
    result = [(setting, expected(load, setting, limit_cpus, own_cpus=own_cpus)) for setting in settings]
    for figure in ("p99_s", "p50_s"):
        near_s = TIE * min(getattr(one, figure) for _, one in result)
        result = [pair for pair in result if getattr(pair[1], figure) <= near_s]
    return min(result, key=lambda pair: pair[1].cpus)[0]


def compared(least: int, most: int) -> List[int]:
    """The counts that are compared: all to eight, then every fourth and the highest, which the webhook has time for."""
    return [count for count in range(least, most + 1) if count <= 8 or count % 4 == 0 or count in (least, most)]


def usual(run_time_s: float, limit_cpus: Optional[float]) -> Load:
    """The load that a run time stands for where no rate is known: half of what one thread does within the limit."""
    return Load(run_time_s, 0.5 * min(1.0, limit_cpus or 1.0) / run_time_s)


class _Clock:
    """Time in a container with a limit: runs take their CPU time from the period's budget, and wait for the next."""

    def __init__(self, budget_s: Optional[float], period_s: float) -> None:
        """`budget_s` is the CPU time for a period of PERIOD_S; None: no limit. `period_s`: how long one is here."""
        self.budget_s = None if budget_s is None else budget_s * period_s / PERIOD_S
        self.period_s = period_s
        self.now_s = 0.0
        self.used_s = 0.0
        self.throttled_periods = 0
        self._period = 0
        self._left_s = self.budget_s or 0.0

    def run(self, duration_s: float, cpus: float) -> None:
        """Lets so many CPUs be used for so long; time in which they are throttled comes on top."""
        self.used_s += duration_s * cpus
        if self.budget_s is None:
            self.now_s += duration_s
            return
        # What a whole period lets through; a run may take an hour, so whole periods are passed at once.
        passes_s = min(self.period_s, self.budget_s / cpus)
        while True:
            self._begin_period()
            step_s = min(duration_s, self._end_s() - self.now_s, self._left_s / cpus)
            self.now_s += step_s
            self._left_s -= step_s * cpus
            duration_s -= step_s
            if duration_s <= _NEARLY_NOTHING_S:
                return
            throttled = self._left_s <= _NEARLY_NOTHING_S
            whole = max(0, ceil(duration_s / passes_s) - 1)
            duration_s -= whole * passes_s
            self.throttled_periods += throttled + (whole if passes_s < self.period_s else 0)
            self._begin(self._period + 1 + whole)
            self.now_s = self._period * self.period_s

    def idle(self, spinning_s: float, workers: int, *, until_s: float) -> None:
        """Lets time pass, and workers spin at its beginning; spinning that is throttled delays nobody."""
        spinning_s = max(0.0, min(spinning_s, until_s - self.now_s))
        self._begin_period()
        self.used_s += spinning_s * (workers if self.budget_s is None else min(workers, self.budget_s / self.period_s))
        self._left_s = max(0.0, self._left_s - spinning_s * workers)
        self.now_s = max(self.now_s, until_s)

    def _begin_period(self) -> None:
        period = int((self.now_s + _NEARLY_NOTHING_S) / self.period_s)
        if period > self._period:
            self._begin(period)

    def _begin(self, period: int) -> None:
        self._period = period
        self._left_s = self.budget_s or 0.0

    def _end_s(self) -> float:
        return (self._period + 1) * self.period_s
