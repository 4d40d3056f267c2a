"""docs/contributing/add-a-runtime.md, done to the letter: the page's adapter and row are added to a mount, and work."""

import os
import re
from pathlib import Path

import pytest
from support.runtimes import shim_lab

from raddle import env
from runtimes import pythons

PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "add-a-runtime.md"
TOYRT = """
import os
__version__ = "2.0"
spin = os.environ.get("TOYRT_SPIN", "1")
_threads = 0
def set_threads(count):
    global _threads
    _threads = count
def get_threads():
    return _threads
"""
# A function in C, as runtimes have them, which raises the runtime's own exception: no frame of it is in the traceback.
RAISES_IN_C = """
import ctypes, functools
class Error(Exception): pass
_raise = ctypes.pythonapi.PyErr_SetObject
_raise.argtypes, _raise.restype = [ctypes.py_object, ctypes.py_object], None
set_threads = functools.partial(_raise, Error)
"""
USE = "import toyrt; print(toyrt.get_threads(), toyrt.spin)"


@pytest.fixture
def mounted(tmp_path):
    folder = shim_lab.mount(tmp_path / "raddle")
    adapter, row = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    shim = folder / "python/raddle/__init__.py"
    before, table, after = shim.read_text().partition("RUNTIMES = {\n")
    assert table
    shim.write_text(before + table + row + after)
    (folder / "python/raddle/adapters/toyrt.py").write_text(adapter)
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "toyrt.py").write_text(TOYRT)
    return folder


def used(mounted, plan, executable=shim_lab.THIS_PYTHON, **extra):
    path = os.pathsep.join([str(mounted / "python"), str(mounted.parent / "packages")])
    variables = {"PYTHONPATH": path, env.PLAN: plan, **extra}
    return shim_lab.python(executable, "-c", USE, env=variables, cpus=[min(os.sched_getaffinity(0))])


@pytest.mark.slow
@pytest.mark.parametrize("version", pythons.VERSIONS)
def test_the_page_s_adapter_sets_what_the_plan_says_and_says_so(mounted, version):
    executable = pythons.interpreter(version)
    done = used(mounted, "v=1;intra_op=4;spinning=never", executable)
    assert done.stdout == "1 0\n"
    assert done.stderr == "raddle: toyrt 2.0: threads=1 (planned 4, cut to CPU affinity of 1)\n"


def test_a_plan_that_can_not_be_read_leaves_it_alone_with_one_line(mounted):
    done = used(mounted, "v=7")
    assert done.stdout == "0 1\n"
    assert done.stderr == "raddle: toyrt is not configured: plan version is '7', this shim reads version 1\n"


@pytest.mark.parametrize("function", ["prepare", "install"])
def test_what_it_raises_is_caught_and_said(mounted, function):
    adapter = mounted / "python/raddle/adapters/toyrt.py"
    text = adapter.read_text()
    assert f"def {function}(" in text
    adapter.write_text(text + f"\n\ndef {function}(*arguments):\n    raise KeyError('toy')\n")
    done = used(mounted, "v=1;intra_op=1")
    assert done.stdout
    assert "raddle: toyrt is not configured: KeyError('toy')\n" in done.stderr


def test_the_runtime_s_own_exception_out_of_c_is_caught(mounted):
    toyrt = mounted.parent / "packages/toyrt.py"
    toyrt.write_text(TOYRT + RAISES_IN_C)
    done = used(mounted, "v=1;intra_op=1")
    assert done.stdout == "0 1\n"
    assert done.stderr == "raddle: toyrt is not configured: Error(1)\n"


def test_the_page_names_its_test():
    assert f"`tests/raddle/{Path(__file__).name}`" in PAGE.read_text()
