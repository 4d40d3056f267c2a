"""The direction of imports: what docs/explanation/architecture.md promises, read off the source."""

import ast
import graphlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from changed import FLOORS, imports

ROOT = Path(__file__).parents[2]
RUNTIME = sorted((ROOT / "runtime").rglob("*.py"))
OPERATOR = sorted((ROOT / "operator").rglob("*.py"))
PACKAGE = ROOT / "operator" / "raddle_operator"
TUNER = ROOT / "tuner" / "raddle_tuner"

# Packages whose modules look at their arguments only.
PURE = [
    PACKAGE / "objects",
    PACKAGE / "effective",
    PACKAGE / "injection",
    PACKAGE / "presets",
    PACKAGE / "scanning",
    PACKAGE / "jobs",
    PACKAGE / "results",
    TUNER / "search",
    ROOT / "runtime/raddle/planning",
    ROOT / "runtime/raddle/cpus",
]
# It reads what is installed, once.
NOT_PURE = {"shipped"}
# What a decision may not look at: the clock, the process, the network, the cluster.
IMPURE = {"kopf", "kubernetes", "aiohttp", "os", "time", "socket", "asyncio", "subprocess", "random", "uvloop"}
LIGHT_AGENT = {"kopf", "aiohttp", "kubernetes", "orjson", "uvloop", "cryptography", "rich"}
OURS = ("raddle", "raddle_operator", "raddle_tuner")


def packages(path):
    return {name.partition(".")[0] for name in imports(path)}


def others(paths, allowed):
    """What these files import that is not allowed, by file."""
    found = {str(path.relative_to(ROOT)): packages(path) - allowed for path in paths}
    return {path: names for path, names in found.items() if names}


def test_the_runtime_imports_the_standard_library_only():
    # The runtimes themselves are only ever looked at once the application has imported them.
    # (sitecustomize is the name under which site imports one.)
    assert others(RUNTIME, set(sys.stdlib_module_names) | {"raddle", "sitecustomize"}) == {}


def test_pure_packages_look_at_their_arguments_only():
    paths = [path for folder in PURE for path in folder.rglob("*.py") if path.stem not in NOT_PURE]
    assert paths
    assert not {str(path): used for path in paths if (used := packages(path) & IMPURE)}


def beside(path, root):
    """The packages of `root`, other than its own, that a module imports."""
    parts = {name.split(".")[1] for name in imports(path) if name.startswith(root.name + ".")}
    return {part for part in parts if (root / part).is_dir()} - {path.relative_to(root).parts[0]}


def drawn(name):
    """Package -> the packages that it imports, as CONTRIBUTING.md draws the subgraph of this name."""
    picture = (ROOT / "CONTRIBUTING.md").read_text().partition("```mermaid\n")[2].partition("```")[0]
    lines = picture.partition(f"subgraph {name} ")[2].partition("    end\n")[0].splitlines()[1:]
    found = {}
    for line in lines:
        start, _, ends = line.strip().partition(" --> ")
        found[start] = set(ends.split(" & "))
    return found | {end: set() for ends in found.values() for end in ends if end not in found}


def reachable(arrows, start):
    found = set(arrows[start])
    return found.union(*(reachable(arrows, end) for end in found))


@pytest.mark.parametrize("root", [PACKAGE, TUNER, ROOT / "runtime/raddle"], ids=["operator", "tuner", "runtime"])
def test_packages_import_along_the_arrows_of_the_picture_only(root):
    arrows = drawn(root.relative_to(ROOT).parts[0])
    assert {path.name for path in root.iterdir() if (path / "__init__.py").exists()} == set(arrows)
    for name, ends in arrows.items():
        imported = set().union(*(beside(path, root) for path in (root / name).rglob("*.py")))
        assert ends <= imported, f"{name}: an arrow without an import"
        assert imported <= reachable(arrows, name), f"{name}: an import without an arrow"


@pytest.mark.parametrize("root", [PACKAGE, TUNER, ROOT / "runtime/raddle"], ids=["operator", "tuner", "runtime"])
def test_no_modules_import_each_other_in_a_circle(root):
    files = {".".join(path.relative_to(root.parent).with_suffix("").parts): path for path in root.rglob("*.py")}
    files = {name.removesuffix(".__init__"): path for name, path in files.items()}
    # Shim and hook are one thing in two files, of which a process that imports no runtime loads the first only.
    lazy = {("raddle.shim", "raddle.adapters.hook")}
    graph = {}
    for name, path in files.items():
        used = {one for one in imports(path) & set(files) if not name.startswith(one + ".")}
        graph[name] = used - {one for by, one in lazy if by == name}
    graphlib.TopologicalSorter(graph).prepare()


def test_no_files_of_the_native_shim_call_each_other_in_a_circle():
    texts = {path.stem: path.read_text() for path in (ROOT / "runtime/native").glob("*.c")}
    # What a file shares begins in the first column, and has the prefix.
    defined = {
        name: set(re.findall(r"^(?!static |extern )\w.*?\b(rd_\w+)(?:\(.*[^;]|;| = .*)$", text, re.MULTILINE))
        for name, text in texts.items()
    }
    graph = {
        name: {other for other in texts if other != name and set(re.findall(r"\brd_\w+", text)) & defined[other]}
        for name, text in texts.items()
    }
    assert [name for name, names in defined.items() if not names] == ["api"], "OrtGetApiBase has no prefix"
    graphlib.TopologicalSorter(graph).prepare()


