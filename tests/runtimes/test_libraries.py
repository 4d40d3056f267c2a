"""Real libraries that have no variable for their threads: the plan's count where the code says none."""

import json
import os

import pytest
from support.runtimes import families_lab, libraries_lab, shim_lab
from support.runtimes.libraries_lab import OWN, said

from raddle import env
from runtimes import pythons

pytestmark = [pytest.mark.runtime, pytest.mark.matrix]

CPUS = len(os.sched_getaffinity(0))
PLAN = "v=1;intra_op=1;omp=1;spinning=never"
OVERRIDE = PLAN + ";existing_values=override"


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return libraries_lab.write_models(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize(
    ("name", "stock", "planned", "own", "overridden"),
    [
        ("hnswlib", [CPUS] * 2, [1] * 2, [OWN] * 4, [1] * 4),
        # Zero means all CPUs.
        ("usearch", [0] * 3, [1] * 3, [OWN] * 3, [1] * 3),
        ("cv2", CPUS, 1, OWN, OWN),
    ],
)
def test_a_count_that_the_code_does_not_set_is_the_plan_s(name, stock, planned, own, overridden, models, mounted):
    without = said(name, models)
    assert (without["threads"], without["own"], without["stderr"]) == (stock, own, "")
    found = said(name, models, PLAN, mounted)
    assert (found["threads"], found["own"]) == (planned, own)
    (line,) = found["stderr"].splitlines()
    assert line.startswith(f"raddle: {name}")
    assert line.endswith(": threads=1")
    assert said(name, models, OVERRIDE, mounted)["own"] == overridden


def test_a_model_of_onnxruntime_genai_s_gets_the_plan_s_threads_with_and_without_a_configuration(models, mounted):
    without = said("onnxruntime_genai", models)
    one, two = (
        said("onnxruntime_genai", models, f"v=1;intra_op={n};min_intra_op={n};spinning=never", mounted) for n in (1, 2)
    )
    assert two["threads"] == [count + 1 for count in one["threads"]]
    assert one["own"] == two["own"] == without["own"]
    # What a folder without a model leads to is said by the library alone.
    assert one["missing"] == without["missing"]
    assert one["stderr"] == "raddle: onnxruntime_genai 0.18.0: threads=1\n"


def test_the_workers_of_a_ctranslate2_model_share_the_planned_threads(models, mounted):
    two = {env.OMP: "2"}
    plan = "v=1;intra_op=2;omp=2;min_intra_op=2"
    # Two workers with two threads each, or with one.
    assert (
        said("ctranslate2", models, **two)["threads"] - said("ctranslate2", models, plan, mounted, **two)["threads"]
        == 2
    )
    # What the code says, and a variable that is not the plan's.
    assert (
        said("ctranslate2", models, plan, mounted, own=1, **two)["own"]
        == said("ctranslate2", models, own=1, **two)["own"]
    )
    assert (
        said("ctranslate2", models, "v=1;intra_op=1;omp=1", mounted, **two)["threads"]
        == said("ctranslate2", models, **two)["threads"]
    )


def test_opencv_s_own_variable_is_somebody_s_decision(models, mounted):
    assert said("cv2", models, PLAN, mounted, OPENCV_FOR_THREADS_NUM="2")["threads"] == min(2, CPUS)


# What openvino's own extension has of it; the real one is 60 MB, and is in tests/servers.
OPENVINO = """
import json
class Core:
    said, has = [], {"INFERENCE_NUM_THREADS": 0}
    def __init__(self, xml_config_file=""):
        self.has = {"INFERENCE_NUM_THREADS": 5} if xml_config_file else self.has
    def get_property(self, device_name, name):
        return self.has[name]
    def set_property(self, *properties):
        self.said.append(list(properties))
    def compile_model(self, model, device_name=None, properties=None, **others):
        self.said.append(properties)
        return Model()
class Model:
    def get_property(self, name):
        return {"SUPPORTED_PROPERTIES": {"INFERENCE_NUM_THREADS": "RW"}, "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}[name]
"""
USE_OPENVINO = """
import json, sys, openvino
core = openvino.Core(*sys.argv[1:])
core.set_property("CPU", {"INFERENCE_NUM_THREADS": 4, "PERFORMANCE_HINT": "LATENCY"})
core.set_property({"INFERENCE_NUM_THREADS": 0})
core.compile_model("model", "CPU", {"INFERENCE_NUM_THREADS": 3})
core.compile_model("model", properties={"INFERENCE_NUM_THREADS": 0})
core.compile_model("model")
print(json.dumps(core.said))
"""
COUNTED, UNPINNED = ["CPU", {"INFERENCE_NUM_THREADS": 1}], ["CPU", {"ENABLE_CPU_PINNING": False}]


@pytest.fixture
def openvino(tmp_path, mounted):
    """openvino(*arguments, plan=, before=): what a Core was told, first by the shim and then by the code."""
    (tmp_path / "openvino").mkdir()
    (tmp_path / "openvino/__init__.py").write_text("from openvino._pyopenvino import Core\n__version__ = '1.0'\n")
    (tmp_path / "openvino/_pyopenvino.py").write_text(OPENVINO)
    path = os.pathsep.join([str(mounted / "python"), str(tmp_path)])

    def use(*arguments, plan=PLAN, **kwargs):
        variables = {"PYTHONPATH": path, env.PLAN: plan}
        done = shim_lab.python(shim_lab.THIS_PYTHON, "-c", USE_OPENVINO, *arguments, env=variables, **kwargs)
        assert done.stderr == "raddle: openvino 1.0: threads=1\n"
        return json.loads(done.stdout)

    return use


def code_s(hint, zero, own, explicit_zero):
    calls = ["CPU", {"INFERENCE_NUM_THREADS": hint, "PERFORMANCE_HINT": "LATENCY"}], [{"INFERENCE_NUM_THREADS": zero}]
    return [*calls, {"INFERENCE_NUM_THREADS": own}, {"INFERENCE_NUM_THREADS": explicit_zero}, None]


def test_openvino_s_core_begins_with_the_plan_s_count_and_a_code_s_zero_stands_for_none(openvino):
    assert openvino()[-5:] == code_s(4, 1, 3, 1)
    assert openvino()[0] == COUNTED
    assert openvino(plan=OVERRIDE)[-5:] == code_s(1, 1, 1, 1)
    # The file says a count.
    assert openvino("plugins.xml") == code_s(4, 1, 3, 1)
    assert openvino("plugins.xml", plan=OVERRIDE)[0] == COUNTED


def test_openvino_s_threads_are_on_no_cpus_of_their_own_under_a_quota(openvino):
    with shim_lab.cgroup("cpu", cfs_quota_us="100000") as enter:
        assert openvino(before=enter)[:2] == [COUNTED, UNPINNED]


@pytest.mark.parametrize("version", pythons.VERSIONS)
def test_python_counts_the_container_s_cpus_where_the_policy_names_its_family(version, mounted):
    code = "import multiprocessing, os, pickle; print([os.cpu_count(), multiprocessing.cpu_count()])\n"
    code += "assert pickle.loads(pickle.dumps(os.cpu_count)) is os.cpu_count"
    executable = pythons.interpreter(version)

    def counted(**variables):
        done = shim_lab.python(executable, "-c", code, env={**variables, **shim_lab.python_path(mounted)})
        assert done.stderr == ""
        return json.loads(done.stdout)

    chosen = families_lab.environment(3, ["onnxruntime", "python"])
    assert counted(**chosen) == [3, 3]
    machine = counted()
    # Nobody has chosen it: a variable of the user's is for Python 3.13.
    user_s = families_lab.environment(3, ["onnxruntime"], sets={"PYTHON_CPU_COUNT": "3"})
    assert counted(**user_s) == ([3, 3] if version == "3.13" else machine)
    # Changed since, by an entrypoint.
    changed = counted(**{**chosen, "PYTHON_CPU_COUNT": "5"})
    assert changed == ([5, 5] if version == "3.13" else machine)


# A handler of the application's raises at each line of the adapter's in turn, each in a child of its own.
AT_EACH_LINE = (
    shim_lab.AT_LINE
    + """
import json, os
import toylib, raddle
folder = os.path.join(os.path.dirname(raddle.__file__), "adapters")

def answer(number):
    left = at_line(number, folder, limit)
    try:
        made = toylib.Index("l2").work()
    except TimeoutError:
        return "raised"
    finally:
        sys.settrace(None)
    return made if left[0] > 0 else "lost"

found = []
while not found or type(found[-1]) is str:
    read, write = os.pipe()
    if not os.fork():
        os.write(write, json.dumps(answer(len(found) + 1)).encode())
        os._exit(0)
    os.wait()
    found.append(json.loads(os.read(read, 4096)))
print(json.dumps([sorted(set(found[:-1])), len(found), found[-1]]))
"""
)


def test_what_a_signal_handler_raises_in_the_shim_s_work_reaches_the_application(mounted, tmp_path):
    (tmp_path / "hnswlib.py").write_text(
        "class Index:\n"
        "    threads = 64\n"
        "    def __init__(self, space):\n"
        "        pass\n"
        "    def set_num_threads(self, count):\n"
        "        self.threads = count\n"
        "    def work(self):\n"
        "        return self.threads\n"
    )
    path = {"PYTHONPATH": os.pathsep.join([str(mounted / "python"), str(tmp_path)])}
    program = AT_EACH_LINE.replace("toylib", "hnswlib")
    done = shim_lab.python(shim_lab.THIS_PYTHON, "-c", program, env={**path, env.PLAN: PLAN, "RADDLE_LOG": "0"})
    kinds, lines, last = json.loads(done.stdout)
    assert (kinds, last) == (["raised"], 1)
    assert lines > 30
