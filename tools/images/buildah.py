"""buildah, with a store of its own below the cache: no daemon, no registry, nothing of the machine's own images."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.progress import Progress
from images.model import ImagesError, ImagesUnavailableError, cache, own_architecture

# Programs and the Debian packages that have them.
PROGRAMS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "dpkg-deb": "dpkg"}


def need(progress: Progress) -> None:
    """Makes sure that the programs are there, by apt-get where that can be. Raises ImagesUnavailableError."""
    missing = sorted({package for program, package in PROGRAMS.items() if not shutil.which(program)})
    if os.geteuid() != 0:
        raise ImagesUnavailableError("images are built as root, since packages are unpacked with their owners")
    if not missing:
        return
    if shutil.which("apt-get"):
        progress.say(f"installing {', '.join(missing)} with apt-get")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *missing]):
            subprocess.run(["apt-get", *command], env=environment, capture_output=True, check=False)
    still = sorted(program for program in PROGRAMS if not shutil.which(program))
    if still:
        raise ImagesUnavailableError(f"{', '.join(still)} can't be had here: install the packages {', '.join(missing)}")


def run(*arguments: str, log: Path | None = None) -> str:
    """Run it and return its output. Raises ImagesError with the end of what it said; `log` gets all of that."""
    command = ["buildah", *_store(), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(result.stdout + result.stderr)
    if result.returncode != 0:
        end = "\n".join((result.stdout + result.stderr).splitlines()[-15:])
        raise ImagesError(f"buildah {arguments[0]} failed:\n{end}" + (f"\nAll of it: {log}" if log else ""))
    return result.stdout


def has(name: str) -> bool:
    """Whether the store has an image of this name."""
    command = ["buildah", *_store(), "inspect", "--type", "image", name]
    return subprocess.run(command, capture_output=True, check=False, env=_environment()).returncode == 0


def inspect(name: str) -> Mapping[str, Any]:
    """What buildah says of an image. Raises ImagesError."""
    result: Mapping[str, Any] = json.loads(run("inspect", "--type", "image", name))
    return result


@contextmanager
def mounted(name: str) -> Iterator[Path]:
    """The folder in which an image's files can be read. Raises ImagesError."""
    container = run("from", "--pull-never", name).strip()
    try:
        yield Path(run("mount", container).strip())
    finally:
        run("rm", container)


def size_bytes(result: Mapping[str, Any]) -> int:
    """The size of an inspected image's layers, unpacked."""
    return sum(int(layer["size"]) for layer in json.loads(result["Manifest"])["layers"])


def build(
    name: str,
    dockerfile: Path,
    context: Path,
    *,
    architecture: str,
    epoch_seconds: int,
    arguments: Mapping[str, str],
    options: Sequence[str] = (),
) -> None:
    """Builds an image from nothing cached, as one layer on its base, every time in it being `epoch_seconds`.

    Raises ImagesError.
    """
    # The Python packages come from the index that pip is set up for on this machine, once.
    pip = cache() / "pip"
    pip.mkdir(parents=True, exist_ok=True)
    (cache() / "pip.conf").write_text(_pip_settings())
    volumes = [f"{pip}:/pip-cache", f"{cache() / 'pip.conf'}:/etc/pip.conf:ro", "/etc/ssl/certs:/etc/ssl/certs:ro"]
    run(
        *("bud", "--isolation", "chroot", "--format", "oci", "--pull-never", "--no-cache", "--identity-label=false"),
        *("--platform", f"linux/{architecture}", "--timestamp", str(epoch_seconds)),
        *(f"--volume={volume}" for volume in volumes),
        # buildah 1.28 takes it for the target's platform where it is not told.
        f"--build-arg=BUILDPLATFORM=linux/{own_architecture()}",
        *(f"--build-arg={key}={value}" for key, value in arguments.items()),
        *options,
        *("--tag", name, "--file", str(dockerfile), str(context)),
        log=cache() / "logs" / f"{name.replace('/', '-').replace(':', '-')}.log",
    )


def _pip_settings() -> str:
    lines = ["[global]", "cache-dir = /pip-cache"]
    certificates = os.environ.get("PIP_CERT") or "/etc/ssl/certs/ca-certificates.crt"
    if certificates.startswith("/etc/ssl/certs/") and Path(certificates).exists():
        lines.append(f"cert = {certificates}")
    for variable, key in (("PIP_INDEX_URL", "index-url"), ("PIP_DEFAULT_TIMEOUT", "timeout")):
        if os.environ.get(variable):
            lines.append(f"{key} = {os.environ[variable]}")
    return "\n".join(lines) + "\n"


def _store() -> tuple[str, ...]:
    home = cache() / "store"
    return ("--root", str(home), "--runroot", str(cache() / "run"), "--storage-driver", _driver())


@functools.cache
def _driver() -> str:
    """Overlay where the kernel has it; vfs, which copies each layer whole, works everywhere."""
    try:
        filesystems = Path("/proc/filesystems").read_text()
    except OSError:
        filesystems = ""
    return "overlay" if "\toverlay\n" in filesystems else "vfs"


def _environment() -> dict[str, str]:
    return {**os.environ, "BUILDAH_ISOLATION": "chroot"}
