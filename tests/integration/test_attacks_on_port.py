"""The webhook's port: clients that are slow, many, or too large, and clients without the API server's certificate."""

import asyncio
import base64
import contextlib
import http.client
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml
from support.attackers import (
    CREATE_SECONDS,
    MIB,
    WEBHOOK_BYTES,
    Usage,
    create_seconds,
    told_ms,
    unharmed,
    webhook_address,
)
from support.reliability.installed import alone, pod

from cluster.background import Background
from cluster.objects import injected, policy
from cluster.pki import Authority
from cluster.waiting import wait

PODS_PATH = "/mutate/pods"
GONE_SECONDS = 20.0  # the longest patience of the webhook's is 10 s
HEAD = f"POST {PODS_PATH} HTTP/1.1\r\nHost: raddle\r\n".encode()
# What a slow client has said when it falls silent; None: nothing, not even a TLS greeting.
SAYS = {
    "no TLS": None,
    "no headers": b"",
    "half of the headers": HEAD + b"X-Slow: ",
    "no body": HEAD + f"Content-Length: {8 * MIB}\r\n\r\n{{".encode(),
}


def unverified():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.fixture
def ours(raddle, space):
    """A namespace whose pods get values; Raddle is not to be harmed meanwhile."""
    space.store(policy())
    space.governed()
    with unharmed(raddle):
        yield space


class SlowClients(Background):
    """Connections that are opened, say a little, and then wait to be closed; so many of each kind of SAYS, in turns.

    At the end of `with` the webhook has closed them all, or had time to.
    """

    def __init__(self, address, each):
        super().__init__()
        self._address, self._each = address, each
        self._opened = threading.Event()
        self.open_at_peak = self.closed_by_server = self.seconds = 0

    def __enter__(self):
        super().__enter__()
        assert self._opened.wait(120), "the slow clients could not connect"
        return self

    def run(self):
        asyncio.run(self._run())

    async def _run(self):
        context, connections = unverified(), []
        for _ in range(self._each):
            for said in SAYS.values():
                with contextlib.suppress(OSError):
                    tls = None if said is None else context
                    reader, writer = await asyncio.open_connection(*self._address, ssl=tls)
                    writer.write(said or b"")
                    connections.append((reader, writer))
        self.open_at_peak = sum(not reader.at_eof() for reader, _ in connections)
        self._opened.set()
        began_s = time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GONE_SECONDS * 2):
                await asyncio.gather(*(self._until_closed(reader) for reader, _ in connections))
        self.seconds = time.monotonic() - began_s
        for _, writer in connections:
            writer.close()

    async def _until_closed(self, reader):
        with contextlib.suppress(OSError):
            while await reader.read(4096):
                pass
        self.closed_by_server += 1


@pytest.mark.reliability
@pytest.mark.attack(
    "slow-clients",
    "Somebody who reaches the webhook's port opens hundreds of connections and falls silent at each stage.",
    "The webhook closes all within 20 s of the last, within its memory limit; others' creates stay below 1 s.",
)
def test_clients_that_fall_silent_are_hung_up_on_and_hold_nobody_up(raddle, ours, figures):
    each, before, alone_s = 250, Usage.of(raddle.webhook.pid), create_seconds(ours)
    with SlowClients(webhook_address(raddle.cluster.client), each) as clients:
        meanwhile_s, held = create_seconds(ours), Usage.of(raddle.webhook.pid)
    after_s = create_seconds(ours)
    figures |= {
        "connections": f"{each * len(SAYS)}: {each} each with {', '.join(SAYS)}",
        "open when the last was": clients.open_at_peak,
        "all closed by the webhook after": f"{clients.seconds:.0f} s",
        "webhook's memory before, meanwhile": f"{before.memory}, {held.memory}",
        "another tenant's create (median) before, meanwhile, after": told_ms(alone_s, meanwhile_s, after_s),
    }
    assert clients.closed_by_server >= each * len(SAYS) - 1
    assert clients.seconds < GONE_SECONDS
    assert meanwhile_s < CREATE_SECONDS
    assert held.memory_bytes < WEBHOOK_BYTES


LARGE = pytest.mark.attack(
    "large-requests",
    "Somebody who reaches the webhook's port sends requests of 9 MiB, one after the other.",
    "Each is refused, the webhook ends within its memory limit, and another tenant's create stays below 1 s.",
)


