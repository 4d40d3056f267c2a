"""Makes the table of docs/explanation/preload-injection.md: which Pythons of an image load the shim.

The rows are here once: tests/runtimes/test_reach.py builds each with the project's own tools, runs it and holds it to
what its row says.
"""

from __future__ import annotations

from typing import NamedTuple

import report

PAGE = report.ROOT / "docs" / "explanation" / "preload-injection.md"


class Row(NamedTuple):
    """One way in which an image has or starts its Python, and whether the shim is in it."""

    name: str
    text: str
    reached: bool = True


class Group(NamedTuple):
    """Rows under one heading of the table."""

    heading: str
    rows: tuple[Row, ...]


def _not(name: str, text: str) -> Row:
    return Row(name, text, reached=False)


GROUPS = (
    Group(
        "Python in the image",
        (
            Row("own", "the image's own (pyenv's)"),
            Row("debian", "Debian's"),
            Row("distroless", "distroless (no shell)"),
            Row("user", "with `pip install --user` in `~/.local`"),
            Row("venv", "`python -m venv`"),
            Row("venv-system", "`venv --system-site-packages`"),
            Row("virtualenv", "`virtualenv`"),
            Row("uv-venv", "`uv venv`, `uv sync`"),
            Row("uv-run", "`uv run`"),
            Row("poetry-run", "`poetry run`"),
            Row("zipapp", "a zipapp"),
            Row("shiv", "a file of shiv"),
            Row("pex", "a `.pex` file"),
            _not("pex-path", "a `.pex` file where the image sets `PYTHONPATH`"),
            _not("pipx", "what pipx installs (scripts with `python -E`)"),
            _not("pyinstaller", "PyInstaller's folder"),
            _not("pyinstaller-file", "PyInstaller's one file"),
            Row("embedded", "a program that embeds Python, as uWSGI does"),
            _not("embedded-isolated", "a program that embeds an isolated Python"),
        ),
    ),
    Group(
        "Image from a builder",
        (
            Row("paketo", "Paketo (`PYTHONPATH`)"),
            Row("google", "Google Cloud, Heroku's for Kubernetes (`PYTHONUSERBASE`)"),
            Row("heroku", "Heroku's (`PYTHONHOME` in `.profile.d`)"),
            Row("s2i", "s2i (`BASH_ENV`, `/opt/app-root`)"),
        ),
    ),
    Group(
        "Options and variables",
        (
            Row("-s", "`-s`"),
            Row("PYTHONNOUSERSITE", "`PYTHONNOUSERSITE`"),
            _not("-E", "`-E`"),
            _not("-I", "`-I`"),
            _not("-S", "`-S`"),
            _not("-Es", "`-Es`"),
            Row("-P", "`-P`"),
            Row("PYTHONSAFEPATH", "`PYTHONSAFEPATH`"),
            Row("-O", "`-O`"),
            Row("-Xdev", "`-X dev`"),
            Row("-Werror", "`-W error`"),
            Row("-m", "`-m`"),
            Row("-c", "`-c`"),
            Row("stdin", "a program from standard input"),
            Row("PYTHONHOME", "`PYTHONHOME`"),
            Row("PYTHONPATH", "`PYTHONPATH` set by the image"),
            Row("PYTHONPATH-empty", "`PYTHONPATH` set to nothing"),
            Row("PYTHONPATH-own", "a folder in `PYTHONPATH` with a `sitecustomize` of its own"),
            Row("PYTHONUSERBASE", "`PYTHONUSERBASE` set by the image"),
            Row("both", "`PYTHONUSERBASE` and `PYTHONPATH` set by the image"),
            Row("sitecustomize", "a `sitecustomize` of its own"),
            Row("usercustomize", "a `usercustomize` of its own"),
            Row("PYTHONDONTWRITEBYTECODE", "`PYTHONDONTWRITEBYTECODE`"),
            Row("PYTHONSTARTUP", "`PYTHONSTARTUP`"),
        ),
    ),
    Group(
        "How it is started",
        (
            Row("script", "a script of a virtual environment, as gunicorn's and uvicorn's"),
            Row("sh", "`sh -c`"),
            Row("bash-login", "`bash -lc`"),
            Row("dumb-init", "dumb-init"),
            Row("tini", "tini"),
            Row("other-name", "under another name (`exec -a`)"),
            Row("other-user", "as another user (`setpriv`)"),
            Row("fork", "multiprocessing `fork`"),
            Row("spawn", "multiprocessing `spawn`"),
            Row("forkserver", "multiprocessing `forkserver`"),
            Row("subprocess", "a child process"),
            Row("execve", "a process that executes itself again"),
            Row("empty-environment", "a child with an empty environment (`env={}`)"),
            Row("env-i", "`env -i`"),
        ),
    ),
    Group(
        "Python's version",
        (
            *(Row(version, version) for version in ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")),
            *(_not(version, version) for version in ("2.7", "3.6", "3.7")),
            Row("pypy", "PyPy (has none of the runtimes)"),
        ),
    ),
)
ROWS = tuple(row for group in GROUPS for row in group.rows)


def page() -> str:
    """The page as it is, with the table."""
    return report.with_section("reach", render(), PAGE.read_text())


def render() -> str:
    """The table: a line for the rows of a group that are reached, and one for the others."""
    rows = []
    for group in GROUPS:
        heading = f"**{group.heading}**"
        for reached in (True, False):
            texts = [row.text for row in group.rows if row.reached is reached]
            if texts:
                rows.append((heading, "; ".join(texts), "yes" if reached else "no"))
                heading = ""
    return report.markdown_table(("", "", "reached"), rows)
