"""Runs the tests that reach what was changed: `make test-changed`.

    python -m changed [ARGUMENTS OF PYTEST]    since the branch left main, uncommitted changes too
    python -m changed --list                   only names them, and why

A test is chosen if it is changed itself, or imports, through whatever else, a module that is; what is started as a
program counts as imported (STARTED), and the table OTHERS is for files that are no Python. A test that reads a changed
file by its path may be missed: `make test` has the last word.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from report import ROOT

# The house's floors, from the ground up: each imports from itself and from those below it.
FLOORS = ("runtime", "operator", "tuner", "tools", "benchmarks", "tests")
# What a module starts in processes of their own.
STARTED = {
    "cluster.local_raddle": [f"raddle_operator.{name}.process" for name in ("agent", "controller", "webhook")],
    "support.runtimes.shim_lab": ["raddle.shim", "raddle.adapters.hook"],
}
# For files that are no Python: by the pattern of a path, the tests that try it.
OTHERS = (
    (r"runtime/native/", ("tests/native", "tests/contract", "tests/runtimes")),
    (r"runtime/(python|node)/", ("tests/native", "tests/runtimes", "tests/raddle")),
    (r"crds/|tools/generate/", ("tests/contract", "tests/integration/test_crds.py")),
    (r"charts/|examples/", ("tests/chart", "tests/contract")),
    (r"images/", ("tests/images",)),
    (r"benchmarks/.*\.json$", ("tests/benchmarks",)),
    (r"plugins/", ("tests/headlamp",)),
    (r"tests/machines/", ("tests/raddle", "tests/raddle_operator", "tests/contract")),
    (r"tests/runtimes/(processes|node|native)/", ("tests/runtimes",)),
    (r"docs/|[^/]*\.md$", ("tests/contract",)),
    (r"pyproject\.toml|Makefile|tests/conftest\.py", ("tests/contract",)),
)


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """The modules that a file imports, dotted; relative ones are not used in this project."""
    names: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.module is None or node.level:
                raise ValueError(f"{path}: relative import")
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        else:
            # An import is a statement, and no expression has one.
            waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]
    return frozenset(names)


def modules() -> dict[str, Path]:
    """Every module of the house by the name under which it is imported; a test, which nobody imports, by its path."""
    paths = [path for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))]
    return {_name(path): path for path in paths}


def _name(path: Path) -> str:
    floor, *parts = path.relative_to(ROOT).with_suffix("").parts
    if floor == "tests" and parts[0] != "support":
        return str(path.relative_to(ROOT))
    return ".".join(parts).removesuffix(".__init__")


def graph(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """Of each module those of these that it imports or starts, the packages around them among them."""
    used = {name: [*imports(path), *STARTED.get(name, ())] for name, path in files.items()}
    return {name: {part for one in names for part in _around(one) if part in files} for name, names in used.items()}


def _around(module: str) -> Iterable[str]:
    parts = module.split(".")
    return (".".join(parts[: length + 1]) for length in range(len(parts)))


def reaching(changed: Iterable[str], edges: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Every module that imports one of these, through whatever else, with the next one on the way there."""
    importers: dict[str, list[str]] = {}
    for name, imported in edges.items():
        for one in imported:
            importers.setdefault(one, []).append(name)
    reached = dict.fromkeys(changed, "")
    waiting = list(reached)
    for name in waiting:
        new = [importer for importer in importers.get(name, ()) if importer not in reached]
        reached.update(dict.fromkeys(new, name))
        waiting += new
    return reached


def chosen(paths: Iterable[str], files: Mapping[str, Path], edges: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """The tests to run for these changed paths, files or folders below tests/, each with the reason."""
    paths = list(paths)
    result = {}
    for path in paths:
        for pattern, tests in OTHERS:
            if re.match(pattern, path):
                result.update(dict.fromkeys(tests, path))
    names = {str(file.relative_to(ROOT)): name for name, file in files.items()}
    reached = reaching([names[path] for path in paths if path in names], edges)
    for name, by in reached.items():
        folder, _, file = name.rpartition("/")
        if file.startswith("test_"):
            result[name] = by or "changed itself"
        elif file == "conftest.py" and folder != "tests":
            result[folder] = by or name
    inside = {test for test in result if any(test.startswith(f"{folder}/") for folder in result)}
    return {test: why for test, why in sorted(result.items()) if test not in inside}


def differing() -> list[str]:
    """The paths that differ from where this branch left main, uncommitted and new ones too."""
    base = _git("merge-base", "HEAD", "main")[0]
    return sorted({*_git("diff", "--name-only", base), *_git("ls-files", "--others", "--exclude-standard")})


def _git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")[
        :-1
    ]


def main(arguments: list[str]) -> int:
    """Says what is chosen and why, and runs it."""
    files = modules()
    tests = {test: why for test, why in chosen(differing(), files, graph(files)).items() if (ROOT / test).exists()}
    for test, why in tests.items():
        print(f"{test}: {why}")
    if not tests or "--list" in arguments:
        print(f"{len(tests)} files and folders of tests")
        return 0
    command = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "loadfile", *arguments, *tests]
    # No tests are collected where all of them have marks that a plain run leaves out.
    done = subprocess.run(command, cwd=ROOT, check=False)
    return 0 if done.returncode == 5 else done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
