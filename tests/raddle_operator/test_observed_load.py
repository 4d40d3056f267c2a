"""The load that agents observe: what they make of reports, when they say something else, and how it is written."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raddle.planning.policy import parse
from raddle_operator.effective.load import LEAST_RUNS, WINDOW_S, WINDOWS, Loads
from raddle_operator.effective.running import Summary
from raddle_operator.objects import load, running
from raddle_operator.objects.load import ObservedLoad
from raddle_operator.objects.nodereport import Container, Level, NodeReport, Process, Session

SMALL = ("InferenceThreading", "models", "small")
EVERY_S = 30.0
STEPS = round(WINDOW_S / EVERY_S)


def process(runs, run_s=None, threads=1, pid=7):
    total_s = None if run_s is None else runs * run_s
    session = Session(runtime="toy", threads=threads, runs=runs, run_seconds_total=total_s)
    return Process(pid=pid, command="", threads=9, sessions=(session,))


def container(*processes, cpus=None, name="resnet-1", policy="InferenceThreading/small"):
    names = {"namespace": "models", "pod": name, "uid": f"uid-{name}", "name": "serve", "policy": policy}
    return Container(**names, used_cpus=cpus, processes=processes)


def report(*containers):
    return NodeReport(node="n", level=Level.PROCESSES, at="", window_s=EVERY_S, containers=containers)


def watched(loads, of, steps=STEPS, first=0):
    """What is said after so many reports, each as `of(number)` makes its containers."""
    for number in range(first, first + steps):
        said = loads.take(report(*of(number)))
    return said


def steady(hz, **more):
    """Containers whose one process runs so often a second: `cpus` is of the container, the rest of the process."""
    cpus = more.pop("cpus", 1.0)
    return lambda number: [container(process(round((number + 1) * EVERY_S * hz), **more), cpus=cpus)]


@pytest.mark.parametrize(
    ("seen", "run_time_us"),
    [
        # One thread: a run's own time, whatever else the container does.
        ({"run_s": 0.033, "threads": 1, "cpus": 0.9}, 33_000),
        # One that waits for its CPU, or for the limit's next period: the CPU time.
        ({"run_s": 0.090, "threads": 1, "cpus": 0.33}, 33_000),
        # Four threads: the CPU time too, which is what they do and what they cost.
        ({"run_s": 0.010, "threads": 4, "cpus": 0.37}, 37_000),
        # Where the rest of a request takes more than the run it can't be longer than its threads together.
        ({"run_s": 0.005, "threads": 4, "cpus": 0.90}, 20_000),
        # What tells no time, and what leaves the count to its runtime.
        ({"run_s": None, "threads": 1, "cpus": 0.33}, 33_000),
        ({"run_s": 0.010, "threads": None, "cpus": 0.33}, 33_000),
    ],
)
def test_a_run_on_one_thread_takes_no_longer_than_what_is_seen(seen, run_time_us):
    found = watched(Loads(), steady(10, **seen), STEPS * 2)[SMALL]
    assert found.run_time_us == run_time_us
    assert found.request_rate == pytest.approx(10, rel=0.1)
    assert found.containers == 1


def test_nothing_is_said_of_the_first_minutes_of_few_runs_and_of_what_counts_none():
    assert watched(Loads(), steady(10), STEPS - 1) == {}
    assert watched(Loads(), steady(0.9 * LEAST_RUNS / WINDOW_S), STEPS * 2) == {}
    assert watched(Loads(), lambda _: [container(process(None), cpus=1.0)], STEPS * 2) == {}
    assert watched(Loads(), lambda _: [container(cpus=1.0)], STEPS * 2) == {}
    assert watched(Loads(), steady(10, cpus=None), STEPS * 2) == {}


def test_it_is_the_busiest_minutes_that_count_and_idle_ones_forget_nothing():
    loads, runs = Loads(), 0

    def after(hz, steps=STEPS):
        def of(_):
            nonlocal runs
            runs += round(EVERY_S * hz)
            return [container(process(runs), cpus=hz / 100)]

        return watched(loads, of, steps)[SMALL].request_rate

    # The first report of a container is where its first window begins.
    after(10, 1 + STEPS)
    assert after(100) == pytest.approx(100, rel=0.1)
    assert after(10, (WINDOWS - 1) * STEPS) == pytest.approx(100, rel=0.1)
    assert after(0, 5 * WINDOWS * STEPS) == pytest.approx(100, rel=0.1)
    assert after(10) == pytest.approx(10, rel=0.1)


def test_a_process_counts_from_when_the_agent_first_hears_of_it():
    def of(number):
        mine = round((number + 1) * EVERY_S * 10)
        # It has run for a year when it speaks up; another begins again under its number.
        late = [process(10**9 + mine, pid=8)] if number > STEPS // 2 else []
        return [container(process(mine % 1500, pid=7), *late, cpus=1.0)]

    assert watched(Loads(), of, STEPS * 2)[SMALL].request_rate <= 21


def test_the_processes_and_sessions_of_a_container_are_taken_together_and_containers_one_by_one():
    def of(number):
        runs = round((number + 1) * EVERY_S * 10)
        one, other = process(runs, 0.010), process(runs, 0.030, pid=8)
        both = replace(one, sessions=(*one.sessions, *other.sessions))
        others = [container(process(runs, 0.010), cpus=1.0, name=f"resnet-{name}") for name in range(3)]
        return [
            container(one, other, cpus=1.0, name="two-processes", policy="InferenceThreading/processes"),
            container(both, cpus=1.0, name="two-sessions", policy="InferenceThreading/sessions"),
            *others,
            container(one, cpus=1.0, name="nobodys", policy=""),
        ]

    found = watched(Loads(), of, STEPS * 2)
    loads = {name: (one.run_time_us, round(one.request_rate, -1), one.containers) for (*_, name), one in found.items()}
    assert loads == {"processes": (20_000, 20, 1), "sessions": (20_000, 20, 1), "small": (10_000, 10, 3)}


def test_a_policys_load_stays_while_its_new_containers_have_none_yet():
    loads = Loads()
    said = watched(loads, steady(10), STEPS * 2)
    assert loads.take(report(container(name="resnet-2"))) == said
    assert loads.take(report()) == {}
    assert loads.take(report(container(name="resnet-2"))) == {}


@given(st.lists(st.floats(-0.1, 0.1), min_size=1, max_size=4 * STEPS))
def test_a_small_change_never_writes(noise):
    """What is told stays, to the last character, while rate and CPU time are within a tenth of what they were."""
    summary, runs = Summary(), 0
    said = set()
    for number in range(STEPS * 2 + len(noise)):
        more = noise[number - STEPS * 2] if number >= STEPS * 2 else 0.0
        runs += round(EVERY_S * 100 * (1 + more))
        found = summary.take(report(container(process(runs, 0.008), cpus=0.7 * (1 + more))))
        if number >= STEPS * 2:
            said.add(str(running.to_document(found)))
    assert len(said) == 1
    assert "'runTime': '7ms'" in said.pop()


loads = st.builds(
    ObservedLoad,
    run_time_us=st.integers(1, 10**12),
    request_rate=st.floats(1e-12, 1e12),
    containers=st.integers(1, 10**6),
)


@given(st.lists(loads, min_size=1, max_size=5))
def test_whatever_was_observed_is_a_load_that_a_policy_may_state(observed):
    found = load.middle(observed)
    document = load.to_document(found)
    assert load.read({"load": document}) == found
    stated = parse({"load": {name: document[name] for name in ("runTime", "requestsPerSecond")}})
    assert (stated.run_time_us, stated.request_rate) == (found.run_time_us, found.request_rate)


@given(st.integers(1, 3600 * 10**6), st.floats(1e-6, 1e6), st.integers(1, 10**6))
def test_what_stays_as_it_was_is_written_as_it_was(run_time_us, rate, containers):
    observed = ObservedLoad(run_time_us=run_time_us, request_rate=rate, containers=containers)
    assert load.read({"load": load.to_document(observed)}) == observed
    assert load.held(observed, None) is observed
    assert load.held(observed, replace(observed, run_time_us=round(run_time_us * 1.2))) is observed


@pytest.mark.parametrize(
    ("run_time_us", "text"),
    [(1, "1us"), (850, "850us"), (1500, "1.5ms"), (33_000, "33ms"), (1_500_000, "1.5s"), (1_234_567, "1234.567ms")],
)
def test_a_run_time_is_written_as_people_write_it(run_time_us, text):
    assert load.to_document(ObservedLoad(run_time_us=run_time_us, request_rate=1.0))["runTime"] == text


@given(st.lists(loads, min_size=3, max_size=9), loads)
def test_one_container_alone_changes_a_median_to_a_value_that_others_have(observed, strange):
    alike = [replace(one, containers=1) for one in observed]
    found = load.middle([*alike, *alike, replace(strange, containers=1)])
    assert min(one.run_time_us for one in alike) * 0.94 <= found.run_time_us or found.run_time_us == 3600 * 10**6
    assert found.run_time_us <= max(one.run_time_us for one in alike) * 1.06


def test_the_summary_of_a_node_has_the_loads_of_its_policies():
    summary = Summary()
    for number in range(STEPS * 2):
        said = summary.take(report(*steady(10, run_s=0.033)(number)))
    document = running.to_document(said)
    assert document["policies"][0]["load"] == {"runTime": "33ms", "requestsPerSecond": 10, "containers": 1}
    assert running.from_document(document) == said
