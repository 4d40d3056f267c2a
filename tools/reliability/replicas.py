"""Two webhooks behind the Service that the chart names, as on a real cluster; and who keeps its endpoints.

The API server resolves the Service by its EndpointSlice (--enable-aggregator-routing) and verifies the certificate for
its name. There is no kubelet here, so a thread does what kubelets and the endpoints' controller do: it looks at each
replica once a second, keeps the addresses of those that are ready, and puts the certificate into their folders.
"""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from cluster import ApiError
from cluster.background import Background
from cluster.components import free_port
from cluster.local_raddle import NAMESPACE, LocalRaddle, Process
from cluster.waiting import wait
from raddle_operator import certificates
from reliability.world import World
from unavailable import UnavailableError

CLUSTER_OPTIONS: Final[Mapping[str, Any]] = {"extra_flags": {"kube-apiserver": ["--enable-aggregator-routing=true"]}}
SERVICE: Final = "raddle-webhook"
SERVER_NAME: Final = f"{SERVICE}.{NAMESPACE}.svc"
SECRET_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/raddle-webhook-tls"
DRAIN_SECONDS: Final = 5.0
"""webhook.drainSeconds of the chart: between an endpoint's end and the process's."""
LOOK_SECONDS: Final = 1.0
# Of a block for benchmarks of network devices (RFC 2544): nobody's. Several of these may run at once on one machine.
_BLOCK: Final = "198.18"


class Replicas(Background):
    """The webhooks of one LocalRaddle, started in `with`. `follow_secret`: they serve what the Secret holds."""

    def __init__(self, raddle: LocalRaddle, addresses: list[str], *, follow_secret: bool = False) -> None:
        """Describe them; `tls_folder(number)` must hold a certificate unless the Secret is followed."""
        self._raddle = raddle
        self.port = free_port()
        self._addresses = addresses
        self._follow_secret = follow_secret
        self._leaving: set[str] = set()
        self._published: list[str] | None = None
        super().__init__()
        self.processes = {
            address: raddle.webhook_process(
                f"webhook-{number}", self.port, free_port(), self.tls_folder(number), host=address
            )
            for number, address in enumerate(addresses)
        }

    def __enter__(self) -> Self:
        """Start them and wait until all are endpoints."""
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": NAMESPACE},
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": self.port}]},
        }
        self._raddle.cluster.client.apply(service)
        for process in self.processes.values():
            process.start()
        super().__enter__()
        self.until_endpoints(len(self.processes))
        return self

    def tls_folder(self, number: int) -> Path:
        """Where a replica finds its certificate."""
        folder = self._raddle.cluster.directory / f"tls-{number}"
        folder.mkdir(exist_ok=True)
        return folder

    def __getitem__(self, number: int) -> Process:
        """One replica's process."""
        return self.processes[self._addresses[number]]

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric over the replicas that run."""
        return sum(one.metric(name, **labels) for one in self.processes.values() if one.pid is not None)

    def until_endpoints(self, count: int) -> None:
        """Wait until so many replicas are endpoints of the Service."""
        wait(lambda: len(self._published or ()) == count, f"the Service has {count} endpoints")

    def stop_in_order(self, number: int) -> None:
        """End a replica as a rollout does: its endpoint goes, it serves on for the drain time, then SIGTERM."""
        address = self._addresses[number]
        self._leaving.add(address)
        wait(lambda: address not in (self._published or ()), "the endpoint is gone")
        time.sleep(DRAIN_SECONDS)
        self.processes[address].stop()
        self._leaving.discard(address)

    # --- what a kubelet and the endpoints' controller do --------------------------------------------------------------

    def run(self) -> None:
        """Go on until the end."""
        with self._raddle.cluster.new_client() as client:
            while not self.end.is_set():
                # A failed look is made again in a second, as those controllers do.
                with contextlib.suppress(ApiError, OSError):
                    if self._follow_secret:
                        self._project(client.get(SECRET_PATH)["data"])
                    ready = [
                        address
                        for address, process in self.processes.items()
                        if address not in self._leaving and process.pid is not None and process.is_ready()
                    ]
                    if ready != self._published:
                        client.apply(_slice(self.port, ready))
                        self._published = ready
                self.end.wait(LOOK_SECONDS)

    def _project(self, data: Mapping[str, str]) -> None:
        """Put the Secret's certificate into each folder; a webhook takes no pair of files that do not fit."""
        for number in range(len(self._addresses)):
            for name in ("tls.key", "tls.crt"):
                path = self.tls_folder(number) / name
                content = base64.b64decode(data[name])
                if not path.exists() or path.read_bytes() != content:
                    path.write_bytes(content)


