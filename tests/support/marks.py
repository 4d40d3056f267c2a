"""The marks that a process shows, without asking it: docs/reference/marks.md."""

from pathlib import Path

PREFIX = "/memfd:raddle: "
SUFFIX = " (deleted)"


def of(pid="self"):
    """Its marks, in order of their text."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return sorted(line.partition(PREFIX)[2].removesuffix(SUFFIX) for line in lines if PREFIX in line)
