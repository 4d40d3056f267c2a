"""What guests need from outside the project: QEMU, three small programs, and a Linux kernel of Debian's."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from cluster.progress import Progress
from vm import cache
from vm.errors import VMUnavailableError
from vm.qemu import PROGRAM

# Program -> the Debian package that has it.
NEEDED = {PROGRAM: "qemu-system-x86", "cpio": "cpio", "busybox": "busybox-static", "mke2fs": "e2fsprogs"}
# nvme and ext4 are built into it.
KERNEL_PACKAGE = "linux-image-cloud-amd64"
DOWNLOAD_SECONDS = 300


def need() -> None:
    """Raise VMUnavailableError when a program is missing."""
    if platform.machine() != "x86_64":
        raise VMUnavailableError(
            f"the guest runs this machine's Python, which must be x86_64, not {platform.machine()}"
        )
    missing = [package for program, package in NEEDED.items() if find(program) is None]
    if missing:
        raise VMUnavailableError(f"not installed: {', '.join(missing)} (tools/scripts/packages installs them as root)")


def find(program: str) -> Path | None:
    """The program, also in the folders that only root has on PATH."""
    result = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin")
    return Path(result) if result else None


def kernel(progress: Progress) -> Path:
    """Debian's kernel for virtual machines, fetched at the first call: the version that there is then stays in use.

    Raises VMUnavailableError where apt-get can't fetch it.
    """
    return _linux(progress) / "vmlinuz"


def module(name: str, progress: Progress) -> Path:
    """The file of a module of that kernel, such as "overlay". Raises VMUnavailableError where there is none."""
    result = next((_linux(progress) / "modules").rglob(f"{name}.ko"), None)
    if result is None:
        raise VMUnavailableError(f"the kernel has no module {name}")
    return result


def _linux(progress: Progress) -> Path:
    return cache.made("linux", "a Linux kernel (27 MB, with apt-get download)", _fetch_kernel, progress)


def kernel_version(path: Path) -> str:
    """The release in a bzImage's header, such as "6.1.0-56-cloud-amd64"; "" where there is none."""
    data = path.read_bytes()[: 1 << 16]
    # Documentation/x86/boot.rst: kernel_version is an offset below 0x200.
    start = int.from_bytes(data[0x20E:0x210], "little") + 0x200
    return data[start : data.index(b"\0", start)].decode("ascii", "replace").split(" ")[0]


def _fetch_kernel(home: Path) -> None:
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise VMUnavailableError(f"no kernel: {program} is not here; give a bzImage with --kernel")
    try:
        _download(home)
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        output = getattr(error, "stderr", None) or ""
        raise VMUnavailableError(f"no kernel: {KERNEL_PACKAGE} can't be fetched: {error}\n{output[-500:]}") from error


def _download(home: Path) -> None:
    # The package of that name is empty and depends on the newest kernel's.
    depends = _said("apt-cache", "depends", KERNEL_PACKAGE)
    result = re.search(r"Depends: (linux-image-\S+-cloud-amd64)", depends)
    if result is None:
        raise OSError("apt-cache does not know it; apt-get update may help")
    with tempfile.TemporaryDirectory(dir=home) as name:
        folder = Path(name)
        _said("apt-get", "-o", "APT::Sandbox::User=root", "download", result[1], cwd=folder)
        (package,) = folder.glob("*.deb")
        _said("dpkg-deb", "--extract", str(package), str(folder / "root"))
        (image,) = (folder / "root" / "boot").glob("vmlinuz-*")
        image.rename(home / "vmlinuz")
        (folder / "root" / "lib" / "modules").rename(home / "modules")


def _said(*command: str, cwd: Path | None = None) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS).stdout
