"""The Python shim beside everything else that hooks an interpreter, and in every layout that images have."""

import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from support.runtimes import door_lab, shim_lab

from raddle import env
from runtimes import pythons

pytestmark = [pytest.mark.runtime, pytest.mark.matrix]

ONNXRUNTIME = "onnxruntime==1.31.1"
PLAN = "v=1;intra=1;inter=1;spin=never;mode=sequential;aff=none"
# A real session; what it got, and what else there is in the process.
APP = """
import json, sys
import onnxruntime
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
record = sys.modules.get("raddle.report.record")
said = {"intra": record.sessions[0]["effective"]["intra"] if record else None, "modules": sorted(sys.modules)}
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
said["records"] = [session["effective"]["intra"] for session in record.sessions]
said["because"] = record.sessions[-1]["because"]
"""


def test_a_runtime_that_is_loaded_again_is_configured_once(mounted, model, app):
    executable = installed("ort-1.31.1", ONNXRUNTIME)
    variables = {env.PLAN: PLAN, **shim_lab.python_path(mounted)}
    found = said(shim_lab.python(executable, str(app(RELOAD)), str(model), env=variables, check=False))
    assert found["records"] == [1, 1]
    assert "intra" not in found["because"]


# --- layouts ------------------------------------------------------------------------------------------------------

DEBIAN = Path("/usr/bin/python3")
LAYOUT = """
import json, sys
shim = sys.modules.get("raddle.shim")
said = {"active": any(type(finder).__name__ == "_Finder" for finder in sys.meta_path), "path": sys.path}
"""


def test_debian_s_python_has_the_shim_its_own_sitecustomize_and_its_packages(mounted):
    debian = DEBIAN.resolve()
    if not (debian.exists() and Path("/usr/lib/python3/dist-packages").is_dir()):
        pytest.skip("this is no Debian with its own Python")
    code = LAYOUT + "\nimport sitecustomize\nsaid['site'] = sitecustomize.__file__" + SAY
    with_shim = said(
        shim_lab.python(debian, "-c", code, env={**shim_lab.python_path(mounted), env.PLAN: PLAN}, check=False)
    )
    without = said(shim_lab.python(debian, "-c", code, env={}, check=False))
    assert (with_shim.pop("active"), without.pop("active")) == (True, False)
    assert with_shim == without
    assert "/usr/lib/python3/dist-packages" in with_shim["path"]


@pytest.mark.parametrize("home", [None, "/nonexistent", "/"])
def test_a_process_without_a_home_has_the_shim_and_its_path(mounted, home):
    executable = pythons.interpreter("3.11")
    # As an image's user without an entry in /etc/passwd.
    variables = ["PATH=/usr/bin:/bin", *([] if home is None else [f"HOME={home}"])]
    ours = [f"{name}={value}" for name, value in {**shim_lab.python_path(mounted), env.PLAN: PLAN}.items()]
    with_shim, without = (
        said(shim_lab.python("/usr/bin/env", "-i", *more, str(executable), "-c", LAYOUT + SAY, env={}, check=False))
        for more in ([*variables, *ours], variables)
    )
    assert (with_shim.pop("active"), without.pop("active")) == (True, False)
    assert with_shim == without


def test_a_virtual_environment_with_the_system_s_packages_is_reached(mounted, tmp_path):
    base = pythons.interpreter("3.11")
    subprocess.run([base, "-m", "venv", "--without-pip", "--system-site-packages", tmp_path / "venv"], check=True)
    variables = {**shim_lab.python_path(mounted), env.PLAN: PLAN}
    done = shim_lab.python(tmp_path / "venv/bin/python", "-c", LAYOUT + SAY, env=variables, check=False)
    assert said(done)["active"] is True


def test_a_user_s_own_packages_are_importable_beside_a_real_runtime(mounted, model, tmp_path):
    base = installed("ort-1.31.1", ONNXRUNTIME)
    version = pythons.interpreter("3.11")
    packages = next((base.parents[1] / "lib").glob("python*/site-packages"))
    user_site = tmp_path / ".local" / "lib" / "python3.11" / "site-packages"
    user_site.mkdir(parents=True)
    # As pip install --user leaves it: the runtime is found nowhere else.
    (user_site / "packages.pth").write_text(f"{packages}\n")
    script = tmp_path / "app.py"
    script.write_text(APP + SAY)
    variables = {**shim_lab.python_path(mounted), "HOME": str(tmp_path), env.PLAN: PLAN}
    assert said(shim_lab.python(version, str(script), str(model), env=variables, check=False))["intra"] == 1


PYINSTALLER = "pyinstaller==6.22.3"
FROZEN = """
import json, sys
ours = [name for name in sys.modules if name.split(".")[0] == "raddle"]
print(json.dumps([bool(getattr(sys, "frozen", False)), ours, [type(finder).__name__ for finder in sys.meta_path]]))
"""


def frozen_app():
    """The program that a real PyInstaller makes of FROZEN; built once, like the environments."""
    builder = installed("coexist-pyinstaller-6.22.3", PYINSTALLER).with_name("pyinstaller")
    home = pythons.VENVS / "frozen-pyinstaller-6.22.3"
    with home.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "ready").exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            (home / "app.py").write_text(FROZEN)
            command = [builder, "--onedir", "--noconfirm", "--log-level", "ERROR", "app.py"]
            subprocess.run(command, cwd=home, check=True, timeout=280, capture_output=True)
            (home / "ready").touch()
    return home / "dist" / "app" / "app"


def test_a_frozen_application_has_nothing_of_the_shim(mounted):
    try:
        program = frozen_app()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"PyInstaller can't freeze this Python: {error.stderr[-200:]!r}")
    done = shim_lab.python(program, env={**shim_lab.python_path(mounted), env.PLAN: PLAN}, check=False)
    frozen, ours, finders = said(done)
    assert (frozen, ours, done.stderr) == (True, [], "")
    assert "_Finder" not in finders


# --- processes ----------------------------------------------------------------------------------------------------

CHILDREN = """
import multiprocessing
def work(model, queue):
    import onnxruntime, sys
    onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    queue.put(sys.modules["raddle.report.record"].sessions[-1]["effective"]["intra"])
if __name__ == "__main__":
    import json, sys
    context = multiprocessing.get_context(sys.argv[2])
    queue = context.Queue()
    child = context.Process(target=work, args=(sys.argv[1], queue))
    child.start()
    print(json.dumps(queue.get(timeout=60)))
    child.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_session_in_a_child_of_multiprocessing_has_its_plan(mounted, model, tmp_path, method):
    executable = installed("ort-1.31.1", ONNXRUNTIME)
    script = tmp_path / "app.py"
    script.write_text(CHILDREN)
    variables = {env.PLAN: PLAN, **shim_lab.python_path(mounted)}
    done = shim_lab.python(executable, str(script), str(model), method, env=variables, check=False)
    assert said(done) == 1
    assert done.stderr.count("raddle: ") == 1


def test_a_session_in_a_subprocess_has_its_plan_and_says_its_own_line(mounted, model, app, tmp_path):
    executable = installed("ort-1.31.1", ONNXRUNTIME)
    script = app("import subprocess\nif len(sys.argv) == 2:\n    subprocess.run([sys.executable, *sys.argv, 'child'])")
    variables = {env.PLAN: PLAN, **shim_lab.python_path(mounted)}
    done = shim_lab.python(executable, str(script), str(model), env=variables, check=False)
    assert [json.loads(line)["intra"] for line in done.stdout.splitlines()] == [1, 1]
    # The environment is not written to beside other threads, so that the child can't know of the parent's.
    assert done.stderr.count("raddle: ") == 2
