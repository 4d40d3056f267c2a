"""Exactly one policy governs an opted-in pod, by one sort key."""

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import objects
from raddle import env
from raddle_operator.injection.matching import (
    MAX_POLICIES_PER_NAMESPACE,
    Policies,
    conflicts,
    govern,
    opted_in,
    select,
    sort_key,
)
from raddle_operator.objects.policy import pod_from_object, policy_from_object
from raddle_operator.objects.reasons import SkipReason


def policy(name, *, cluster="", priority=0, created=1, app=None, namespace="ns", namespaces=None):
    spec = {"podSelector": {"matchLabels": {"app": app}} if app else {}, "priority": priority}
    kind = "InferenceThreading"
    if cluster:
        kind, namespace, spec = f"Cluster{kind}", None, {**spec, "tier": cluster, "namespaceSelector": namespaces}
    metadata = {"creationTimestamp": f"2026-01-{created:02}T00:00:00Z"}
    return policy_from_object(objects.policy(name, namespace, kind, metadata, **spec))


def chosen(policies, labels=None, namespace_labels=None):
    found = select(labels or {}, "ns", namespace_labels or {}, Policies(policies))
    return found.policy.name if found.policy else str(found.skip.reason)


@pytest.mark.parametrize(
    ("namespace", "pod", "in_"),
    [
        ("enabled", None, True), ("enabled", "enabled", True), ("enabled", "disabled", False), ("enabled", "x", True),
        ("labelled", None, False), ("labelled", "enabled", True), ("labelled", "disabled", False),
        ("disabled", None, False), ("disabled", "enabled", False), ("true", "enabled", False),
        (None, None, False), (None, "enabled", False),
    ],
)  # fmt: skip
def test_opt_in_is_the_namespaces_wish_and_then_the_pods(namespace, pod, in_):
    skip = opted_in({env.INJECT_LABEL: pod} if pod else {}, {env.INJECT_LABEL: namespace} if namespace else {})
    assert (skip is None) is in_
    assert skip is None or (skip.reason is SkipReason.OPTED_OUT and skip.detail)


def test_a_chart_value_says_what_a_namespace_without_the_label_counts_as():
    assert opted_in({}, {}, unlabelled="enabled") is None
    assert opted_in({}, {env.INJECT_LABEL: "disabled"}, unlabelled="enabled") is not None


def test_precedence_is_admin_then_named_then_namespaced_then_baseline():
    admin, baseline = policy("admin", cluster="Admin"), policy("baseline", cluster="Baseline", priority=9)
    named, local = policy("named", priority=-9), policy("local", priority=9)
    labels = {env.POLICY_LABEL: "named"}
    ladder = [admin, named, local, baseline]
    for place, expected in enumerate(ladder):
        # The label is there only as long as the policy that it names is.
        rest = ladder[place:]
        assert chosen(rest, labels if named in rest else {}) == expected.name
    assert chosen([]) == "NoPolicy"


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ([policy("a", priority=1), policy("b", priority=2)], "b"),
        ([policy("a", created=2), policy("b", created=1)], "b"),
        ([policy("b"), policy("a")], "a"),
        ([policy("a", priority=1, created=9), policy("b", created=1)], "a"),
        ([policy("a", app="bert"), policy("b", priority=-1)], "b"),
        ([policy("a", namespace="other"), policy("b", cluster="Baseline")], "b"),
        ([policy("a", cluster="Admin", namespaces={"matchLabels": {"x": "y"}}), policy("b")], "b"),
    ],
)
def test_within_a_rank_priority_then_age_then_name(policies, expected):
    assert chosen(policies) == expected
    assert chosen(policies[::-1]) == expected


@pytest.mark.parametrize("policies", [[], [policy("named", app="bert")], [policy("named", namespace="other")]])
def test_a_named_policy_that_is_missing_or_selects_otherwise_is_no_reason_to_fall_back(policies):
    everything = [*policies, policy("local"), policy("baseline", cluster="Baseline")]
    assert chosen(everything, {env.POLICY_LABEL: "named"}) == "PolicyNotFound"


def test_an_admin_policy_governs_even_a_pod_that_names_another():
    assert chosen([policy("admin", cluster="Admin")], {env.POLICY_LABEL: "absent"}) == "admin"


