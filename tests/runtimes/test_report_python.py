"""Reports of real ONNX Runtime processes: what they say is what can be seen from outside, and `report` reads them."""

import binascii
import json
import os

import pytest
from support.runtimes import shim_lab

from raddle import env
from runtimes import pythons

pytestmark = pytest.mark.runtime

PLAN = "v=1;intra=4;min=2;inter=1;spin=never;mode=sequential;aff=none;observe=runs"
APP = """
import json, os, sys, threading
import numpy as np, onnxruntime as ort
model, count = sys.argv[1], int(sys.argv[2])
before = set(os.listdir("/proc/self/task"))
sessions = [ort.InferenceSession(model, providers=["CPUExecutionProvider"])]
pool = sorted(map(int, set(os.listdir("/proc/self/task")) - before))
options = ort.SessionOptions()
options.intra_op_num_threads = 1
sessions.append(ort.InferenceSession(open(model, "rb").read(), options, providers=["CPUExecutionProvider"]))
given = sessions[0].get_inputs()[0]
feed = {given.name: np.zeros(given.shape, np.float32)}
callers = [threading.Thread(target=lambda: [sessions[0].run(None, feed) for _ in range(count)]) for _ in range(2)]
[caller.start() for caller in callers], [caller.join() for caller in callers]
print(json.dumps({"pool": pool, "pid": os.getpid()}))
"""


@pytest.fixture(scope="module")
def observed(tmp_path_factory):
    """(what the program saw of itself, its report's path, the model, a mount)."""
    executable = pythons.venv("ort-1.31.1", "3.11", ["onnxruntime==1.31.1"])
    folder = tmp_path_factory.mktemp("observed")
    mounted, model = shim_lab.mount(folder / "raddle"), shim_lab.write_model(folder / "model.onnx")
    (folder / "reports").mkdir()
    (folder / "app.py").write_text(APP)
    variables = {**shim_lab.python_path(mounted), env.PLAN: PLAN, env.REPORT: str(folder / "reports")}
    done = shim_lab.python(executable, str(folder / "app.py"), str(model), "50", env=variables)
    (report,) = (folder / "reports").iterdir()
    return json.loads(done.stdout.splitlines()[-1]), report, model, mounted


def test_the_report_names_the_pool_s_threads_the_model_and_its_inputs(observed):
    seen, path, model, _ = observed
    report = json.loads(path.read_text())
    default, coded = report["sessions"]
    # One thread of those that came is the observer's own, and no thread of the pool.
    assert set(default["threads"]) < set(seen["pool"])
    assert len(default["threads"]) == default["effective"]["intra"] - 1
    assert coded["threads"] == []
    content = model.read_bytes()
    ends = {"head": f"{binascii.crc32(content[:65536]):08x}", "tail": f"{binascii.crc32(content[-65536:]):08x}"}
    assert default["model"] == coded["model"] == {"bytes": len(content), **ends}
    assert default["inputs"] == [["input", "tensor(float)", [64, 256]]]
    assert default["providers"] == ["CPUExecutionProvider"]


def test_runs_and_their_callers_are_counted_in_the_session_that_they_used(observed):
    _, path, _, _ = observed
    default, coded = json.loads(path.read_text())["sessions"]
    assert sum(default["runs"]["log2ns"].values()) == 100
    assert 1 <= default["runs"]["highWater"] <= 2
    assert coded["runs"] == {"log2ns": {}, "highWater": 0}


def test_totals_grow_until_the_end(observed):
    _, path, _, _ = observed
    report = json.loads(path.read_text())
    assert 0 < report["sessions"][0]["totals"]["processCpuUs"] <= report["atExit"]["processCpuUs"]


def test_python_m_raddle_report_sets_planned_against_effective(observed):
    seen, path, _, mounted = observed
    arguments = ("-m", "raddle", "report", str(path.parent), "-o", "json")
    done = shim_lab.python(shim_lab.THIS_PYTHON, *arguments, env=shim_lab.python_path(mounted))
    (process,) = json.loads(done.stdout)["processes"]
    assert (process["pid"], process["ended"], process["asPlanned"]) == (seen["pid"], True, True)
    intra = [next(v for v in group["values"] if v["name"] == "intra") for group in process["sessions"]]
    assert [value["planned"] for value in intra] == ["4", "4"]
    assert intra[1]["effective"] == "1"
    assert intra[1]["why"] == "set in the code"
    room = len(os.sched_getaffinity(0))
    if room < 4:
        assert 2 <= int(intra[0]["effective"]) <= max(2, room)
        assert intra[0]["why"].startswith("planned 4, cut to ")
