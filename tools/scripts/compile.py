"""pip-compile, with the hashes of the files only that Linux with glibc on x86_64 and aarch64 can install."""

# ruff: noqa: INP001  # a program, beside the script that runs it

from __future__ import annotations

from unittest import mock

from packaging.tags import Tag
from packaging.utils import parse_wheel_filename
from pip._internal.models.candidate import InstallationCandidate
from pip._internal.req import InstallRequirement
from piptools.repositories import PyPIRepository
from piptools.scripts import compile as piptools

PYTHONS = ("cp311", "cp312", "cp313", "cp314")
MACHINES = ("x86_64", "aarch64")


class Repository(PyPIRepository):
    """An index without the wheels that fit none of PYTHONS on one of MACHINES; sources fit anywhere."""

    def _get_matching_candidates(self, ireq: InstallRequirement) -> set[InstallationCandidate]:
        result = super()._get_matching_candidates(ireq)
        return {one for one in result if not one.link.is_wheel or any(map(fits, _tags(one.link.filename)))}


def fits(tag: Tag) -> bool:
    """Whether a wheel of this tag is one for them."""
    python = tag.abi in (*PYTHONS, "abi3") or (tag.abi == "none" and tag.interpreter.startswith("py3"))
    glibc = tag.platform.endswith(MACHINES) and tag.platform.startswith(("manylinux", "linux"))
    return python and (glibc or tag.platform == "any")


def _tags(wheel: str) -> frozenset[Tag]:
    return parse_wheel_filename(wheel)[3]


if __name__ == "__main__":
    with mock.patch.object(piptools, "PyPIRepository", Repository):
        piptools.cli()
