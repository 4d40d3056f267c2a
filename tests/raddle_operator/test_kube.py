"""The API client's own decisions, and its behaviour when an HTTP server misbehaves. The real API server: integration."""

import json
from pathlib import Path

import pytest
from aiohttp import web
from support.api_server import answering

from raddle_operator import kube as k
from raddle_operator.kube import Kube

ERRORS = [
    (400, "BadRequest", k.Invalid),
    (401, "Unauthorized", k.Unauthorized),
    (403, "Forbidden", k.Forbidden),
    (404, "NotFound", k.NotFound),
    (409, "Conflict", k.Conflict),
    (409, "AlreadyExists", k.AlreadyExists),
    (410, "Expired", k.Gone),
    (410, "Gone", k.Gone),
    (418, "", k.ApiError),
    (422, "Invalid", k.Invalid),
    (429, "TooManyRequests", k.Unavailable),
    (500, "InternalError", k.Unavailable),
    (503, "", k.Unavailable),
    (504, "Timeout", k.Unavailable),
    (0, "", k.Unavailable),
]
PATHS = [
    (k.PODS, "", "", "", "/api/v1/pods"),
    (k.PODS, "shop", "", "", "/api/v1/namespaces/shop/pods"),
    (k.PODS, "shop", "a", "", "/api/v1/namespaces/shop/pods/a"),
    (k.NODES, "", "n1", "", "/api/v1/nodes/n1"),
    (k.NODES, "ignored", "n1", "", "/api/v1/nodes/n1"),
    (k.INFERENCE_THREADINGS, "shop", "p", "status",
     "/apis/raddle.dev/v1alpha1/namespaces/shop/inferencethreadings/p/status"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "reason", "expected"), ERRORS)
def test_each_refusal_has_its_own_type(status, reason, expected):
    error = k.error_from_status(status, {"reason": reason, "message": "why"})
    assert type(error) is expected
    assert "why" in str(error)


@pytest.mark.parametrize(("resource", "namespace", "name", "subresource", "path"), PATHS)
def test_a_resource_knows_its_path(resource, namespace, name, subresource, path):
    assert resource.path(namespace, name, subresource) == path


async def test_after_a_401_the_token_is_read_again_and_the_request_repeated(tmp_path):
    seen = []

    async def handler(request):
        seen.append(request.headers["Authorization"])
        if seen[-1] == "Bearer second":
            return web.json_response({"metadata": {"name": "a"}})
        return web.json_response({"reason": "Unauthorized"}, status=401)

    async with answering(handler, tmp_path) as (client, token_file):
        token_file.write_text("second")
        client.reload_pause_s = 0
        assert (await client.get(k.NODES, "a"))["metadata"] == {"name": "a"}
    assert seen == ["Bearer first", "Bearer second"]


async def test_a_token_that_stays_wrong_is_tried_at_most_twice(tmp_path):
    seen = []

    async def handler(request):
        seen.append(request.path)
        return web.json_response({"reason": "Unauthorized"}, status=401)

    async with answering(handler, tmp_path) as (client, _):
        with pytest.raises(k.Unauthorized):
            await client.get(k.NODES, "a")
    assert len(seen) <= 2


@pytest.mark.parametrize("closed", [True, False], ids=["a client that is closed", "no answer"])
async def test_an_answer_that_does_not_come_is_unavailable(tmp_path, closed):
    async def handler(request):
        request.transport.abort()
        return web.Response()

    async with answering(handler, tmp_path) as (client, _):
        if closed:
            await client.close()
        with pytest.raises(k.Unavailable if closed else k.Unreachable) as caught:
            await client.get(k.NODES, "a")
    assert caught.value.status == 0


async def test_an_answer_that_breaks_off_is_unavailable_but_somebody_was_reached(tmp_path):
    async def handler(request):
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"{")
        request.transport.abort()
        return response

    async with answering(handler, tmp_path) as (client, _):
        with pytest.raises(k.Unavailable) as caught:
            await client.get(k.NODES, "a")
    assert not isinstance(caught.value, k.Unreachable)


async def test_an_error_page_of_a_proxy_is_unavailable_and_keeps_its_words(tmp_path):
    async def handler(_):
        return web.Response(status=502, text="<html>bad gateway</html>", headers={"Retry-After": "7"})

    async with answering(handler, tmp_path) as (client, _):
        with pytest.raises(k.Unavailable, match="bad gateway") as caught:
            await client.get(k.NODES, "a")
    assert caught.value.retry_after_s == 7


async def test_a_list_of_one_state_ends_where_the_server_has_forgotten_that(tmp_path):
    async def handler(request):
        if "continue" in request.query:
            status = {"reason": "Expired", "message": "too old", "metadata": {"continue": "now"}}
            return web.json_response(status, status=410)
        return web.json_response({"metadata": {"resourceVersion": "7", "continue": "then"}, "items": []})

    async with answering(handler, tmp_path) as (client, _):
        with pytest.raises(k.Gone) as caught:
            await client.list(k.NODES)
    assert caught.value.continue_token == "now"


async def test_a_watch_line_longer_than_any_buffer_is_one_event(tmp_path):
    big = "x" * 3_000_000

    async def handler(request):
        response = web.StreamResponse()
        await response.prepare(request)
        event = {"type": "ADDED", "object": {"metadata": {"resourceVersion": "7", "name": big}}}
        data = json.dumps(event).encode() + b"\n"
        await response.write(data[:100])
        await response.write(data[100:])
        return response

    async with answering(handler, tmp_path) as (client, _):
        events = [event async for event in client.watch(k.NODES, resource_version="1")]
    assert [event.object["metadata"]["name"] == big for event in events] == [True]
    assert events[0].resource_version == "7"


async def test_an_error_event_in_a_watch_is_raised_by_its_code(tmp_path):
    async def handler(_):
        status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        return web.Response(text=json.dumps({"type": "ERROR", "object": status}) + "\n")

    async with answering(handler, tmp_path) as (client, _):
        with pytest.raises(k.Gone):
            async for _event in client.watch(k.NODES, resource_version="1"):
                pass


async def test_credentials_that_are_missing_name_their_source(tmp_path):
    with pytest.raises(k.ConfigError, match="no-such-file"):
        await Kube.from_settings(Path(tmp_path / "no-such-file"))


@pytest.mark.parametrize("text", ["", "[]", "- a", "contexts: 3"])
async def test_a_file_that_is_no_kubeconfig_is_said_to_be_none(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(k.ConfigError, match=r"config gives no usable credentials: .*kube-?config"):
        await Kube.from_settings(path)
