"""The server, through TLS on a free port: what it answers to whatever is sent, how it starts, reloads and stops."""

import asyncio
import contextlib
import json
import shutil
import ssl

import aiohttp
import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st
from support import webhooks
from support.examples import examples
from support.waiting import until

from raddle_operator.certificates import local_issue
from raddle_operator.webhook import verdict
from raddle_operator.webhook.server import timeout_of
from raddle_operator.webhook.sources import MemorySources

PODS, BINDING = "/mutate/pods", "/mutate/binding"


@pytest.fixture
async def here(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked()) as running:
        yield running


async def test_a_governed_pod_gets_values_and_a_patch_that_applies(here):
    response = await here.create(webhooks.pod())
    assert response["uid"] == webhooks.UID
    changed = webhooks.patched(webhooks.pod(), response)
    assert changed["metadata"]["labels"]["raddle.dev/injected"] == "true"
    assert "intra_op=4;intra_op_without_shim=3;" in changed["metadata"]["annotations"]["shim.raddle.dev/serve"]
    assert {entry["name"] for entry in changed["spec"]["containers"][0]["env"]} >= {"RADDLE_PLAN"}
    assert here.count("raddle_webhook_requests_total", path="pods", decision="changed", reason="") == 1


@pytest.mark.parametrize("path", [PODS, BINDING])
@pytest.mark.parametrize("body", [b"", b"{", b"\x00\xff\xfe", b"[" * 100_000, b'{"request": {"uid": "\\ud800"}}'])
async def test_a_body_that_is_no_json_is_a_bad_request_since_there_is_no_uid_to_answer_to(here, path, body):
    status, _ = await here.post(path, body)
    assert status == 400
    label = path.rpartition("/")[2]
    assert here.count("raddle_webhook_requests_total", path=label, decision="refused", reason="NotJSON") == 1


GOOD = webhooks.review(webhooks.pod())


@pytest.mark.parametrize(
    ("body", "uid", "reason"),
    [
        (None, "", "NotAReview"),
        ([], "", "NotAReview"),
        ({}, "", "NoRequest"),
        ({"request": []}, "", "NoRequest"),
        ({"request": {"uid": 1}}, "", "NoUID"),
        ({"request": {"uid": "x" * 300}}, "", "NoUID"),
        ({**GOOD, "kind": "Status"}, webhooks.UID, "ForeignKind"),
        ({**GOOD, "apiVersion": "admission.k8s.io/v1beta1"}, webhooks.UID, "ForeignKind"),
        (webhooks.review(webhooks.pod(), resource={"a": 1}), webhooks.UID, "ForeignResource"),
        (webhooks.review(webhooks.pod(), resource="deployments"), webhooks.UID, "ForeignResource"),
        (webhooks.review(webhooks.pod(), subresource="ephemeralcontainers"), webhooks.UID, "ForeignResource"),
        (webhooks.binding_review(webhooks.binding()), webhooks.UID, "ForeignResource"),
        (webhooks.review(webhooks.pod(), operation="DELETE"), webhooks.UID, "ForeignOperation"),
        (webhooks.review(webhooks.pod(), operation="UPDATE"), webhooks.UID, "ForeignOperation"),
        (webhooks.review(webhooks.pod(), object=None), webhooks.UID, "MalformedRequest"),
        (webhooks.review(webhooks.pod(), namespace=7), webhooks.UID, "MalformedRequest"),
        (webhooks.review(webhooks.pod(), name=None), webhooks.UID, "MalformedRequest"),
    ],
)
async def test_a_review_that_is_not_ours_is_allowed_unchanged_with_the_reason(here, body, uid, reason):
    response = await here.admit(PODS, body)
    assert response == {"allowed": True, "uid": uid, "auditAnnotations": {"decision": f"foreign {reason}"}}
    assert here.count("raddle_webhook_requests_total", path="pods", decision="foreign", reason=reason) == 1


@pytest.mark.parametrize("changes", [{"resource": "bindings", "subresource": ""}, {"subresource": "binding"}])
async def test_both_ways_to_bind_are_known(here, changes):
    response = await here.admit(BINDING, webhooks.review(webhooks.binding(), **changes))
    assert response["auditAnnotations"]["decision"].startswith("skipped Pod")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/", 404), ("POST", "/mutate", 404), ("POST", "/mutate/pods/", 404),
        ("POST", "/mutate/bindings", 404), ("GET", "/favicon.ico", 404), ("GET", PODS, 405), ("PUT", BINDING, 405),
    ],
)  # fmt: skip
async def test_a_wrong_path_or_method_is_an_error_that_shows(here, method, path, status):
    async with here.session.request(method, here.url + path, data=b"{}") as response:
        assert response.status == status
        assert "mutate" in await response.text()


