"""Counting by namespace, and verdicts that stay in force while they are looked at again."""

import pytest

from cluster import objects
from raddle_operator.controller.counting import PodCounts
from raddle_operator.controller.facts import NamespaceFacts, PodFacts
from raddle_operator.controller.status import case_of, key_of
from raddle_operator.injection.matching import Policies
from raddle_operator.objects.policy import policy_from_object
from raddle_operator.objects.reasons import SkipReason

MADE = {"uid": "u", "generation": 1, "creationTimestamp": "2026-11-21T10:00:00Z"}
POLICY = policy_from_object(objects.policy("p", kind="ClusterInferenceThreading", metadata=MADE))
KEY = key_of(POLICY)
POD = PodFacts(labels=(("app", "a"),), created_s=100, injected=False, safe_values=False, settings_hash="")
OPEN = NamespaceFacts(labels={"raddle.dev/inject": "enabled"}, opted_in_s=0, terminating=False)
CASE = case_of("shop", POD.labels, POLICY)


@pytest.fixture
def counts():
    return PodCounts("disabled")


def count(counts, pods, *names, namespaces=("shop", "lab")):
    counts.mark(names)
    opened = dict.fromkeys(namespaces, OPEN)
    return counts.count(opened, pods, Policies([POLICY]), {KEY: 0})


def test_only_marked_namespaces_are_counted(counts):
    pods = {("shop", "a"): POD, ("lab", "b"): POD}
    assert count(counts, pods, "shop").policies == {KEY}
    assert counts.total(KEY, ())[0].matched == 1
    count(counts, pods, "lab")
    assert counts.total(KEY, ())[0].matched == 2
    assert counts.is_current


def test_a_count_that_finds_nothing_new_names_no_policy(counts):
    pods = {("shop", "a"): POD}
    count(counts, pods, "shop")
    assert count(counts, pods, "shop").policies == frozenset()


def test_pods_that_vanish_and_namespaces_that_close_are_counted_out(counts):
    pods = {("shop", "a"): POD, ("lab", "b"): POD}
    count(counts, pods, "shop", "lab")
    assert count(counts, {("lab", "b"): POD}, "shop").policies == {KEY}
    assert count(counts, {("lab", "b"): POD}, "lab", namespaces=()).policies == {KEY}
    assert counts.total(KEY, ())[0].matched == 0
    assert counts.tallies == {}


def test_one_pod_of_a_kind_is_to_be_examined_until_it_has_been(counts):
    pods = {("shop", "a"): POD, ("shop", "b"): POD}
    assert count(counts, pods, "shop").examine == (("shop", "a"),)
    assert counts.of("shop").policies[KEY].pending == 2
    counts.record(CASE, SkipReason.NO_CPU_BOUND)
    assert not counts.is_current
    assert count(counts, pods).examine == ()
    assert counts.of("shop").policies[KEY].skipped == {"NoCPUBound": 2}


def test_a_doubted_verdict_stays_in_force_until_there_is_another(counts):
    pods = {("shop", "a"): POD}
    count(counts, pods, "shop")
    counts.record(CASE, SkipReason.NO_CPU_BOUND)
    count(counts, pods)
    counts.invalidate()
    assert count(counts, pods, "shop").examine == (("shop", "a"),)
    assert counts.of("shop").policies[KEY].skipped == {"NoCPUBound": 1}
    counts.record(CASE, SkipReason.NO_CPU_BOUND)
    assert counts.is_current
    counts.record(CASE, SkipReason.WEBHOOK_MISSED)
    count(counts, pods)
    assert counts.of("shop").policies[KEY].skipped == {"WebhookMissed": 1}


def test_a_verdict_that_nobody_needs_is_forgotten(counts):
    count(counts, {("shop", "a"): POD}, "shop")
    counts.record(CASE, SkipReason.NO_CPU_BOUND)
    count(counts, {}, "shop")
    counts.invalidate()
    assert count(counts, {("shop", "b"): POD}, "shop").examine == (("shop", "b"),)
    assert counts.of("shop").policies[KEY].pending == 1


def test_namespaces_without_the_shim_are_named_where_the_policy_has_pods(counts):
    count(counts, {("shop", "a"): POD}, "shop", "lab")
    assert counts.total(KEY, {"shop", "lab"})[1] == ["shop"]
