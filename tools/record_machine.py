"""Boots a real Linux kernel under QEMU with any CPU and NUMA shape and records what its /sys and /proc say.

    python tools/record_machine.py tests/machines/2s16c32t.txt --kernel VMLINUZ \
        --smp 32,sockets=2,cores=8,threads=2 --nodes 'socket=0;socket=1' --dist 0-1=21

QEMU emulates (TCG, no KVM), so sizes and sharing are real kernel output and times mean nothing. The
arguments are the expected facts; they are kept in the recording's first lines.

Needs on Debian: qemu-system-x86, cpio, busybox-static, and a kernel from a linux-image-*-cloud-amd64
package (`apt-get download`, `dpkg-deb -x`; boot/vmlinuz-*). QEMU 7.2 limits: 254 CPUs, no hybrid CPUs, and
SMT only with Intel models.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import machines

# Only what a reader of topology may want: the rest is noise in a repository.
KEPT = (
    "online offline present possible isolated kernel_max active control level type size id shared_cpu_list "
    "shared_cpu_map core_id core_cpus core_cpus_list thread_siblings thread_siblings_list physical_package_id "
    "package_cpus package_cpus_list core_siblings core_siblings_list die_id die_cpus die_cpus_list cpulist cpumap "
    "distance has_cpu has_memory cpuinfo boot_id"
)

INIT = r"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev; mount -t proc proc /proc; mount -t sysfs sys /sys
for word in $(cat /proc/cmdline); do case $word in
  raddle.offline=*) for n in $(echo ${word#*=} | tr , ' '); do echo 0 > /sys/devices/system/cpu/cpu$n/online; done;;
esac; done
cd /; mkdir /tmp/out
find sys/devices/system/cpu sys/devices/system/node proc/cpuinfo proc/sys/kernel/random/boot_id \
  sys/devices/system/node/*/meminfo -type f | while read -r file; do
  case " $KEPT meminfo " in *" ${file##*/} "*) mkdir -p /tmp/out/${file%/*}; cat $file > /tmp/out/$file;; esac
done 2>/dev/null
stty -F /dev/ttyS1 raw -echo
tar -C /tmp/out -cf - sys proc | gzip > /dev/ttyS1
echo RECORDED; poweroff -f
"""


def main(argv: list[str] | None = None) -> int:
    """Records one machine; 1 when the guest did not come to its end."""
    args = _arguments(argv)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        command = [*_qemu(args), "-initrd", str(_initramfs(work, args.busybox))]
        for index, name in enumerate(("log", "tgz")):
            command += ["-chardev", f"file,id=c{index},path={work / name}", "-serial", f"chardev:c{index}"]
        subprocess.run(command, timeout=args.timeout, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        log = (work / "log").read_text(errors="replace")
        if "RECORDED" not in log:
            print(log[-2000:], file=sys.stderr)
            return 1
        recorded = dict(_recorded(work / "tgz"))
    args.out.write_text(machines.pack(recorded, _comment(args)))
    print(f"{args.out}: {len(recorded)} files, {args.out.stat().st_size} bytes")
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Records a QEMU guest's /sys and /proc as a text archive.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--kernel", required=True, help="a bzImage")
    parser.add_argument("--smp", required=True, help="as QEMU's -smp: 32,sockets=2,cores=8,threads=2")
    parser.add_argument("--nodes", default="", help="NUMA nodes, ';' between, each 'socket=0,die=1+socket=0,die=2'")
    parser.add_argument("--dist", default="", help="distances: 0-1=21,0-2=31")
    parser.add_argument("--offline", default="", help="CPUs to take offline: 5,13")
    parser.add_argument("--append", default="", help="kernel arguments, e.g. isolcpus=2-3")
    parser.add_argument("--cpu", default="Skylake-Server-v4")
    parser.add_argument("--node-mib", type=int, default=256)
    parser.add_argument("--busybox", default=shutil.which("busybox") or "busybox")
    parser.add_argument("--timeout", type=float, default=300, help="seconds")
    return parser.parse_args(argv)


def _comment(args: argparse.Namespace) -> str:
    shown = {key: value for key, value in vars(args).items() if key not in ("out", "kernel", "busybox", "timeout")}
    options = " ".join(f"--{key.replace('_', '-')} {shlex.quote(str(value))}" for key, value in shown.items() if value)
    kernel = os.path.basename(args.kernel)  # noqa: PTH119 - a name in a comment, not a path to open
    return f"Recorded by tools/record_machine.py under QEMU (TCG), kernel {kernel}.\n{options}"


def _qemu(args: argparse.Namespace) -> list[str]:
    nodes = args.nodes.split(";") if args.nodes else []
    memory_mib = args.node_mib * len(nodes) if nodes else 1024
    command = ["qemu-system-x86_64", "-nodefaults", "-no-reboot", "-display", "none", "-machine", "q35"]
    command += ["-accel", "tcg,thread=multi", "-cpu", args.cpu, "-m", f"{memory_mib}M", "-smp", args.smp]
    for index in range(len(nodes)):
        command += ["-object", f"memory-backend-ram,id=m{index},size={args.node_mib}M"]
        command += ["-numa", f"node,nodeid={index},memdev=m{index}"]
    for index, node in enumerate(nodes):
        for part in filter(None, node.split("+")):
            keys = ",".join(f"{key}-id={value}" for key, value in (pair.split("=") for pair in part.split(",")))
            command += ["-numa", f"cpu,node-id={index},{keys}"]
    for distance in filter(None, args.dist.split(",")):
        pair, value = distance.split("=")
        source, destination = pair.split("-")
        command += ["-numa", f"dist,src={source},dst={destination},val={value}"]
    kernel_arguments = f"console=ttyS0 quiet loglevel=3 mitigations=off tsc=reliable nokaslr {args.append}"
    if args.offline:
        kernel_arguments += f" raddle.offline={args.offline}"
    return [*command, "-kernel", args.kernel, "-append", kernel_arguments]


def _initramfs(work: Path, busybox: str) -> Path:
    root = work / "root"
    for folder in ("bin", "proc", "sys", "dev", "tmp"):
        (root / folder).mkdir(parents=True)
    shutil.copy(busybox, root / "bin/busybox")
    init = root / "init"
    init.write_text(INIT.replace("$KEPT", KEPT))
    init.chmod(0o755)
    listing = "\n".join([".", *(str(file.relative_to(root)) for file in sorted(root.rglob("*")))]) + "\n"
    out = work / "initrd"
    with out.open("wb") as stream:
        subprocess.run(
            ["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=listing.encode(), stdout=stream, check=True
        )
    return out


def _recorded(tgz: Path) -> Iterator[tuple[str, str]]:
    with tarfile.open(tgz) as tar:
        for member in tar:
            stream = tar.extractfile(member)
            if stream is None:
                continue
            text = stream.read().decode("ascii", "replace")
            if member.name.endswith("cpuinfo"):
                # Each CPU says nearly the same; the first shows the form.
                text = text.split("\n\n")[0] + "\n"
            if member.name.endswith("meminfo"):
                text = "\n".join(line for line in text.splitlines() if "MemTotal" in line) + "\n"
            yield member.name, text


if __name__ == "__main__":
    sys.exit(main())
