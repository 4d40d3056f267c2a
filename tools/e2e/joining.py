"""What every node of a run needs of its cluster and this machine: its files, a cable, and to be let in."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster import Cluster
from e2e import settings
from e2e.errors import E2EError

FILES = "/var/lib/raddle-e2e"
KUBELET_PORT = 10250
CONNECT_SECONDS = 5.0


def write_files(cluster: Cluster, node: settings.Node, folder: Path) -> None:
    """Write what lies in FILES on the node: containerd's, the network's and the kubelet's settings, and its token."""
    (folder / "cni").mkdir(parents=True)
    (folder / "containerd.toml").write_text(settings.containerd())
    (folder / "cni" / "10-e2e.conflist").write_text(settings.network(node))
    (folder / "kubelet.yaml").write_text(settings.kubelet(node, f"{FILES}/ca.crt"))
    (folder / "resolv.conf").write_text("")
    shutil.copy(cluster.ca_file, folder / "ca.crt")
    kubeconfig(cluster, f"system:node:{node.name}", folder, groups=["system:nodes"])


def kubeconfig(cluster: Cluster, user: str, folder: Path, *, groups: Sequence[str] = ()) -> Path:
    """Write how this user reaches the API server from a node to `folder`/kubeconfig, which is returned."""
    content = yaml.safe_load(cluster.user(user, groups).read_text())
    content["clusters"][0]["cluster"]["server"] = f"https://{settings.API_ADDRESS}"
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content))
    return path


def connect(node: settings.Node) -> None:
    """Set up this machine's end of the cable: it has the API server's address too, and the way to the pods.

    Packets from one node to the other may pass. All of it ends with the interface. Raises E2EError.
    """
    ip("address", "add", f"{node.host_address}/30", "dev", node.cable)
    ip("address", "add", f"{settings.API_ADDRESS}/32", "dev", node.cable)
    ip("link", "set", node.cable, "up")
    ip("route", "add", node.pod_range, "via", node.address)
    # Of packets that come in here only; the machine's other interfaces are as they were.
    Path(f"/proc/sys/net/ipv4/conf/{node.cable}/forwarding").write_text("1")


def ready(cluster: Cluster, node: settings.Node) -> bool:
    """Whether the node is Ready and its kubelet shows a certificate of the cluster's, its request granted."""
    _approve(cluster, node)
    nodes = {one["metadata"]["name"]: one for one in cluster.client.get("/api/v1/nodes")["items"]}
    conditions = nodes.get(node.name, {}).get("status", {}).get("conditions", [])
    if not any(one["type"] == "Ready" and one["status"] == "True" for one in conditions):
        return False
    trusting = ssl.create_default_context(cafile=str(cluster.ca_file))
    try:
        with (
            socket.create_connection((node.address, KUBELET_PORT), CONNECT_SECONDS) as plain,
            trusting.wrap_socket(plain, server_hostname=node.address),
        ):
            return True
    except OSError:
        return False


def ip(*arguments: str) -> None:
    """Run ip. Raises E2EError with what it says."""
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise E2EError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def _approve(cluster: Cluster, node: settings.Node) -> None:
    """Say yes to the kubelet's request for a serving certificate, as a cluster's administrator does."""
    requests = cluster.client.get("/apis/certificates.k8s.io/v1/certificatesigningrequests")
    waiting: list[dict[str, Any]] = [one for one in requests["items"] if not one.get("status", {}).get("conditions")]
    for one in waiting:
        if one["spec"]["username"] == f"system:node:{node.name}":
            cluster.kubectl("certificate", "approve", one["metadata"]["name"])
