"""Whatever imports from Raddle, in programs inside strings, scripts and pages too, names what is there."""

import functools
import re
import subprocess
import symtable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / name for name in ("runtime", "operator", "tuner")]
MODULE = r"(?P<module>raddle(?:_operator|_tuner)?(?:\.\w+)*)"
NAME = r"\w+(?: as \w+)?"
IMPORT = re.compile(
    rf"\bfrom {MODULE} import (?P<names>{NAME}(?:, {NAME})*|\([\s\w,]*\))|\bimport {MODULE.replace('module', 'whole')}\b"
)


@functools.cache
def names_of(module):
    """The names at the top of a module; None where there is no such module."""
    path = module.replace(".", "/")
    files = [source / (path + ending) for source in SOURCES for ending in (".py", "/__init__.py")]
    file = next((file for file in files if file.exists()), None)
    return file and set(symtable.symtable(file.read_text(), str(file), "exec").get_identifiers())


def missing(text):
    """What the text imports that is not there, dotted."""
    for match in IMPORT.finditer(text):
        module, names = match["module"] or match["whole"], re.findall(r"(\w+)(?: as \w+)?", match["names"] or "")
        if (defined := names_of(module)) is None:
            yield module
        else:
            dotted = (f"{module}.{name}" for name in names if name not in defined)
            yield from (name for name in dotted if names_of(name) is None)


def tracked():
    listed = ["git", "ls-files", "*.py", "*.sh", "*.md"]
    return subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("from raddle.process import cgroup, totals as t; x", ["raddle.process.totals"]),
        ("from raddle.cpus.cpuset import (\n    count,\n    gone,\n)\n", ["raddle.cpus.cpuset.gone"]),
        ("import sys, os; import raddle.gone", ["raddle.gone"]),
        ("import raddle.shim; from raddle import env", []),
    ],
)
def test_what_is_gone_is_noticed(text, wrong):
    assert list(missing(text)) == wrong


def test_everything_that_is_imported_is_there():
    # This file's own examples name what is gone.
    paths = [ROOT / name for name in tracked() if ROOT / name != Path(__file__)]
    wrong = {str(path): list(missing(path.read_text())) for path in paths if path.exists()}
    assert {path: names for path, names in wrong.items() if names} == {}
