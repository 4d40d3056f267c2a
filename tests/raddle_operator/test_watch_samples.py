"""Two looks make a report: by tables, and by properties over looks that are made up."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle_operator.agent import samples
from raddle_operator.agent.governed import GovernedContainer, GovernedPod
from raddle_operator.agent.samples import ContainerSample, Counters, ProcessSample, Sample, ThreadSample
from raddle_operator.effective.planned import ContainerPlan
from raddle_operator.objects import nodereport
from raddle_operator.objects.nodereport import Level

BOX = "9a8b"
POD = GovernedPod(
    namespace="models",
    name="resnet-1",
    uid="1f2e",
    policy="InferenceThreading/models/resnet",
    planned={},
    containers=(GovernedContainer(name="server", id=BOX, limit_cpus=2.0),),
)


def thread(ran_s, *, start_s=1.0, name="python", delay_s=0.0, involuntary=0, cpu=0):
    return ThreadSample(start_s, name, ran_s, delay_s, involuntary, cpu, b"")


def process(threads, *, start_s=1.0, own_pid=1):
    return ProcessSample(start_s, own_pid, "python", None, len(threads), threads)


def look(at_s, processes=None, **counters):
    return Sample(at_s, {BOX: ContainerSample(Counters(at_s, **counters), processes or {})})


def of(before, after):
    report = samples.report("worker", Level.PROCESSES, "2026-11-23T00:00:00Z", [POD], before, after)
    assert nodereport.from_document(nodereport.to_document(report)) == report
    return report.containers[0]


def test_a_container_has_the_rates_of_the_window():
    before = look(100.0, used_s=10.0, periods=50, throttled_periods=5, throttled_s=1.0, waiting_s=2.0)
    now = {"used_s": 25.0, "periods": 150, "throttled_periods": 30, "throttled_s": 6.0, "waiting_s": 4.0}
    found = of(before, Sample(110.0, {BOX: ContainerSample(Counters(110.0, **now, quota_cpus=2.0, processes=3), {})}))
    assert (found.used_cpus, found.throttled_share, found.throttled_cpus) == (1.5, 0.25, 0.5)
    assert (found.waiting_share, found.quota_cpus, found.limit_cpus) == (0.2, 2.0, 2.0)
    assert found.process_count == 3
    assert (found.policy, found.uid) == ("InferenceThreading/models/resnet", "1f2e")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"used_s": 1.0, "periods": 3, "throttled_periods": 1, "throttled_s": 1.0, "waiting_s": 1.0}),
        ({"used_s": 1.0, "periods": 3, "throttled_periods": 1, "throttled_s": 1.0, "waiting_s": 1.0}, {}),
        (
            {"used_s": 9.0, "periods": 9, "throttled_periods": 9, "throttled_s": 9.0, "waiting_s": 9.0},
            {"used_s": 1.0, "periods": 3, "throttled_periods": 1, "throttled_s": 1.0, "waiting_s": 1.0},
        ),
    ],
    ids=["not there before", "not there now", "went back"],
)
def test_a_counter_that_tells_nothing_of_the_window_is_absent(before, after):
    found = of(look(100.0, **before), look(110.0, **after))
    assert (found.used_cpus, found.throttled_share, found.throttled_cpus, found.waiting_share) == (None,) * 4


def test_a_container_without_periods_in_the_window_was_not_throttled():
    counters = {"periods": 7, "throttled_periods": 3}
    assert of(look(100.0, **counters), look(110.0, **counters)).throttled_share == 0.0


def test_a_container_that_was_not_seen_before_has_no_rates():
    found = of(Sample(100.0, {}), look(110.0, {7: process({7: thread(5.0)})}, used_s=5.0, quota_cpus=1.0))
    assert (found.used_cpus, found.quota_cpus, found.processes[0].threads) == (None, 1.0, 1)
    assert (found.processes[0].pools[0].ran, found.processes[0].pools[0].used_cpus) == (0, 0.0)


def test_a_container_that_is_not_seen_is_told_by_its_spec():
    found = of(look(100.0), Sample(110.0, {}))
    assert (found.limit_cpus, found.used_cpus, found.processes) == (2.0, None, ())


def test_threads_are_told_by_pool():
    before = {7: process({7: thread(1.0), **{n: thread(1.0, name=f"pool-{n}") for n in (8, 9, 10)}})}
    threads = {
        7: thread(1.0),
        8: thread(3.0, name="pool-8", delay_s=1.0, involuntary=20, cpu=4),
        9: thread(2.0, name="pool-9", delay_s=0.5, involuntary=10, cpu=0),
        10: thread(1.0, name="pool-10"),
    }
    after = {7: process(threads)}
    main, pool = sorted(of(look(100.0, before), look(110.0, after)).processes[0].pools, key=lambda one: one.threads)
    assert (main.name, main.threads, main.ran) == ("python", 1, 0)
    assert (pool.name, pool.threads, pool.ran) == ("pool-", 3, 2)
    assert (pool.used_cpus, pool.delay_cpus, pool.involuntary_hz, pool.migrations_hz) == (0.3, 0.15, 3.0, 0.1)
    assert pool.last_cpus == {0: 1, 4: 1}


@pytest.mark.parametrize(
    ("before", "after", "used_cpus"),
    [
        (None, thread(4.0, start_s=105.0), 0.4),
        (None, thread(4.0, start_s=50.0), 0.0),
        (thread(9.0, start_s=50.0), thread(4.0, start_s=105.0), 0.4),
        (thread(9.0, start_s=50.0), thread(4.0, start_s=50.0), 0.0),
        (thread(1.0, start_s=50.0), thread(4.0, start_s=50.0), 0.3),
    ],
    ids=["began in the window", "joined", "another has its number", "went back", "as before"],
)
def test_a_thread_counts_from_the_start_of_the_window_or_from_its_own(before, after, used_cpus):
    old = {7: process({7: thread(0.0)} | ({8: before} if before else {}))}
    pools = of(look(100.0, old), look(110.0, {7: process({8: after})})).processes[0].pools
    assert pools[0].used_cpus == used_cpus


def test_a_process_that_has_anothers_number_is_another():
    before = {7: process({7: thread(9.0)}, start_s=1.0)}
    after = {7: process({7: thread(9.5, start_s=104.0)}, start_s=104.0)}
    assert of(look(100.0, before), look(110.0, after)).processes[0].pools[0].used_cpus == 0.95


@pytest.mark.parametrize(
    ("name", "pool"), [("pool-12", "pool-"), ("12", "12"), ("", ""), ("a1b", "a1b"), ("x)\n(3", "x)\n(")]
)
def test_a_pool_is_called_what_its_threads_share(name, pool):
    assert samples.pool_name(name) == pool


def test_a_tenant_can_make_the_report_only_so_long():
    threads = {n: thread(float(n), name=f"{n}-x") for n in range(1, 500)}
    before = {n: process({n: thread(0.0, name="x")}, own_pid=n) for n in range(1, 200)}
    after = {n: process({n: thread(1.0 / n, name="x")}, own_pid=n) for n in range(1, 200)}
    names = of(look(100.0, {1: process({})}), look(110.0, {1: process(threads, own_pid=3)})).processes[0].pools
    assert len(names) == samples.MOST_POOLS
    assert sum(pool.threads for pool in names) == len(threads)
    kept = of(look(100.0, before), look(110.0, after)).processes
    assert [one.pid for one in kept] == list(range(1, samples.MOST_PROCESSES + 1))


@pytest.mark.parametrize(
    ("tells", "repeats", "listening_s", "start_s", "listened"),
    [
        (True, False, 50.0, 60.0, True), (True, False, 50.0, 40.0, False), (False, True, 50.0, 60.0, False),
        (True, True, 50.0, 40.0, False), (True, True, 50.0, 60.0, True), (True, True, -850.0, 0.0, True),
        (True, False, 5.0, 0.0, False), (True, True, math.inf, 60.0, False),
    ],
    ids=[
        "began since",
        "began before",
        "was not told whom to tell",
        "repeats, but not yet",
        "began since, and repeats",
        "has repeated itself",
        "never repeats",
        "nobody listens",
    ],
)  # fmt: skip
def test_a_shim_in_a_process_would_have_been_heard(tells, repeats, listening_s, start_s, listened):
    (box,) = POD.containers
    pod = replace(POD, planned={"server": ContainerPlan(repeats=repeats)}, containers=(replace(box, tells=tells),))
    after = look(110.0, {7: process({}, start_s=start_s)})
    report = samples.report("worker", Level.PROCESSES, "", [pod], look(100.0), after, listening_s)
    assert report.containers[0].processes[0].listened == listened


COUNTS = st.integers(0, 10**6)
SECONDS = st.floats(0, 10**6)
THREADS = st.builds(
    ThreadSample,
    st.floats(0, 200),
    st.text(max_size=15),
    SECONDS,
    st.none() | SECONDS,
    st.none() | COUNTS,
    st.integers(0, 1023),
    st.just(b""),
)
PROCESSES = st.builds(
    ProcessSample,
    st.sampled_from([1.0, 2.0, 105.0]),
    st.integers(1, 99),
    st.text(max_size=15),
    st.none() | st.just(("torch",)),
    st.just(9),
    st.dictionaries(st.integers(1, 9), THREADS, max_size=6),
)
COUNTERS = st.builds(
    Counters,
    SECONDS,
    st.none() | SECONDS,
    st.none() | COUNTS,
    st.none() | COUNTS,
    st.none() | SECONDS,
    st.none() | SECONDS,
    st.none() | st.floats(0.01, 1000),
    st.none() | st.just("0-3"),
    st.none() | COUNTS,
)
CONTAINERS = st.builds(ContainerSample, COUNTERS, st.dictionaries(st.integers(1, 5), PROCESSES, max_size=4))
LOOKS = st.builds(Sample, SECONDS, st.dictionaries(st.just(BOX), CONTAINERS))


@given(LOOKS, LOOKS)
def test_any_two_looks_make_a_report_that_adds_up(before, after):
    before, after = sorted((before, after), key=lambda one: one.at_s)
    found = of(before, after)
    seen = after.containers.get(BOX)
    assert len(found.processes) == (len(seen.processes) if seen else 0)
    for share in (found.throttled_share, found.waiting_share):
        assert share is None or 0 <= share <= 1
    if seen:
        assert [one.threads for one in found.processes] == [9] * len(seen.processes)
        looked_at = sum(len(one.threads) for one in seen.processes.values())
        assert sum(pool.threads for one in found.processes for pool in one.pools) == looked_at
    for one in found.processes:
        for pool in one.pools:
            assert pool.ran <= pool.threads
            assert sum(pool.last_cpus.values()) == pool.ran
            assert pool.used_cpus >= 0


@given(LOOKS)
def test_nothing_happened_between_a_look_and_itself(one):
    later = one._replace(at_s=one.at_s + 10)
    later = later._replace(
        containers={
            key: seen._replace(counters=seen.counters._replace(at_s=seen.counters.at_s + 10))
            for key, seen in one.containers.items()
        }
    )
    found = of(one, later)
    assert not found.used_cpus
    assert not any(pool.ran or pool.used_cpus for process in found.processes for pool in process.pools)
