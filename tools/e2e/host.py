"""This machine as a node: a kubelet and containerd in namespaces of their own, so that all ends with one process.

Process, mount and network namespaces are the node's; CPUs, control groups and the kernel are this machine's. What is
left when it ends are empty control groups, which are removed, and a folder, which goes with the cluster's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cluster import Cluster, binaries
from cluster.components import Component, wait_alive
from cluster.progress import Progress
from cluster.waiting import T
from e2e import cgroups, features, joining, settings, waiting
from e2e.forward import forwarded
from unavailable import UnavailableError

SCRIPT = Path(__file__).with_name("inside") / "node.sh"
# Program -> the Debian package that has it.
NEEDED = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "unshare": "util-linux",
    "busybox": "busybox-static",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "dnsmasq": "dnsmasq-base",
}
PLUGINS = Path("/usr/lib/cni/bridge")
# Most of it is the import of images: half a minute to one and a half.
READY_SECONDS = 900.0


def need() -> None:
    """Raise UnavailableError where a node can't run: not as root, or without these programs."""
    if os.getuid() != 0:
        raise UnavailableError("a kubelet needs root, and this is another user")
    missing = {package for program, package in NEEDED.items() if shutil.which(program) is None}
    if not PLUGINS.exists():
        missing.add("containernetworking-plugins")
    if packages := " ".join(sorted(missing)):
        raise UnavailableError(f"not installed: {packages} (tools/scripts/packages nodes installs them as root)")


@contextmanager
def running(cluster: Cluster, node: settings.Node, images: Sequence[Path], progress: Progress) -> Iterator[int]:
    """The node with these image tarballs, once it is Ready; its first process is given, as this machine numbers it.

    The API server's address, which other nodes use too, is there as long as this one. Raises E2EError or
    DevclusterError, with the end of its log.
    """
    kubelet = binaries.find(binaries.kubelet(cluster.version), ["kubelet"], progress)["kubelet"]
    cgroups.refuse_another_node()
    folder = cluster.directory / "node"
    component = cluster.component("node")

    def wait(check: Callable[[], T | None], what: str) -> T:
        options: dict[str, Any] = {"refusals": waiting.REFUSALS, "progress": progress}
        return wait_alive(check, what, READY_SECONDS, [component], **options)

    try:
        joining.write_files(cluster, node, folder / "files" / joining.FILES[1:])
        (folder / "images").mkdir()
        for tarball in images:
            (folder / "images" / tarball.name).symlink_to(tarball)
        component.start(_command(node, folder, kubelet))
        first_process = wait(lambda: _first_process(component), "the node's first process")
        # The cable.
        joining.ip("link", "add", node.cable, *["type", "veth", "peer", "name", "eth0", "netns", str(first_process)])
        joining.connect(node)
        (folder / "cable").touch()
        target = urlsplit(cluster.server)
        assert target.hostname is not None
        assert target.port is not None
        with forwarded((settings.API_ADDRESS, 443), (target.hostname, target.port)):
            wait((folder / "imported").exists, "images imported")
            wait(lambda: joining.ready(cluster, node), f"node {node.name} Ready")
            yield first_process
    finally:
        component.kill()
        try:
            cgroups.remove()
        finally:
            # The kernel takes the cable away with the namespace, some time after its last process.
            subprocess.run(["ip", "link", "delete", node.cable], check=False, capture_output=True)
            shutil.rmtree(folder, ignore_errors=True)


def _command(node: settings.Node, folder: Path, kubelet: Path) -> list[str]:
    spaces = ["--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]
    arguments = [str(folder), str(kubelet), node.name, node.address, node.host_address]
    # containerd looks for its shim where programs are.
    path = features.search_path()
    return ["env", *([f"PATH={path}"] if path else []), "unshare", *spaces, "sh", str(SCRIPT), *arguments]


def _first_process(component: Component) -> int | None:
    """The first process in the node's namespaces; None before it is there."""
    parent = component.pid
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    # Before it has become another program it may be in this machine's namespaces still.
    return next((int(child) for child in children if _network(child) != _network("self")), None)


def _network(process: str) -> str:
    try:
        return str(Path(f"/proc/{process}/ns/net").readlink())
    except OSError:
        return str(Path("/proc/self/ns/net").readlink())
