"""Objects are read into values; what can't be read is named by its path."""

import contextlib

import pytest
from hypothesis import given
from support import strategies
from support.examples import examples

from cluster import objects
from raddle import env
from raddle.planning.policy import Policy
from raddle_operator.objects.policy import SpecError, pod_from_object, policy_from_object


def policy(spec=None, *, kind="InferenceThreading", **metadata):
    return objects.policy("p", "ns", kind, metadata, **(spec or {}))


def test_a_policy_without_more_than_a_selector_has_the_schemas_defaults():
    read = policy_from_object(policy(uid="u", generation=3, creationTimestamp="2026-01-01T00:00:00Z"))
    assert (read.kind, read.namespace, read.name, read.uid) == ("InferenceThreading", "ns", "p", "u")
    assert (read.generation, read.created, read.priority, read.tier) == (3, "2026-01-01T00:00:00Z", 0, "")
    assert (read.mode, read.containers, read.policy) == ("Initial", None, Policy())
    assert read.reference == "InferenceThreading/p"


def test_a_cluster_policy_has_a_tier_a_namespace_selector_and_no_namespace():
    spec = {"tier": "Admin", "namespaceSelector": {"matchLabels": {"team": "vision"}}}
    read = policy_from_object(policy(spec, kind="ClusterInferenceThreading"))
    assert (read.namespace, read.tier) == ("", "Admin")
    assert read.namespace_selector.matches({"team": "vision"})
    assert not read.namespace_selector.matches({})
    assert policy_from_object(policy(kind="ClusterInferenceThreading")).tier == "Baseline"


def test_policies_that_plan_alike_have_one_settings_hash():
    first = policy_from_object(policy({"threads": {"intraOp": 4}}, name="a"))
    second = policy_from_object(policy({"threads": {"intraOp": 4}, "priority": 7}, name="b"))
    assert first.settings_hash == second.settings_hash
    assert first.settings_hash != policy_from_object(policy({"threads": {"intraOp": 5}})).settings_hash


def observed(status, **load_of_spec):
    spec = {"observe": "Runs", "load": {"source": "Observed", **load_of_spec}}
    return policy_from_object({**policy(spec), "status": status})


SEEN = {"runTime": "33ms", "requestsPerSecond": 20, "containers": 3}


def test_a_policy_that_asks_for_the_observed_load_is_planned_with_it():
    found = observed({"load": SEEN})
    assert (found.policy.run_time_us, found.policy.request_rate) == (33_000, 20.0)
    assert found != observed({}), "what is decided for pods changes with it"
    assert found.settings_hash == observed({}).settings_hash, "no pod is stale because of it"
    assert found == observed({"load": {**SEEN, "containers": 4}})


def test_a_policy_that_states_its_load_is_not_planned_with_the_observed_one():
    spec = {"observe": "Runs", "load": {"runTime": "1ms"}}
    found = policy_from_object({**policy(spec), "status": {"load": SEEN}})
    assert found == policy_from_object(policy(spec))
    assert found.settings_hash != observed({}).settings_hash


