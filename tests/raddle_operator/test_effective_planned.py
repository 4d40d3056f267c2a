"""What a pod's annotations say that its containers should run with."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import machines

from assembling import regular
from raddle import env
from raddle.cpus.topology import Kubelet
from raddle.planning.planner import Budget
from raddle.planning.policy import Policy
from raddle_operator.effective import planned
from raddle_operator.effective.planned import ContainerPlan
from raddle_operator.injection import plan_annotations

DEFAULT = Policy()


def pod_of(policy=DEFAULT, machine=None, by="InferenceThreading/small", **budget):
    """A pod whose container `serve` was planned so."""
    _, values = plan_annotations.compose(machine, Budget(**budget), policy, governed_by=by)
    return {"metadata": {"annotations": {prefix + "serve": value for prefix, value in values.items()}}}


def read(**planning) -> ContainerPlan:
    return planned.read(pod_of(**planning))["serve"]


def test_the_plan_is_read_as_it_was_written():
    found = read(quota_cpus=2.0, because="limits.cpu 2")
    assert (found.policy, found.threads, found.limit_cpus) == ("InferenceThreading/small", 2, 2.0)
    assert (found.shim, found.pinned, found.streams, found.workers) == (True, False, 1, 1)
    assert found.counts["onnxruntime"] == 2
    assert set(found.counts) == set(found.runtimes) == {"onnxruntime", "torch", "openmp", "blas"}


@pytest.mark.parametrize(
    ("planning", "expected"),
    [
        ({"quota_cpus": 4.0, "because": "pod-level limits.cpu 4"}, None),
        ({"quota_cpus": 3.0, "because": "limits.cpu 4", "policy": Policy(reserve_cpus=1.0)}, None),
        ({}, None),
        ({"quota_cpus": 0.5, "because": "limits.cpu 500m"}, 0.5),
    ],
    ids=["of the pod", "without what is reserved", "none", "its own"],
)
def test_only_a_containers_own_limit_can_be_compared_later(planning, expected):
    assert read(**planning).limit_cpus == expected


@pytest.mark.parametrize(
    ("policy", "asked"), [(Policy(intra_op=2), True), (Policy(min_intra_op=2), True), (Policy(), False)]
)
def test_a_count_that_the_policy_asks_for_is_told_from_one_that_was_planned(policy, asked):
    found = read(policy=policy, quota_cpus=2.0)
    assert (found.threads, found.asked) == (2, asked)


def test_two_processes_share_the_cpus():
    found = read(quota_cpus=8.0, workers=4)
    assert (found.streams, found.workers, found.threads) == (4, 4, 2)


@pytest.mark.parametrize("policy", [Policy(shim="None"), Policy()], ids=["shim None", "out of reach"])
def test_no_shim_is_expected_where_none_was_planned(policy):
    assert not read(policy=policy, quota_cpus=2.0, shim=False).shim


def test_exclusive_cpus_and_where_they_are_bound_are_read():
    node = regular(8, 1, kubelet=Kubelet(cpu_manager_policy="static"))
    found = read(machine=node, quota_cpus=4.0, whole_cpus=4, request_cpus=4.0)
    assert found.exclusive_cpus == 4
    assert found.pinned


def test_what_the_pod_spec_sets_was_not_planned():
    _, values = plan_annotations.compose(None, Budget(quota_cpus=2.0), Policy(), (env.ORT_INTRA,))
    found = planned.read({"metadata": {"annotations": {env.PLAN_PREFIX + "a": values[env.PLAN_PREFIX]}}})["a"]
    assert found.threads is None
    assert "onnxruntime" not in found.counts


UNREADABLE = [{"annotations": one} for one in ({"a": "b"}, {env.PLAN_PREFIX + "a": "{}"}, {env.PLAN_PREFIX + "a": 3})]


@pytest.mark.parametrize("pod", [{}, *({"metadata": metadata} for metadata in (None, [], *UNREADABLE))])
def test_a_pod_without_a_plan_that_can_be_read_has_none(pod):
    assert planned.read(pod) == {}


odd = st.none() | st.text(max_size=4) | st.floats() | st.integers() | st.lists(st.integers(), max_size=1)


@given(text=st.text(), values=st.dictionaries(st.sampled_from(["intraOp", "omp", "cpus", "streams"]), odd))
def test_whatever_an_annotation_holds_reading_never_raises(text, values):
    hostile = json.dumps({"v": 1, "set": values, "because": {}, "budget": {}, "policy": {}})
    for one in (text, hostile):
        found = planned.read({"metadata": {"annotations": {env.PLAN_PREFIX + "a": one}}})
        assert all(plan.threads is None or plan.threads > 0 for plan in found.values())


quotas = st.none() | st.floats(0.1, 256)


@given(policy=machines.policies(), quota=quotas, workers=st.integers(1, 16), shim=st.booleans())
def test_every_plan_can_be_read(policy, quota, workers, shim):
    made, values = plan_annotations.compose(None, Budget(quota_cpus=quota, workers=workers, shim=shim), policy)
    found = planned.read({"metadata": {"annotations": {env.PLAN_PREFIX + "a": values[env.PLAN_PREFIX]}}})["a"]
    assert found.threads == made.intra_op
    assert found.streams == made.streams