@pytest.mark.parametrize("count", [5, pytest.param(50, marks=[pytest.mark.reliability, LARGE])])
def test_requests_that_are_too_large_are_refused_and_hold_nobody_up(raddle, ours, count, figures):
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send_large, webhook_address(raddle.cluster.client), count)
        meanwhile_s = create_seconds(ours)
        refused = sending.result()
    used = Usage.of(raddle.webhook.pid)
    figures |= {
        "requests of 9 MiB": count,
        "refused (413, or hung up on)": refused,
        "webhook's memory after": used.memory,
        "another tenant's create (median) meanwhile": told_ms(meanwhile_s),
    }
    assert refused == count
    assert meanwhile_s < CREATE_SECONDS
    assert used.memory_bytes < WEBHOOK_BYTES


def send_large(address, count):
    """How many were refused: by 413, or hung up on before the whole was sent, which a webhook may do."""
    body, refused = b"{" + b" " * (9 * MIB), 0
    for _ in range(count):
        connection = http.client.HTTPSConnection(*address, timeout=30, context=unverified())
        try:
            connection.request("POST", PODS_PATH, body)
            refused += connection.getresponse().status == http.client.REQUEST_ENTITY_TOO_LARGE
        except ConnectionRefusedError:
            raise  # nobody is there
        except (ConnectionError, ssl.SSLError):
            refused += 1
        finally:
            connection.close()
    return refused


def test_a_webhook_that_is_not_there_has_refused_nothing():
    with pytest.raises(ConnectionRefusedError):
        send_large(("127.0.0.1", 1), 1)


# --- the API server's certificate -------------------------------------------------------------------------------------


class ClientFiles:
    """An authority, the API server's certificate by it, and what tells an API server to show that to webhooks."""

    def __init__(self, folder):
        self._folder = folder
        made, foreign = self._new_authority("api-server"), self._new_authority("foreign")
        self.authority = made.certificate_file
        self.pair = self._write("api-server", made.client("kube-apiserver"))
        self.others = {
            "no certificate": None,
            "another authority's certificate": self._write("foreign", foreign.client("kube-apiserver")),
            "a server's certificate": self._write("server", made.server(["kube-apiserver"])),
        }
        self.admission_configuration = folder / "admission.yaml"
        self.admission_configuration.write_text(yaml.safe_dump(self._configuration()))

    def replace_authority(self):
        """Trust another authority from now on."""
        self.authority.write_bytes(self._new_authority("next").pem)

    def _new_authority(self, name):
        folder = self._folder / f"{name}-authority"
        folder.mkdir()
        return Authority(folder)

    def _write(self, name, pair):
        files = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        for file, content in zip(files, pair, strict=True):
            file.write_bytes(content)
        return files

    def _configuration(self):
        certificate, key = (base64.b64encode(file.read_bytes()).decode() for file in self.pair)
        # A name is that of the webhook's Service with its namespace and .svc, or the host and port of its URL.
        users = [{"name": "*", "user": {"client-certificate-data": certificate, "client-key-data": key}}]
        kubeconfig = self._folder / "webhooks.kubeconfig"
        kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": users}))
        configuration = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": str(kubeconfig),
        }
        plugins = [{"name": "MutatingAdmissionWebhook", "configuration": configuration}]
        return {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}


@pytest.mark.attack(
    "no-certificate",
    "The webhook asks for a client certificate, and somebody without the API server's reaches its port.",
    "The API server is served, others are refused, and pods are never held up, whichever authority is trusted.",
)
def test_a_webhook_that_asks_for_certificates_serves_the_api_server_alone(tmp_path, figures):
    """By a cluster of its own: an API server reads what it shows to webhooks at its start."""
    files = ClientFiles(tmp_path)
    flags = {"kube-apiserver": [f"--admission-control-config-file={files.admission_configuration}"]}
    options = {"start": ["webhook"], "webhook_options": ["--client-ca-file", str(files.authority)], "node": False}
    with alone(cluster_options={"scheduler": False, "extra_flags": flags}, **options) as space:
        webhook = space.raddle.webhook
        space.store(policy())
        space.governed()  # so it is served
        address = webhook_address(space.client)
        answered = [what for what, pair in files.others.items() if is_answered(address, pair)]
        own = is_answered(address, files.pair)
        files.replace_authority()
        webhook.stop()  # with the connections that the API server keeps
        webhook.start().wait_ready()
        wait(lambda: not injected(space.probe(pod("later"))), "pods pass without values")
        healthy = webhook.is_ready()
    figures |= {
        "API server with a certificate": "served" if own else "refused",
        f"clients with {', '.join(files.others)}": f"{len(files.others) - len(answered)} of {len(files.others)} refused",
        "API server by another authority": "its pods pass without values",
        "probes and metrics": "served" if healthy else "refused",
    }
    assert answered == []
    assert own
    assert healthy


def is_answered(address, pair):
    context = unverified()
    if pair is not None:
        context.load_cert_chain(*pair)
    connection = http.client.HTTPSConnection(*address, timeout=30, context=context)
    try:
        connection.request("POST", PODS_PATH, b"{}")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()
