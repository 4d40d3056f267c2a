"""What all agents say, summed up by policy: totals, the worst, a policy's status and its metrics."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from cluster import objects
from raddle_operator.controller import metrics
from raddle_operator.controller.facts import read_policy
from raddle_operator.controller.running import WORST_SHOWN, Reader, RunningTotals, Total
from raddle_operator.controller.status import Tally, policy_status, status_matches
from raddle_operator.kube import INFERENCE_THREADINGS
from raddle_operator.objects.load import ObservedLoad
from raddle_operator.objects.load import to_document as to_load
from raddle_operator.objects.nodereport import Cause
from raddle_operator.objects.running import Counts, Drift, Running, to_document

SMALL = ("InferenceThreading", "shop", "p")
NOW_S = 1_800_000_000
ALL = ("ClusterInferenceThreading", "", "all")


def record():
    metadata = {"uid": "u", "creationTimestamp": "2026-11-21T10:00:00Z", "generation": 3, "resourceVersion": "1"}
    return read_policy(INFERENCE_THREADINGS, objects.policy("p", "shop", "InferenceThreading", metadata))


def condition(status, kind):
    [found] = [item for item in status["conditions"] if item["type"] == kind]
    return found


def drift(pod, cause=Cause.CODE_SETS_IT, policy=SMALL, detail="16 threads, 2 were planned"):
    return Drift(policy=policy, namespace="shop", pod=pod, container="serve", cause=cause, detail=detail)


def node(containers=0, drifted=0, *worst, policy=SMALL, causes=()):
    counts = Counts(containers=containers, drifted=drifted, causes=causes)
    return Running(policies={policy: counts}, worst=worst)


def totals(**nodes):
    made = RunningTotals()
    for name, said in nodes.items():
        made.put(name, None, said)
    return made


def test_the_nodes_are_summed_up_and_the_worst_of_all_of_them_named():
    one = node(3, 1, drift("a-1", Cause.RESIZED), causes=((Cause.RESIZED, 1),))
    two = node(2, 2, drift("b-1"), drift("b-2"), causes=((Cause.CODE_SETS_IT, 2),))
    found = totals(a=one, b=two).of(SMALL)
    assert (found.containers, found.drifted, found.causes) == (5, 3, {Cause.RESIZED: 1, Cause.CODE_SETS_IT: 2})
    assert [(at, one.pod) for at, one in found.worst] == [("b", "b-1"), ("b", "b-2"), ("a", "a-1")]
    assert found.cause is Cause.CODE_SETS_IT


def test_of_many_only_some_are_named():
    made = totals(a=node(9, 9, *(drift(f"p-{number}") for number in range(9))))
    assert len(made.of(SMALL).worst) == WORST_SHOWN


def load(run_time_us=33_000, rate=20.0, containers=1):
    return ObservedLoad(run_time_us=run_time_us, request_rate=rate, containers=containers)


def with_load(observed):
    return Running(policies={SMALL: Counts(containers=1, load=observed)})


def test_the_load_of_a_policy_is_the_median_containers_on_all_nodes():
    made = totals(a=with_load(load(10_000, 5.0)), b=with_load(load(33_000, 20.0, 3)), c=with_load(load(50_000, 900.0)))
    assert made.of(SMALL).load == load(33_000, 20.0, 5)
    made.put("b", with_load(load(33_000, 20.0, 3)), with_load(None))
    made.put("c", with_load(load(50_000, 900.0)), None)
    assert made.of(SMALL).load == load(10_000, 5.0)
    assert made.of(ALL).load is None


@pytest.mark.parametrize(
    ("before", "running", "after"),
    [
        (None, None, None),
        (None, Total(), None),
        (None, Total(load=load()), load()),
        # It stays while it is nearly the same, and where nobody says anything now.
        (load(), Total(load=load(40_000, 17.0)), load()),
        (load(), Total(load=load(20_000)), load(20_000)),
        (load(), Total(load=load(rate=40.0)), load(rate=40.0)),
        (load(), Total(load=load(containers=9)), load(containers=9)),
        (load(), Total(), load()),
        (load(), None, load()),
    ],
)
def test_a_policys_status_says_the_load_and_changes_with_it_only(before, running, after):
    old = {"load": to_load(before)} if before else {}
    status = policy_status(replace(record(), status=old), Tally(), running=running, now_s=NOW_S)
    assert status.get("load") == (to_load(after) if after else None)
    without = {name: value for name, value in status.items() if name != "load"}
    assert status_matches({**without, **old}, status) == (before == after)


def test_a_load_in_a_status_that_is_none_is_taken_away():
    old = {"load": {"runTime": "late"}}
    status = policy_status(replace(record(), status=old), Tally(), now_s=NOW_S)
    assert "load" not in status
    assert not status_matches({**status, **old}, status)


def test_where_no_agent_looks_nothing_is_known_of_any_policy():
    made = totals()
    assert made.of(SMALL) is None
    made.put("a", None, Running())
    assert made.of(SMALL) == Total()
    made.put("a", Running(), None)
    assert made.of(SMALL) is None


def test_a_change_marks_the_policies_that_it_is_about():
    made = totals(a=node(3), b=node(1, policy=ALL))
    assert made.put("a", node(3), node(4)) == {SMALL}
    assert made.put("a", node(4), node(4)) == set()
    assert made.put("a", node(4), node(4, 0, drift("a-1"))) == {SMALL}
    assert made.put("b", node(1, policy=ALL), None) == {ALL}


said = st.builds(
    Running,
    policies=st.dictionaries(
        st.sampled_from([SMALL, ALL]),
        st.builds(
            Counts,
            containers=st.integers(0, 3),
            drifted=st.integers(0, 3),
            causes=st.lists(st.tuples(st.sampled_from(Cause), st.integers(1, 3)), max_size=2).map(tuple),
        ),
    ),
    worst=st.lists(
        st.builds(drift, st.sampled_from("abc"), st.sampled_from(Cause), st.sampled_from([SMALL, ALL])), max_size=3
    ).map(tuple),
)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.none() | said), max_size=12))
def test_whatever_nodes_say_and_take_back_the_totals_are_those_of_what_they_say_now(changes):
    made, now = RunningTotals(), {}
    for name, one in changes:
        made.put(name, now.get(name), one)
        now[name] = one
    fresh = totals(**{name: one for name, one in now.items() if one is not None})
    assert [made.of(key) for key in (SMALL, ALL)] == [fresh.of(key) for key in (SMALL, ALL)]
    assert {key for key, _ in made.items()} == {key for key, _ in fresh.items()}


def test_equal_counts_of_many_nodes_are_kept_once():
    reader = Reader()
    first, second = (reader.read({"status": {"running": to_document(node(3))}}) for _ in range(2))
    assert first == second == node(3)
    assert first.policies[SMALL] is second.policies[SMALL]


@pytest.mark.parametrize("status", [None, {}, {"running": None}, {"running": []}, {"running": {"policies": 1}}])
def test_what_is_no_summary_is_none(status):
    assert Reader().read({"status": status}) is None


def test_the_status_has_the_threads_that_pods_were_given():
    assert "threads" not in policy_status(record(), Tally(), now_s=NOW_S)
    assert policy_status(record(), Tally(threads=Counter({2: 9})), now_s=NOW_S)["threads"] == "2"
    assert policy_status(record(), Tally(threads=Counter({4: 1, 1: 3, 2: 9})), now_s=NOW_S)["threads"] == "1-4"


def test_the_status_says_what_runs_otherwise_than_planned():
    made = totals(n1=node(3, 1, drift("a-1"), causes=((Cause.CODE_SETS_IT, 1), (Cause.RESIZED, 1))))
    status = policy_status(record(), Tally(), running=made.of(SMALL), now_s=NOW_S)
    worst = {"namespace": "shop", "pod": "a-1", "container": "serve", "node": "n1"}
    worst |= {"cause": "CodeSetsIt", "detail": "16 threads, 2 were planned"}
    assert status["running"] == {"containers": 3, "drifted": 1, "worst": [worst]}
    found = condition(status, "Drifted")
    assert (found["status"], found["reason"]) == ("True", "CodeSetsIt")
    assert found["message"] == (
        "1 of 3 containers not as planned (CodeSetsIt 1, Resized 1); shop/a-1 serve: 16 threads, 2 were"
        " planned; `kubectl raddle explain` says what to do"
    )


def test_the_status_says_that_all_is_as_planned():
    found = condition(policy_status(record(), Tally(), running=Total(containers=2), now_s=NOW_S), "Drifted")
    assert (found["status"], found["reason"]) == ("False", "AsPlanned")


def test_a_status_is_written_again_when_no_agent_looks_any_more():
    with_running = policy_status(record(), Tally(), running=Total(), now_s=NOW_S)
    without = policy_status(record(), Tally(), now_s=NOW_S)
    assert status_matches(with_running, with_running)
    assert not status_matches(with_running, without)
    assert not status_matches(without, with_running)


@pytest.fixture(autouse=True)
def clean():
    yield
    metrics.measure_running([])


def samples(name):
    return [sample for family in REGISTRY.collect() for sample in family.samples if sample.name == name]


def test_metrics_count_containers_by_policy_and_cause():
    made = totals(a=node(3, 1, causes=((Cause.RESIZED, 1),)), b=node(2, policy=ALL))
    metrics.measure_running(made.items())
    labels = {"policy_kind": "InferenceThreading", "policy_namespace": "shop", "policy": "p"}
    assert REGISTRY.get_sample_value("raddle_policy_containers_running", labels) == 3
    assert REGISTRY.get_sample_value("raddle_policy_containers_drifted", {**labels, "cause": "Resized"}) == 1
    assert len(samples("raddle_policy_containers_drifted")) == 1


def test_of_very_many_policies_those_with_most_drift_are_shown_and_the_others_summed():
    made = RunningTotals()
    for number in range(100):
        key = ("InferenceThreading", "shop", f"p{number}")
        made.put(f"n{number}", None, node(1, number == 77, policy=key, causes=((Cause.RESIZED, int(number == 77)),)))
    metrics.measure_running(made.items())
    shown = samples("raddle_policy_containers_running")
    assert len(shown) == metrics.RUNNING_POLICIES + 1
    assert sum(sample.value for sample in shown) == 100
    assert samples("raddle_policy_containers_drifted")[0].labels["policy"] == "p77"
