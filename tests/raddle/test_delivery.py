"""The shim as a ConfigMap: what the API server accepts, and that the tree is whole."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.runtimes import shim_lab

from raddle import delivery
from runtimes import pythons

KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def test_the_data_is_what_a_config_map_may_hold():
    texts, binaries = delivery.files(), delivery.binaries()
    assert all(KEY.fullmatch(key) for key in (*texts, *binaries))
    assert not texts.keys() & binaries.keys()
    size = sum(len(text.encode()) for text in texts.values()) + sum(map(len, binaries.values()))
    assert size < delivery.MAX_BYTES
    # Python's part is small, which leaves room for two native libraries.
    assert size - sum(map(len, binaries.values())) < 512 * 1024


def test_every_key_is_mounted_and_every_path_is_relative_and_used_once():
    mounted = set()
    for architecture in delivery.ARCHITECTURES:
        items = delivery.items(architecture)
        paths = [item["path"] for item in items]
        mounted |= {item["key"] for item in items}
        assert len(set(paths)) == len(paths)
        # The API server refuses absolute paths and "..".
        assert not any(path.startswith("/") or ".." in path for path in paths)
    assert mounted | {delivery.PRELOAD_KEY} == {*delivery.files(), *delivery.binaries()}


@pytest.mark.parametrize("architecture", delivery.architectures())
def test_a_container_has_python_the_library_of_one_architecture_and_the_line_that_names_it(architecture, tmp_path):
    delivery.write(str(tmp_path), architecture)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {path for path in found if not path.startswith("python/")} == {"libraddle.so", "raddle", "ld.so.preload"}
    assert (tmp_path / "ld.so.preload").read_text() == "/opt/raddle/libraddle.so\n"
    assert (tmp_path / "libraddle.so").read_bytes() == (tmp_path / "raddle").read_bytes()
    assert (tmp_path / "raddle").stat().st_mode & 0o777 == 0o555
    assert "python/raddle/shim.py" in found


def test_every_module_of_raddle_that_the_delivered_code_imports_is_delivered():
    data = delivery.files()
    delivered = {key[: -len(".py")].removesuffix(".__init__") for key in data if key.endswith(".py")}
    for key, text in data.items():
        if not key.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "raddle":
                for alias in node.names:
                    assert {f"{node.module}.{alias.name}", node.module} & delivered, (key, alias.name)
            elif isinstance(node, ast.Import):
                ours = [alias.name for alias in node.names if alias.name.split(".")[0] == "raddle"]
                assert set(ours) <= delivered, key


def test_no_module_is_delivered_that_no_shim_and_no_command_in_a_container_imports():
    modules = {key.removesuffix(".py").removesuffix(".__init__"): text for key, text in delivery.files().items()}
    reached = {"raddle", "raddle.shim", "raddle.__main__"}
    found = {name for name in modules if name.startswith("raddle.adapters")}
    while found:
        reached |= found
        imported = {name for module in reached for name in _imports(modules[module])}
        found = {name for name in imported if name in modules} - reached
    assert {name for name in modules if name.split(".")[0] == "raddle"} - reached == set()


def _imports(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield node.module


def test_only_the_standard_library_is_imported():
    for key, text in delivery.files().items():
        if not key.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            tops = {name.split(".")[0] for name in names}
            assert tops <= sys.stdlib_module_names | {"raddle", "sitecustomize"}, key


def test_the_hash_is_that_of_the_content_and_names_an_object():
    assert delivery.content_hash() == delivery.content_hash()
    assert re.fullmatch(r"[0-9a-f]{10}", delivery.content_hash())


@pytest.mark.slow
@pytest.mark.parametrize("version", pythons.VERSIONS)
def test_all_that_is_delivered_imports_in_every_supported_python(version, tmp_path):
    executable = pythons.interpreter(version)
    mounted = shim_lab.mount(tmp_path)
    keys = [key[: -len(".py")] for key in delivery.files() if key.startswith("raddle.") and key.endswith(".py")]
    modules = sorted(key.removesuffix(".__init__") for key in keys)
    code = f"import importlib\nfor name in {modules}: importlib.import_module(name)"
    # -E keeps sitecustomize out: it takes the folder off the path again.
    done = shim_lab.python(
        executable, "-E", "-c", f"import sys; sys.path.insert(0, {str(mounted / 'python')!r})\n{code}", env={}
    )
    assert done.stderr == ""


LOOK = """
import json, sys
from raddle import delivery
delivery.write(sys.argv[1], "x86_64")
print(json.dumps([delivery.content_hash(), delivery.architectures()]))
"""


@pytest.fixture
def installation(tmp_path):
    """A copy of the runtime with the native parts taken out, to put others in: made(parts) -> what it says."""
    runtime = Path(delivery.__file__).parents[1]
    left_out = shutil.ignore_patterns("__pycache__", "_native")
    shutil.copytree(runtime, tmp_path / "runtime", ignore=left_out)

    def made(parts, tree="tree"):
        for path, content in parts.items():
            file = tmp_path / "runtime" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        command = [sys.executable, "-c", LOOK, tmp_path / tree]
        done = subprocess.run(command, cwd=tmp_path / "runtime", check=True, capture_output=True, text=True)
        return json.loads(done.stdout), tmp_path / tree

    return made


NATIVE = {"raddle/_native/x86_64/libraddle.so": b"\x7fELF\0\xff x86"}


def test_an_installation_without_a_native_build_delivers_the_rest(installation):
    (_, architectures), tree = installation({})
    assert architectures == []
    assert (tree / "python" / "sitecustomize.py").is_file()
    assert not (tree / "ld.so.preload").exists()


def test_what_was_built_lies_where_the_loader_is_told(installation):
    (_, architectures), tree = installation(NATIVE)
    assert architectures == ["x86_64"]

    listed = (tree / "ld.so.preload").read_text().strip()
    library = tree / Path(listed).relative_to(delivery.MOUNT_PATH)
    assert library.read_bytes() == NATIVE["raddle/_native/x86_64/libraddle.so"]


def test_another_native_build_is_another_content(installation):
    (without, *_), _ = installation({})
    (one, *_), _ = installation(NATIVE)
    (other, *_), _ = installation(dict.fromkeys(NATIVE, b"\x7fELF other"))
    assert len({without, one, other}) == 3
