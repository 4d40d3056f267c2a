"""An OCI image layout: the images, one index of both architectures for each, and their SBOMs as attached artifacts.

An artifact names the image manifest that it belongs to as its `subject` (OCI image specification 1.1), so a registry
lists it among the image's referrers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from images import buildah
from images.build import Built
from images.sbom import MEDIA_TYPE

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_EMPTY: Final = "application/vnd.oci.empty.v1+json"
_REFERENCE: Final = "org.opencontainers.image.ref.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """An image in the layout: its manifest's descriptor and the size of its compressed layers."""

    built: Built
    descriptor: Mapping[str, Any]
    bytes_compressed: int


def add(folder: Path, built: Built, version: str) -> Written:
    """Puts an image into the layout, compressed. Raises ImagesError."""
    reference = f"{built.image.name}-{version}-{built.architecture}"
    buildah.run("push", "--quiet", "--format", "oci", built.name, f"oci:{folder}:{reference}")
    for entry in _index(folder)["manifests"]:
        if entry.get("annotations", {}).get(_REFERENCE) == reference:
            manifest = json.loads(_blob(folder, entry["digest"]).read_text())
            size = sum(int(layer["size"]) for layer in manifest["layers"])
            descriptor = {"mediaType": _MANIFEST, "digest": entry["digest"], "size": entry["size"]}
            return Written(built=built, descriptor=descriptor, bytes_compressed=size)
    raise AssertionError(f"buildah wrote no {reference}")


def attach(folder: Path, image: Written, sbom: str) -> None:
    """Adds the SBOM as an artifact whose subject is the image."""
    empty = _write(folder, b"{}", _EMPTY)
    content = _write(folder, sbom.encode(), MEDIA_TYPE)
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "artifactType": MEDIA_TYPE,
        "config": empty,
        "layers": [content],
        "subject": image.descriptor,
    }
    _append(folder, {**_write(folder, _json(manifest), _MANIFEST), "artifactType": MEDIA_TYPE})


def join(folder: Path, images: Sequence[Written], version: str) -> None:
    """Adds an index of one image's architectures, under the image's own name and version."""
    manifests = [
        {**one.descriptor, "platform": {"architecture": one.built.architecture, "os": "linux"}} for one in images
    ]
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}
    name = f"{images[0].built.image.name}-{version}"
    _append(folder, {**_write(folder, _json(index), _INDEX), "annotations": {_REFERENCE: name}})


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _index(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "index.json").read_text())
    return result


def _append(folder: Path, entry: Mapping[str, Any]) -> None:
    index = _index(folder)
    index["manifests"].append(entry)
    (folder / "index.json").write_bytes(_json(index))


def _blob(folder: Path, digest: str) -> Path:
    return folder / "blobs" / digest.replace(":", "/")


def _write(folder: Path, content: bytes, media_type: str) -> dict[str, Any]:
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    _blob(folder, digest).write_bytes(content)
    return {"mediaType": media_type, "digest": digest, "size": len(content)}
