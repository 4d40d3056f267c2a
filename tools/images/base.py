"""The images that the others are built on, from Debian's packages: Python alone, and Python with compilers.

apt resolves and verifies the packages (by mmdebstrap), and they are unpacked without running anything of theirs, so one
machine makes them for any architecture. There is no shell and no package manager in what is shipped. What a package is,
a scanner finds in /var/lib/dpkg/status.d, as in other images without dpkg.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from cluster.locking import exclusive
from cluster.progress import Progress
from images import buildah
from images.model import FOLDER, ImagesError, cache, own_architecture

SUITE: Final = "bookworm"
PYTHON: Final = ("python3.11-minimal", "libpython3.11-stdlib")
TOOLS: Final = ("python3", "python3-pip", "gcc", "libc6-dev")
CROSS: Final = {
    "amd64": ("gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"),
    "arm64": ("gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross"),
}
# What only readline, dbm, sqlite3, curses and nis of the standard library need, and packages' own scripts.
DROPPED: Final = frozenset({
    "dpkg", "tar", "libacl1", "libselinux1", "libpcre2-8-0", "libmd0", "libzstd1", "readline-common", "libreadline8",
    "libncursesw6", "libtinfo6", "libdb5.3", "libsqlite3-0", "libnsl2", "libtirpc3", "libtirpc-common",
    "libgssapi-krb5-2", "libk5crypto3", "libkeyutils1", "libkrb5-3", "libkrb5support0", "libcom-err2",
})  # fmt: skip
# Below the root, as globs: what no process of Raddle reads. Of usr/share/doc the copyright files stay.
PRUNED: Final = (
    "usr/lib/*/gconv",
    "usr/lib/python3.11/lib-dynload/_curses*",
    "usr/lib/python3.11/lib-dynload/_dbm*",
    "usr/lib/python3.11/lib-dynload/_sqlite3*",
    "usr/lib/python3.11/lib-dynload/_test*",
    "usr/lib/python3.11/lib-dynload/nis*",
    "usr/lib/python3.11/lib-dynload/readline*",
    "usr/lib/python3.11/lib-dynload/_xxtestfuzz*",
    "usr/lib/python3.11/idlelib",
    "usr/lib/python3.11/lib2to3",
    "usr/lib/python3.11/pydoc_data",
    "usr/lib/python3.11/turtle.py",
    "usr/share/applications",
    "usr/share/binfmts",
    "usr/share/doc/*/[!c]*",
    "usr/share/doc/*/changelog*",
    "usr/share/lintian",
    "usr/share/man",
    "usr/share/pixmaps",
)
# Raised when packages are unpacked in another way, so that images made before are made again.
_METHOD: Final = 1
# The images run as the second.
PASSWD: Final = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin\n"
GROUP: Final = "root:x:0:\nnonroot:x:65532:\n"


def builder(progress: Progress) -> str:
    """The name of the image with pip and compilers, for this machine, made when it isn't there. Raises ImagesError."""
    own = own_architecture()
    return _made("builder", own, (*TOOLS, *CROSS[own]), progress, {})


def python(architecture: str, libraries: tuple[str, ...], progress: Progress) -> str:
    """The name of the image with Python and these libraries alone, made when it isn't there. Raises ImagesError."""
    return _made("base", architecture, (*PYTHON, *libraries), progress, {"BUILDER": builder(progress)})


def _made(
    kind: str, architecture: str, packages: tuple[str, ...], progress: Progress, arguments: dict[str, str]
) -> str:
    dockerfile = FOLDER / kind / "Dockerfile"
    drop = kind == "base"
    made_of = (_METHOD, SUITE, packages, PASSWD, GROUP, (sorted(DROPPED), PRUNED) if drop else ())
    key = hashlib.sha256(dockerfile.read_bytes() + repr(made_of).encode()).hexdigest()[:12]
    name = f"localhost/raddle-{kind}:{architecture}-{key}"
    if buildah.has(name):
        return name
    with exclusive(cache() / f"{kind}-{architecture}.lock", f"the {kind} image for {architecture}", progress):
        if not buildah.has(name):
            progress.say(f"making the {kind} image for {architecture} of Debian's packages")
            with tempfile.TemporaryDirectory(prefix="raddle-images-") as folder:
                context = Path(folder)
                _unpack(context, architecture, packages, drop=drop)
                buildah.build(
                    name, dockerfile, context, architecture=architecture, epoch_seconds=0, arguments=arguments
                )
    return name


def _unpack(folder: Path, architecture: str, packages: tuple[str, ...], *, drop: bool) -> None:
    """Fills `folder`/root with the packages and all that they depend on."""
    fetched, root = folder / "fetched", folder / "root"
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=extract", "--format=directory"]
    command += [f"--architectures={architecture}", f"--include={','.join(packages)}", "--skip=cleanup/apt/cache"]
    run = subprocess.run([*command, SUITE, str(fetched)], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise ImagesError(f"mmdebstrap failed for {architecture}:\n{run.stderr[-2000:]}")
    archives = sorted((fetched / "var" / "cache" / "apt" / "archives").glob("*.deb"))
    root.mkdir()
    status = root / "var" / "lib" / "dpkg" / "status.d"
    status.mkdir(parents=True)
    for archive in archives:
        name = archive.name.partition("_")[0]
        if not (drop and name in DROPPED):
            subprocess.run(["dpkg-deb", "--extract", str(archive), str(root)], check=True)
            control = subprocess.run(["dpkg-deb", "--field", str(archive)], capture_output=True, check=True).stdout
            (status / name).write_bytes(control)
    shutil.rmtree(fetched)
    _settle(root, prune=drop)


def _settle(root: Path, *, prune: bool) -> None:
    """Adds what Debian's packages make when they are configured, and removes what is in the way."""
    for pattern in PRUNED if prune else ():
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (root / "etc" / "passwd").write_text(PASSWD)
    (root / "etc" / "group").write_text(GROUP)
    (root / "tmp").mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    local = root / "usr" / "local" / "bin"
    local.mkdir(parents=True, exist_ok=True)
    for name in ("python3", "python3.11"):
        (local / name).symlink_to("/usr/bin/python3.11")
