"""A guest of QEMU's as a node: two sockets, four NUMA nodes, SMT, control groups of version 2.

Every instruction is emulated, so that it needs nothing but QEMU, and so that no time taken on it means anything. What
it writes to its disk is thrown away, and its network interface ends with QEMU.
"""

from __future__ import annotations

import re
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from cluster import Cluster, DevclusterError
from cluster.components import Component, wait_alive
from cluster.progress import Progress
from e2e import guestdisk, joining, settings, waiting
from e2e.errors import REFUSALS, E2EError, E2EUnavailableError
from lab import contents, programs, qemu, shapes
from lab.errors import LabUnavailableError

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
    """Raise E2EUnavailableError where the guest can't run, with the reason."""
    try:
        programs.need()
    except LabUnavailableError as error:
        raise E2EUnavailableError(str(error)) from None
    if not TUN.exists():
        raise E2EUnavailableError(f"{TUN} is not there, so QEMU can't have a network interface")


class GuestNode:
    """The node, from `with` to the end of the block; `wait` says when it is Ready."""

    def __init__(self, cluster: Cluster, node: settings.Node, disk: Path, kernel: Path, progress: Progress) -> None:
        """Describe a guest that joins `cluster`, with a disk of guestdisk's."""
        self._cluster = cluster
        self._node = node
        self._disk = disk
        self._kernel = kernel
        self._progress = progress
        self._folder = cluster.directory / "guest"
        self._component: Component | None = None
        self._started_at = 0.0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Start it; it boots while others do their part. Raises E2EError when QEMU does not start."""
        with ExitStack() as stack:
            stack.callback(self._remove)
            self._write_initramfs()
            self._boot()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End it, and its interface with it."""
        self._stack.close()

    def wait(self) -> None:
        """Wait until it is Ready; one that hangs is booted again. Raises E2EError with its log's end."""
        for attempt in range(ATTEMPTS):
            try:
                self._wait(lambda: _CLOCK.search(self._log()) is not None, "the guest has booted", BOOT_SECONDS)
                self._check_clock()
                ready, what = partial(joining.ready, self._cluster, self._node), f"node {self._node.name} Ready"
                self._wait(ready, what, READY_SECONDS)
            except (E2EError, DevclusterError) as error:
                if attempt == ATTEMPTS - 1:
                    raise
                self._progress.say(f"{str(error).splitlines()[0]}; booting it again")
                self._stop()
                self._boot()
            else:
                return

    def _write_initramfs(self) -> None:
        root = self._folder / "root"
        for name in ("proc", "sys", "dev", "root"):
            (root / name).mkdir(parents=True)
        contents.busybox(root)
        shutil.copy(INSIDE / "guest-init.sh", root / "init")
        (root / "init").chmod(0o755)
        shutil.copy(qemu.CPUS_SCRIPT, root / qemu.CPUS_SCRIPT.name)
        joining.write_files(self._cluster, self._node, root / "node")
        shutil.copy(INSIDE / "guest-node.sh", root / "node")
        (root / "node" / "node.env").write_text(environment(self._node))
        qemu.initramfs(self._folder / "initramfs", root)
        shutil.rmtree(root)

    def _boot(self) -> None:
        guest = qemu.Guest(
            kernel=self._kernel,
            initramfs=self._folder / "initramfs",
            disk=self._disk,
            node_mib=NODE_MIB,
            tap=self._node.cable,
        )
        console = self._folder / "console"
        console.write_bytes(b"")
        serial = ["-chardev", f"file,id=console,path={console}", "-serial", "chardev:console"]
        self._started_at = time.time()
        self._component = self._cluster.component("guest")
        # Its 16 CPUs are threads beside the other node's two; without this the webhook would be late.
        self._component.start(["nice", "-n", "5", *qemu.arguments(shapes.get(SHAPE), guest), *serial])
        self._wait(self._connected, "QEMU has made its interface", BOOT_SECONDS)
        joining.connect(self._node)

    def _connected(self) -> bool:
        return self._node.cable in {name for _, name in socket.if_nameindex()}

    def _check_clock(self) -> None:
        """Raise E2EError where certificates could seem to be of the future, which no message of TLS says so plainly."""
        found = _CLOCK.search(self._log())
        assert found is not None
        if problem := clock_problem(int(found[1]), self._started_at, time.time()):
            raise E2EError(problem)

    def _log(self) -> str:
        return (self._folder / "console").read_text(errors="replace")

    def _wait(self, check: Callable[[], bool], what: str, seconds: float) -> None:
        assert self._component is not None
        wait_alive(
            check,
            what,
            seconds,
            [self._component],
            log=self._last_lines,
            refusals=REFUSALS,
            progress=self._progress,
            poll_seconds=waiting.POLL_SECONDS,
        )

    def _last_lines(self) -> str:
        lines = self._log().splitlines()[-qemu.LOG_LINES :]
        return "\n".join(["the end of the guest's console:", *(f"  {line}" for line in lines)])

    def _stop(self) -> None:
        if self._component is not None:
            self._component.kill()
            self._component = None

    def _remove(self) -> None:
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def environment(node: settings.Node) -> str:
    """The variables of guest-node.sh, for its shell."""
    values = {"name": node.name, "address": node.address, "gateway": node.host_address}
    values["modules"] = " ".join(guestdisk.MODULES)
    return "".join(f"{name}='{value}'\n" for name, value in values.items())


def clock_problem(told: int, started_at: float, now: float) -> str:
    """What is wrong with the time that the guest told between its start and now, in seconds since 1970; "": nothing."""
    if started_at - CLOCK_SECONDS < told < now + CLOCK_SECONDS:
        return ""
    return f"the guest's clock is wrong: {told - started_at:+.0f} s after QEMU's start, by this machine's clock"