def test_the_oldest_hundred_policies_of_a_namespace_are_evaluated():
    crowd = [policy(f"p{n}", app="other") for n in range(MAX_POLICIES_PER_NAMESPACE)]
    late = policy("late", created=2, priority=999)
    assert chosen([*crowd, late]) == "TooManyPolicies"
    assert chosen([*crowd, late], {env.POLICY_LABEL: "late"}) == "TooManyPolicies"
    assert chosen([*crowd, late, policy("baseline", cluster="Baseline")]) == "baseline"
    assert chosen([*crowd[1:], late]) == "late"
    assert len(list(Policies([*crowd, late]))) == 101


def test_a_pod_that_is_not_opted_in_is_governed_by_nothing():
    pod = pod_from_object({"metadata": {}, "spec": {}})
    governed = govern(pod, "ns", {}, Policies([policy("a")]))
    assert governed.policy is None
    assert governed.skip.reason is SkipReason.OPTED_OUT


def test_the_younger_of_two_equals_conflicts_and_the_older_governs():
    old, young = policy("old", created=1), policy("young", created=2)
    other_rank, other_priority = policy("c", cluster="Baseline"), policy("d", priority=1, created=3)
    found = list(conflicts({}, "ns", {}, Policies([young, old, other_rank, other_priority])))
    assert [(a.name, b.name) for a, b in found] == [("young", "old")]


@pytest.mark.parametrize(
    ("labels", "policies"),
    [
        ({"app": "a"}, [policy("a", app="a"), policy("b", app="b")]),
        ({env.POLICY_LABEL: "a"}, [policy("a"), policy("b")]),
    ],
)
def test_policies_that_select_other_pods_and_those_of_a_pod_that_names_one_do_not_conflict(labels, policies):
    assert not list(conflicts(labels, "ns", {}, Policies(policies)))


POLICIES = st.lists(
    st.builds(
        policy,
        st.sampled_from("abcdef"),
        cluster=st.sampled_from(("", "", "Admin", "Baseline")),
        priority=st.integers(-1, 1),
        created=st.integers(1, 3),
        app=st.sampled_from((None, "resnet", "bert")),
    ),
    max_size=8,
    unique_by=lambda p: (p.kind, p.name),
)


@given(POLICIES, st.randoms(use_true_random=False))
def test_the_one_that_governs_is_the_least_by_the_sort_key_in_whatever_order_they_come(policies, order: random.Random):
    labels = {"app": "resnet"}
    matching = [p for p in policies if p.pod_selector.matches(labels)]
    expected = min(matching, key=sort_key).name if matching else "NoPolicy"
    shuffled = list(policies)
    order.shuffle(shuffled)
    assert chosen(shuffled, labels) == expected


@given(POLICIES)
def test_what_governs_never_conflicts(policies):
    arranged = Policies(policies)
    governing = select({"app": "resnet"}, "ns", {}, arranged).policy
    assert governing not in [younger for younger, _ in conflicts({"app": "resnet"}, "ns", {}, arranged)]


def test_a_crowd_of_policies_is_told_apart_by_those_that_are_evaluated():
    crowd = [policy(f"p{n:05}", app="a") for n in range(2000)]
    local = Policies(crowd).of_namespace("ns")
    assert [one.name for one in crowd if not local.is_beyond(one)] == [f"p{n:05}" for n in range(100)]
    assert chosen(crowd, {"app": "b"}) == SkipReason.NO_POLICY


def test_ten_thousand_policies_of_one_namespace_cost_the_pods_of_another_nothing():
    """Each change of a policy makes new Policies: what the namespace with the crowd needs is arranged for its own pods."""
    crowd = [policy(f"p{n:05}", namespace="crowd", created=1 + n % 28) for n in range(10_000)]
    mine = policy("mine")
    pod_of_mine, pod_of_crowd = [], []
    for _ in range(5):
        policies = Policies([*crowd, mine])
        for namespace, times in (("ns", pod_of_mine), ("crowd", pod_of_crowd)):
            began_s = time.process_time()
            found = select({}, namespace, {}, policies)
            times.append(time.process_time() - began_s)
            assert found.policy is not None
    assert min(pod_of_mine) < min(pod_of_crowd) / 10
