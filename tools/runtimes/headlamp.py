"""The Headlamp plugin's packages, its build, and Headlamp's own frontend, which its plugin package has in parts.

Sources are copied beside the packages, so that a working tree needs none, and its `node_modules` are not touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from runtimes.fetching import CACHE, TIMEOUT_S, fetch, made, tool

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "plugins" / "headlamp"
FIXTURE = ROOT / "tests" / "headlamp" / "golden" / "watched.json"
PINNED = ("package-lock.json", ".npmrc")
QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def _hash(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


@contextlib.contextmanager
def workspace() -> Iterator[Path]:
    """A copy of the plugin's sources with their packages, for nobody else until the end. Raises UnavailableError."""
    tool("node")
    home = CACHE / "headlamp" / _hash(*(PLUGIN / name for name in PINNED))
    with made(home) as new:
        if new:
            folder = new / "plugins" / "headlamp"
            folder.mkdir(parents=True)
            for name in (*PINNED, "package.json"):
                shutil.copy(PLUGIN / name, folder)
            # Not `npm ci`: that wants optional packages for other platforms in the lock, which some registries lack.
            fetch("npm", "install", *QUIET, cwd=folder)
    folder = home / "plugins" / "headlamp"
    with (home / "in-use.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in ("src", "host"):
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(PLUGIN / name, folder / name)
        for name in ("package.json", "tsconfig.json"):
            shutil.copy(PLUGIN / name, folder)
        fixture = home / FIXTURE.relative_to(ROOT)
        fixture.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(FIXTURE, fixture)
        yield folder


def once(folder: Path, name: str) -> contextlib.AbstractContextManager[Path | None]:
    """As `made`, for what is done with these sources and packages and never has to be done again."""
    sources = [file for part in ("src", "host") for file in sorted((folder / part).rglob("*")) if file.is_file()]
    home = folder.parents[1]
    settings = (folder / "package.json", folder / "tsconfig.json", home / FIXTURE.relative_to(ROOT))
    return made(home / f"{name}-{_hash(*sources, *settings)}")


def npm(folder: Path, *arguments: str) -> str:
    """What a program of the packages prints. Raises AssertionError with that where it fails."""
    command = ["npx", "--no-install", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def frontend(folder: Path) -> Path:
    """Headlamp's frontend, built once (a minute of CPU time) of a workspace's packages and its `host`."""
    sources = [file for file in sorted((folder / "host").iterdir()) if file.name != "look.mjs"]
    home = folder.parents[1] / f"frontend-{_hash(*sources)}"
    with made(home) as new:
        if new:
            npm(folder, "vite", "build", "--config", "host/vite.config.mjs", "--outDir", str(new / "dist"))
    return home / "dist"
