"""Equal pods get the answer that was worked out once; whatever could make a difference is worked out again."""

import copy

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import webhooks

from raddle_operator.webhook import decision_cache
from raddle_operator.webhook.decision_cache import DecisionCache, template_key


def replica(suffix="x7k2p", **changes):
    """A pod as the API server shows it for a ReplicaSet: no name, and a token volume of random name."""
    token = f"kube-api-access-{suffix}"
    pod = webhooks.pod(cpu="4")
    metadata = {"generateName": "resnet-7d4b9c6f5-", "namespace": "models", "labels": {"app": "resnet"}}
    pod["metadata"] = {**metadata, "managedFields": [{"time": suffix}], **changes}
    pod["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}, {"name": token, "projected": {"sources": []}}]
    for container in pod["spec"]["containers"]:
        container["volumeMounts"] = [{"name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]
    return pod


def key(pod, namespace="models"):
    return template_key(namespace, copy.deepcopy(pod))


def test_replicas_share_a_key_whatever_the_api_server_added():
    assert key(replica("aaaaa")) == key(replica("bbbbb")) is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod["metadata"].update(labels={"app": "other"}),
        lambda pod: pod["metadata"].update(annotations={"a": "b"}),
        lambda pod: pod["spec"].update(nodeName="n1"),
        lambda pod: pod["spec"]["containers"][0].update(name="other"),
        lambda pod: pod["spec"]["containers"][0].update(env=[{"name": "A", "value": "kube-api-access-x7k2p"}]),
        lambda pod: pod["spec"]["volumes"].pop(),
        lambda pod: pod["spec"]["volumes"].reverse(),
        lambda pod: pod["spec"]["containers"][0]["volumeMounts"][0].update(name="data"),
    ],
)
def test_whatever_else_differs_makes_another_key(change):
    other = replica()
    change(other)
    assert key(other) != key(replica())


def test_namespaces_share_nothing():
    assert key(replica(), "one") != key(replica(), "other")


@pytest.mark.parametrize(
    "pod",
    [
        {},
        {"metadata": [], "spec": {}},
        {"metadata": {}, "spec": 1},
        webhooks.pod("with-a-name"),
        {"metadata": {}, "spec": orjson.loads("[" * 300 + "]" * 300)},
        {"metadata": {}, "spec": {"a": orjson.loads("[" * 300 + "]" * 300)}},
    ],
)
def test_what_is_no_replica_is_decided_by_itself(pod):
    assert key(pod) is None


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=20) | st.just("kube-api-access-1"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "volumes", "x"]), inner),
)


@given(st.dictionaries(st.sampled_from(["volumes", "containers", "initContainers"]), VALUES))
def test_no_shape_of_a_pod_raises(spec):
    key({"metadata": {}, "spec": spec})


def test_a_new_version_forgets_and_the_oldest_goes_when_there_are_too_many():
    kept = DecisionCache()
    for number in range(decision_cache.KEPT + 1):
        kept.put(b"%d" % number, 1, number)
    assert kept.get(b"0", 1) is None
    assert kept.get(b"1", 1) == 1
    assert kept.get(b"1", 2) is None
    kept.put(b"new", 2, 7)
    assert kept.get(b"1", 1) is None


async def test_a_replica_gets_exactly_the_patch_that_it_would_get_alone(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked()) as here:
        first = await here.create(replica("aaaaa"), uid="1")
        second = await here.create(replica("bbbbb"), uid="2")
        named = await here.create(replica("bbbbb", name="resnet-7d4b9c6f5-1"), uid="2")
        assert second == named
        assert first == {**second, "uid": "1"}
        webhooks.patched(replica("bbbbb"), second)


@pytest.mark.parametrize(
    "change",
    [
        lambda memory: memory.policies.put(webhooks.policy(threads={"intraOp": 3})),
        lambda memory: memory.cluster_policies.put(
            {"metadata": {"name": "all"}, "spec": {"podSelector": {}, "tier": "Admin", "threads": {"intraOp": 3}}}
        ),
        lambda memory: memory.namespaces.put(webhooks.namespace(inject="disabled")),
        lambda memory: memory.shims.remove(webhooks.shim()),
        lambda memory: memory.topologies.put(webhooks.topology("small", of=webhooks.machine(2))),
    ],
    ids=["policy", "cluster policy", "namespace", "shim", "topology"],
)
async def test_every_change_that_decides_counts_from_the_next_replica_on(tmp_path, change):
    async with webhooks.running(tmp_path, webhooks.stocked()) as here:
        obj = replica()
        obj["spec"]["containers"][0]["resources"] = {}
        before = await here.create(obj)
        change(here.memory)
        after = await here.create(obj)
        assert after != before
        assert after == await here.create({**obj, "metadata": {**obj["metadata"], "name": "alone"}})
