"""The webhook's port: clients that are slow, many, or too large, and clients without the API server's certificate."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import yaml

from cluster.local_raddle import LocalRaddle
from cluster.objects import injected, policy
from cluster.pki import Authority
from cluster.waiting import wait
from reliability import calls
from reliability.attackers import (
    CREATE_SECONDS,
    MIB,
    WEBHOOK_BYTES,
    Usage,
    create_seconds,
    median_ms,
    median_s,
    unharmed,
)
from reliability.model import BrokenError, Check, Result, broken_unless
from reliability.world import World, pod

PODS_PATH: Final = "/mutate/pods"
GONE_SECONDS: Final = 20.0
"""The longest patience of the webhook's is 10 s."""
HEAD: Final = f"POST {PODS_PATH} HTTP/1.1\r\nHost: raddle\r\n".encode()
BODY_BYTES: Final = 8 * MIB
SAYS: Final = {
    "no TLS": None,
    "no headers": b"",
    "half of the headers": HEAD + b"X-Slow: ",
    "no body": HEAD + f"Content-Length: {BODY_BYTES}\r\n\r\n{{".encode(),
}
"""What a slow client has said when it falls silent; None: nothing, not even a TLS greeting."""


class SlowClients:
    """Connections that are opened, say a little, and then wait to be closed; in a thread of their own."""

    def __init__(self, address: tuple[str, int], each: int) -> None:
        """`each`: so many of each kind of SAYS, opened in turns."""
        self._address = address
        self._each = each
        self.opened = threading.Event()
        self.open_at_peak = 0
        self.closed_by_server = 0
        self.seconds = 0.0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        """Open them."""
        self._thread.start()
        if not self.opened.wait(120):
            raise BrokenError("the slow clients could not connect within 120 s")
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until the webhook has closed them all, a while at most."""
        self._thread.join(GONE_SECONDS * 3)

    async def _run(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        readers: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        for _ in range(self._each):
            for said in SAYS.values():
                with contextlib.suppress(OSError):
                    readers.append(await self._open(said, context))
        self.open_at_peak = sum(not reader.at_eof() for reader, _ in readers)
        self.opened.set()
        began_s = time.monotonic()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GONE_SECONDS * 2):
                await asyncio.gather(*(self._until_closed(reader) for reader, _ in readers))
        self.seconds = time.monotonic() - began_s
        for _, writer in readers:
            writer.close()

    async def _open(
        self, said: bytes | None, context: ssl.SSLContext
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if said is None:
            return await asyncio.open_connection(*self._address)
        reader, writer = await asyncio.open_connection(*self._address, ssl=context)
        writer.write(said)
        return reader, writer

    async def _until_closed(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while await reader.read(4096):
                pass
        self.closed_by_server += 1


def slow_clients(world: World, raddle: LocalRaddle, each: int) -> Result:
    """Hold so many connections of each kind of slow client, and create another tenant's pods meanwhile."""
    with unharmed(raddle), world.namespace(raddle) as ours:
        ours.store(policy())
        ours.governed()
        before, alone_s = Usage.of(raddle.webhook.pid), create_seconds(ours)
        with SlowClients(calls.address(raddle.cluster.client), each) as clients:
            meanwhile_s, held = create_seconds(ours), Usage.of(raddle.webhook.pid)
        after_s = create_seconds(ours)
    figures = {
        "connections": f"{each * len(SAYS)}: {each} each with {', '.join(SAYS)}",
        "open when the last was": str(clients.open_at_peak),
        "all closed by the webhook after": f"{clients.seconds:.0f} s",
        "webhook's memory before, meanwhile": f"{before.memory_bytes / MIB:.0f} MiB, {held.memory_bytes / MIB:.0f} MiB",
        "another tenant's create (median) before, meanwhile, after": ", ".join(
            map(median_ms, (alone_s, meanwhile_s, after_s))
        ),
    }
    return Result(
        figures,
        broken_unless(
            the_webhook_closes_every_one=clients.closed_by_server >= each * len(SAYS) - 1,
            within_20_s=clients.seconds < GONE_SECONDS,
            another_tenants_create_stays_below_1_s=median_s(meanwhile_s) < CREATE_SECONDS,
            the_webhook_stays_within_its_memory_limit=held.memory_bytes < WEBHOOK_BYTES,
        ),
    )


def too_large(world: World, raddle: LocalRaddle, count: int) -> Result:
    """Send requests of 9 MiB, of which 8 are read, while another tenant creates pods."""
    with unharmed(raddle), world.namespace(raddle) as ours:
        ours.store(policy())
        ours.governed()
        statuses: list[int] = []
        address = calls.address(raddle.cluster.client)
        sender = threading.Thread(target=lambda: statuses.extend(send_large(address, count)))
        sender.start()
        meanwhile_s = create_seconds(ours)
        sender.join()
        used = Usage.of(raddle.webhook.pid)
    refused = statuses.count(http.client.REQUEST_ENTITY_TOO_LARGE)
    figures = {
        "requests of 9 MiB": str(count),
        "refused (413, or hung up on)": str(refused + statuses.count(0)),
        "webhook's memory after": f"{used.memory_bytes / MIB:.0f} MiB",
        "another tenant's create (median) meanwhile": median_ms(meanwhile_s),
    }
    return Result(
        figures,
        broken_unless(
            every_one_is_refused=refused + statuses.count(0) == count,
            another_tenants_create_stays_below_1_s=median_s(meanwhile_s) < CREATE_SECONDS,
            the_webhook_is_within_its_memory_limit_afterwards=used.memory_bytes < WEBHOOK_BYTES,
        ),
    )


