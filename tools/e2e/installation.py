"""The cluster with its nodes and Raddle on it: what the tests and `python -m e2e up` start, and end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cluster import Cluster, DevclusterError, binaries
from cluster.progress import Progress
from e2e import guest, guestdisk, host, images, release, services
from e2e.errors import E2EError
from e2e.settings import GUEST, HOST, Node
from vm import programs
from vm.errors import VMError, VMUnavailableError

IMAGES: Final = "Raddle's images, from `python -m images export DIR`, or `build` to have that done (default: made here)"
FLAGS: Final = {
    "kube-apiserver": (
        # The API server runs beside the nodes, not on one, and without kube-proxy: it reaches Services at their pods.
        "--enable-aggregator-routing=true",
        # For metrics-server.
        "--requestheader-client-ca-file=pki/ca.crt",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--proxy-client-cert-file=pki/admin.crt",
        "--proxy-client-key-file=pki/admin.key",
    ),
    "kube-controller-manager": ("--horizontal-pod-autoscaler-sync-period=5s",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A cluster with Raddle, and the tarballs of the images that its nodes have."""

    cluster: Cluster
    tarballs: Sequence[Path]


@contextmanager
def on_host(exported: Path | None, progress: Progress) -> Iterator[Installation]:
    """A cluster whose one node is this machine, with Raddle on it; `exported` is as `images.tarballs` has it.

    Raises UnavailableError where this machine can't be a node, E2EError when a step fails.
    """
    host.need()
    with ExitStack() as stack:
        with _steps():
            tarballs, agent = images.tarballs(exported, progress)
            # Compiling it beside the node would make that late.
            binaries.find(binaries.kube_proxy(), ["kube-proxy"], progress)
            cluster = stack.enter_context(Cluster(name="e2e", extra_flags=FLAGS, progress=progress))
            pid = stack.enter_context(host.running(cluster, HOST, tarballs, progress))
            _say_ready(HOST, progress)
            release.install(cluster, agent, progress)
            # The name server knows the Services that are there when it starts.
            stack.enter_context(services.running(cluster, HOST, pid, progress))
            _say_published(cluster, HOST, progress, release.PUBLISHED_SECONDS)
        yield Installation(cluster=cluster, tarballs=tarballs)


@contextmanager
def with_guest(site: Installation, progress: Progress) -> Iterator[None]:
    """The virtual node joins, with Raddle's agent on it.

    Raises UnavailableError where this machine can't run it, E2EError when a step fails.
    """
    guest.need()
    with ExitStack() as stack:
        with _steps():
            kubelet = binaries.find(binaries.kubelet(), ["kubelet"], progress)["kubelet"]
            disk, kernel = guestdisk.made(site.tarballs, kubelet, progress), programs.kernel(progress)
            progress.say(f"QEMU starts {GUEST.name}: 2 sockets, 4 NUMA nodes, 8 cores, 16 CPUs, control groups v2")
            stack.enter_context(guest.running(site.cluster, GUEST, disk, kernel, progress))
            _say_ready(GUEST, progress)
            _say_published(site.cluster, GUEST, progress, guest.READY_SECONDS)
        yield


@contextmanager
def _steps() -> Iterator[None]:
    """Tells of what fails by one kind of error."""
    try:
        yield
    except VMUnavailableError:
        raise
    except (DevclusterError, VMError) as error:
        raise E2EError(str(error)) from error


def _say_ready(node: Node, progress: Progress) -> None:
    progress.say(f"node {node.name} is Ready ({progress.elapsed_seconds():.0f} s)")


def _say_published(cluster: Cluster, node: Node, progress: Progress, seconds: float) -> None:
    kubelet = release.wait_for_topology(cluster, node.name, progress, seconds)["spec"]["kubelet"]
    progress.say(f"the agent has published {node.name}, kubelet {json.dumps(kubelet)}")
