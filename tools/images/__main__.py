"""The command line: build the images, say how large they are, write them as files, check that they can be repeated."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cluster.progress import Progress
from images import build, buildah, layout, sbom, sizes, verify
from images.build import Built
from images.model import (
    ARCHITECTURES,
    IMAGES,
    ROOT,
    ImagesError,
    ImagesUnavailableError,
    Sources,
    cache,
    own_architecture,
    snapshot,
)

EXAMPLES = """\
examples:
  python -m images                       build the four images for this machine's architecture
  python -m images build --arch all      ... for every architecture
  python -m images export DIR            write each as NAME-VERSION-ARCH.tar for `ctr images import`, with its SBOM
  python -m images export DIR --arch all --layout   ... and all of them as an OCI layout with both architectures
  python -m images sizes --write         print the sizes and write them into docs/reference/images.md
  python -m images check                 build each twice: the digests must be the same; try what it is for

exit status:
  0  done; or images can't be built here (not root, no buildah), which is said
  1  a build failed or came out different
  2  wrong arguments
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    progress = Progress(name="images")
    if options.action == "clean":
        return _clean()
    try:
        buildah.need(progress)
        architectures = _architectures(options.arch)
        with tempfile.TemporaryDirectory(prefix="raddle-images-") as folder:
            sources = snapshot(Path(folder))
            chosen = [image for image in IMAGES if options.only in (None, image.folder)]
            wanted = [(image, architecture) for image in chosen for architecture in architectures]
            built = [build.image(*one, sources, progress) for one in wanted]
            if options.action == "check":
                again = [build.image(*one, sources, progress, again=True) for one in wanted]
                return _check(list(zip(built, again, strict=True)))
            return _finish(options, built, sources, progress)
    except ImagesUnavailableError as error:
        progress.say(f"skipped: {error}")
        return 1 if options.required else 0
    except ImagesError as error:
        progress.say(str(error))
        return 1


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--arch", choices=("own", "all", *ARCHITECTURES), default="own", help="(default: own)")
    common.add_argument("--only", choices=[image.folder for image in IMAGES], help="one image (default: all)")
    common.add_argument("--required", action="store_true", help="exit with 1 where images can't be built here")
    parser = argparse.ArgumentParser(
        prog="python -m images",
        description="Raddle's container images, built without a Docker engine and without a registry.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common],
    )
    parser.set_defaults(action="build")
    actions = parser.add_subparsers(metavar="build|export|sizes|check|clean")
    for name, text in (("build", "build them (the default)"), ("check", "build twice and compare the digests")):
        actions.add_parser(name, parents=[common], help=text).set_defaults(action=name)
    export = actions.add_parser("export", parents=[common], help="write them as files")
    export.add_argument("folder", type=Path, metavar="DIR", help="where to; it is made")
    export.add_argument("--layout", action="store_true", help="also as an OCI layout, DIR/oci, with SBOMs attached")
    export.set_defaults(action="export")
    measuring = actions.add_parser("sizes", parents=[common], help="print how large they are")
    measuring.add_argument("--write", action="store_true", help="write the table into docs/reference/images.md")
    measuring.set_defaults(action="sizes")
    actions.add_parser("clean", help="remove all that was built and fetched").set_defaults(action="clean")
    return parser


def _architectures(wanted: str) -> list[str]:
    if wanted == "all":
        return list(ARCHITECTURES)
    return [own_architecture() if wanted == "own" else wanted]


def _finish(options: argparse.Namespace, built: Sequence[Built], sources: Sources, progress: Progress) -> int:
    if options.action == "export":
        _export(options.folder, built, sources, progress, with_layout=options.layout)
    elif options.action == "sizes":
        table = sizes.table(built, sources)
        print(table, end="")
        if options.write:
            sizes.write(table, ROOT / "docs" / "reference" / "images.md")
    else:
        for one in built:
            print(f"{one.image.name} {one.architecture}: {one.name} ({one.digest})")
    progress.say(f"{len(built)} images ({progress.elapsed_seconds():.0f} s)")
    return 0


def _export(folder: Path, built: Sequence[Built], sources: Sources, progress: Progress, *, with_layout: bool) -> None:
    """Writes archives and SBOMs; an archive's tag is NAME:VERSION, as the chart names the image by default."""
    folder.mkdir(parents=True, exist_ok=True)
    oci = folder / "oci"
    shutil.rmtree(oci, ignore_errors=True)
    joined: dict[str, list[layout.Written]] = {}
    for one in built:
        stem = folder / f"{one.image.name}-{sources.version}-{one.architecture}"
        archive = stem.with_name(stem.name + ".tar")
        archive.unlink(missing_ok=True)
        buildah.run("push", "--quiet", one.name, f"docker-archive:{archive}:{one.image.name}:{sources.version}")
        text = sbom.document(one, sources, progress)
        stem.with_name(stem.name + sbom.SUFFIX).write_text(text)
        print(f"{archive}: {one.image.name}:{sources.version}, {archive.stat().st_size} bytes")
        if with_layout:
            written = layout.add(oci, one, sources.version)
            layout.attach(oci, written, text)
            joined.setdefault(one.image.name, []).append(written)
    for images in joined.values():
        layout.join(oci, images, sources.version)


def _check(pairs: Sequence[tuple[Built, Built]]) -> int:
    """Says of each image whether its two builds have one digest."""
    for first, second in pairs:
        same = "the same twice" if first.digest == second.digest else f"then {second.digest}: DIFFERENT"
        print(f"{first.image.name} {first.architecture}: {first.digest}, {same}; {verify.works(first)}")
        buildah.run("rmi", second.name)
    return 1 if any(first.digest != second.digest for first, second in pairs) else 0


def _clean() -> int:
    if shutil.which("buildah") and cache().is_dir():
        buildah.run("rmi", "--all", "--force")
    shutil.rmtree(cache(), ignore_errors=True)
    print(f"removed {cache()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
