"""The event recorder: what is written of what is posted, and what never reaches the API server."""

from types import SimpleNamespace

import pytest

from raddle_operator.kube import INFERENCE_THREADINGS, NODES, Forbidden
from raddle_operator.kube.events import BURST, Recorder, Reference

POLICY = Reference.of(INFERENCE_THREADINGS, {"metadata": {"namespace": "shop", "name": "p", "uid": "u1"}})
NODE = Reference.of(NODES, {"metadata": {"name": "n1", "uid": "u2"}})


class Server:
    """Notes what is written; `refuse` is raised instead."""

    def __init__(self):
        self.created = []
        self.refuse = None

    async def create(self, resource, body):
        if self.refuse:
            raise self.refuse
        self.created.append(body)


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def clock():
    return SimpleNamespace(s=1000.0)


@pytest.fixture
def recorder(server, clock):
    return Recorder(server, controller="raddle.dev/controller", instance="me", now_s=lambda: clock.s)


async def written(recorder):
    while not recorder._queue.empty():
        await recorder.write(recorder._queue.get_nowait())


async def test_an_event_is_about_its_object(recorder, server):
    recorder.post(POLICY, reason="Conflict", note="two of them", warning=True)
    await written(recorder)
    [event] = server.created
    assert event["metadata"]["namespace"] == "shop"
    assert event["metadata"]["name"].startswith("p.")
    about = {"apiVersion": "raddle.dev/v1alpha1", "kind": "InferenceThreading"}
    assert event["regarding"] == about | {"name": "p", "namespace": "shop", "uid": "u1"}
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "Conflict", "two of them")


async def test_an_event_about_a_cluster_scoped_object_goes_to_default(recorder, server):
    recorder.post(NODE, reason="Some", note="")
    await written(recorder)
    assert server.created[0]["metadata"]["namespace"] == "default"
    assert "namespace" not in server.created[0]["regarding"]


async def test_the_same_event_again_is_dropped_and_counted(recorder, server, clock):
    for _ in range(5):
        recorder.post(POLICY, reason="Some", note="same")
        clock.s += 61
    await written(recorder)
    assert len(server.created) == 1
    assert recorder.dropped == 4


async def test_after_ten_minutes_the_same_event_is_written_again(recorder, server, clock):
    recorder.post(POLICY, reason="Some", note="same")
    await written(recorder)
    clock.s += 601
    recorder.post(POLICY, reason="Some", note="same")
    await written(recorder)
    assert len(server.created) == 2


async def test_an_event_that_was_refused_is_counted_and_written_the_next_time(recorder, server):
    server.refuse = Forbidden(403, "Forbidden", "no")
    recorder.post(POLICY, reason="Some", note="same")
    await written(recorder)
    assert recorder.dropped == 1
    server.refuse = None
    recorder.post(POLICY, reason="Some", note="same")
    await written(recorder)
    assert len(server.created) == 1


async def test_a_flood_about_one_object_is_cut_and_others_are_not(recorder, server, clock):
    for number in range(BURST + 5):
        recorder.post(POLICY, reason="Some", note=str(number))
    recorder.post(NODE, reason="Some", note="other")
    await written(recorder)
    assert len(server.created) == BURST + 1
    assert recorder.dropped == 5
    clock.s += 60
    recorder.post(POLICY, reason="Some", note="a minute later")
    await written(recorder)
    assert len(server.created) == BURST + 2


async def test_a_full_queue_drops_and_does_not_wait(recorder):
    for number in range(1005):
        recorder.post(POLICY, reason="Some", note=str(number))
    assert recorder.dropped == 5


async def test_long_texts_are_cut_to_what_the_api_server_takes(recorder, server):
    recorder.post(POLICY, reason="R" * 200, note="n" * 5000, action="a" * 200)
    await written(recorder)
    event = server.created[0]
    assert (len(event["reason"]), len(event["note"]), len(event["action"])) == (128, 1024, 128)
