"""The Dockerfiles' properties: any architecture without emulation, any base, a numeric user, labels, pinned packages."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from images import model

ROOT = Path(__file__).parents[2]
NAMES = [image.folder for image in model.IMAGES]
ON_PYTHON = [image.folder for image in model.IMAGES if image.requirements]


def instructions(name):
    """[(instruction, rest)], lines joined."""
    text = (ROOT / "images" / name / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def final_stage(name):
    found = instructions(name)
    last = max(place for place, (word, _) in enumerate(found) if word == "FROM")
    return found[last:]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_runs_on_the_targets_architecture(name):
    assert not [rest for word, rest in final_stage(name) if word == "RUN"]
    stages = [rest for word, rest in instructions(name) if word == "FROM"]
    assert all(stage.startswith("--platform=$BUILDPLATFORM ") for stage in stages[:-1])
    assert "BUILDPLATFORM" not in stages[-1]


@pytest.mark.parametrize("name", NAMES)
def test_the_user_is_a_number_so_that_run_as_non_root_can_be_checked(name):
    users = [rest for word, rest in final_stage(name) if word == "USER"]
    assert users == ["65532:65532"]


@pytest.mark.parametrize("name", NAMES)
def test_the_default_bases_name_no_registry(name):
    arguments = dict(rest.split("=", 1) for word, rest in instructions(name) if word == "ARG" and "=" in rest)
    bases = {key: value for key, value in arguments.items() if key in ("BASE", "BUILDER")}
    assert bases.keys() == ({"BASE", "BUILDER"} if name in ON_PYTHON else {"BUILDER"})
    assert not [value for value in bases.values() if "/" in value]


@pytest.mark.parametrize("name", ON_PYTHON)
def test_base_and_builder_have_the_same_python_since_byte_code_is_of_one_version(name):
    arguments = dict(rest.split("=", 1) for word, rest in instructions(name) if word == "ARG" and "=" in rest)
    versions = {re.match(r"python:(\d+\.\d+)-", arguments[key])[1] for key in ("BASE", "BUILDER")}
    assert len(versions) == 1


@pytest.mark.parametrize("image", model.IMAGES, ids=NAMES)
def test_the_labels_are_those_of_the_open_container_initiative(image):
    (text,) = [rest for word, rest in final_stage(image.folder) if word == "LABEL"]
    labels = dict(part.split("=", 1) for part in shlex.split(text))
    wanted = {"title", "description", "licenses", "version", "revision", "created"}
    assert {f"org.opencontainers.image.{name}" for name in wanted} <= labels.keys()
    assert labels["org.opencontainers.image.title"] == image.name
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"


@pytest.mark.parametrize("name", ON_PYTHON)
def test_a_read_only_root_costs_nothing_since_no_byte_code_is_written(name):
    (text,) = [rest for word, rest in final_stage(name) if word == "ENV"]
    assert "PYTHONDONTWRITEBYTECODE=1" in text.split()


@pytest.mark.parametrize("name", ON_PYTHON[1:])
def test_those_on_python_are_built_alike_but_for_their_packages_and_names(name):
    """A file each, so that a build needs no arguments; one text, so that a change of one is not forgotten in another."""
    pairs = zip(instructions(ON_PYTHON[0]), instructions(name), strict=True)
    assert [one[0] for one, other in pairs if one != other] == ["RUN", "LABEL"]


def test_the_ignore_file_lets_in_what_a_build_reads_and_nothing_else():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    assert sorted(line[1:] for line in lines if line.startswith("!")) == sorted(model.CONTEXT)


def test_the_context_holds_nothing_that_a_build_or_a_test_run_left_behind():
    parts = {part for path in model.context_files() for part in path.relative_to(ROOT).parts}
    assert {"stage.py", "pyproject.toml", "delivery.py"} <= parts
    assert not parts & {"__pycache__", "_native", ".venv", "tests"}


def test_the_context_holds_all_that_the_build_stages_import(tmp_path):
    model.snapshot(tmp_path)
    program = "import sys; sys.path += ['images', 'tools', 'runtime']; import stage, native.build, raddle.delivery"
    subprocess.run([sys.executable, "-I", "-c", program], cwd=tmp_path, check=True)


def pins(path):
    return dict(re.findall(r"^([a-z0-9._-]+)==([^ ;]+)", path.read_text(), re.MULTILINE))


LOCKS = sorted((ROOT / "images").glob("requirements-*.txt"))


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_package_is_pinned_by_hash(path):
    blocks = re.split(r"^(?=[a-z0-9])", path.read_text(), flags=re.MULTILINE)[1:]
    assert blocks
    assert all("==" in block.splitlines()[0] and "--hash=sha256:" in block for block in blocks)
    assert "://" not in path.read_text()


@pytest.mark.parametrize("name", ON_PYTHON)
def test_the_images_hold_the_versions_that_the_tests_run_with(name):
    tested = pins(ROOT / "requirements-dev.txt")
    shipped = pins(ROOT / "images" / f"requirements-{name}.txt")
    assert {package: tested.get(package) for package in shipped} == shipped


@pytest.mark.parametrize(
    ("name", "extras"), [("operator", ("operator", "agent", "cli")), ("agent", ("agent",)), ("tuner", ())]
)
def test_the_images_hold_what_pyproject_asks_for(name, extras):
    folder = ROOT / "tuner" if name == "tuner" else ROOT
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    asked = {re.match("[a-z0-9-]+", line)[0] for line in lines} - {"raddle"}
    assert asked <= pins(ROOT / "images" / f"requirements-{name}.txt").keys()


def test_the_agents_image_is_small_in_packages():
    assert pins(ROOT / "images" / "requirements-agent.txt").keys() == {
        "click", "prometheus-client", "psutil", "pyyaml",
    }  # fmt: skip
