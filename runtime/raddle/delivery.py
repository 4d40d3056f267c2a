"""The shim as the data of a ConfigMap: what the controller writes and what the webhook mounts.

A ConfigMap's keys are flat, so the volume's `items` map each key to its path below MOUNT_PATH: the Python shim, and the
native library of one architecture, made by `python -m native build`; an installation may lack it. A file over
PRELOAD_FILE, mounted from the same volume, makes glibc's loader preload the library into every program, and the library
completes the environment of the processes that have a runtime, so that a Python finds its shim.
"""

from __future__ import annotations

import hashlib
import os
import platform
from typing import Any, Dict, List, Optional, Tuple

MOUNT_PATH = "/opt/raddle"
# Which libraries glibc's loader preloads into every program, whatever its environment (ld.so(8)).
PRELOAD_FILE = "/etc/ld.so.preload"
LIBRARY = MOUNT_PATH + "/libraddle.so"
# The same file, to be executed: it says which processes of the container are reached.
PROGRAM = MOUNT_PATH + "/raddle"
PRELOAD_KEY = "ld.so.preload"
# As `uname -m` and NodeCPUTopology name them.
ARCHITECTURES = ("x86_64", "aarch64")
# The API server refuses a ConfigMap with more (MaxSecretSize), and one that can't be written helps nobody.
MAX_BYTES = 1024 * 1024

_HERE = os.path.dirname(os.path.abspath(__file__))
# What plans and what reads a machine stays outside: the plan carries what a shim needs of either. Runners are
# for a tuning only.
_OUTSIDE = {"machine", "planning", "runner", "delivery.py", "__pycache__", "_native", "_python"}
# OpenTelemetry's sitecustomize doesn't run the next one on the path; it runs what a distribution's entry point names.
_DIST_INFO = "dist-info"
_LIBRARY = "libraddle.so"


def files() -> Dict[str, str]:
    """ConfigMap key -> text: the package, the files that load it. Raises OSError for a broken install."""
    result = {}
    for folder, name in _modules(_HERE):
        below = os.path.relpath(folder, os.path.dirname(_HERE)).replace(os.sep, ".")
        result[f"{below}.{name}"] = _text(folder, name)
    python = _beside("python")
    result["sitecustomize.py"] = _text(python, "sitecustomize.py")
    for name in ("METADATA", "entry_points.txt"):
        result[f"{_DIST_INFO}.{name}"] = _text(os.path.join(python, _DIST_INFO), name)
    result[PRELOAD_KEY] = LIBRARY + "\n"
    return result


def binaries() -> Dict[str, bytes]:
    """ConfigMap key -> content, for the native shims that this installation has. Raises OSError."""
    result = {}
    for architecture in architectures():
        with open(os.path.join(_HERE, "_native", architecture, _LIBRARY), "rb") as file:
            result[f"native.{architecture}.{_LIBRARY}"] = file.read()
    return result


def architectures() -> Tuple[str, ...]:
    """Those that this installation has a native shim for; () where none was built."""
    return tuple(name for name in ARCHITECTURES if os.path.isfile(os.path.join(_HERE, "_native", name, _LIBRARY)))


def items(architecture: str) -> List[Dict[str, Any]]:
    """The volume's `items` for containers of an architecture: {"key", "path"}, for the program a "mode" too.

    Without its native library, for one that is not among `architectures()`.
    """
    result: List[Dict[str, Any]] = []
    for key in sorted(files()):
        kind, _, name = key.partition(".")
        if kind == _DIST_INFO:
            result.append({"key": key, "path": f"python/raddle.{_DIST_INFO}/{name}"})
        elif key != PRELOAD_KEY:
            stem, dot, suffix = key.rpartition(".")
            result.append({"key": key, "path": "python/" + stem.replace(".", "/") + dot + suffix})
    if architecture in architectures():
        library = f"native.{architecture}.{_LIBRARY}"
        result.append({"key": library, "path": _below_mount(LIBRARY)})
        result.append({"key": library, "path": _below_mount(PROGRAM), "mode": 0o555})
        result.append({"key": PRELOAD_KEY, "path": PRELOAD_KEY})
    return result


def write(folder: str, architecture: Optional[str] = None) -> None:
    """Writes below `folder` the tree that a container sees below MOUNT_PATH, on this machine or one of `architecture`.

    Each file whole or not at all: a library that is cut off kills the programs that load it. Raises OSError.
    """
    contents = _contents()
    for item in items(architecture or platform.machine()):
        path = os.path.join(folder, item["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = path + ".part"
        with open(part, "wb") as file:
            file.write(contents[item["key"]])
        if "mode" in item:
            os.chmod(part, item["mode"])
        os.replace(part, path)


def content_hash() -> str:
    """Ten hex digits that change when anything delivered does, its place included."""
    digest = hashlib.sha256()
    for key, content in sorted(_contents().items()):
        digest.update(key.encode() + b"\0" + content + b"\0")
    for item in (item for name in ARCHITECTURES for item in items(name)):
        digest.update("{key}\0{path}\0".format(**item).encode())
    return digest.hexdigest()[:10]


def _below_mount(path: str) -> str:
    return path[len(MOUNT_PATH) + 1 :]


def _contents() -> Dict[str, bytes]:
    return {**{key: text.encode() for key, text in files().items()}, **binaries()}


def _modules(folder: str) -> List[Tuple[str, str]]:
    """(folder, file) of each module in this folder and below that containers get."""
    result = []
    for name in sorted(set(os.listdir(folder)) - _OUTSIDE):
        path = os.path.join(folder, name)
        if name.endswith(".py"):
            result.append((folder, name))
        elif os.path.isdir(path):
            result += _modules(path)
    return result


def _beside(name: str) -> str:
    """runtime/<name> of a checkout; an installed wheel has it as raddle/_<name>."""
    installed = os.path.join(_HERE, "_" + name)
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(_HERE), name)


def _text(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()
