"""QEMU's arguments for a shape, and a guest's run: booted, watched, ended.

The guest says what it does on its first serial line (the kernel's console) and writes its results to the second.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vm.errors import VMError
from vm.shapes import SMALLEST_MEMORY_MIB, Shape

PROGRAM = "qemu-system-x86_64"
# Models of AMD and "max" lose SMT under emulation; this one has AVX2, which ONNX Runtime uses.
CPU_MODEL = "Skylake-Server-v4"
LOG_LINES = 40
POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Guest:
    """What is booted: a kernel, an initramfs, perhaps a disk that is not written to, and the memory of each node.

    `tap` is the name of a network interface of this machine that QEMU makes, as root, and that ends with it; the
    guest's end of that cable is a virtio device. "": the guest has no network.
    """

    kernel: Path
    initramfs: Path
    disk: Path | None = None
    node_mib: int = SMALLEST_MEMORY_MIB
    tap: str = ""


def arguments(shape: Shape, guest: Guest) -> list[str]:
    """The command line of QEMU without its serial lines."""
    nodes = len(shape.numa_nodes)
    memory_mib = guest.node_mib * nodes if nodes else max(1024, guest.node_mib)
    command = [PROGRAM, "-nodefaults", "-no-reboot", "-display", "none", "-machine", "q35"]
    command += ["-accel", "tcg,thread=multi", "-cpu", CPU_MODEL, "-m", f"{memory_mib}M", "-smp", smp(shape)]
    command += ["-rtc", "base=utc"]
    for node in range(nodes):
        command += ["-object", f"memory-backend-ram,id=m{node},size={guest.node_mib}M"]
        command += ["-numa", f"node,nodeid={node},memdev=m{node}"]
    for node, has in enumerate(shape.numa_nodes):
        for socket, die in has.dies:
            within = f",die-id={die}" if shape.dies > 1 else ""
            command += ["-numa", f"cpu,node-id={node},socket-id={socket}{within}"]
    for source, row in enumerate(shape.distances):
        for destination, distance in enumerate(row):
            if source != destination:
                command += ["-numa", f"dist,src={source},dst={destination},val={distance}"]
    if guest.disk is not None:
        # What the guest writes is thrown away: the disk is shared by all runs.
        command += ["-drive", f"file={guest.disk},if=none,id=root,format=raw,snapshot=on"]
        command += ["-device", "nvme,serial=root,drive=root"]
    if guest.tap:
        command += ["-netdev", f"tap,id=cable,ifname={guest.tap},script=no,downscript=no"]
        command += ["-device", "virtio-net-pci,netdev=cable"]
    command += ["-kernel", str(guest.kernel), "-initrd", str(guest.initramfs)]
    return [*command, "-append", kernel_arguments(shape)]


def smp(shape: Shape) -> str:
    """QEMU's -smp."""
    parts = {"sockets": shape.sockets, "dies": shape.dies, "cores": shape.cores, "threads": shape.threads}
    return f"{shape.cpus}," + ",".join(f"{name}={size}" for name, size in parts.items())


def kernel_arguments(shape: Shape) -> str:
    """Linux's command line; raddle.offline= is read by guest/init.sh, which brings the other CPUs online.

    Linux rewrites its own code while it starts: a breakpoint first, then the new instruction. Under QEMU 7.2, CPUs that
    translated the place at that moment kept the breakpoint and trapped for ever, all 16 of them in sched_clock_tick, in
    3 of some 200 boots beside other load. With one CPU, nobody translates meanwhile.
    """
    result = (
        "console=ttyS0 quiet loglevel=3 mitigations=off tsc=reliable nokaslr random.trust_cpu=on panic=-1 maxcpus=1"
    )
    if shape.isolated:
        result += f" isolcpus={','.join(map(str, shape.isolated))}"
    if shape.offline:
        result += f" raddle.offline={','.join(map(str, shape.offline))}"
    return result


def run(
    shape: Shape,
    guest: Guest,
    folder: Path,
    *,
    timeout_s: float,
    boot_s: float,
    silent_s: float,
    watch: Callable[[], None] = lambda: None,
) -> None:
    """Run a guest until it powers off; files `log` and `results` are left in `folder`.

    `watch` is called meanwhile, to show how far it is. Raises VMError when the guest does not end in time, when it has
    written nothing to either file `boot_s` after its start or then for `silent_s`, and when QEMU refuses to start.
    However this ends, QEMU has ended too.
    """
    log, results = folder / "log", folder / "results"
    command = arguments(shape, guest)
    for index, path in enumerate((log, results)):
        path.write_bytes(b"")
        command += ["-chardev", f"file,id=c{index},path={path}", "-serial", f"chardev:c{index}"]
    ends_at, written, written_at = time.monotonic() + timeout_s, 0, time.monotonic()
    errors = folder / "qemu"
    with errors.open("wb") as stream:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    try:
        while process.poll() is None:
            now, before = time.monotonic(), written
            written = log.stat().st_size + results.stat().st_size
            if written != before:
                written_at = now
            if now > ends_at:
                raise VMError(f"the guest did not end within {timeout_s:.0f} s\n{last_lines(folder)}")
            patience_s = silent_s if written else boot_s
            if now > written_at + patience_s:
                done = f"after {written} bytes" if written else "at its start"
                raise VMError(f"the guest wrote nothing for {patience_s:.0f} s {done}\n{last_lines(folder)}")
            watch()
            time.sleep(POLL_SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    if process.returncode:
        raise VMError(f"QEMU ended with {process.returncode}\n{last_lines(folder)}")


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The results so far of a guest that runs guest/console.py; a last line without its end is left for later."""
    text = (folder / "results").read_text(errors="replace")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def completed(folder: Path) -> list[dict[str, Any]]:
    """All results of such a guest. Raises VMError where it has not come to the end of its job."""
    results = read_results(folder)
    if not any(result.get("done") for result in results):
        failed = next((result["failed"] for result in results if "failed" in result), "it ended early")
        raise VMError(f"the guest failed: {failed}\n{last_lines(folder)}")
    return results


def last_lines(folder: Path) -> str:
    """The end of what QEMU and the guest's console have said, for a message."""
    result: list[str] = []
    for name in ("qemu", "log"):
        path = folder / name
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        # It warns so once a CPU.
        kept = [line for line in lines if "TCG doesn't support requested feature" not in line]
        result += [f"[{name}] {line}" for line in kept[-LOG_LINES:]]
    return "\n".join(result)
