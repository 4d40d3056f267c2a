"""The table of docs/explanation/preload-injection.md: every row, in an image that is built as people build it.

tools/generate/docs/reach.py has what each row says; tests/support/reach_lab.py builds its image. The door is the real one, in a mount
namespace of its own.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from support.runtimes import reach_lab

from generate.docs import reach
from raddle import env

pytestmark = pytest.mark.runtime

# The shim's count and the variable's, which is for where there is no shim; a runtime by itself takes neither of them on
# a machine with two CPUs, nor with four and more.
SHIMS, VARIABLES = 1, 3
PLAN = f"v=1;intra_op={SHIMS};intra_op_without_shim={VARIABLES};inter_op=1;spinning=never;execution_mode=sequential;affinity=none;existing_values=respect"
POD = {env.PLAN: PLAN}
# What the door completes where the shim is not reached.
COMPLETED = (env.COMPLETED, env.ORT_INTRA, env.ORT_INTER)
# What the application sees.
ALL = ("path", "environ", "package", "customized", "argv", "program", "site")
# Of each group in the table rows of every way in which the shim comes, or does not; `make matrix` tries the others, too.
TYPICAL = (
    "own", "debian", "distroless", "venv", "pex", "pex-path", "pyinstaller", "embedded", "heroku", "-E", "-P", "PYTHONHOME",
    "PYTHONPATH-own", "usercustomize", "bash-login", "other-user", "fork", "execve", "empty-environment", "env-i",
    "2.7", "3.8", "3.15", "pypy",
)  # fmt: skip
every_row = pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=() if row.name in TYPICAL else pytest.mark.matrix, id=row.name) for row in reach.ROWS],
)


@pytest.fixture(scope="module")
def lab(model):
    # Another user can read it, which pytest's own folders don't let him.
    folder = Path(tempfile.mkdtemp(prefix="raddle-reach-"))
    folder.chmod(0o755)
    yield reach_lab.Lab(folder, model)
    # What a row has mounted was in namespaces of its own.
    assert str(folder) not in Path("/proc/self/mountinfo").read_text()
    shutil.rmtree(folder)


def seen(said, *names):
    """What the application said of these, but for the variables of these names."""
    environ = {name: value for name, value in said["environ"].items() if name not in names}
    return {key: {**said, "environ": environ}[key] for key in ALL}


def others(stderr):
    return [line for line in stderr.splitlines() if not line.startswith("raddle: onnxruntime ")]


def count(image, reached):
    """How many threads a session has, None where the image has no onnxruntime."""
    if not image.packages:
        return None
    return SHIMS if reached else VARIABLES


@every_row
def test_a_row_of_the_table_holds_and_the_application_sees_nothing_of_it(row, lab):
    image = lab.image(row.name)
    before, quiet = lab.stock(row.name)
    after, told = lab.run(image, **POD)
    assert (after["active"], after["count"]) == (row.reached, count(image, row.reached))
    assert seen(after, *POD, *image.keeps, *(() if row.reached else COMPLETED)) == seen(before)
    assert others(told) == others(quiet)


def test_every_row_of_the_table_has_an_image():
    assert sorted(reach_lab.LAYOUTS) == sorted(row.name for row in reach.ROWS)
