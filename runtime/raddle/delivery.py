"""The Python shim as the data of a ConfigMap: what the controller writes and what the webhook mounts.

A ConfigMap's keys are flat, so the volume's `items` map each key to the paths that the container needs. Mounted at
MOUNT_PATH the tree loads in one of two ways:

PYTHONUSERBASE=/opt/raddle           lib/python3.x/site-packages/raddle.pth: PYTHONPATH stays the image's own. Python
                                     reads no user site in a virtual environment, as another user than the effective
                                     one, or under -I, -s, -S and PYTHONNOUSERSITE.
PYTHONPATH=/opt/raddle/python[:...]  sitecustomize.py, which runs the next sitecustomize on the path: everywhere but
                                     under -I, -E and -S.
"""

from __future__ import annotations

import hashlib
import os
from typing import Dict, List

MOUNT_PATH = "/opt/raddle"
PYTHON_USER_BASE = MOUNT_PATH
PYTHON_PATH = MOUNT_PATH + "/python"

# Folders of user sites: CPython 3.8 to 3.14, and the builds without a global lock.
USER_SITE_VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t")

_HERE = os.path.dirname(os.path.abspath(__file__))
# Only the operator needs these.
_NOT_DELIVERED = {"delivery.py", "wire.py"}
_ADAPTERS = "adapters"


def files() -> Dict[str, str]:
    """ConfigMap key -> text, for the package and the three files that load it. Raises OSError for a broken install."""
    found = {"raddle." + name: _text(_HERE, name) for name in _modules(_HERE)}
    folder = os.path.join(_HERE, _ADAPTERS)
    for name in _modules(folder):
        found[f"raddle.{_ADAPTERS}.{name}"] = _text(folder, name)
    python = _python_folder()
    for name in ("raddle.pth", "user_site.py", "sitecustomize.py"):
        found[name] = _text(python, name)
    return found


def items() -> List[Dict[str, str]]:
    """The volume's `items`, {"key", "path"} each: where every key goes below MOUNT_PATH."""
    found: List[Dict[str, str]] = []
    for key in sorted(files()):
        if key == "raddle.pth":
            folder = "lib/python{}/site-packages/raddle.pth"
            found.extend({"key": key, "path": folder.format(version)} for version in USER_SITE_VERSIONS)
        else:
            stem, dot, suffix = key.rpartition(".")
            found.append({"key": key, "path": "python/" + stem.replace(".", "/") + dot + suffix})
    return found


def write(folder: str) -> None:
    """Writes below `folder` the tree that a container sees below MOUNT_PATH. Raises OSError."""
    texts = files()
    for item in items():
        path = os.path.join(folder, item["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(texts[item["key"]])


def content_hash() -> str:
    """Ten hex digits that change when anything delivered does, its place included."""
    digest = hashlib.sha256()
    for key, text in sorted(files().items()):
        digest.update(f"{key}\0{text}\0".encode())
    for item in items():
        digest.update("{key}\0{path}\0".format(**item).encode())
    return digest.hexdigest()[:10]


def _modules(folder: str) -> List[str]:
    return sorted(name for name in os.listdir(folder) if name.endswith(".py") and name not in _NOT_DELIVERED)


def _python_folder() -> str:
    """runtime/python of a checkout; an installed wheel has it as raddle/_python."""
    installed = os.path.join(_HERE, "_python")
    return installed if os.path.isdir(installed) else os.path.join(os.path.dirname(_HERE), "python")


def _text(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()