def send_large(address: tuple[str, int], count: int) -> Iterator[int]:
    """The statuses; 0 where the webhook hung up before the whole was sent, as it may; -1 where nobody was there."""
    body = b"{" + b" " * (9 * MIB)
    for _ in range(count):
        connection = http.client.HTTPSConnection(*address, timeout=30, context=ssl._create_unverified_context())  # noqa: SLF001
        try:
            connection.request("POST", PODS_PATH, body)
            yield connection.getresponse().status
        except ConnectionRefusedError:
            yield -1
        except (ConnectionError, ssl.SSLError):
            yield 0
        except OSError:
            yield -1
        finally:
            connection.close()


# --- the API server's certificate -------------------------------------------------------------------------------------


def without_certificate(world: World) -> Result:
    """Ask a webhook that wants certificates: the API server with one, others, and it after a change of authority."""
    with tempfile.TemporaryDirectory() as folder:
        files = ClientFiles(Path(folder))
        flags = {"kube-apiserver": [f"--admission-control-config-file={files.admission_configuration}"]}
        with (
            world.fresh_cluster(scheduler=False, extra_flags=flags) as cluster,
            world.raddle_on(
                cluster, start=("webhook",), webhook_options=["--client-ca-file", str(files.authority)], node=False
            ) as raddle,
            world.namespace(raddle) as space,
        ):
            space.store(policy())
            space.governed()  # so it is served
            address = calls.address(cluster.client)
            refused = [what for what, pair in files.others().items() if not _is_answered(address, pair)]
            own = _is_answered(address, files.pair)
            files.replace_authority()
            raddle.webhook.stop()  # with the connections that the API server keeps
            raddle.webhook.start().wait_ready()
            left_alone = wait(lambda: not injected(space.probe(pod("later"))), "pods pass without values")
            healthy = raddle.webhook.is_ready()
    others = list(files.others())
    figures = {
        "API server with a certificate": "served" if own else "refused",
        f"clients with {', '.join(others)}": f"{len(refused)} of {len(others)} refused",
        "API server by another authority": "its pods pass without values" if left_alone else "served",
        "probes and metrics": "served" if healthy else "refused",
    }
    return Result(
        figures,
        (
            *(f"a client with {what} is answered" for what in others if what not in refused),
            *broken_unless(the_api_servers_certificate_is_taken=own, probes_are_answered=healthy),
        ),
    )


class ClientFiles:
    """An authority, the API server's certificate by it, and what tells an API server to show that to webhooks."""

    def __init__(self, folder: Path) -> None:
        """Write all of it below the folder."""
        self._folder = folder
        made = self._new_authority("api-server")
        self.authority = made.certificate_file
        self.pair = self._write("api-server", made.client("kube-apiserver"))
        self._server_pair = self._write("server", made.server(["kube-apiserver"]))
        self._foreign_pair = self._write("foreign", self._new_authority("foreign").client("kube-apiserver"))
        self.admission_configuration = folder / "admission.yaml"
        self.admission_configuration.write_text(yaml.safe_dump(self._configuration()))

    def others(self) -> dict[str, tuple[Path, Path] | None]:
        """Clients that are not the API server, in words, with what they show."""
        return {
            "no certificate": None,
            "another authority's certificate": self._foreign_pair,
            "a server's certificate": self._server_pair,
        }

    def replace_authority(self) -> None:
        """Trust another authority from now on."""
        self.authority.write_bytes(self._new_authority("next").pem)

    def _new_authority(self, name: str) -> Authority:
        folder = self._folder / f"{name}-authority"
        folder.mkdir()
        return Authority(folder)

    def _write(self, name: str, pair: tuple[bytes, bytes]) -> tuple[Path, Path]:
        files = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        for file, content in zip(files, pair, strict=True):
            file.write_bytes(content)
        return files

    def _configuration(self) -> dict[str, Any]:
        certificate, key = (base64.b64encode(file.read_bytes()).decode() for file in self.pair)
        user = {"client-certificate-data": certificate, "client-key-data": key}
        kubeconfig = self._folder / "webhooks.kubeconfig"
        # A name is that of the webhook's Service with its namespace and .svc, or the host and port of its URL.
        users = [{"name": "*", "user": user}]
        kubeconfig.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "users": users}))
        plugin = {
            "name": "MutatingAdmissionWebhook",
            "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": str(kubeconfig),
            },
        }
        return {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [plugin]}


def _is_answered(address: tuple[str, int], pair: tuple[Path, Path] | None) -> bool:
    context = ssl._create_unverified_context()  # noqa: SLF001
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


CHECKS: Final = (
    Check(
        "slow-clients",
        "Somebody who reaches the webhook's port opens hundreds of connections and falls silent at each stage.",
        "The webhook closes all within 20 s of the last, within its memory limit; others' creates stay below 1 s.",
        lambda world: slow_clients(world, world.raddle, 250),
        "attack",
    ),
    Check(
        "large-requests",
        "Somebody who reaches the webhook's port sends requests of 9 MiB, one after the other.",
        "Each is refused, the webhook ends within its memory limit, and another tenant's create stays below 1 s.",
        lambda world: too_large(world, world.raddle, 50),
        "attack",
    ),
    Check(
        "no-certificate",
        "The webhook asks for a client certificate, and somebody without the API server's reaches its port.",
        "The API server is served, others are refused, and pods are never held up, whichever authority is trusted.",
        without_certificate,
        "attack",
    ),
)
