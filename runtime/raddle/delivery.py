"""The shims as the data of a ConfigMap: what the controller writes and what the webhook mounts.

A ConfigMap's keys are flat, so the volume's `items` map each key to the paths that the container needs. Mounted at
MOUNT_PATH the tree loads by one variable for each kind of process, for Python by one of two:

PYTHONUSERBASE=/opt/raddle           lib/python3.x/site-packages/raddle.pth: PYTHONPATH stays the image's own. Python
                                     reads no user site in a virtual environment, as another user than the effective
                                     one, or under -I, -s, -S and PYTHONNOUSERSITE.
PYTHONPATH=/opt/raddle/python[:...]  sitecustomize.py, which runs the next sitecustomize on the path: everywhere but
                                     under -I, -E and -S.
LD_PRELOAD=/opt/raddle/native/<architecture>/libraddle.so
                                     C, C++, Java and Node.js. Made by `python -m native build`; an installation may
                                     lack it.

By the door it loads without any: the tree of `door_items` has the native library of one architecture where a file over
PRELOAD_FILE, mounted from the same volume, names it. The library itself completes the environment of each process.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any, Dict, List, Optional, Tuple

MOUNT_PATH = "/opt/raddle"
PYTHON_USER_BASE = MOUNT_PATH
PYTHON_PATH = MOUNT_PATH + "/python"
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

# Folders of user sites: CPython's, the builds without a global lock, PyPy's. Those that can't have the shim get their
# own user site back, which PYTHONUSERBASE hides. Python 3.18 will ignore the line of a .pth file (PEP 829).
USER_SITES = (
    *(f"python{version}" for version in ("2.7", *(f"3.{minor}" for minor in range(6, 18)))),
    *(f"python3.{minor}t" for minor in range(13, 18)),
    *(f"pypy{version}" for version in ("2.7", *(f"3.{minor}" for minor in range(6, 13)))),
)

_HERE = os.path.dirname(os.path.abspath(__file__))
# What plans and what reads a machine stays outside: the plan carries what a shim needs of either. Runners are
# for a tuning only.
_OUTSIDE = {"machine", "planning", "runner", "delivery.py", "__pycache__", "_native", "_python"}
# OpenTelemetry's sitecustomize doesn't run the next one on the path; it runs what a distribution's entry point names.
_DIST_INFO = "dist-info"
_LIBRARY = "libraddle.so"


def native_library(architecture: str) -> str:
    """The path of the native shim in a container."""
    return f"{MOUNT_PATH}/native/{architecture}/{_LIBRARY}"


def files() -> Dict[str, str]:
    """ConfigMap key -> text: the package, the files that load it. Raises OSError for a broken install."""
    found = {}
    for folder, name in _modules(_HERE):
        below = os.path.relpath(folder, os.path.dirname(_HERE)).replace(os.sep, ".")
        found[f"{below}.{name}"] = _text(folder, name)
    python = _beside("python")
    for name in ("raddle.pth", "user_site.py", "sitecustomize.py"):
        found[name] = _text(python, name)
    for name in ("METADATA", "entry_points.txt"):
        found[f"{_DIST_INFO}.{name}"] = _text(os.path.join(python, _DIST_INFO), name)
    found[PRELOAD_KEY] = LIBRARY + "\n"
    return found


def binaries() -> Dict[str, bytes]:
    """ConfigMap key -> content, for the native shims that this installation has. Raises OSError."""
    found = {}
    for architecture in architectures():
        with open(os.path.join(_HERE, "_native", architecture, _LIBRARY), "rb") as file:
            found[f"native.{architecture}.{_LIBRARY}"] = file.read()
    return found


def architectures() -> Tuple[str, ...]:
    """Those that this installation has a native shim for; () where none was built."""
    return tuple(name for name in ARCHITECTURES if os.path.isfile(os.path.join(_HERE, "_native", name, _LIBRARY)))


def items() -> List[Dict[str, Any]]:
    """The volume's `items`, {"key", "path"} each: where every key goes below MOUNT_PATH."""
    found: List[Dict[str, Any]] = []
    for key in sorted([*files(), *binaries()]):
        kind, _, name = key.partition(".")
        if key == PRELOAD_KEY:
            continue
        if key == "raddle.pth":
            found.extend({"key": key, "path": f"lib/{folder}/site-packages/raddle.pth"} for folder in USER_SITES)
        elif kind == _DIST_INFO:
            found.append({"key": key, "path": f"python/raddle.{_DIST_INFO}/{name}"})
        elif kind == "native":
            found.append({"key": key, "path": "native/" + name.replace(".", "/", 1)})
        else:
            stem, dot, suffix = key.rpartition(".")
            found.append({"key": key, "path": "python/" + stem.replace(".", "/") + dot + suffix})
    return found


def door_items(architecture: str) -> List[Dict[str, Any]]:
    """The volume's `items` where the door is open: {"key", "path"}, for the program a "mode" too.

    Of this architecture, one of `architectures()`; `items` without what only variables would load.
    """
    found: List[Dict[str, Any]] = [item for item in items() if item["path"].startswith("python/")]
    library = f"native.{architecture}.{_LIBRARY}"
    found.append({"key": library, "path": _below_mount(LIBRARY)})
    found.append({"key": library, "path": _below_mount(PROGRAM), "mode": 0o555})
    found.append({"key": PRELOAD_KEY, "path": PRELOAD_KEY})
    return found


def write(folder: str, architecture: Optional[str] = None) -> None:
    """Writes below `folder` the tree that a container sees below MOUNT_PATH. Raises OSError.

    With an architecture it is the tree of the door.
    """
    contents = _contents()
    for item in items() if architecture is None else door_items(architecture):
        path = os.path.join(folder, item["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(contents[item["key"]])
        if "mode" in item:
            os.chmod(path, item["mode"])


def content_hash() -> str:
    """Ten hex digits that change when anything delivered does, its place included."""
    digest = hashlib.sha256()
    for key, content in sorted(_contents().items()):
        digest.update(key.encode() + b"\0" + content + b"\0")
    for item in [*items(), *(item for name in architectures() for item in door_items(name))]:
        digest.update("{key}\0{path}\0".format(**item).encode())
    return digest.hexdigest()[:10]


def _below_mount(path: str) -> str:
    return path[len(MOUNT_PATH) + 1 :]


def _contents() -> Dict[str, bytes]:
    return {**{key: text.encode() for key, text in files().items()}, **binaries()}


def _modules(folder: str) -> List[Tuple[str, str]]:
    """(folder, file) of each module in this folder and below that containers get."""
    found = []
    for name in sorted(set(os.listdir(folder)) - _OUTSIDE):
        path = os.path.join(folder, name)
        if name.endswith(".py"):
            found.append((folder, name))
        elif os.path.isdir(path):
            found += _modules(path)
    return found


def _beside(name: str) -> str:
    """runtime/<name> of a checkout; an installed wheel has it as raddle/_<name>."""
    installed = os.path.join(_HERE, "_" + name)
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(_HERE), name)


def _text(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()
