"""Which settings are searched for one program on one kind of node, and why not the others."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import assembling
from raddle.cpus.topology import Kubelet
from raddle.planning.kinds import PolicyError
from raddle.planning.planner import Budget
from raddle_operator.results.candidate import Candidate
from raddle_tuner.search.space import AXES, Case, SpaceError, space, thread_counts

LIMIT_2 = Case(machine=assembling.regular(4, 2), budget=Budget(quota_cpus=2.0), onnxruntime=(1, 29))
EXCLUSIVE = Case(
    machine=assembling.regular(32, 2, numa_nodes=2, kubelet=Kubelet(cpu_manager_policy="static")),
    budget=Budget(quota_cpus=8.0, whole_cpus=8),
    onnxruntime=(1, 29),
)


def values(case, name, narrowed=None):
    axis = space(case, narrowed).axis(name)
    return [value for value, _ in axis.choices] if axis else None


def why_not(case, name):
    return dict(space(case).left_out)[name]


def test_threads_are_powers_of_two_with_the_limit_the_cores_and_twice_each_among_them():
    assert values(LIMIT_2, "threads.intraOp") == [1, 2, 4, 8]
    three = Case(machine=assembling.regular(10), budget=Budget(quota_cpus=3.0))
    assert values(three, "threads.intraOp") == [1, 2, 3, 4, 6, 8, 10, 16, 20]


@given(st.integers(1, 256), st.integers(0, 256))
def test_threads_end_neither_at_the_limit_nor_at_the_cores(fitting, cores):
    """At limit 1 on two cores four threads were best, which a list that ended there did not have."""
    counts = thread_counts(fitting, cores)
    assert counts[0] == 1
    assert counts[-1] == 2 * max(fitting, cores)
    assert {fitting, cores or 1} <= set(counts)
    assert all(after <= 2 * before for before, after in pairwise(counts))


def test_without_a_machine_and_a_limit_there_are_few_threads_to_try():
    assert values(Case(), "threads.intraOp") == [1, 2]


def test_spinning_is_never_always_or_for_a_time_that_onnxruntime_can_bound_since_1_26():
    assert values(LIMIT_2, "threads.spinning") == ["Never", 50, 200, 1000, "Always"]
    assert values(Case(onnxruntime=(1, 25)), "threads.spinning") == ["Never", "Always"]


def test_bounded_spinning_is_the_policys_own_50_microseconds():
    choices = dict(space(LIMIT_2).axis("threads.spinning").choices)
    assert choices[50].spec() == {"threads": {"spinning": "Bounded"}}
    assert choices[200].spec() == {
        "threads": {"spinning": "Bounded"},
        "onnxruntime": {"configEntries": {"session.intra_op.spin_duration_us": "200"}},
    }


def test_parallel_is_tried_only_where_the_graph_is_wide_enough():
    assert why_not(LIMIT_2, "threads.interOp") == "no operators of the model are known to run in parallel"
    assert values(Case(max_inter_op=3), "threads.interOp") == [2, 3]
    assert values(Case(max_inter_op=64), "threads.interOp") == [2, 4, 8]


def test_instances_divide_the_threads_or_have_twice_as_many():
    assert why_not(LIMIT_2, "program.instances") == "the program decides how many sessions it has"
    four = Case(budget=Budget(quota_cpus=4.0), can=("instances",))
    assert values(four, "program.instances") == ["2 x 2", "2 x 4", "4 x 1", "4 x 2"]


@pytest.mark.parametrize("name", ["placement.smt", "placement.numa", "placement.affinity"])
def test_places_are_tried_only_on_cpus_of_the_containers_own(name):
    assert why_not(LIMIT_2, name) == "the CPUs are shared with others"
    assert values(EXCLUSIVE, name)


def test_threads_of_torch_are_pinned_nowhere_so_that_no_place_of_theirs_is_tried():
    torch = replace(EXCLUSIVE, onnxruntime=None)
    assert why_not(torch, "placement.affinity") == "only threads of ONNX Runtime are pinned"
    never, per_core = (Candidate.of({"placement.affinity": word}) for word in ("Never", "PerCore"))
    assert torch.key(never) == torch.key(per_core) == torch.key(Candidate())
    assert EXCLUSIVE.key(never) != EXCLUSIVE.key(per_core)


def test_gpu_options_say_that_there_is_none():
    for option in ("cudnn_conv_use_max_workspace", "cudnn_conv1d_pad_to_nc1d", "enable_cuda_graph"):
        path = f"onnxruntime.providerOptions.CUDAExecutionProvider.{option}"
        assert why_not(LIMIT_2, path) == "no GPU: the session has no CUDA provider"
    gpu = Case(onnxruntime=(1, 29), providers=("CUDAExecutionProvider",))
    assert "acknowledge" in why_not(gpu, "onnxruntime.providerOptions.CUDAExecutionProvider.enable_cuda_graph")


def test_every_setting_is_an_axis_or_has_a_reason():
    for case in (Case(), LIMIT_2, EXCLUSIVE):
        found = space(case)
        assert {axis.name for axis in found.axes} | {name for name, _ in found.left_out} == set(AXES)
        assert all(reason for _, reason in found.left_out)


@pytest.mark.parametrize("case", [LIMIT_2, EXCLUSIVE, Case(onnxruntime=(1, 29), can=("instances", "ioBinding"))])
def test_each_choice_is_a_policy_that_can_be_planned(case):
    for axis in space(case).axes:
        for _, choice in axis.choices:
            case.planned(choice)


def test_a_user_narrows_the_space():
    assert values(LIMIT_2, "threads.intraOp", {"threads.intraOp": [1, 3]}) == [1, 3]
    assert values(LIMIT_2, "threads.spinning", {"threads.spinning": ["Never", 200]}) == ["Never", 200]
    streams = "onnxruntime.providerOptions.OpenVINOExecutionProvider.num_streams"
    assert values(Case(providers=("OpenVINOExecutionProvider",)), streams, {streams: [1, "2"]}) == ["1", "2"]
    narrowed = space(LIMIT_2, {"threads.spinning": []})
    assert ("threads.spinning", "excluded from the space") in narrowed.left_out


@pytest.mark.parametrize(
    ("narrowed", "words"),
    [
        ({"threads.speed": [1]}, "space.threads.speed: no such setting"),
        ({"threads.spinning": ["Sometimes"]}, "space.threads.spinning: 'Sometimes' is none of Never, 50"),
        ({"threads.intraOp": [0]}, "space.threads.intraOp: 0 is not a count from 1 to"),
        ({"threads.intraOp": [True]}, "space.threads.intraOp: True is not a count"),
    ],
)
def test_a_space_that_can_not_be_searched_names_the_setting(narrowed, words):
    with pytest.raises(SpaceError, match=words):
        space(LIMIT_2, narrowed)


def test_candidates_that_come_to_the_same_plan_are_the_same():
    key, of = LIMIT_2.key, Candidate.of
    assert key(Candidate()) == key(of({"threads.intraOp": 2}))
    assert key(Candidate()) == key(of({"threads.spinning": "Bounded"}))
    assert key(Candidate()) != key(of({"threads.intraOp": 4}))
    assert key(Candidate()) != key(of({"onnxruntime.memPattern": False}))
    assert key(Candidate()) != key(of({"program.ioBinding": True}))
    one = of({"threads.intraOp": 1})
    assert key(one) == key(one.with_setting("threads.spinning", "Always"))


def test_a_spec_that_can_not_be_planned_is_refused():
    with pytest.raises(PolicyError, match=r"threads\.interOp"):
        LIMIT_2.key(Candidate.of({"threads.interOp": 2}))


def test_an_axis_replaces_what_a_candidate_says_on_it():
    axis = space(LIMIT_2).axis("threads.spinning")
    choices = dict(axis.choices)
    found = axis.applied(axis.applied(Candidate.of({"threads.intraOp": 4}), choices[200]), choices["Never"])
    assert dict(found.settings) == {"threads.intraOp": 4, "threads.spinning": "Never"}
    assert axis.without(found) == Candidate.of({"threads.intraOp": 4})
