"""Makes the table of docs/explanation/what-the-shim-reaches.md: which Pythons of an image load the shim, and how.

The rows are here once: tests/runtimes/test_reach.py builds each with the project's own tools, runs it in all ways and
holds it to what its row says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import report

PAGE = report.ROOT / "docs" / "explanation" / "what-the-shim-reaches.md"


class Row(NamedTuple):
    """One way in which an image has or starts its Python, and which of the three ways in reach it."""

    name: str
    text: str
    door: bool
    path: bool
    user_base: bool


class Group(NamedTuple):
    """Rows under one heading of the table."""

    heading: str
    rows: tuple[Row, ...]


def _all(name: str, text: str) -> Row:
    return Row(name, text, door=True, path=True, user_base=True)


def _without_user_site(name: str, text: str) -> Row:
    return Row(name, text, door=True, path=True, user_base=False)


def _door_only(name: str, text: str) -> Row:
    return Row(name, text, door=True, path=False, user_base=False)


def _none(name: str, text: str) -> Row:
    return Row(name, text, door=False, path=False, user_base=False)


GROUPS = (
    Group(
        "Python in the image",
        (
            _all("own", "the image's own (pyenv's)"),
            _all("debian", "Debian's"),
            _all("distroless", "distroless (no shell)"),
            _all("user", "with `pip install --user` in `~/.local`"),
            _without_user_site("venv", "`python -m venv`"),
            _all("venv-system", "`venv --system-site-packages`"),
            _without_user_site("virtualenv", "`virtualenv`"),
            _without_user_site("uv-venv", "`uv venv`, `uv sync`"),
            _without_user_site("uv-run", "`uv run`"),
            _without_user_site("poetry-run", "`poetry run`"),
            _all("zipapp", "a zipapp"),
            _all("shiv", "a file of shiv"),
            Row("pex", "a `.pex` file", door=True, path=False, user_base=True),
            _none("pex-path", "a `.pex` file where the image sets `PYTHONPATH`"),
            _none("pipx", "what pipx installs (scripts with `python -E`)"),
            _none("pyinstaller", "PyInstaller's folder"),
            _none("pyinstaller-file", "PyInstaller's one file"),
            _all("embedded", "a program that embeds Python, as uWSGI does"),
            _none("embedded-isolated", "a program that embeds an isolated Python"),
        ),
    ),
    Group(
        "Image from a builder",
        (
            _all("paketo", "Paketo (`PYTHONPATH`)"),
            _without_user_site("google", "Google Cloud, Heroku's for Kubernetes (`PYTHONUSERBASE`)"),
            _all("heroku", "Heroku's (`PYTHONHOME` in `.profile.d`)"),
            _without_user_site("s2i", "s2i (`BASH_ENV`, `/opt/app-root`)"),
        ),
    ),
    Group(
        "Options and variables",
        (
            _without_user_site("-s", "`-s`"),
            _without_user_site("PYTHONNOUSERSITE", "`PYTHONNOUSERSITE`"),
            Row("-E", "`-E`", door=False, path=False, user_base=True),
            _none("-I", "`-I`"),
            _none("-S", "`-S`"),
            _none("-Es", "`-Es`"),
            _all("-P", "`-P`"),
            _all("PYTHONSAFEPATH", "`PYTHONSAFEPATH`"),
            _all("-O", "`-O`"),
            _all("-Xdev", "`-X dev`"),
            _all("-Werror", "`-W error`"),
            _all("-m", "`-m`"),
            _all("-c", "`-c`"),
            _all("stdin", "a program from standard input"),
            _all("PYTHONHOME", "`PYTHONHOME`"),
            _all("PYTHONPATH", "`PYTHONPATH` set by the image"),
            _all("PYTHONPATH-empty", "`PYTHONPATH` set to nothing"),
            _all("PYTHONPATH-own", "a folder in `PYTHONPATH` with a `sitecustomize` of its own"),
            _without_user_site("PYTHONUSERBASE", "`PYTHONUSERBASE` set by the image"),
            _without_user_site("both", "`PYTHONUSERBASE` and `PYTHONPATH` set by the image"),
            _all("sitecustomize", "a `sitecustomize` of its own"),
            _all("usercustomize", "a `usercustomize` of its own"),
            _all("PYTHONDONTWRITEBYTECODE", "`PYTHONDONTWRITEBYTECODE`"),
            _all("PYTHONSTARTUP", "`PYTHONSTARTUP`"),
        ),
    ),
    Group(
        "How it is started",
        (
            _without_user_site("script", "a script of a virtual environment, as gunicorn's and uvicorn's"),
            _all("sh", "`sh -c`"),
            _all("bash-login", "`bash -lc`"),
            _all("dumb-init", "dumb-init"),
            _all("tini", "tini"),
            _all("other-name", "under another name (`exec -a`)"),
            _all("other-user", "as another user (`setpriv`)"),
            _all("fork", "multiprocessing `fork`"),
            _all("spawn", "multiprocessing `spawn`"),
            _all("forkserver", "multiprocessing `forkserver`"),
            _all("subprocess", "a child process"),
            _all("execve", "a process that executes itself again"),
            _door_only("empty-environment", "a child with an empty environment (`env={}`)"),
            _door_only("env-i", "`env -i`"),
        ),
    ),
    Group(
        "Python's version",
        (
            *(_all(version, version) for version in ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")),
            *(_none(version, version) for version in ("2.7", "3.6", "3.7")),
            _all("pypy", "PyPy (has none of the runtimes)"),
        ),
    ),
)
ROWS = tuple(row for group in GROUPS for row in group.rows)


def page() -> str:
    """The page as it is, with the table."""
    return report.with_section("reach", render(), PAGE.read_text())


def render() -> str:
    """The table: a line for all rows of a group that are reached in the same ways, in the order of the rows."""
    rows = []
    for group in GROUPS:
        alike: dict[tuple[bool, bool, bool], list[Row]] = {}
        for row in group.rows:
            alike.setdefault((row.door, row.path, row.user_base), []).append(row)
        heading = f"**{group.heading}**"
        for ways, found in sorted(alike.items(), reverse=True):
            rows.append((heading, _listed(row.text for row in found), *("yes" if way else "no" for way in ways)))
            heading = ""
    return report.markdown_table(("", "", "by the door", "by `PYTHONPATH`", "by `PYTHONUSERBASE`"), rows)


def _listed(texts: Iterable[str]) -> str:
    return "; ".join(texts)
