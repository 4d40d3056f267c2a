"""Node.js and onnxruntime-node for the application's image: this machine's program, and npm's package."""

from __future__ import annotations

import shutil
from pathlib import Path

from runtimes import nodejs

VERSION = nodejs.NEWEST


def unavailable() -> str:
    """Why no pod can have Node.js here; "" where one can."""
    missing = [program for program in ("node", "npm") if shutil.which(program) is None]
    return f"no {' and no '.join(missing)} on this machine" if missing else ""


def program() -> Path:
    """This machine's Node.js."""
    return Path(nodejs.node()).resolve()


def modules() -> Path:
    """A node_modules with onnxruntime-node for this machine, fetched at the first call. Raises UnavailableError."""
    return nodejs.package(f"onnxruntime-node@{VERSION}")
