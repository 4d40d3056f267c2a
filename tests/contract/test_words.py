"""The words that CONTRIBUTING.md's section "Words" refuses are neither names in the code nor in what users read."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("operator", "runtime", "tuner", "tools", "benchmarks")
COMMANDS = (*ROOT.glob("operator/raddle_operator/cli/**/*.py"), *ROOT.glob("tuner/raddle_tuner/commands/**/*.py"))
SECTION = (ROOT / "CONTRIBUTING.md").read_text().split("## Words\n")[1].split("\n## ")[0]
NAMES = frozenset(re.findall(r"^\| `(\w+)` \|", SECTION, re.MULTILINE))
TEXTS = frozenset(re.findall(r"^\| ([a-z][a-z ]+) \|", SECTION, re.MULTILINE)) - {
    "instead of this name",
    "instead of this text",
}


def names(node):
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.Name(ctx=ast.Store()):
            return [node.id]
        case ast.arg():
            return [node.arg]
    return []


def refused_names(path):
    tree = ast.parse(path.read_text())
    used = [(node.lineno, name) for node in ast.walk(tree) for name in names(node)]
    return [f"{path}:{line}: {name}" for line, name in [*used, (1, path.stem)] if name in NAMES]


def refused_texts(text):
    return sorted({word for word in TEXTS if re.search(rf"\b{word}\b", " ".join(text.split()), re.IGNORECASE)})


def texts(path):
    """What users read of a file: all, or of a command's module its strings."""
    if path.suffix != ".py":
        return path.read_text()
    nodes = ast.walk(ast.parse(path.read_text()))
    return "\n".join(node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_both_tables_are_read():
    assert "found" in NAMES
    assert "mend" in TEXTS
    assert refused_texts("It\nmends this") == ["mends"]


@pytest.mark.parametrize("folder", CODE)
def test_no_name_is_a_refused_word(folder):
    assert [line for path in sorted((ROOT / folder).rglob("*.py")) for line in refused_names(path)] == []


def test_a_refused_name_is_noticed(tmp_path):
    path = Path(tmp_path) / "module.py"
    path.write_text("class Told:\n    def hear(self, found): pass\n")
    assert [line.rsplit(": ", 1)[1] for line in refused_names(path)] == ["Told", "hear", "found"]


def test_what_users_read_has_no_refused_word():
    pages = [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", *ROOT.glob("crds/*.yaml")]
    charts = [path for path in ROOT.glob("charts/**/*") if path.is_file()]
    wrong = {str(path): refused_texts(texts(path)) for path in [*pages, *charts, *COMMANDS]}
    assert {path: words for path, words in wrong.items() if words} == {}
