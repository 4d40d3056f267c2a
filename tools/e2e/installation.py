"""The cluster with its nodes and Raddle on it: what every command of this package starts, and ends."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cluster import Cluster, DevclusterError, binaries
from cluster.progress import Progress
from e2e import guest, guestdisk, host, images, release, services
from e2e.errors import E2EError, E2EUnavailableError
from e2e.settings import GUEST, HOST, IMAGE_VOLUME
from lab import programs
from lab.errors import LabError, LabUnavailableError

# The API server runs beside the nodes, not on one: it reaches Services at their pods.
API_SERVER_FLAGS = {"kube-apiserver": ["--enable-aggregator-routing=true", f"--feature-gates={IMAGE_VOLUME}=true"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A cluster. `skipped` and `failed` are nodes that it lacks and why: they can't run here, or did not get Ready."""

    cluster: Cluster
    skipped: Mapping[str, str]
    failed: Mapping[str, str]


@contextmanager
def installed(options: argparse.Namespace, nodes: set[str], progress: Progress) -> Iterator[Installation]:
    """A cluster of these nodes, by name, with Raddle on it; this machine is one of them always.

    Raises E2EUnavailableError where this machine can't be a node, E2EError when a step fails.
    """
    host.need(os.getuid(), install=options.install, progress=progress)
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    if GUEST.name in nodes and (reason := _no_guest(options)):
        progress.say(f"no node {GUEST.name}: {reason}")
        skipped[GUEST.name] = reason
    tarballs, agent = images.tarballs(options.images, progress)
    with ExitStack() as stack:
        virtual = GUEST.name in nodes and GUEST.name not in skipped
        try:
            machine = (_disk(tarballs, progress), programs.kernel(progress)) if virtual else None
        except LabUnavailableError as error:
            skipped[GUEST.name], machine = str(error), None
        # Compiling it beside the nodes would make them late.
        binaries.find(binaries.kube_proxy(), ["kube-proxy"], progress)
        cluster = stack.enter_context(Cluster(name="e2e", extra_flags=API_SERVER_FLAGS, progress=progress))
        second = None
        if machine is not None:
            # First, since it boots while the other node starts.
            progress.say(f"QEMU starts {GUEST.name}: 2 sockets, 4 NUMA nodes, 8 cores, 16 CPUs, control groups v2")
            second = stack.enter_context(guest.GuestNode(cluster, GUEST, *machine, progress))
        first = stack.enter_context(host.HostNode(cluster, HOST, tarballs, progress))
        _say_ready(HOST.name, progress)
        if second is not None:
            with _failing(GUEST.name, failed, progress):
                second.wait()
                _say_ready(GUEST.name, progress)
        release.install(cluster, agent, progress)
        # The name server knows the Services that are there when it starts.
        stack.enter_context(services.running(cluster, HOST, first.pid, progress))
        _say_published(cluster, HOST.name, progress)
        if second is not None and not failed:
            with _failing(GUEST.name, failed, progress):
                _say_published(cluster, GUEST.name, progress, guest.READY_SECONDS)
        yield Installation(cluster=cluster, skipped=skipped, failed=failed)


@contextmanager
def _failing(node: str, failed: dict[str, str], progress: Progress) -> Iterator[None]:
    """Have the run go on without this node where a step fails: all is said, its first line is the reason."""
    try:
        yield
    except (E2EError, DevclusterError) as error:
        progress.say(str(error))
        failed[node] = str(error).splitlines()[0]


def _no_guest(options: argparse.Namespace) -> str:
    """Why no guest can run; "" where one can."""
    if options.without_guest:
        return "--without-guest"
    try:
        guest.need()
    except E2EUnavailableError as error:
        return str(error)
    return ""


def _disk(tarballs: list[Path], progress: Progress) -> Path:
    kubelet = binaries.find(binaries.kubelet(), ["kubelet"], progress)["kubelet"]
    try:
        return guestdisk.disk(tarballs, kubelet, progress)
    except LabUnavailableError:
        raise
    except LabError as error:
        raise E2EError(str(error)) from error


def _say_ready(node: str, progress: Progress) -> None:
    progress.say(f"node {node} is Ready ({progress.elapsed_seconds():.0f} s)")


def _say_published(cluster: Cluster, node: str, progress: Progress, seconds: float = release.PUBLISHED_SECONDS) -> None:
    kubelet = release.wait_for_topology(cluster, node, progress, seconds)["spec"]["kubelet"]
    progress.say(f"the agent has published {node}, kubelet {json.dumps(kubelet)}")