async def test_a_review_of_three_mebibytes_is_read_and_a_larger_one_than_the_limit_is_refused(here):
    obj = webhooks.pod()
    obj["metadata"]["annotations"] = {"big": "x" * 3 * 2**20}
    response = await here.create(obj)
    assert response["auditAnnotations"]["decision"] == "skipped AnnotationBudget"
    status, _ = await here.post(PODS, b" " * (8 * 2**20 + 1))
    assert status == 413
    assert here.count("raddle_webhook_requests_total", path="pods", decision="refused", reason="TooLarge") == 1


async def test_a_body_that_grows_over_the_limit_while_it_is_read_is_refused(tmp_path):
    async def endless():
        for _ in range(64):
            yield b"x" * 1024

    async with webhooks.running(tmp_path, webhooks.stocked(), max_body_bytes=10_000) as here:
        async with here.session.post(here.url + PODS, data=endless()) as response:
            assert response.status == 413
        assert "patch" in await here.create(webhooks.pod())


async def test_500_containers_worth_of_variables_get_an_answer(here):
    obj = webhooks.pod()
    variables = [{"name": f"V{number}", "value": "x"} for number in range(200)]
    obj["spec"]["containers"] = [
        {"name": f"c{number}", "env": variables, "resources": {"limits": {"cpu": "1"}}} for number in range(500)
    ]
    response = await here.create(obj)
    webhooks.patched(obj, response)


async def test_an_error_of_ours_lets_the_pod_pass_and_is_counted(tmp_path, caplog):
    memory = webhooks.stocked()

    class Broken(dict):
        def get(self, *_):
            raise RuntimeError("broken on purpose")

    memory.namespaces.store = Broken()
    async with webhooks.running(tmp_path, memory) as here:
        for _ in range(3):
            response = await here.create(webhooks.pod())
            assert response["auditAnnotations"]["decision"] == "failed_open RuntimeError"
        assert here.count("raddle_webhook_fail_open_total") == 3
    lines = [record for record in caplog.records if record.exc_info]
    assert len(lines) == 1, "one kind of error is written once a minute"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
PARTS = st.sampled_from(
    ["metadata", "spec", "labels", "annotations", "containers", "env", "resources", "name", "target"]
)
POD_LIKE = st.recursive(
    JSON, lambda inner: st.dictionaries(PARTS, inner, max_size=6) | st.lists(inner, max_size=3), max_leaves=30
)


@pytest.mark.parametrize("path", [PODS, BINDING])
def test_any_json_gets_a_valid_answer_that_allows(tmp_path_factory, path):
    """Whole random documents, and random objects inside a review that is right otherwise."""
    folder = tmp_path_factory.mktemp("tls")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        stack = contextlib.AsyncExitStack()
        here = runner.run(stack.enter_async_context(webhooks.running(folder, webhooks.stocked(), arrival_wait_s=0.0)))

        @examples(1.5)
        @given(document=JSON | POD_LIKE, wrap=st.booleans())
        def holds(document, wrap):
            resource = {"subresource": "binding"} if path == BINDING else {}
            body = webhooks.review({}, **resource, object=document, namespace="models") if wrap else document
            response = runner.run(here.admit(path, body))
            if isinstance(document, dict) and "patch" in response:
                webhooks.patched(document, response)

        try:
            holds()
        finally:
            runner.run(stack.aclose())
        assert here.count("raddle_webhook_fail_open_total") == 0


async def connected(here, folder):
    """A connection of a client that trusts the server."""
    context = webhooks.trusting(folder)
    port = here.webhook.addresses["https"]
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="127.0.0.1")


async def closed_by_server(reader, within_s):
    async with asyncio.timeout(within_s):
        return await reader.read()


IMPATIENT = {"handshake_timeout_s": 0.3, "first_request_timeout_s": 0.3, "body_timeout_s": 0.3}


