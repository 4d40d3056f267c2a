"""The guest's disk: containerd, runc, the kubelet, the network's plugins, and the images as containerd keeps them.

The images are imported here, by this machine's containerd in a folder of its own, since that takes minutes where
every instruction is emulated. The disk is made again when one of the files on it changes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cluster.progress import Progress
from e2e.errors import E2EError
from vm import cache, contents, disk, programs

FOLDERS = (
    *("bin", "dev", "etc", "lib/modules", "lib64", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/lib/cni"),
    *("var/lib/raddle-e2e", "var/lib/kubelet", "var/lib/cni", "var/log/pods", "var/log/containers"),
)
PROGRAMS = ("containerd", "containerd-shim-runc-v2", "ctr", "runc")
PLUGINS = Path("/usr/lib/cni")
PLUGINS_USED = ("bridge", "host-local", "loopback")
# In the order in which they need one another; what is not here is built into the kernel.
MODULES = (
    *("virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci"),
    *("failover", "net_failover", "virtio_net", "overlay", "llc", "stp", "bridge", "veth"),
)
# The kubelet does not start without the first.
ETC = {
    "passwd": "root:x:0:0:root:/root:/bin/sh\n",
    "group": "root:x:0:\n",
    "hosts": "127.0.0.1 localhost\n",
    "resolv.conf": "",
    "machine-id": "0" * 31 + "1\n",
    "os-release": "ID=raddle-e2e\nPRETTY_NAME=raddle-e2e\n",
}
# What a run writes there, which is thrown away: logs, and what each container's own files are.
FREE_MIB = 512
# No run takes longer; another may be using a disk of other images.
IN_USE_SECONDS = 3600.0
IMPORT = Path(__file__).with_name("inside") / "import.sh"


def made(images: Sequence[Path], kubelet: Path, progress: Progress) -> Path:
    """The disk's file, with these image tarballs imported. Raises E2EError or VMError where it can't be made."""
    name = f"e2e-guest-{_key(images, kubelet)}"

    def make(home: Path) -> None:
        _make(home, images, kubelet, progress)

    home = cache.made(name, "the guest's disk with the images", make, progress)
    cache.forget("e2e-guest-*", older_than_s=IN_USE_SECONDS)
    return home / "disk.img"


def _key(images: Sequence[Path], kubelet: Path) -> str:
    text = Path(__file__).read_text() + Path(contents.__file__).read_text() + IMPORT.read_text() + str(kubelet)
    # Each lies in a folder that is made again, under another name, when its content changes.
    text += "".join(f"{path}\n{path.stat().st_size} {path.stat().st_mtime_ns}\n" for path in images)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _make(home: Path, images: Sequence[Path], kubelet: Path, progress: Progress) -> None:
    root = home / "root"
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name, text in ETC.items():
        (root / "etc" / name).write_text(text)
    for name in MODULES:
        shutil.copy(programs.module(name, progress), root / "lib" / "modules")
    _programs(root, kubelet)
    _import(images, root / "var" / "lib" / "containerd", home / "run")
    disk.image(root, home / "disk.img", free_mib=FREE_MIB)
    shutil.rmtree(root)


def _programs(root: Path, kubelet: Path) -> None:
    result = {name: programs.find(name) for name in PROGRAMS}
    if missing := [name for name, path in result.items() if path is None]:
        raise E2EError(f"not installed: {', '.join(missing)}")
    copies = [(Path(str(result[name])), root / "usr" / "bin" / name) for name in PROGRAMS]
    copies += [(PLUGINS / name, root / "usr" / "lib" / "cni" / name) for name in PLUGINS_USED]
    copies += [(kubelet, root / "usr" / "bin" / "kubelet")]
    for source, target in copies:
        shutil.copy(source, target)
    contents.busybox(root)
    contents.libraries([source for source, _ in copies], root)


def _import(images: Sequence[Path], store: Path, scratch: Path) -> None:
    """Fill containerd's folder `store` with these images, unpacked, by a containerd that ends with it."""
    scratch.mkdir()
    spaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = ["unshare", *spaces, "sh", str(IMPORT), str(store), str(scratch), *map(str, images)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"})
    if done.returncode:
        raise E2EError(f"the images can't be imported: {done.stdout[-500:]}{done.stderr[-500:]}")
    shutil.rmtree(scratch)
