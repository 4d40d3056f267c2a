"""What a guest is booted from: an initramfs, and an ext4 file system."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from vm import contents, programs
from vm.errors import VMError

FREE_MIB = 32
INIT = Path(__file__).parent / "guest" / "init.sh"


def image(root: Path, into: Path, *, free_mib: int = FREE_MIB) -> None:
    """Write the files below `root` as an ext4 file system with this much room. Raises VMError where mke2fs fails."""
    mke2fs = programs.find("mke2fs")
    assert mke2fs is not None
    size_mib = sum(path.lstat().st_size for path in root.rglob("*")) // 2**20
    # ext4 itself takes its part, and a file takes whole blocks.
    size = f"{size_mib * 5 // 4 + free_mib}M"
    command: list[str | Path] = [mke2fs, "-q", "-t", "ext4", "-d", root, into, size]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise VMError(f"mke2fs failed: {done.stderr[-500:]}")


def initramfs(into: Path, root: Path, start: Path) -> None:
    """Write the archive `into` of what is below `root`, which is removed, with busybox and the first process.

    That is guest/init.sh, which goes on with the script `start`.
    """
    for name in ("dev", "proc", "root", "sys", "tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    contents.busybox(root)
    for source, name in ((INIT, "init"), (start, "start.sh")):
        shutil.copy(source, root / name)
        (root / name).chmod(0o755)
    names = "\n".join([".", *(str(path.relative_to(root)) for path in sorted(root.rglob("*")))]) + "\n"
    with into.open("wb") as stream:
        command = ["cpio", "-o", "-H", "newc", "--quiet"]
        subprocess.run(command, cwd=root, input=names.encode(), stdout=stream, check=True)
    shutil.rmtree(root)
