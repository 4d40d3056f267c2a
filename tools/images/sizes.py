"""How large the images are: unpacked on a node's disk, and compressed as they are pulled."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from images import layout
from images.build import Built
from images.model import ImagesError, Sources

BEGIN: Final = "<!-- python -m images sizes --arch all --write -->"
END: Final = "<!-- end -->"


def table(built: Sequence[Built], sources: Sources) -> str:
    """The sizes as a table in Markdown, in megabytes (1,000,000 bytes); the base is part of each."""
    lines = ["| image | architecture | pulled, MB | on disk, MB |", "|---|---|---:|---:|"]
    with tempfile.TemporaryDirectory(prefix="raddle-images-") as folder:
        for one in built:
            pulled = layout.add(Path(folder) / "oci", one, sources.version).bytes_compressed
            lines.append(
                f"| {one.image.name} | {one.architecture} | {pulled / 1e6:.2f} | {one.bytes_unpacked / 1e6:.2f} |"
            )
    return "\n".join(lines) + "\n"


def write(text: str, path: Path) -> None:
    """Puts the table between its two marks in the page. Raises ImagesError where they lack."""
    page = path.read_text()
    before, begin, rest = page.partition(BEGIN + "\n")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ImagesError(f"{path.name} has no lines {BEGIN} and {END}")
    path.write_text(before + begin + text + end + after)
