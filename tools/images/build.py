"""Builds the images from their Dockerfiles, one at a time; what is built already of the same files is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cluster.locking import exclusive
from cluster.progress import Progress
from images import base, buildah
from images.model import ROOT, Image, Sources, cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An image in the store. `digest` is its manifest's, with unpacked layers; `config_digest` runtimes call its id."""

    image: Image
    architecture: str
    name: str
    digest: str
    config_digest: str
    bytes_unpacked: int


def image(wanted: Image, architecture: str, sources: Sources, progress: Progress, *, again: bool = False) -> Built:
    """The image of these sources, built when it isn't there. `again`: in any case, beside it.

    Raises ImagesError.
    """
    name = f"localhost/{wanted.name}:{sources.fingerprint}-{architecture}{'-again' if again else ''}"
    arguments = bases(wanted, architecture, progress)
    with exclusive(cache() / f"{wanted.name}-{architecture}.lock", f"image {wanted.name}", progress):
        if again or not buildah.has(name):
            progress.say(f"building {wanted.name} for {architecture}")
            buildah.build(
                name,
                sources.folder / wanted.dockerfile.relative_to(ROOT),
                sources.folder,
                architecture=architecture,
                epoch_seconds=sources.epoch_seconds,
                arguments={**arguments, **_stamps(sources)},
                options=[f"--annotation={key}={value}" for key, value in labels(wanted, sources).items()],
            )
    result = buildah.inspect(name)
    return Built(
        image=wanted,
        architecture=architecture,
        name=name,
        digest=str(result["FromImageDigest"]),
        config_digest=f"sha256:{result['FromImageID']}",
        bytes_unpacked=buildah.size_bytes(result),
    )


def bases(wanted: Image, architecture: str, progress: Progress) -> dict[str, str]:
    """BUILDER and, where the image has one, BASE: made here, since there is no registry to get others from."""
    result = {"BUILDER": base.builder(progress)}
    if wanted.requirements is not None:
        result["BASE"] = base.python(architecture, wanted.libraries, progress)
    return result


def labels(wanted: Image, sources: Sources) -> Mapping[str, str]:
    """The manifest's annotations; the Dockerfile gives the image the same as labels."""
    return {
        "org.opencontainers.image.title": wanted.name,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": sources.version,
        "org.opencontainers.image.revision": sources.revision,
        "org.opencontainers.image.created": sources.created,
    }


def _stamps(sources: Sources) -> Mapping[str, str]:
    return {
        "VERSION": sources.version,
        "REVISION": sources.revision,
        "CREATED": sources.created,
        "SOURCE_DATE_EPOCH": str(sources.epoch_seconds),
    }