@pytest.mark.parametrize("sent", [b"", b"POST /mutate/pods HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_a_client_whose_headers_do_not_come_is_cut_off(tmp_path, sent):
    async with webhooks.running(tmp_path, webhooks.stocked(), **IMPATIENT) as here:
        reader, writer = await connected(here, tmp_path)
        writer.write(sent)
        assert await closed_by_server(reader, 10) == b""
        writer.close()
        assert "patch" in await here.create(webhooks.pod()), "others are served"


async def test_of_too_many_connections_that_say_nothing_the_oldest_is_closed(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked(), max_silent_connections=3) as here:
        opened = [await connected(here, tmp_path) for _ in range(5)]
        for reader, _ in opened[:2]:
            assert await closed_by_server(reader, 10) == b""
        assert "patch" in await here.create(webhooks.pod()), "others are served"
        for reader, writer in opened[3:]:
            writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = await asyncio.wait_for(reader.readline(), 10)
            assert answer.startswith(b"HTTP/1.1 200"), "a late one is served too"
        for _, writer in opened:
            writer.close()


async def test_connections_that_are_closed_again_or_fail_in_tls_are_none_that_say_nothing(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked(), max_silent_connections=1) as here:

        async def fail_in_tls():
            reader, writer = await asyncio.open_connection("127.0.0.1", here.webhook.addresses["https"])
            writer.write(b"no TLS\r\n")
            await closed_by_server(reader, 10)
            writer.close()

        _, closing = await connected(here, tmp_path)
        closing.close()
        await closing.wait_closed()
        await fail_in_tls()
        reader, writer = await connected(here, tmp_path)
        for _ in range(2):  # after the first the server has surely seen that connection's last word on TLS
            await fail_in_tls()
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_client_that_never_says_hello_in_tls_is_cut_off(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked(), **IMPATIENT) as here:
        reader, writer = await asyncio.open_connection("127.0.0.1", here.webhook.addresses["https"])
        assert await closed_by_server(reader, 10) == b""
        writer.close()


async def test_a_client_that_speaks_http_without_tls_is_cut_off(here):
    reader, writer = await asyncio.open_connection("127.0.0.1", here.webhook.addresses["https"])
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
    assert not (await closed_by_server(reader, 10)).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_body_that_does_not_come_is_refused_and_counted(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked(), **IMPATIENT) as here:
        reader, writer = await connected(here, tmp_path)
        writer.write(b"POST /mutate/pods HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 408")
        writer.close()
        assert here.count("raddle_webhook_requests_total", path="pods", decision="refused", reason="SlowBody") == 1


# A client that a busy machine delays is not to be taken for a slow one.
PATIENT = {"handshake_timeout_s": 120, "first_request_timeout_s": 120, "body_timeout_s": 120}


async def test_many_slow_large_bodies_take_no_more_than_a_bounded_memory_and_turn_no_small_one_away(tmp_path, caplog):
    size = 8 * 2**20
    writers = []

    async def begin(sent):
        reader, writer = await connected(here, tmp_path)
        writer.write(f"POST /mutate/pods HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
        writer.write(b" " * sent)
        writers.append(writer)
        return reader

    async with webhooks.running(tmp_path, webhooks.stocked(), **PATIENT) as here:
        [await begin(1) for _ in range(20)]
        assert "patch" in await here.create(webhooks.pod()), "what is only announced takes no room"
        [await begin(size - 1) for _ in range(9)]
        busy = {"path": "pods", "decision": "refused", "reason": "Busy"}
        await until(lambda: here.count("raddle_webhook_requests_total", **busy) >= 1)
        assert "patch" in await here.create(webhooks.pod()), "a small one is read beside 64 MiB of others"
        for writer in writers:
            writer.close()
        gone = {"path": "pods", "decision": "refused", "reason": "ClientGone"}
        await until(lambda: here.count("raddle_webhook_requests_total", **gone) >= 20)
    assert not [record for record in caplog.records if record.exc_info], "no traceback for a client that goes away"


async def test_it_is_live_at_once_and_ready_with_certificate_and_caches(tmp_path):
    memory = MemorySources.empty(synced=False)
    async with webhooks.running(tmp_path, memory) as here:
        assert (await here.get(here.url, "/livez"))[0] == 200
        status, text = await here.get(here.health, "/readyz")
        assert status == 503
        assert "caches" in text
        for source in (memory.policies, memory.cluster_policies, memory.namespaces, memory.topologies, memory.unbound):
            assert not here.webhook.ready.is_set()
            source.synced.set()
        memory.shims.synced.set()
        async with asyncio.timeout(5):
            await here.webhook.ready.wait()
        assert await here.get(here.url, "/readyz") == (200, "ok\n")
        assert await here.get(here.health, "/readyz") == (200, "ok\n")


async def test_pods_pass_unchanged_while_the_caches_are_not_complete(tmp_path):
    async with webhooks.running(tmp_path, MemorySources.empty(synced=False)) as here:
        for response in (await here.create(webhooks.pod()), await here.bind(webhooks.binding())):
            assert response["auditAnnotations"]["decision"] == "skipped CachesNotReady"


async def test_metrics_are_served_in_prometheus_form(here):
    await here.create(webhooks.pod())
    for address in (here.url, here.health):
        status, text = await here.get(address, "/metrics")
        assert status == 200
        assert 'raddle_webhook_requests_total{decision="changed",path="pods",reason=""} 1.0' in text
        assert 'raddle_webhook_cache_objects{kind="NodeCPUTopology"} 1.0' in text
        assert "raddle_webhook_request_duration_seconds_bucket" in text
        assert "process_resident_memory_bytes" in text


@pytest.mark.parametrize(
    ("query", "seconds"),
    [("timeout=1s", 1), ("timeout=2s", 2), ("timeout=1m30s", 30), ("timeout=500ms", 0.5), ("", 1), ("timeout=-1s", 1)],
)
def test_the_api_servers_patience_is_read_off_the_url(query, seconds):
    assert timeout_of(query) == seconds


async def one_connection(port, context):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="127.0.0.1")
    try:
        writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return await reader.read(), writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_certificate_that_comes_later_is_waited_for(tmp_path):
    folder = tmp_path / "tls"
    folder.mkdir()
    webhook = webhooks.Webhook(webhooks.settings(folder), webhooks.stocked().sources(), None)
    stop = asyncio.Event()
    task = asyncio.create_task(webhooks.serve_until(stop, webhook))
    async with asyncio.timeout(10), aiohttp.ClientSession() as session:
        await until(lambda: "health" in webhook.addresses)
        async with session.get(f"http://127.0.0.1:{webhook.addresses['health']}/readyz") as response:
            assert response.status == 503
            assert "certificate" in await response.text()
        local_issue(folder, ["127.0.0.1"])
        await webhook.ready.wait()
    stop.set()
    await task


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_1_2_and_1_3_are_spoken_with_and_without_a_server_name(here, tmp_path, version):
    context = webhooks.trusting(tmp_path)
    context.minimum_version = context.maximum_version = version
    data, _ = await one_connection(here.webhook.addresses["https"], context)
    assert data.startswith(b"HTTP/1.1 200")
    context.check_hostname = False
    port = here.webhook.addresses["https"]
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
    writer.close()
    await writer.wait_closed()


async def test_older_tls_is_refused(here, tmp_path):
    context = webhooks.trusting(tmp_path)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await one_connection(here.webhook.addresses["https"], context)


async def test_a_rotation_fails_no_connection_and_ends_with_the_new_certificate(tmp_path):
    serving, fresh = tmp_path / "serving", tmp_path / "fresh"
    async with webhooks.running(serving, webhooks.stocked()) as here:
        port = here.webhook.addresses["https"]
        context = webhooks.trusting(serving)
        await here.create(webhooks.pod())
        seen = []

        async def connect():
            while len(set(seen)) < 4:
                data, certificate = await one_connection(port, context)
                assert data.startswith(b"HTTP/1.1 200")
                seen.append(certificate)

        clients = [asyncio.create_task(connect()) for _ in range(4)]
        async with asyncio.timeout(20):
            for wanted in (2, 3, 4):
                pem = local_issue(fresh, ["127.0.0.1"])
                context.load_verify_locations(cadata=pem.decode())  # the bundle holds the new one before it serves
                for name in ("tls.crt", "tls.key"):  # one after the other, so that they do not fit for a moment
                    shutil.copy(fresh / name, serving / name)
                    await asyncio.sleep(0.03)
                await until(lambda wanted=wanted: len(set(seen)) >= wanted)
            await asyncio.gather(*clients)
        assert len(seen) > 8
        assert "patch" in await here.create(webhooks.pod()), "a kept connection goes on"


async def test_the_type_of_the_key_may_change(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked()) as here:
        port = here.webhook.addresses["https"]
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        old = x509.load_pem_x509_certificate((tmp_path / "tls.crt").read_bytes())
        certificate = (
            x509.CertificateBuilder()
            .subject_name(old.subject)
            .issuer_name(old.subject)
            .public_key(key.public_key())
            .serial_number(7)
            .not_valid_before(old.not_valid_before_utc)
            .not_valid_after(old.not_valid_after_utc)
            .add_extension(old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value, critical=False)
            .sign(key, hashes.SHA256())
        )
        encoding = serialization.Encoding.PEM
        pem = certificate.public_bytes(encoding)
        form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        (tmp_path / "tls.key").write_bytes(key.private_bytes(encoding, form, plain))
        (tmp_path / "tls.crt").write_bytes(pem)
        context = ssl.create_default_context(cadata=pem.decode())
        context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        async with asyncio.timeout(10):
            while True:
                # While the old key is there the handshake fails: by an alert, or by a reset that comes first.
                with contextlib.suppress(ssl.SSLError, ConnectionResetError):
                    data, _ = await one_connection(port, context)
                    break
                await asyncio.sleep(0.01)
        assert data.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("damage", ["garbage", "empty", "another key", "gone"])
async def test_files_that_can_not_be_used_leave_the_old_certificate_serving(tmp_path, damage):
    async with webhooks.running(tmp_path, webhooks.stocked()) as here:
        if damage == "gone":
            (tmp_path / "tls.key").unlink()
        elif damage == "another key":
            local_issue(tmp_path / "other", ["127.0.0.1"])
            shutil.copy(tmp_path / "other" / "tls.key", tmp_path / "tls.key")
        else:
            (tmp_path / "tls.crt").write_bytes(b"" if damage == "empty" else b"\x00garbage")
        if damage != "gone":
            await until(lambda: here.count("raddle_webhook_certificate_loads_total", outcome="failed"))
        data, _ = await one_connection(here.webhook.addresses["https"], webhooks.trusting(tmp_path))
        assert data.startswith(b"HTTP/1.1 200")
        assert here.count("raddle_webhook_certificate_expiry_timestamp_seconds") > 0


async def test_on_stop_it_fails_readiness_serves_on_and_lets_requests_finish(tmp_path):
    times = {"drain_delay_s": 0.3, "arrival_wait_s": 0.6, "lookup_timeout_s": 0.1}
    async with webhooks.running(tmp_path, webhooks.stocked(), **times) as here:
        assert (await here.get(here.url, "/readyz"))[0] == 200
        under_way = asyncio.create_task(here.bind(webhooks.binding("unseen"), "?timeout=5s"))
        await asyncio.sleep(0.05)
        here.stop.set()
        await until(here.webhook.unready)
        assert await here.get(here.health, "/readyz") == (503, "stopping\n")
        async with here.session.post(here.url + PODS, json=GOOD) as response:
            assert response.status == 200
            assert response.headers["Connection"] == "close", "the next request goes to another replica"
        response = await under_way
        assert response["auditAnnotations"]["decision"].startswith("skipped Pod"), "answered although it was stopping"
        await here.stopped
        with pytest.raises(aiohttp.ClientConnectorError):
            await here.post(PODS, GOOD)


async def test_requests_that_do_not_end_do_not_hold_the_stop_up(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked(), drain_s=0.1, arrival_wait_s=60.0) as here:
        stuck = asyncio.create_task(here.bind(webhooks.binding("unseen"), "?timeout=30s"))
        await asyncio.sleep(0.05)
        here.stop.set()
        async with asyncio.timeout(5):
            await here.stopped
        with pytest.raises(aiohttp.ClientError):
            await stuck


@pytest.mark.parametrize("which", ["port", "health_port"])
async def test_a_port_that_is_taken_ends_the_process_with_the_reason(tmp_path, which):
    async with webhooks.running(tmp_path, webhooks.stocked()) as here:
        settings = webhooks.settings(tmp_path, **{which: here.webhook.addresses["https"]})
        other = webhooks.Webhook(settings, webhooks.stocked().sources(), None)
        with pytest.raises(OSError, match="ddress already in use"):
            await webhooks.serve_until(asyncio.Event(), other)


async def test_a_feed_that_ends_by_itself_ends_the_process(tmp_path):
    async def ends():
        return None

    webhook = webhooks.Webhook(webhooks.settings(tmp_path), webhooks.stocked().sources(), None)
    with pytest.raises(RuntimeError, match="ended unexpectedly"):
        await webhooks.serve_until(asyncio.Event(), webhook, ends())


async def test_idle_connections_are_closed_at_the_stop(tmp_path):
    async with webhooks.running(tmp_path, webhooks.stocked()) as here:
        reader, writer = await connected(here, tmp_path)
        here.stop.set()
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def test_answers_are_json_as_the_api_server_reads_it(tmp_path):
    warnings = ["a\nb" * 200, "ü", "3", "4"]
    made = verdict.of(verdict.Outcome.CHANGED, verdict.ErrorName("x\ty"), operations=[{"op": "add"}], warnings=warnings)
    text = verdict.answer('u"\\', made)
    response = json.loads(text)["response"]
    assert response["uid"] == 'u"\\'
    assert len(response["warnings"]) == 3
    assert all(len(warning) <= 256 and warning.isprintable() for warning in response["warnings"])
    assert response["auditAnnotations"] == {"decision": "changed x?y"}