@pytest.mark.parametrize(
    "status",
    [
        *(None, "late", {}, {"load": "much"}, {"load": {}}),
        *({"load": {**SEEN, **bad}} for bad in ({"runTime": "33"}, {"requestsPerSecond": 0}, {"containers": 0})),
    ],
)
def test_what_is_no_observed_load_counts_as_none(status):
    assert observed(status).policy.run_time_us is None


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        ([], "policy"),
        ({**policy(), "kind": "Pod"}, "kind"),
        (policy(name="x" * 64), "metadata.name"),
        ({**policy(), "metadata": None}, "metadata.name"),
        ({**policy(), "spec": {}}, "spec.podSelector"),
        ({**policy(), "spec": "all"}, "spec"),
        (policy({"podSelector": {"matchLabels": []}}), "spec.podSelector.matchLabels"),
        (policy({"threads": {"intraOp": 0}}), "spec.threads.intraOp"),
        (policy({"mode": "Off"}), "spec.mode"),
        (policy({"mode": False}), "spec.mode"),
        (policy({"priority": "high"}), "spec.priority"),
        (policy({"priority": True}), "spec.priority"),
        (policy({"containers": []}), "spec.containers"),
        (policy({"containers": [1]}), "spec.containers"),
        (policy({"tier": "Gold"}, kind="ClusterInferenceThreading"), "spec.tier"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused_by_its_field(obj, path):
    with pytest.raises(SpecError) as error:
        policy_from_object(obj)
    assert error.value.path == path
    assert path in str(error.value)


@given(strategies.mutilated(strategies.policies()))
@examples(3)
def test_any_json_is_a_policy_or_a_spec_error(obj):
    with contextlib.suppress(SpecError):
        policy_from_object(obj)


def pod(**spec):
    return pod_from_object({"metadata": {"name": "p"}, "spec": {"containers": [], **spec}})


def required(*terms):
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": affinity}}


def pinned(*terms):
    return required(
        *({"matchFields": [{"key": "metadata.name", "operator": "In", "values": values}]} for values in terms)
    )


@pytest.mark.parametrize(
    ("spec", "node"),
    [
        ({}, ""), ({"nodeName": "n1"}, "n1"), (pinned(["n1"]), "n1"), (pinned(["n1"], ["n1"]), "n1"),
        (pinned(["n1"], ["n2"]), ""), (pinned(["n1", "n2"]), ""), (required({}), ""),
    ],
)  # fmt: skip
def test_the_node_of_a_pod_is_known_when_it_is_bound_or_pinned_by_a_daemon_set(spec, node):
    assert pod(**spec).node_name == node


def test_variables_are_kept_with_their_places():
    entries = [
        {"name": "A", "value": "1"},
        {"name": "OMP_NUM_THREADS", "value": "2"},
        {"name": "OMP_PROC_BIND", "value": "close"},
        {"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}},
        {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{env.THREADS_PREFIX}c']"}}},
        {"name": "Y", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['other/c']"}}},
    ]
    read = pod(containers=[{"name": "c", "env": entries}]).containers[0]
    found = [read.effective(entry["name"]) for entry in entries]
    assert [(entry.place, entry.name) for entry in found] == list(enumerate(entry["name"] for entry in entries))
    assert found[3].value is None
    assert found[4].ours == env.THREADS_PREFIX + "c"
    assert (len(read.entries), read.annotated) == (6, True)


def test_of_several_variables_of_one_name_the_last_decides():
    entries = [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}]
    read = pod(containers=[{"name": "c", "env": entries}]).containers[0]
    assert (read.effective("A").place, read.effective("A").value) == (2, "2")
    assert (read.effective("B").value, read.effective("C")) == ("", None)


def test_native_sidecars_are_init_containers_that_restart_always():
    read = pod(initContainers=[{"name": "a", "restartPolicy": "Always"}, {"name": "b"}])
    assert [container.sidecar for container in read.init_containers] == [True, False]


@pytest.mark.parametrize(
    ("obj", "path"),
    [
        (None, "pod"),
        ({"spec": {}}, "metadata"),
        ({"metadata": {}}, "spec"),
        ({"metadata": {"labels": []}, "spec": {}}, "metadata.labels"),
        ({"metadata": {"annotations": {"a": 1}}, "spec": {}}, "metadata.annotations.a"),
        ({"metadata": {}, "spec": {"containers": {}}}, "spec.containers"),
        ({"metadata": {}, "spec": {"containers": ["c"]}}, "spec.containers[0]"),
        ({"metadata": {}, "spec": {"containers": [{"name": 1}]}}, "spec.containers[0].name"),
        ({"metadata": {}, "spec": {"containers": [{"env": [{}]}]}}, "spec.containers[0].env[0]"),
        ({"metadata": {}, "spec": {"containers": [{"resources": {"limits": 4}}]}}, "spec.containers[0].limits"),
    ],
)
def test_a_pod_of_a_shape_that_no_pod_has_is_refused_by_its_field(obj, path):
    with pytest.raises(SpecError) as error:
        pod_from_object(obj)
    assert error.value.path == path


@given(strategies.mutilated(strategies.pods()))
@examples(3)
def test_any_json_is_a_pod_or_a_spec_error(obj):
    with contextlib.suppress(SpecError):
        pod_from_object(obj)
