"""Clients that must show a certificate: who is served on the webhook's HTTPS port, and how the authorities change."""

import asyncio
import ssl

import aiohttp
import pytest
from support import webhooks
from support.waiting import until

from cluster.pki import Authority
from raddle_operator.webhook.tls import ServingCertificate

PODS = "/mutate/pods"


@pytest.fixture
def authority(tmp_path):
    return made_authority(tmp_path / "clients")


@pytest.fixture
async def here(tmp_path, authority):
    async with webhooks.running(tmp_path, webhooks.stocked(), client_ca_file=authority.certificate_file) as running:
        yield running


def made_authority(folder):
    folder.mkdir()
    return Authority(folder)


def showing(here, certificate_and_key, folder, name="client"):
    """A client's context that shows this certificate; None: it has none to show."""
    context = webhooks.trusting(folder)
    if certificate_and_key is not None:
        for ending, pem in zip(("crt", "key"), certificate_and_key, strict=True):
            (folder / f"{name}.{ending}").write_bytes(pem)
        context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    return context


async def answered(here, context):
    """Whether a review is answered on a connection of its own."""
    data = webhooks.json.dumps(webhooks.review(webhooks.pod())).encode()
    try:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.post(here.url + PODS, data=data) as response,
        ):
            return response.status == 200
    except (aiohttp.ClientError, ssl.SSLError, ConnectionError):
        return False


async def test_the_api_server_is_served_by_its_certificate(here, tmp_path, authority):
    assert await answered(here, showing(here, authority.client("kube-apiserver"), tmp_path))


@pytest.mark.parametrize("shown", ["none", "of another authority", "a server's"])
async def test_others_are_refused_before_anything_that_they_say_is_read(here, tmp_path, authority, shown):
    others = {
        "none": lambda: None,
        "of another authority": lambda: made_authority(tmp_path / "others").client("kube-apiserver"),
        "a server's": lambda: authority.server(["kube-apiserver"]),
    }
    assert not await answered(here, showing(here, others[shown](), tmp_path))
    assert here.count("raddle_webhook_requests_total", path="pods", decision="changed", reason="") == 0


async def test_the_port_of_probes_and_metrics_asks_for_none(here):
    assert (await here.get(here.health, "/readyz"))[0] == 200
    assert (await here.get(here.health, "/metrics"))[0] == 200


async def test_authorities_that_come_later_are_waited_for(tmp_path, authority):
    pem, late = authority.pem, tmp_path / "late.crt"
    settings = webhooks.settings(tmp_path, client_ca_file=late)
    webhooks.local_issue(tmp_path, ["127.0.0.1"])
    webhook = webhooks.Webhook(settings, webhooks.stocked().sources(), None)
    stop = asyncio.Event()
    task = asyncio.create_task(webhooks.serve_until(stop, webhook))
    async with asyncio.timeout(10):
        await until(lambda: "health" in webhook.addresses)
        assert "https" not in webhook.addresses
        assert str(late) in webhook.unready()
        late.write_bytes(pem)
        await webhook.ready.wait()
    stop.set()
    await task


async def test_authorities_change_in_place(here, tmp_path, authority):
    old = showing(here, authority.client("kube-apiserver"), tmp_path, "old")
    newer = made_authority(tmp_path / "newer")
    new = showing(here, newer.client("kube-apiserver"), tmp_path, "new")
    assert (await answered(here, old), await answered(here, new)) == (True, False)
    for number, bundle, served in ((2, authority.pem + newer.pem, (True, True)), (3, newer.pem, (False, True))):
        authority.certificate_file.write_bytes(bundle)
        await until(lambda n=number: here.count("raddle_webhook_certificate_loads_total", outcome="loaded") == n)
        assert (await answered(here, old), await answered(here, new)) == served


@pytest.mark.parametrize("content", [b"", b"\x00garbage", b"\xff"])
async def test_a_file_without_authorities_leaves_the_old_ones_in_force(here, tmp_path, authority, content):
    context = showing(here, authority.client("kube-apiserver"), tmp_path)
    authority.certificate_file.write_bytes(content)
    await until(lambda: here.count("raddle_webhook_certificate_loads_total", outcome="failed"))
    assert await answered(here, context)
    assert not await answered(here, showing(here, None, tmp_path))


def test_a_certificate_is_renewed_although_the_file_of_authorities_has_vanished(tmp_path, authority):
    authorities = tmp_path / "authorities.crt"
    authorities.write_bytes(authority.pem)
    webhooks.local_issue(tmp_path, ["127.0.0.1"])
    certificate = ServingCertificate(tmp_path, authorities)
    assert certificate.load()
    authorities.unlink()
    assert not certificate.load()
    webhooks.local_issue(tmp_path, ["127.0.0.1"])
    assert certificate.load()
    assert certificate.loaded.files.clients_pem == authority.pem


def test_authorities_may_have_comments_in_any_script(tmp_path, authority):
    authorities = tmp_path / "authorities.crt"
    authorities.write_bytes("# Autorité\n".encode() + authority.pem)
    webhooks.local_issue(tmp_path, ["127.0.0.1"])
    assert ServingCertificate(tmp_path, authorities).load()
