"""Node.js of several versions, and packages of npm: without their install scripts, which would fetch CUDA builds."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

from runtimes.fetching import CACHE, fetch, made, tool
from unavailable import UnavailableError

HOME = CACHE / "node"
QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
ARCHITECTURES = {"x86_64": "x64", "aarch64": "arm64"}
NEWEST = "1.30.0"
"""The newest onnxruntime-node."""


def node() -> str:
    """The machine's own Node.js. Raises UnavailableError."""
    return tool("node")


def architecture() -> str:
    """This machine's, as Node.js names it. Raises UnavailableError."""
    result = ARCHITECTURES.get(platform.machine())
    if result is None:
        raise UnavailableError(f"onnxruntime-node has nothing for {platform.machine()}")
    return result


def package(name: str) -> Path:
    """The folder node_modules that has the package ("name@version"). Raises UnavailableError."""
    tool("npm")
    home = HOME / name.replace("@", "-").replace("/", "-")
    with made(home) as folder:
        if folder:
            (folder / "package.json").write_text('{"private": true}')
            fetch("npm", "install", *QUIET, name, cwd=folder)
            for other in folder.glob("node_modules/onnxruntime-node/bin/napi-v*/*/*"):
                if other.parts[-2:] != ("linux", architecture()):
                    shutil.rmtree(other)
    return home / "node_modules"


def other_node(version: str) -> str:
    """A Node.js of this version. Raises UnavailableError."""
    name = f"node-linux-{architecture()}"
    return str(package(f"{name}@{version}") / name / "bin" / "node")