def test_no_floor_of_the_house_imports_from_one_above():
    for number, floor in enumerate(FLOORS):
        above = {
            path.stem
            for name in FLOORS[number + 1 :]
            for path in (ROOT / name).glob("*")
            if path.suffix == ".py" or (path / "__init__.py").exists()
        }
        assert not [f"{path}: {used}" for path in (ROOT / floor).rglob("*.py") if (used := packages(path) & above)]


def test_only_the_tests_of_the_benchmarks_import_these():
    benchmarks = {path.stem for path in (ROOT / "benchmarks").iterdir()}
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path.parent != ROOT / "tests" / "benchmarks"]
    assert not [path for path in tests if packages(path) & benchmarks]


def test_nothing_is_loaded_by_the_path_of_its_file():
    sources = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py") if path != Path(__file__)]
    assert not [path for path in sources if "spec_from_file_location" in path.read_text()]


@pytest.mark.parametrize(("process", "most"), [("webhook", 90), ("controller", None)])
def test_processes_of_the_cluster_load_nothing_of_the_tuner(process, most):
    program = f"import sys, raddle_operator.{process}.process; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.partition(".")[0] in OURS}
    print(f"{process}: {len(ours)} modules of ours")
    assert not {name for name in ours if name.startswith(("raddle_tuner", "raddle_operator.local"))}
    assert most is None or len(ours) <= most, "what every review waits for stays small"


def test_kopf_appears_in_the_controllers_frame_only():
    users = {path.relative_to(PACKAGE).as_posix() for path in OPERATOR if "kopf" in packages(path)}
    assert users == {"controller/handlers.py", "controller/process.py"}


def test_one_module_talks_to_the_api_server():
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in OPERATOR
        if any(n.startswith("kubernetes") and not n.startswith("kubernetes.utils") for n in imports(path))
    }
    assert users == {"kube/session.py"}


def test_the_agent_stays_light():
    for path in [*(PACKAGE / "agent").glob("*.py"), PACKAGE / "objects/nodetopology.py"]:
        assert not packages(path) & LIGHT_AGENT


def reached(start):
    """The packages of others that our modules import, from `start` on."""
    found, waiting, others = set(), [start], set()
    while waiting:
        name = waiting.pop()
        base = {"raddle_operator": PACKAGE.parent, "raddle_tuner": TUNER.parent}.get(
            name.partition(".")[0], ROOT / "runtime"
        )
        paths = [base / (name.replace(".", "/") + ending) for ending in (".py", "/__init__.py")]
        path = next((path for path in paths if path.exists()), None)
        if path is None or path in found:
            continue  # a name in a module, or known
        found.add(path)
        used = imports(path)
        waiting += [one for one in used if one.partition(".")[0] in OURS]
        others |= {one.partition(".")[0] for one in used} - {*OURS, "__future__"}
    return others - set(sys.stdlib_module_names)


@pytest.mark.parametrize(
    ("extra", "start"),
    [
        ("cli", f"raddle_operator.cli.{name}")
        for name in ("plan", "run", "explain", "scan.command", "topology", "selftest")
    ]
    + [
        ("agent", "raddle_operator.agent.process"),
        ("operator", "raddle_operator.controller.process"),
        ("operator", "raddle_operator.webhook.process"),
        ("tuner-cli", "raddle_tuner.commands.tune.command"),
        ("tuner-cli", "raddle_tuner.commands.result.command"),
        ("tuner-cli", "raddle_tuner.commands.analyze.command"),
    ],
)
def test_anyone_who_installs_an_extra_has_what_its_commands_import(extra, start):
    modules = {"pyyaml": "yaml", "prometheus-client": "prometheus_client", "protobuf": "google"}
    assert reached(start) <= {modules.get(name, name) for name in asked(extra)}


def test_the_tuner_loads_no_package_that_its_image_has_not():
    # It imports modules of the command line, which import more than that only where a cluster or a file is read.
    loads = "import sys, raddle_tuner.commands.tuner; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True).stdout.split()
    others = {name for extra in ("cli", "operator", "agent", "tuner-cli") for name in asked(extra)} - asked("tuner")
    assert not others.intersection(loaded)


def asked(extra):
    """The packages of an extra, with those of the extras that it has itself; "tuner" are those of the tuner's wheel."""
    own, tuner = (tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in ("", "tuner"))
    optional = own["optional-dependencies"] | {
        "tuner": tuner["dependencies"],
        "tuner-cli": [*tuner["dependencies"], *tuner["optional-dependencies"]["cli"]],
    }
    found = set()
    for line in optional[extra]:
        name, below = re.match(r"([a-z0-9-]+)(?:\[(.*)\])?", line).groups()
        found |= {name} if name != "raddle" else set().union(*map(asked, below.split(",") if below else ()))
    return found


def test_source_roots_and_test_folders_are_no_packages():
    # operator/__init__.py would shadow the standard library's operator module.
    roots = [ROOT / name for name in (*FLOORS, "tests/raddle", "tests/raddle_operator")]
    assert not [root for root in roots if (root / "__init__.py").exists()]


def test_runtime_files_parse_as_python_3_8():
    for path in RUNTIME:
        ast.parse(path.read_text(), feature_version=(3, 8))
