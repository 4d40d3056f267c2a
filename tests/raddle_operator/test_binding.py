"""What a bound pod's annotations become now that the node is known."""

import json
from collections import ChainMap

import jsonpatch
import pytest

from assembling import regular
from raddle import env
from raddle.cpus.topology import Kubelet
from raddle.planning.planner import Budget
from raddle.planning.policy import Policy
from raddle.planning.wire import read_plan_text
from raddle_operator.injection import plan_annotations
from raddle_operator.injection.binding import MAX_TOTAL_BYTES, BindingOutcome, operations, rebind
from raddle_operator.injection.explain import explain

STATIC = Kubelet(cpu_manager_policy="static")


def machine(cores=16, *, kubelet=STATIC):
    """One NUMA node with two threads per core."""
    return regular(cores, 2, sockets=0, l3_domains=0, kubelet=kubelet)


def annotations(budget, *, kept=(), without=(), container="serve"):
    """A container's annotations as CREATE left them."""
    _, values = plan_annotations.compose(None, budget, Policy(), kept=kept, governed_by="InferenceThreading/fast")
    return {prefix + container: value for prefix, value in values.items() if prefix not in without}


UNLIMITED = Budget(smallest_cores=4)


def test_a_pod_without_a_limit_gets_the_nodes_cores():
    bound = rebind(annotations(UNLIMITED), "n1", machine())
    assert bound.outcome is BindingOutcome.NODE_SPECIFIC
    assert env.decode(bound.annotations["shim.raddle.dev/serve"])["intra_op"] == 16
    assert ";cpus=" not in bound.annotations["shim.raddle.dev/serve"]
    recorded = read_plan_text(bound.annotations["plan.raddle.dev/serve"])
    assert (recorded.node, recorded.governed_by, recorded.values["intraOp"]) == ("n1", "InferenceThreading/fast", 16)


def test_whole_cpus_are_exclusive_and_named_in_the_plan_only_on_a_node_with_the_static_manager():
    whole = annotations(Budget(quota_cpus=8.0, whole_cpus=8))
    exclusive = rebind(whole, "n1", machine()).annotations
    assert read_plan_text(exclusive["plan.raddle.dev/serve"]).values["exclusiveCPUs"] == 8
    assert exclusive["shim.raddle.dev/serve"].endswith(";cpus=0-31;cores=0-15|16-31")
    shared = rebind(whole, "n1", machine(kubelet=Kubelet())).annotations
    assert "exclusiveCPUs" not in read_plan_text(shared["plan.raddle.dev/serve"]).values
    assert ";cpus=" not in shared["shim.raddle.dev/serve"]


def test_binding_again_comes_to_the_same():
    first = annotations(UNLIMITED)
    once = {**first, **rebind(first, "n1", machine()).annotations}
    assert rebind(once, "n1", machine()).annotations == {key: once[key] for key in once}
    other = rebind(once, "n2", machine(8))
    assert env.decode(other.annotations["shim.raddle.dev/serve"])["intra_op"] == 8


def test_only_keys_that_are_there_are_overwritten():
    present = annotations(UNLIMITED, without=(env.BLAS_THREADS_PREFIX, env.SHIM_PREFIX))
    bound = rebind({**present, "team": "vision"}, "n1", machine())
    assert set(bound.annotations) == set(present)


def test_a_count_that_the_pod_spec_sets_stays_out_of_the_plan():
    present = annotations(UNLIMITED, kept=(env.ORT_INTRA,))
    bound = rebind(present, "n1", machine())
    assert "intra_op" not in env.decode(bound.annotations["shim.raddle.dev/serve"])
    because = read_plan_text(bound.annotations["plan.raddle.dev/serve"]).because
    assert because[env.ORT_INTRA] == plan_annotations.KEPT_REASON


def test_onnxruntimes_variable_has_the_count_that_is_right_without_a_shim_and_the_shim_is_told():
    present = annotations(UNLIMITED)
    for found in (present, {**present, **rebind(present, "n1", machine()).annotations}):
        fields = env.decode(found["shim.raddle.dev/serve"])
        assert found["threads.raddle.dev/serve"] == str(fields.get("intra_op_without_shim", fields["intra_op"])) == "4"
    assert fields["intra_op"] == 16


