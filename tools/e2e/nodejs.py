"""Node.js and onnxruntime-node for the application's image: this machine's program, and npm's package."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

from cluster.progress import Progress
from e2e.errors import E2EError
from lab import cache

PACKAGE = "onnxruntime-node"
VERSION = "1.30.0"
INSTALL_SECONDS = 600
ATTEMPTS = 3
# Its install script would fetch libraries for GPUs.
QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}


def unavailable() -> str:
    """Why no pod can have Node.js here; "" where one can."""
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    return f"no {' and no '.join(missing)} on this machine" if missing else ""


def program() -> Path:
    """This machine's Node.js."""
    found = shutil.which("node")
    assert found is not None
    return Path(found).resolve()


def modules(progress: Progress) -> Path:
    """A node_modules with onnxruntime-node for this machine, fetched at the first call. Raises E2EError."""
    home = cache.made(f"e2e-{PACKAGE}-{VERSION}", f"{PACKAGE} {VERSION} (with npm)", _install, progress)
    return home / "node_modules"


def _install(home: Path) -> None:
    (home / "package.json").write_text('{"private": true}')
    command = ["npm", "install", *QUIET, f"{PACKAGE}@{VERSION}"]
    for _ in range(ATTEMPTS):
        done = subprocess.run(command, cwd=home, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        if done.returncode == 0:
            break
    else:
        raise E2EError(f"npm can't install {PACKAGE} {VERSION}: {done.stderr.strip()[-400:]}")
    for other in (home / "node_modules" / PACKAGE / "bin").glob("napi-v*/*/*"):
        if other.parts[-2:] != ("linux", ARCHITECTURES.get(platform.machine(), "")):
            shutil.rmtree(other)
