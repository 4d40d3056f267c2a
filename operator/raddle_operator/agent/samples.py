"""Two samples of the governed containers of a node make a report: what their counters rose by between the two; pure.

A counter that is lower than before was started again, or is another's that has its name now: it tells nothing of the
window. Numbers are of the window only, so that a sample that failed costs one report and no more.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from raddle_operator.agent.governed import GovernedContainer, GovernedPod
from raddle_operator.objects.nodereport import Container, Level, NodeReport, Pool, Process

# What a tenant may make the report long by: threads with names of their own, and processes. Those that used most stay.
MOST_POOLS: Final = 32
MOST_PROCESSES: Final = 64
OTHERS: Final = "(others)"
# Rates over less would say nothing.
LEAST_WINDOW_S: Final = 0.001
# The kernel counts a thread's start in these.
TICK_S: Final = 0.01
# So long after an agent has begun to listen a shim that repeats itself every five minutes has surely done so.
REPEATED_S: Final = 900.0


class Counters(NamedTuple):
    """What a container's cgroup says at a time. None: it can't be seen. `at_s` is of any clock, the same each time."""

    at_s: float
    used_s: float | None = None
    periods: int | None = None
    throttled_periods: int | None = None
    throttled_s: float | None = None
    waiting_s: float | None = None
    quota_cpus: float | None = None
    cpuset: str | None = None
    processes: int | None = None


class ThreadSample(NamedTuple):
    """A thread: `start_s` after the machine's boot, `cpu` the one that it ran on last, the others are counters.

    `raw` is the text of the counters that say whether it ran at all since.
    """

    start_s: float
    name: str
    ran_s: float
    delay_s: float | None
    involuntary: int | None
    cpu: int
    raw: bytes


class ProcessSample(NamedTuple):
    """A process: `own_pid` is its number in the innermost namespace, `runtimes` is None where maps can't be read.

    It has `thread_count` threads, of which `threads` were looked at.
    """

    start_s: float
    own_pid: int
    command: str
    runtimes: tuple[str, ...] | None
    thread_count: int
    threads: Mapping[int, ThreadSample]


class ContainerSample(NamedTuple):
    """A container; `processes` by the node's number, empty where they can't be seen."""

    counters: Counters
    processes: Mapping[int, ProcessSample]


class Sample(NamedTuple):
    """All that was seen at a time: seconds after the machine's boot, and the container's id -> what was seen of it."""

    at_s: float
    containers: Mapping[str, ContainerSample]


def report(
    node: str,
    level: Level,
    at: str,
    pods: Iterable[GovernedPod],
    before: Sample,
    after: Sample,
    listening_s: float = math.inf,
) -> NodeReport:
    """The report of the window between two samples; a container that only one has seen has no rates.

    `listening_s`: since when, after the machine's boot, shims are heard.
    """
    containers = (
        _container(pod, container, before, after, listening_s)
        for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name))
        for container in pod.containers
    )
    return NodeReport(
        node=node, level=level, at=at, window_s=round(after.at_s - before.at_s, 3), containers=tuple(containers)
    )


def _container(
    pod: GovernedPod, container: GovernedContainer, before: Sample, after: Sample, listening_s: float
) -> Container:
    old, new = before.containers.get(container.id), after.containers.get(container.id)
    known = new.counters if new else Counters(0.0)
    window_s = known.at_s - old.counters.at_s if old else 0.0
    if window_s < LEAST_WINDOW_S:
        # The kubelet has not looked again; or a clock was set back.
        old, window_s = None, 0.0
    then = old.counters if old else Counters(0.0)
    periods = _rise(then.periods, known.periods)
    throttled_periods = _rise(then.throttled_periods, known.throttled_periods)
    return Container(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        name=container.name,
        policy=pod.policy,
        limit_cpus=container.limit_cpus,
        quota_cpus=known.quota_cpus,
        cpuset=known.cpuset,
        used_cpus=_per_second(_rise(then.used_s, known.used_s), window_s),
        # Without periods in the window it was not throttled: it has no quota, or did nothing.
        throttled_share=_share(throttled_periods, periods or 1) if periods is not None else None,
        throttled_cpus=_per_second(_rise(then.throttled_s, known.throttled_s), window_s),
        waiting_share=_share(_rise(then.waiting_s, known.waiting_s), window_s),
        process_count=known.processes,
        processes=_processes(old, new, window_s, _received_from_s(pod, container, after.at_s, listening_s)),
    )


def _received_from_s(pod: GovernedPod, container: GovernedContainer, now_s: float, listening_s: float) -> float:
    """Of processes that began since then every shim was heard: most speak once, when a session is made."""
    if not container.tells:
        return math.inf
    plan = pod.planned.get(container.name)
    return 0.0 if plan is not None and plan.repeats and now_s - listening_s > REPEATED_S else listening_s


def _processes(
    old: ContainerSample | None, new: ContainerSample | None, window_s: float, received_from_s: float
) -> tuple[Process, ...]:
    if new is None:
        return ()
    since_s = old.counters.at_s if old else new.counters.at_s
    known = old.processes if old else {}
    result = [
        _process(known.get(pid), process, since_s, window_s, received_from_s) for pid, process in new.processes.items()
    ]
    if len(result) > MOST_PROCESSES:
        result.sort(key=lambda process: sum(pool.used_cpus for pool in process.pools), reverse=True)
    return tuple(sorted(result[:MOST_PROCESSES], key=lambda process: process.pid))


def _process(
    old: ProcessSample | None, new: ProcessSample, since_s: float, window_s: float, received_from_s: float
) -> Process:
    # Another process has the number now.
    known = old.threads if old and old.start_s == new.start_s else {}
    tallies: dict[str, _Tally] = defaultdict(_Tally)
    for number, thread in new.threads.items():
        tallies[pool_name(thread.name)].add(known.get(number), thread, since_s)
    if len(tallies) > MOST_POOLS:
        tallies = _merged(tallies)
    pools = (tally.pool(name, window_s) for name, tally in sorted(tallies.items()))
    return Process(
        pid=new.own_pid,
        command=new.command,
        threads=new.thread_count,
        runtimes=new.runtimes,
        pools=tuple(pools),
        listened=new.start_s >= received_from_s,
    )


def pool_name(thread: str) -> str:
    """The name that the threads of a pool share: without the digits at its end, unless there is nothing else."""
    return thread.rstrip("0123456789") or thread


class _Tally:
    """The sums over the threads of one pool; a sum is None as soon as one of its threads has no such counter."""

    __slots__ = ("delay_s", "involuntary", "last_cpus", "migrations", "ran", "ran_s", "threads")

    def __init__(self) -> None:
        self.threads = self.ran = self.migrations = 0
        self.ran_s = 0.0
        self.delay_s: float | None = 0.0
        self.involuntary: float | None = 0
        self.last_cpus: dict[int, int] = defaultdict(int)

    def add(self, old: ThreadSample | None, new: ThreadSample, since_s: float) -> None:
        """Counts a thread. One that was not seen before counts from its start, where that lies in the window."""
        self.threads += 1
        if new is old:
            return
        if old is None or old.start_s != new.start_s or new.ran_s < old.ran_s:
            if new.start_s + TICK_S < since_s:
                return
            old = new._replace(ran_s=0.0, delay_s=0.0, involuntary=0)
        ran_s = new.ran_s - old.ran_s
        if ran_s <= 0:
            return
        self.ran += 1
        self.ran_s += ran_s
        self.migrations += new.cpu != old.cpu
        self.last_cpus[new.cpu] += 1
        self.delay_s = _sum(self.delay_s, _rise(old.delay_s, new.delay_s))
        self.involuntary = _sum(self.involuntary, _rise(old.involuntary, new.involuntary))

    def take(self, other: _Tally) -> None:
        """Adds another pool's sums."""
        self.threads += other.threads
        self.ran += other.ran
        self.ran_s += other.ran_s
        self.migrations += other.migrations
        self.delay_s = _sum(self.delay_s, other.delay_s)
        self.involuntary = _sum(self.involuntary, other.involuntary)
        for cpu, threads in other.last_cpus.items():
            self.last_cpus[cpu] += threads

    def pool(self, name: str, window_s: float) -> Pool:
        """The pool's rates over the window."""
        return Pool(
            name=name,
            threads=self.threads,
            ran=self.ran,
            used_cpus=_per_second(self.ran_s, window_s) or 0.0,
            delay_cpus=_per_second(self.delay_s, window_s),
            migrations_hz=_per_second(self.migrations, window_s),
            involuntary_hz=_per_second(self.involuntary, window_s),
            last_cpus=dict(sorted(self.last_cpus.items())),
        )


def _merged(tallies: Mapping[str, _Tally]) -> dict[str, _Tally]:
    """Those that used most, and all others as one."""
    ranked = sorted(tallies.items(), key=lambda entry: (-entry[1].ran_s, -entry[1].threads, entry[0]))
    kept = dict(ranked[: MOST_POOLS - 1])
    others = kept.setdefault(OTHERS, _Tally())
    for _, tally in ranked[MOST_POOLS - 1 :]:
        others.take(tally)
    return kept


def _rise(old: float | None, new: float | None) -> float | None:
    """By how much a counter rose; None where one of the two is unknown or it went back."""
    return None if old is None or new is None or new < old else new - old


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _per_second(rise: float | None, window_s: float) -> float | None:
    return None if rise is None or window_s <= 0 else round(rise / window_s, 6)


def _share(part: float | None, whole: float) -> float | None:
    """Counters are not read at one instant, so a part may seem larger than its whole."""
    return None if part is None or whole <= 0 else round(min(1.0, part / whole), 6)
