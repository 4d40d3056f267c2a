"""The Python shim beside everything else that hooks an interpreter; test_reach.py has the layouts of images."""

import json
import os
from typing import NamedTuple

import pytest
from support.runtimes import door_lab, shim_lab

from raddle import env
from runtimes import pythons

pytestmark = [pytest.mark.runtime, pytest.mark.matrix]

ONNXRUNTIME = "onnxruntime==1.31.1"
PLAN = "v=1;intra_op=1;inter_op=1;spinning=never;execution_mode=sequential;affinity=none"
# A real session; what it got, and what else there is in the process.
APP = """
import json, sys
import onnxruntime
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
record = sys.modules.get("raddle.report.record")
said = {"intra": record.sessions[0]["effective"]["intraOp"] if record else None, "modules": sorted(sys.modules)}
"""
SAY = "\nprint(json.dumps(said))\n"


@pytest.fixture
def app(tmp_path):
    def write(code=""):
        path = tmp_path / "app.py"
        path.write_text(APP + code + SAY)
        return path

    return write


def installed(name, *packages, version="3.11"):
    return pythons.venv(name, version, packages)


def said(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# --- other instrumentation ----------------------------------------------------------------------------------------

OTEL = ("opentelemetry-distro==0.66b1", "opentelemetry-instrumentation-threading==0.66b1")
OTEL_SAY = """
from opentelemetry import trace
said["modules"].append(type(trace.get_tracer_provider()).__module__)
"""


class Instrumentation(NamedTuple):
    """Another package with a sitecustomize, its command, variables that keep it quiet, and the module that shows it."""

    folder: str
    command: str
    variables: dict[str, str]
    module: str
    code: str = ""


OTHERS = {
    "otel": Instrumentation(
        "opentelemetry/instrumentation/auto_instrumentation", "opentelemetry-instrument",
        {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")},
        "opentelemetry.sdk.trace", OTEL_SAY,
    ),
    "ddtrace": Instrumentation(
        "ddtrace/bootstrap", "ddtrace-run",
        {
            "DD_TRACE_ENABLED": "false",
            "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
            "DD_REMOTE_CONFIGURATION_ENABLED": "false",
        },
        "ddtrace.bootstrap.preload",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def otel():
    return installed("coexist-otel-0.66b1", ONNXRUNTIME, *OTEL)


@pytest.fixture(scope="module", params=OTHERS)
def other(request):
    """An instrumentation and a Python that has it."""
    if request.param == "otel":
        return OTHERS["otel"], request.getfixturevalue("otel")
    return OTHERS["ddtrace"], installed("coexist-ddtrace-4.16.0", ONNXRUNTIME, "ddtrace==4.16.0")


@pytest.mark.parametrize("order", ["{raddle}:{other}", "{other}:{raddle}"])
def test_the_sitecustomize_of_another_instrumentation_and_ours_both_work_in_either_order(
    other, mounted, model, app, order
):
    one, executable = other
    folder = next((executable.parents[1] / "lib").glob(f"python*/site-packages/{one.folder}"))
    path = order.format(raddle=mounted / "python", other=folder)
    variables = {**one.variables, env.PLAN: PLAN, "PYTHONPATH": path}
    found = said(shim_lab.python(executable, str(app(one.code)), str(model), env=variables, check=False))
    assert found["intra"] == 1
    assert one.module in found["modules"]


def test_a_program_that_the_command_of_an_instrumentation_starts_has_its_plan(other, model, app):
    one, executable = other
    command = [str(executable.with_name(one.command)), str(executable), str(app(one.code)), str(model)]
    done = shim_lab.python(*door_lab.prefix(), *command, env={**one.variables, env.PLAN: PLAN}, check=False)
    assert said(done)["intra"] == 1
    assert one.module in said(done)["modules"]
    assert done.stderr.count("raddle: ") == 1


WRAPT = """
import json, sys, wrapt
seen = []
wrapt.register_post_import_hook(lambda module: seen.append(module.__name__), "onnxruntime.capi._pybind_state")
"""


@pytest.mark.parametrize("first", [True, False])
def test_an_import_hook_of_wrapt_on_the_same_module_is_called_once_and_so_is_ours(
    otel, mounted, model, tmp_path, first
):
    activate = "import raddle.shim; raddle.shim.activate()\n"
    script = tmp_path / "app.py"
    both = activate + WRAPT if first else WRAPT + activate
    script.write_text(both + APP + "said['seen'] = seen" + SAY)
    variables = {env.PLAN: PLAN, **shim_lab.python_path(mounted)}
    # -S keeps sitecustomize from being first in both cases; the packages are named instead.
    packages = next((otel.parents[1] / "lib").glob("python*/site-packages"))
    variables["PYTHONPATH"] += os.pathsep + str(packages)
    done = shim_lab.python(otel, "-S", str(script), str(model), env=variables, check=False)
    found = said(done)
    assert (found["intra"], found["seen"]) == (1, ["onnxruntime.capi._pybind_state"])
    assert done.stderr.count("raddle: ") == 1


RELOAD = """
import importlib
from onnxruntime.capi import _pybind_state
importlib.reload(_pybind_state)
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
said["records"] = [session["effective"]["intraOp"] for session in record.sessions]
said["because"] = record.sessions[-1]["because"]
"""


def test_a_runtime_that_is_loaded_again_is_configured_once(mounted, model, app):
    executable = installed("ort-1.31.1", ONNXRUNTIME)
    variables = {env.PLAN: PLAN, **shim_lab.python_path(mounted)}
    found = said(shim_lab.python(executable, str(app(RELOAD)), str(model), env=variables, check=False))
    assert found["records"] == [1, 1]
    assert "intra" not in found["because"]


# --- processes ----------------------------------------------------------------------------------------------------


def test_a_session_in_a_subprocess_has_its_plan_and_says_its_own_line(mounted, model, app, tmp_path):
    executable = installed("ort-1.31.1", ONNXRUNTIME)
    script = app("import subprocess\nif len(sys.argv) == 2:\n    subprocess.run([sys.executable, *sys.argv, 'child'])")
    variables = {env.PLAN: PLAN, **shim_lab.python_path(mounted)}
    done = shim_lab.python(executable, str(script), str(model), env=variables, check=False)
    assert [json.loads(line)["intra"] for line in done.stdout.splitlines()] == [1, 1]
    # The environment is not written to beside other threads, so that the child can't know of the parent's.
    assert done.stderr.count("raddle: ") == 2
