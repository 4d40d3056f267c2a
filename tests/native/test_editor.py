"""Sessions of the model editor, which has a table of functions of its own, in real runtimes."""

import os
import subprocess

import pytest
from support.runtimes import native_lab
from support.runtimes.native_programs import HERE, NATIVE, PLAN, Kind, library, need

from runtimes import libonnxruntime


@pytest.mark.parametrize("version", ["1.23.2", "1.26.0", libonnxruntime.WHEEL_VERSION])
@pytest.mark.parametrize(("plan", "names"), [(PLAN, ["ort-intra/1"]), ("", [])])
def test_a_session_of_the_model_editor_has_the_plan_s_threads(tmp_path, version, plan, names):
    need("gcc")
    folder, model = libonnxruntime.release(version), native_lab.model()
    program = tmp_path / "caller"
    command = ["gcc", f"-I{NATIVE}", "-o", program, HERE / "caller.c", folder / "libonnxruntime.so"]
    Kind.run_checked(*command, f"-Wl,-rpath,{folder}")
    environ = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(library()), "RADDLE_PLAN": plan, "MODEL": str(model)}
    done = subprocess.run([program, "0", "editor"], env=environ, capture_output=True, text=True, check=True)
    assert sorted(name for name in done.stdout.splitlines() if name.startswith("ort-")) == names
    assert len(done.stderr.splitlines()) == len(names), done.stderr
