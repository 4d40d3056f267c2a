"""A guest of QEMU's as a node: two sockets, four NUMA nodes, SMT, control groups of version 2.

Every instruction is emulated, so that it needs nothing but QEMU, and so that no time taken on it means anything. What
it writes to its disk is thrown away, and its network interface ends with QEMU.
"""

from __future__ import annotations

import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster import Cluster, DevclusterError
from cluster.components import Component, wait_alive
from cluster.progress import Progress
from cluster.waiting import T
from e2e import guestdisk, joining, settings, waiting
from e2e.errors import E2EError
from unavailable import UnavailableError
from vm import disk, programs, qemu, shapes

SHAPE = "2s4n-8c16t"
INSIDE = Path(__file__).with_name("inside")
TUN = Path("/dev/net/tun")
# Containers with ONNX Runtime need 200 MiB each; pods are not placed by memory.
NODE_MIB = 768
# Kernel, containerd and kubelet take half a minute on a quiet machine.
READY_SECONDS = 600.0
# Ten times what a quiet machine takes; see kernel_arguments for why a guest may hang.
BOOT_SECONDS = 300.0
ATTEMPTS = 2
CLOCK_SECONDS = 60
# For anything that starts a Python on emulated CPUs.
PATIENCE_SECONDS = 420.0
_CLOCK = re.compile(r"node: clock (\d+)")


def need() -> None:
    """Raise UnavailableError where the guest can't run, with the reason."""
    programs.need()
    if not TUN.exists():
        raise UnavailableError(f"{TUN} is not there, so QEMU can't have a network interface")


@contextmanager
def running(cluster: Cluster, node: settings.Node, root_disk: Path, kernel: Path, progress: Progress) -> Iterator[None]:
    """The node, with a disk of guestdisk's, once it is Ready; one that hangs is booted again.

    Raises E2EError or DevclusterError, with the end of its console.
    """
    folder = cluster.directory / "guest"
    component = cluster.component("guest")
    try:
        _write_initramfs(cluster, node, folder)
        machine = qemu.Guest(
            kernel=kernel, initramfs=folder / "initramfs", disk=root_disk, node_mib=NODE_MIB, tap=node.cable
        )
        for attempt in range(ATTEMPTS):
            try:
                _boot(cluster, node, component, machine, folder / "console", progress)
                break
            except (E2EError, DevclusterError) as error:
                if attempt == ATTEMPTS - 1:
                    raise
                progress.say(f"{str(error).splitlines()[0]}; booting it again")
                component.kill()
        yield
    finally:
        component.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _write_initramfs(cluster: Cluster, node: settings.Node, folder: Path) -> None:
    root = folder / "root"
    joining.write_files(cluster, node, root / "node")
    shutil.copy(INSIDE / "guest-node.sh", root / "node")
    (root / "node" / "node.env").write_text(environment(node))
    disk.initramfs(folder / "initramfs", root, INSIDE / "guest-start.sh")


def _boot(
    cluster: Cluster, node: settings.Node, component: Component, machine: qemu.Guest, console: Path, progress: Progress
) -> None:
    console.write_bytes(b"")
    serial = ["-chardev", f"file,id=console,path={console}", "-serial", "chardev:console"]
    started_at = time.time()
    # Its 16 CPUs are threads beside the other node's two; without this the webhook would be late.
    component.start(["nice", "-n", "5", *qemu.arguments(shapes.get(SHAPE), machine), *serial])

    def last_lines() -> str:
        lines = console.read_text(errors="replace").splitlines()[-qemu.LOG_LINES :]
        return "\n".join(["the end of the guest's console:", *(f"  {line}" for line in lines)])

    def wait(check: Callable[[], T | None], what: str, seconds: float) -> T:
        options: dict[str, Any] = {"refusals": waiting.REFUSALS, "progress": progress}
        return wait_alive(check, what, seconds, [component], log=last_lines, **options)

    wait(lambda: node.cable in {name for _, name in socket.if_nameindex()}, "QEMU has made its interface", BOOT_SECONDS)
    joining.connect(node)
    reported = wait(lambda: _CLOCK.search(console.read_text(errors="replace")), "the guest has booted", BOOT_SECONDS)
    # Certificates could seem to be of the future, which no message of TLS says so plainly.
    if problem := clock_problem(int(reported[1]), started_at, time.time()):
        raise E2EError(problem)
    wait(lambda: joining.ready(cluster, node), f"node {node.name} Ready", READY_SECONDS)


def environment(node: settings.Node) -> str:
    """The variables of guest-node.sh, for its shell."""
    values = {"name": node.name, "address": node.address, "gateway": node.host_address}
    values["modules"] = " ".join(guestdisk.MODULES)
    return "".join(f"{name}='{value}'\n" for name, value in values.items())


def clock_problem(reported: int, started_at: float, now: float) -> str:
    """What is wrong with the time that the guest told between its start and now, in seconds since 1970; "": nothing."""
    if started_at - CLOCK_SECONDS < reported < now + CLOCK_SECONDS:
        return ""
    return f"the guest's clock is wrong: {reported - started_at:+.0f} s after QEMU's start, by this machine's clock"
