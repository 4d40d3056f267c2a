"""The shim's ConfigMaps: what is written where, what is removed when, and what a refusal costs."""

import base64
import tracemalloc

import pytest

from raddle import delivery
from raddle_operator.controller.facts import PodReader
from raddle_operator.controller.shim_reconciler import (
    REMOVE_AFTER_S,
    ShimConfigMap,
    ShimReconciler,
    config_map,
    outdated,
)
from raddle_operator.kube import AlreadyExists, Forbidden, NotFound

NEW, OLD = "newhash", "oldhash"
MADE_S = 1_000_000


def kept(*hashes, namespace="shop"):
    return {(namespace, f"raddle-shim-{one}"): ShimConfigMap(one, MADE_S) for one in hashes}


@pytest.mark.parametrize(
    ("there", "oldest_injected_s", "removed"),
    [
        ((NEW,), None, []),
        ((NEW, OLD), None, ["raddle-shim-oldhash"]),
        ((NEW, OLD), MADE_S - 1, []),  # that pod may mount the old one
        ((NEW, OLD), MADE_S + REMOVE_AFTER_S - 1, []),  # a webhook that knew only the old one may have made it
        ((NEW, OLD), MADE_S + REMOVE_AFTER_S, ["raddle-shim-oldhash"]),
        ((OLD,), None, []),  # not before the present one is there
        ((), None, []),
    ],
)
def test_an_old_one_goes_when_no_pod_can_need_it(there, oldest_injected_s, removed):
    assert outdated(kept(*there), "shop", NEW, oldest_injected_s) == removed


def test_another_namespaces_maps_are_left_alone():
    assert outdated({**kept(NEW), **kept(OLD, namespace="other")}, "shop", NEW, None) == []


def test_the_map_is_immutable_named_after_its_content_and_small_enough():
    found = config_map("shop", delivery.content_hash())
    assert found["immutable"] is True
    assert found["metadata"]["name"] == f"raddle-shim-{delivery.content_hash()}"
    assert found["metadata"]["labels"]["raddle.dev/shim"] == delivery.content_hash()
    binaries = {key: base64.b64decode(text) for key, text in found["binaryData"].items()}
    assert binaries == delivery.binaries()
    assert found["data"] == delivery.files()
    texts = sum(len(text.encode()) for text in found["data"].values())
    assert texts + sum(map(len, binaries.values())) < delivery.MAX_BYTES


class Server:
    """Answers every create with `answer`, and knows no ConfigMap."""

    def __init__(self):
        self.answer = None
        self.created = []

    async def get(self, *_, **__):
        raise NotFound(404, "NotFound", "")

    async def create(self, resource, body):
        if self.answer:
            raise self.answer
        self.created.append(body["metadata"]["namespace"])


@pytest.fixture
def server():
    return Server()


@pytest.mark.parametrize(("namespace", "created"), [("shop", ["shop"]), ("other", [])])
async def test_a_missing_one_is_created_in_the_namespaces_that_may_be_written(server, namespace, created):
    await ShimReconciler(server, lambda _: None, namespaces=["shop"]).reconcile(namespace, None)
    assert server.created == created


@pytest.mark.parametrize("answer", [AlreadyExists(409, "AlreadyExists", ""), NotFound(404, "NotFound", "")])
async def test_one_that_is_there_and_a_namespace_that_is_gone_are_no_errors(server, answer):
    server.answer = answer
    reconciler = ShimReconciler(server, lambda _: None)
    await reconciler.reconcile("shop", None)
    assert reconciler.forbidden == set()


async def test_a_refusal_is_remembered_and_forgotten_when_it_ends(server, caplog):
    reconciler = ShimReconciler(server, lambda _: None)
    server.answer = Forbidden(403, "Forbidden", "no")
    await reconciler.reconcile("shop", None)
    await reconciler.reconcile("shop", None)
    assert reconciler.forbidden == {"shop"}
    assert len([line for line in caplog.messages if "ConfigMap can't be created" in line]) == 1
    server.answer = None
    await reconciler.reconcile("shop", None)
    assert reconciler.forbidden == set()


def test_ten_thousand_pods_cost_at_most_three_hundred_bytes_each():
    def pod(number):
        app = f"app-{number % 200}"
        labels = {"app": app, "pod-template-hash": f"{number % 200:08x}", "raddle.dev/injected": "true"}
        annotations = {"raddle.dev/settings-hash": "0123456789", "plan.raddle.dev/serve": '{"v":1,"node":"n"}'}
        metadata = {"name": f"{app}-5d8f7b9c6-{number:05x}", "namespace": f"shop-{number % 50}"}
        created = {"creationTimestamp": f"2026-11-21T10:00:{number % 60:02}Z"}
        return {"metadata": {**metadata, **created, "labels": labels, "annotations": annotations}}

    count, reader, store = 10_000, PodReader(), {}
    tracemalloc.start()
    try:
        for number in range(count):
            obj = pod(number)
            store[obj["metadata"]["namespace"], obj["metadata"]["name"]] = reader.read(obj)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / count <= 300
