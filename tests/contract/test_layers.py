"""The direction of imports: what docs/explanation/architecture.md promises, read off the source."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNTIME = sorted((ROOT / "runtime").rglob("*.py"))
OPERATOR = sorted((ROOT / "operator").rglob("*.py"))
PACKAGE = ROOT / "operator" / "raddle_operator"

PURE = [
    "reasons",
    "spec",
    "selectors",
    "matching",
    "budget",
    "quantities",
    "injection",
    "binding",
    "nodetopology",
    "explain",
    "environment",
    "families",
    "loading",
    "variables",
    "volumes",
    "workers",
    "pods",
    "reading",
    "records",
    "patching",
    "controller/status",
]
# What a decision may not look at: the clock, the process, the network, the cluster.
IMPURE = {"kopf", "kubernetes", "aiohttp", "os", "time", "socket", "asyncio", "subprocess", "random", "uvloop"}
LIGHT_AGENT = {"kopf", "aiohttp", "kubernetes", "orjson", "uvloop", "cryptography", "rich"}


def imports(path, *, top_level_only=False):
    """The modules that a file imports, dotted; relative ones are not used in this project."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def packages(path):
    return {name.partition(".")[0] for name in imports(path)}


@pytest.mark.parametrize("path", RUNTIME, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_runtime_imports_the_standard_library_only(path):
    # The runtimes themselves are only ever looked at once the application has imported them.
    # (sitecustomize is the name under which site imports one.)
    assert packages(path) <= set(sys.stdlib_module_names) | {"raddle", "sitecustomize"}


@pytest.mark.parametrize("path", RUNTIME, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_runtime_never_imports_the_operator(path):
    assert "raddle_operator" not in packages(path)


@pytest.mark.parametrize("name", PURE)
def test_pure_modules_look_at_their_arguments_only(name):
    path = PACKAGE / f"{name}.py"
    if not path.exists():
        pytest.fail(f"{name} is listed as pure but does not exist")
    allowed = {"kubernetes.utils.quantity"}
    forbidden = {
        n for n in imports(path) if n.partition(".")[0] in IMPURE and not any(a.startswith(n) for a in allowed)
    }
    assert not forbidden


def test_kopf_appears_in_the_controllers_handlers_only():
    users = {path.relative_to(PACKAGE).as_posix() for path in OPERATOR if "kopf" in packages(path)}
    assert users
    assert all(user.startswith("controller/") for user in users)


def test_one_module_talks_to_the_api_server():
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in OPERATOR
        if any(n.startswith("kubernetes") and not n.startswith("kubernetes.utils") for n in imports(path))
    }
    assert users == {"kube/session.py"}


def test_the_agent_stays_light():
    for name in ("agent", "agent_client", "nodetopology"):
        assert not packages(PACKAGE / f"{name}.py") & LIGHT_AGENT


def reached(start):
    """The packages of others that our modules import, from `start` on."""
    found, waiting, others = set(), [start], set()
    while waiting:
        name = waiting.pop()
        base = PACKAGE.parent if name.startswith("raddle_operator") else ROOT / "runtime"
        paths = [base / (name.replace(".", "/") + ending) for ending in (".py", "/__init__.py")]
        path = next((path for path in paths if path.exists()), None)
        if path is None or path in found:
            continue  # a name in a module, or known
        found.add(path)
        used = imports(path)
        waiting += [one for one in used if one.partition(".")[0] in ("raddle", "raddle_operator")]
        others |= {one.partition(".")[0] for one in used} - {"raddle", "raddle_operator", "__future__"}
    return others - set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("extra", "start"),
    [("cli", f"raddle_operator.cli.{name}") for name in ("plan", "run", "explain", "topology", "selftest")]
    + [
        ("agent", "raddle_operator.agent"),
        ("operator", "raddle_operator.controller.process"),
        ("operator", "raddle_operator.webhook.process"),
    ],
)
def test_whoever_installs_an_extra_has_what_its_commands_import(extra, start):
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {re.match("[a-z0-9-]+", line)[0] for line in optional[extra]}
    named = {{"pyyaml": "yaml", "prometheus-client": "prometheus_client"}.get(name, name) for name in asked}
    assert reached(start) <= named


@pytest.mark.parametrize("root", ["operator", "runtime", "tests", "tests/raddle", "tests/raddle_operator"])
def test_source_roots_and_test_folders_are_no_packages(root):
    # operator/__init__.py would shadow the standard library's operator module.
    assert not (ROOT / root / "__init__.py").exists()


def test_runtime_files_parse_as_python_3_8():
    for path in RUNTIME:
        ast.parse(path.read_text(), feature_version=(3, 8))
