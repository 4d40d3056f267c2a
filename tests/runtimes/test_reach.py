"""The table of docs/explanation/what-the-shim-reaches.md: every row, in an image that is built as people build it.

tools/generate/docs/reach.py has what each row says; tests/support/reach_lab.py builds its image. The door is the real one, in a mount
namespace of its own.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from support.runtimes import reach_lab, shim_lab

from generate.docs import reach
from raddle import env

pytestmark = pytest.mark.runtime

# The shim's count and the variable's, which is for where there is no shim; a runtime by itself takes neither of them on
# a machine with two CPUs, nor with four and more.
SHIMS, VARIABLES = 1, 3
PLAN = f"v=1;intra={SHIMS};env_intra={VARIABLES};inter=1;spin=never;mode=sequential;aff=none;existing=respect"
POD = {env.PLAN: PLAN, env.ORT_INTRA: str(VARIABLES), env.ORT_INTER: "1"}
PATH, USER_BASE = "PYTHONPATH", "PYTHONUSERBASE"
# What the application sees. Where variables don't reach it, Python may look elsewhere for user sites, and a `.pex` file
# starts it in another way.
SEEN = ("path", "environ", "package", "customized")
ALL = (*SEEN, "argv", "program", "site")
every_row = pytest.mark.parametrize("row", reach.ROWS, ids=lambda row: row.name)


@pytest.fixture(scope="module")
def lab(model):
    # Another user can read it, which pytest's own folders don't let him.
    folder = Path(tempfile.mkdtemp(prefix="raddle-reach-"))
    folder.chmod(0o755)
    yield reach_lab.Lab(folder, model)
    # What a row has mounted was in namespaces of its own.
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def mounted(lab):
    return shim_lab.mount(lab.folder / "mount")


def seen(said, *names, keys=()):
    """What the application said of these, but for the variables of these names."""
    environ = {name: value for name, value in said["environ"].items() if name not in names}
    return {key: {**said, "environ": environ}[key] for key in keys}


def others(stderr):
    return [line for line in stderr.splitlines() if not line.startswith("raddle: onnxruntime ")]


def count(image, reached):
    """How many threads a session has, None where the image has no onnxruntime."""
    if not image.packages:
        return None
    return SHIMS if reached else VARIABLES


@every_row
def test_by_the_door_a_row_of_the_table_holds_and_the_application_sees_nothing_of_it(row, lab):
    image = lab.image(row.name)
    before, quiet = lab.stock(row.name)
    after, told = lab.run(image, by_door=True, **POD)
    assert (after["active"], after["count"]) == (row.door, count(image, row.door))
    assert seen(after, *POD, *image.keeps, keys=ALL) == seen(before, keys=ALL)
    assert others(told) == others(quiet)


@every_row
@pytest.mark.parametrize("way", [PATH, USER_BASE])
def test_by_variables_a_row_of_the_table_holds_and_the_application_starts_as_without_them(row, way, lab, mounted):
    image, reached = lab.image(row.name), row.path if way == PATH else row.user_base
    ours = {way: str(mounted)}
    if way == PATH:
        ours = {way: ":".join(filter(None, (f"{mounted}/python", image.env.get(PATH, image.states))))}
    elif USER_BASE in image.env:
        # It would hide the packages of an image that sets it, and isn't used there.
        ours = {}
    # A session takes longer than the rest, and by the door each row that is reached has had one.
    image = image._replace(packages="") if reached else image
    image = image._replace(binds=(*image.binds, mounted))
    before, quiet = lab.stock(row.name)
    after, told = lab.run(image, **POD, **ours)
    wanted = lab.stock_count(row.name) if image.loses else count(image, reached)
    assert (after["active"], after["count"]) == (reached, wanted)
    after["path"] = [folder for folder in after["path"] if not folder.startswith(str(mounted))]
    keys = (*SEEN, "program", "site") if reached else SEEN
    assert seen(after, *POD, *ours, keys=keys) == seen(before, *ours, keys=keys)
    assert others(told) == others(quiet)


def test_every_row_of_the_table_has_an_image():
    assert sorted(reach_lab.LAYOUTS) == sorted(row.name for row in reach.ROWS)
