"""An image without an image builder: a folder as a tarball that `ctr images import` takes (`docker save`'s form)."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# containerd would find it anyway, but the kubelet asks for the long name.
REGISTRY = "docker.io/library/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What an image is beside its files. `name` is NAME:TAG; `user` is a uid, "" for root."""

    name: str
    entrypoint: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = ""

    def config(self, layer_digests: Sequence[str]) -> dict[str, Any]:
        """The image's configuration, by https://github.com/opencontainers/image-spec (config.md)."""
        return {
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Entrypoint": list(self.entrypoint),
                "Env": [f"{name}={value}" for name, value in self.env.items()],
                "User": self.user,
                "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": list(layer_digests)},
        }

    def manifest(self, layers: Sequence[str]) -> list[dict[str, Any]]:
        """What manifest.json says: which files of the tarball are the image, the lowest layer first."""
        return [{"Config": "config.json", "RepoTags": [REGISTRY + self.name], "Layers": list(layers)}]


def layer(root: Path, path: Path) -> Path:
    """Write the files below `root`, all owned by uid 0, as a layer to `path`, which is returned."""
    with tarfile.open(path, "w") as files:
        files.add(root, arcname="", filter=_owned_by_root)
    return path


def write(layers: Sequence[Path], image: Image, path: Path) -> None:
    """Write these layers, the lowest first, as an image to `path`."""
    digests = []
    with tarfile.open(path, "w") as whole:
        for number, one in enumerate(layers):
            with one.open("rb") as data:
                digests.append("sha256:" + hashlib.file_digest(data, "sha256").hexdigest())
            whole.add(one, arcname=f"{number}.tar")
        _add(whole, "config.json", image.config(digests))
        _add(whole, "manifest.json", image.manifest([f"{number}.tar" for number in range(len(layers))]))


def _owned_by_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    # A container's user is another one.
    member.mode |= 0o555 if member.isdir() else 0o444
    return member


def _add(whole: tarfile.TarFile, name: str, document: Any) -> None:
    data = json.dumps(document).encode()
    member = tarfile.TarInfo(name)
    member.size = len(data)
    whole.addfile(member, io.BytesIO(data))