@pytest.mark.parametrize("present", [{}, {"team": "vision"}, {"threads.raddle.dev/serve": "4"}])
def test_a_pod_without_a_plan_is_not_injected(present):
    assert rebind(present, "n1", machine()).outcome is BindingOutcome.NOT_INJECTED


def test_without_the_nodes_topology_the_safe_values_stand():
    bound = rebind(annotations(UNLIMITED), "n1", None)
    assert (bound.outcome, bound.annotations) == (BindingOutcome.SAFE_NO_TOPOLOGY, {})


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '{"v":2}', "[" * 2000, "x" * (env.RESERVED_PLAN + 1),
        '{"v":1,"budget":{"quota_cpus":"2"}}', '{"v":1,"policy":{"intra_op":0}}', '{"v":1,"policy":{"runtimes":"all"}}',
        json.dumps({"v": 1, "by": "x" * (env.RESERVED_PLAN - 150), "budget": {"smallest_cores": 4}}),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_read_keeps_its_safe_values(text):
    bound = rebind({**annotations(UNLIMITED), "plan.raddle.dev/serve": text}, "n1", machine())
    assert (bound.outcome, bound.annotations) == (BindingOutcome.SAFE_MALFORMED, {})
    assert bound.detail.startswith("serve: ")


def test_one_malformed_plan_holds_no_other_container_back():
    bound = rebind({**annotations(UNLIMITED), "plan.raddle.dev/other": "{"}, "n1", machine())
    assert bound.outcome is BindingOutcome.SAFE_MALFORMED
    assert env.decode(bound.annotations["shim.raddle.dev/serve"])["intra_op"] == 16


def test_more_plans_than_raddle_writes_are_not_read():
    present = [annotations(UNLIMITED, container=f"c{n}") for n in range(20)]
    bound = rebind(dict(ChainMap(*present)), "n1", machine())
    assert sum(key.startswith(env.PLAN_PREFIX) for key in bound.annotations) == 16


@pytest.mark.parametrize(
    "binding",
    [{}, {"metadata": {}}, {"metadata": {"annotations": None}}, {"metadata": {"annotations": {"theirs": "1"}}}],
)
def test_the_binding_gets_the_annotations_whether_it_has_some_or_not(binding):
    wanted = {"threads.raddle.dev/serve": "16", "odd~key": "x"}
    patched = jsonpatch.apply_patch(binding, operations(binding, wanted))
    theirs = (binding.get("metadata") or {}).get("annotations") or {}
    assert patched["metadata"]["annotations"] == {**theirs, **wanted}


def test_nothing_to_say_is_no_operation():
    assert operations({"metadata": {}}, {}) == []


def test_annotations_explain_themselves():
    present = annotations(UNLIMITED, kept=(env.OMP,))
    (found,) = explain({**present, "team": "vision"})
    assert (found.container, found.governed_by, found.node) == ("serve", "InferenceThreading/fast", None)
    assert found.values["intraOp"] == 4
    assert found.because["intraOp"] == "no CPU limit; 4 cores on the smallest node"
    assert found.variables["ORT_INTRA_OP_NUM_THREADS"] == "4"
    assert found.kept == ("OMP_NUM_THREADS",)
    assert "OMP_NUM_THREADS" not in found.variables


def test_annotations_that_cannot_be_read_are_explained_as_such():
    (found,) = explain({"plan.raddle.dev/serve": "{", "threads.raddle.dev/serve": "4"})
    assert found.problem
    assert found.variables == {"ORT_INTRA_OP_NUM_THREADS": "4"}


def test_a_pod_whose_annotations_have_grown_since_create_keeps_its_safe_values():
    present = annotations(UNLIMITED)
    bound = rebind(present, "n1", machine())
    room = MAX_TOTAL_BYTES - plan_annotations.size_of({**present, **bound.annotations})
    assert rebind(present, "n1", machine(), other_bytes=room) == bound
    full = rebind(present, "n1", machine(), other_bytes=room + 1)
    assert (full.outcome, full.annotations) == (BindingOutcome.SAFE_ANNOTATION_BUDGET, {})
