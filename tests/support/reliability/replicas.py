"""Two webhooks behind the Service that the chart names, as on a real cluster; and who keeps its endpoints.

The API server resolves the Service by its EndpointSlice (--enable-aggregator-routing) and verifies the certificate for
its name. There is no kubelet here, so a thread does what kubelets and the endpoints' controller do: it looks at each
replica once a second, keeps the addresses of those that are ready, and puts the certificate into their folders.
"""

import base64
import contextlib
import datetime as dt
import os
import shutil
import socket
import ssl
import subprocess
import time

from cluster import ApiError, Cluster
from cluster.background import Background
from cluster.components import free_port
from cluster.local_raddle import NAMESPACE
from cluster.objects import namespace
from cluster.waiting import wait
from raddle_operator import certificates
from raddle_operator.certificates.x509 import key_pem
from support.reliability.installed import CONFIGURATION_PATH, STATUS_OPTIONS, installed, knows_the_node, register_node
from unavailable import UnavailableError

CLUSTER_OPTIONS = {"extra_flags": {"kube-apiserver": ["--enable-aggregator-routing=true"]}}
SERVICE, SECRET = "raddle-webhook", "raddle-webhook-tls"
SERVER_NAME = f"{SERVICE}.{NAMESPACE}.svc"
SECRET_PATH = f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}"
DRAIN_SECONDS = 5.0  # webhook.drainSeconds of the chart: between an endpoint's end and the process's
LOOK_SECONDS = 1.0
# Of a block for benchmarks of network devices (RFC 2544): nobody's. Several of these may run at once on one machine.
BLOCK = "198.18"


class Replicas(Background):
    """The webhooks of one LocalRaddle, started in `with`. `follow_secret`: they serve what the Secret holds."""

    def __init__(self, raddle, addresses, *, follow_secret=False):
        super().__init__()
        self.raddle, self.port = raddle, free_port()
        self._addresses, self._follow_secret = addresses, follow_secret
        self._leaving, self._published = set(), []
        self.processes = {
            address: raddle.webhook_process(
                f"webhook-{number}", self.port, free_port(), tls_folder(raddle.cluster, number), host=address
            )
            for number, address in enumerate(addresses)
        }

    def __enter__(self):
        """Start them and wait until all are endpoints."""
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE, "namespace": NAMESPACE},
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": self.port}]},
        }
        self.raddle.cluster.client.apply(service)
        for process in self.processes.values():
            process.start()
        super().__enter__()
        self.until_endpoints(len(self.processes))
        return self

    def __getitem__(self, number):
        """One replica's process."""
        return self.processes[self._addresses[number]]

    def metric(self, name, **labels):
        """The sum of a metric over the replicas that run."""
        return sum(one.metric(name, **labels) for one in self.processes.values() if one.pid is not None)

    def until_endpoints(self, count):
        """Wait until so many replicas are endpoints of the Service."""
        wait(lambda: len(self._published) == count, f"the Service has {count} endpoints")

    def stop_in_order(self, number):
        """End a replica as a rollout does: its endpoint goes, it serves on for the drain time, then SIGTERM."""
        address = self._addresses[number]
        self._leaving.add(address)
        wait(lambda: address not in self._published, "the endpoint is gone")
        time.sleep(DRAIN_SECONDS)
        self.processes[address].stop()
        self._leaving.discard(address)

    def run(self):
        """Do what a kubelet and the endpoints' controller do."""
        with self.raddle.cluster.new_client() as client:
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
                        client.apply(endpoints(self.port, ready))
                        self._published = ready
                self.end.wait(LOOK_SECONDS)

    def _project(self, data):
        """Put the Secret's certificate into each folder; a webhook takes no pair of files that do not fit."""
        for number in range(len(self._addresses)):
            for name in ("tls.key", "tls.crt"):
                path = tls_folder(self.raddle.cluster, number) / name
                content = base64.b64decode(data[name])
                if not path.exists() or path.read_bytes() != content:
                    path.write_bytes(content)


def tls_folder(cluster, number):
    """Where a replica finds its certificate."""
    folder = cluster.directory / f"tls-{number}"
    folder.mkdir(exist_ok=True)
    return folder