def _slice(port: int, ready: list[str]) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": SERVICE,
            "namespace": NAMESPACE,
            "labels": {
                "kubernetes.io/service-name": SERVICE,
                "endpointslice.kubernetes.io/managed-by": "raddle-reliability",
            },
        },
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in ready],
    }


@contextlib.contextmanager
def replicated(
    world: World,
    *,
    rotating: bool = False,
    secret: Mapping[str, Any] | None = None,
    prefixes: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[tuple[LocalRaddle, Replicas]]:
    """A cluster of one's own with Raddle, whose two webhooks are behind the Service, and one node.

    `rotating`: the controller issues the certificates, beginning with what `secret` holds. `prefixes` are those
    of LocalRaddle. Raises UnavailableError without root, which addresses of one's own need.
    """
    with addresses(2) as found, world.fresh_cluster(**CLUSTER_OPTIONS) as cluster:
        webhook: dict[str, Any] = {"url": ""}
        if rotating:
            webhook["caBundle"] = ""
            cluster.kubectl("create", "namespace", NAMESPACE)
            if secret is not None:
                cluster.client.apply(secret)
        else:
            webhook["caBundle"] = _issue(cluster.directory, len(found))
        values = {"webhook": webhook, "certificates": {"source": "Raddle" if rotating else "Secret"}}
        options = ["--status-interval-s", "0.5", *(["--issue-certificates"] if rotating else [])]
        settings = {"values": values, "controller_options": options, "prefixes": prefixes, "start": ["controller"]}
        with (
            world.raddle_on(cluster, node=False, **settings) as raddle,
            Replicas(raddle, found, follow_secret=rotating) as replicas,
        ):
            world.register_node(raddle)
            wait(
                lambda: replicas.metric("raddle_webhook_cache_objects", kind="NodeCPUTopology") == len(found),
                "both webhooks know the node",
            )
            yield raddle, replicas


def _issue(directory: Path, count: int) -> str:
    """Put one certificate into the folders of so many replicas; return the bundle."""
    authority = certificates.local_issue(directory / "tls-0", [SERVER_NAME])
    for number in range(1, count):
        folder = directory / f"tls-{number}"
        folder.mkdir()
        for name in ("tls.crt", "tls.key"):
            (folder / name).write_bytes((directory / "tls-0" / name).read_bytes())
    return base64.b64encode(authority).decode()


@contextlib.contextmanager
def addresses(count: int) -> Iterator[list[str]]:
    """Addresses of this machine's own until the end of the block; an endpoint may not be of 127.0.0.0/8."""
    if os.geteuid() != 0:
        raise UnavailableError("not root: the replicas' addresses can't be made")
    found = [f"{_BLOCK}.{os.getpid() % 256}.{10 + number}" for number in range(count)]
    with contextlib.ExitStack() as stack:
        for address in found:
            _ip("add", address)
            stack.callback(_ip, "del", address)
        yield found


def _ip(verb: str, address: str) -> None:
    done = subprocess.run(
        ["ip", "address", verb, f"{address}/32", "dev", "lo"], check=False, capture_output=True, text=True
    )
    if verb == "add" and done.returncode:
        raise UnavailableError(f"no address can be added here: {done.stderr.strip()}")
