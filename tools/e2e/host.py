"""This machine as a node: a kubelet and containerd in namespaces of their own, so that all ends with one process.

Process, mount and network namespaces are the node's; CPUs, control groups and the kernel are this machine's. What is
left when it ends are empty control groups, which are removed, and a folder, which goes with the cluster's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from cluster import Cluster, binaries
from cluster.components import Component, wait_alive
from cluster.progress import Progress
from e2e import cgroups, imagevolumes, joining, settings, waiting
from e2e.errors import REFUSALS, E2EUnavailableError
from e2e.forward import Forward

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


def need(user_id: int, *, install: bool, progress: Progress) -> None:
    """Raise E2EUnavailableError where a node can't run: not as root, or without these programs.

    `install` has apt-get install what is missing.
    """
    if user_id != 0:
        raise E2EUnavailableError("a kubelet needs root, and this is another user")
    if install and missing() and shutil.which("apt-get"):
        progress.say(f"installing {' '.join(missing())}")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing()]):
            # What is missing still is said below.
            subprocess.run(["apt-get", *arguments], check=False, capture_output=True, env=environment)
    if packages := " ".join(missing()):
        raise E2EUnavailableError(f"not installed: {packages} (apt-get install --no-install-recommends {packages})")


def missing() -> list[str]:
    """The Debian packages that are not installed."""
    found = {package for program, package in NEEDED.items() if shutil.which(program) is None}
    return sorted(found | (set() if PLUGINS.exists() else {"containernetworking-plugins"}))


class HostNode:
    """The node, from `with` to the end of the block. `pid` is its first process, as this machine numbers it.

    The API server's address, which other nodes use too, is there as long as this one.
    """

    def __init__(self, cluster: Cluster, node: settings.Node, images: Sequence[Path], progress: Progress) -> None:
        """Describe a node that joins `cluster` and has these image tarballs."""
        self._cluster = cluster
        self._node = node
        self._images = images
        self._progress = progress
        self._folder = cluster.directory / "node"
        self._component: Component | None = None
        self.pid = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Start it and wait until it is Ready. Raises E2EError when it does not get so, with its log's end."""
        kubelet = binaries.find(binaries.kubelet(self._cluster.version), ["kubelet"], self._progress)["kubelet"]
        cgroups.refuse_another_node()
        with ExitStack() as stack:
            self._prepare()
            stack.callback(self._remove)
            self._component = self._cluster.component("node")
            self._component.start(self._command(kubelet))
            self.pid = self._first_process()
            self._connect(self.pid)
            target = urlsplit(self._cluster.server)
            assert target.hostname is not None
            assert target.port is not None
            stack.enter_context(Forward((settings.API_ADDRESS, 443), (target.hostname, target.port)))
            self._wait((self._folder / "imported").exists, "images imported")
            self._wait(lambda: joining.ready(self._cluster, self._node), f"node {self._node.name} Ready")
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop all of it and remove its control groups."""
        self._stack.close()

    def _prepare(self) -> None:
        joining.write_files(self._cluster, self._node, self._folder / "files" / joining.FILES[1:])
        images = self._folder / "images"
        images.mkdir()
        for tarball in self._images:
            (images / tarball.name).symlink_to(tarball)

    def _command(self, kubelet: Path) -> list[str]:
        node = self._node
        spaces = ["--mount", "--pid", "--net", "--fork", "--kill-child", "--mount-proc"]
        arguments = [str(self._folder), str(kubelet), node.name, node.address, node.host_address]
        # containerd looks for its shim where programs are.
        path = imagevolumes.search_path()
        return ["env", *([f"PATH={path}"] if path else []), "unshare", *spaces, "sh", str(SCRIPT), *arguments]

    def _first_process(self) -> int:
        found: list[int] = []

        def born() -> bool:
            assert self._component is not None
            self._component.require_alive()
            parent = self._component.pid
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            found.extend(int(child) for child in children)
            # Before it has become another program it may be in this machine's namespaces still.
            return bool(found) and _network(found[0]) != _network("self")

        self._wait(born, "the node's first process")
        return found[0]

    def _connect(self, first_process: int) -> None:
        """Lay the cable."""
        peer = ["type", "veth", "peer", "name", "eth0", "netns", str(first_process)]
        joining.ip("link", "add", self._node.cable, *peer)
        joining.connect(self._node)
        (self._folder / "cable").touch()

    def _wait(self, check: Callable[[], bool], what: str) -> None:
        assert self._component is not None
        wait_alive(
            check,
            what,
            READY_SECONDS,
            [self._component],
            refusals=REFUSALS,
            progress=self._progress,
            poll_seconds=waiting.POLL_SECONDS,
        )

    def _remove(self) -> None:
        if self._component is not None:
            self._component.kill()
        try:
            cgroups.remove()
        finally:
            # The kernel takes the cable away with the namespace, some time after its last process.
            subprocess.run(["ip", "link", "delete", self._node.cable], check=False, capture_output=True)
            shutil.rmtree(self._folder, ignore_errors=True)


def _network(process: int | str) -> str:
    try:
        return str(Path(f"/proc/{process}/ns/net").readlink())
    except OSError:
        return str(Path("/proc/self/ns/net").readlink())
