"""Real PaddlePaddle, built with MKL, under a plan; and a stand-in for a build without, of which there is no wheel."""

import json
import os

import pytest
from support.runtimes import libraries_lab, shim_lab

from raddle import env
from runtimes import pythons

pytestmark = pytest.mark.runtime

USE = """
import json, os, paddle
from ctypes import CDLL
square = paddle.ones([300, 300])
paddle.matmul(square, square)
library = os.path.join(os.path.dirname(paddle.__file__), "libs", "libiomp5.so")
print(json.dumps([CDLL(library).omp_get_max_threads(), os.environ["OMP_NUM_THREADS"]]))
"""
WARNING = "PLEASE USE OMP_NUM_THREADS WISELY"


@pytest.mark.parametrize(
    ("variables", "count", "seen", "warned", "line"),
    [
        ({env.COMPLETED: f"{env.OMP}=2"}, 2, "1", False, ["raddle: paddle 3.3.1: threads=2"]),
        # Not the plan's: paddle says what it says without Raddle.
        ({env.OMP: "3"}, 3, "3", True, []),
    ],
)
def test_a_build_with_mkl_gets_the_planned_count_without_a_warning(mounted, variables, count, seen, warned, line):
    python = pythons.release("paddle-3.3.1")
    variables = {**shim_lab.python_path(mounted), env.PLAN: "v=1;omp=2", **variables}
    done = shim_lab.python(python, "-c", USE, env=variables)
    # What paddle has put into os.environ is what it puts there without Raddle.
    assert json.loads(done.stdout.splitlines()[-1]) == [count, seen]
    assert (WARNING in done.stderr) == warned
    assert [said for said in done.stderr.splitlines() if said.startswith("raddle: ")] == line


def test_a_build_without_mkl_keeps_the_one_thread_that_it_takes_by_itself(mounted, tmp_path):
    (tmp_path / "paddle.py").write_text(
        "import os\n"
        "__version__ = '3.3.1'\n"
        "class version: with_mkl = 'OFF'\n"
        "os.environ['OMP_NUM_THREADS'] = os.environ.get('OMP_NUM_THREADS', '1')\n"
    )
    path = {"PYTHONPATH": os.pathsep.join([str(mounted / "python"), str(tmp_path)])}
    code = "import os, paddle; print(os.environ['OMP_NUM_THREADS'])"
    variables = {**path, env.PLAN: "v=1;omp=2", env.COMPLETED: f"{env.OMP}=2"}
    done = shim_lab.python(shim_lab.THIS_PYTHON, "-c", code, env=variables)
    assert (done.stdout, done.stderr) == ("1\n", "raddle: paddle 3.3.1: threads=1 (it is built without MKL)\n")


@pytest.mark.parametrize("error", ["ImportError", "KeyboardInterrupt"])
def test_after_an_import_that_fails_the_variable_is_what_it_was(mounted, tmp_path, error):
    (tmp_path / "paddle.py").write_text(f"raise {error}")
    path = {"PYTHONPATH": os.pathsep.join([str(mounted / "python"), str(tmp_path)])}
    code = f"import os\ntry:\n    import paddle\nexcept {error}:\n    print(os.environ['OMP_NUM_THREADS'])"
    done = shim_lab.python(shim_lab.THIS_PYTHON, "-c", code, env={**path, env.PLAN: "v=1;omp=2", env.OMP: "2"})
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_a_predictor_has_the_planned_count_where_the_code_sets_none(mounted, tmp_path):
    plan, own = "v=1;intra_op=2;min_intra_op=2;omp=2", libraries_lab.OWN
    without = libraries_lab.said("paddle", tmp_path)
    found = libraries_lab.said("paddle", tmp_path, plan, mounted, OMP_NUM_THREADS="2")
    overridden = libraries_lab.said(
        "paddle", tmp_path, plan + ";existing_values=override", mounted, OMP_NUM_THREADS="2"
    )
    assert [one["threads"] for one in (without, found, overridden)] == [1, 2, 2]
    assert [one["own"] for one in (without, found, overridden)] == [[own] * 2, [own] * 2, [2] * 2]