def endpoints(port, ready):
    """The Service's EndpointSlice with these addresses."""
    labels = {"kubernetes.io/service-name": SERVICE, "endpointslice.kubernetes.io/managed-by": "raddle-reliability"}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": SERVICE, "namespace": NAMESPACE, "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in ready],
    }


@contextlib.contextmanager
def replicated(*, secret=None, prefixes=None):
    """A cluster of one's own with Raddle, whose two webhooks are behind the Service, and one node.

    `secret`: what the certificates' Secret holds at first; the controller issues the next ones. Without it one
    certificate stays. `prefixes` are those of LocalRaddle.
    """
    with own_addresses(2) as found, Cluster(name="reliability-own", **CLUSTER_OPTIONS) as cluster:
        webhook, options = {"url": "", "caBundle": ""}, list(STATUS_OPTIONS)
        if secret is None:
            webhook["caBundle"] = issue(cluster, len(found))
        else:
            options.append("--issue-certificates")
            cluster.client.apply(namespace(NAMESPACE, {}))
            cluster.client.apply(secret)
        values = {"webhook": webhook, "certificates": {"source": "Secret" if secret is None else "Raddle"}}
        settings = {"values": values, "controller_options": options, "prefixes": prefixes, "start": ["controller"]}
        with (
            installed(cluster, node=False, **settings) as raddle,
            Replicas(raddle, found, follow_secret=secret is not None) as replicas,
        ):
            register_node(raddle)
            knows_the_node(replicas.metric, len(found))
            yield replicas


def issue(cluster, count):
    """Put one certificate into the folders of so many replicas; return the bundle."""
    folders = [tls_folder(cluster, number) for number in range(count)]
    authority = certificates.local_issue(folders[0], [SERVER_NAME])
    for folder in folders[1:]:
        shutil.copytree(folders[0], folder, dirs_exist_ok=True)
    return base64.b64encode(authority).decode()


@contextlib.contextmanager
def own_addresses(count):
    """Addresses of this machine's own until the end of the block; an endpoint may not be of 127.0.0.0/8."""
    if os.geteuid() != 0:
        raise UnavailableError("not root: the replicas' addresses can't be made")
    found = [f"{BLOCK}.{os.getpid() % 256}.{10 + number}" for number in range(count)]
    with contextlib.ExitStack() as stack:
        for address in found:
            change_address("add", address)
            stack.callback(change_address, "del", address)
        yield found


def change_address(verb, address):
    command = ["ip", "address", verb, f"{address}/32", "dev", "lo"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if verb == "add" and done.returncode:
        raise UnavailableError(f"no address can be added here: {done.stderr.strip()}")


# --- their certificate ------------------------------------------------------------------------------------------------


class Handshakes(Background):
    """Connects again all the time, as an API server would, and verifies by the bundle that is published then."""

    def __init__(self, replicas):
        super().__init__()
        self._replicas = replicas
        self.done, self.good_in_a_row = 0, 0
        self.failed, self.leaves = [], set()

    def go_on(self, count):
        """Wait for so many more."""
        seen = self.done
        wait(lambda: self.done >= seen + count, f"{count} more connections are made")

    def run(self):
        with self._replicas.raddle.cluster.new_client() as client:
            while not self.end.wait(0.1):
                # The bundle first: what is served a moment later must be signed by one of it.
                bundle = client.get(CONFIGURATION_PATH)["webhooks"][0]["clientConfig"]["caBundle"]
                context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
                for address in self._replicas.processes:
                    self._connect(context, address)

    def _connect(self, context, address):
        self.done += 1
        try:
            with (
                socket.create_connection((address, self._replicas.port), timeout=5) as plain,
                context.wrap_socket(plain, server_hostname=SERVER_NAME) as connection,
            ):
                self.leaves.add(connection.getpeercert(binary_form=True))
        except OSError as error:
            self.failed.append(str(error))
            self.good_in_a_row = 0
        else:
            self.good_in_a_row += 1


def tls_secret(authority, now: dt.datetime):
    """The Secret as the controller would have left it then: an authority and a leaf that it has signed."""
    leaf, key = certificates.new_leaf(authority, certificates.CertificateSettings().names, now)
    contents = {"tls.crt": leaf, "tls.key": key, "ca.crt": authority.pem, "ca.key": key_pem(authority.key)}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(content).decode() for name, content in contents.items()},
    }
