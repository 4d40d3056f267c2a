"""The fast path in real interpreters: what it loads, what it leaves behind, and that it is never in the way."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.runtimes import shim_lab

import raddle
from raddle import env, shim
from runtimes import pythons

pytestmark = pytest.mark.slow

RUNTIME = Path(shim.__file__).parents[1]
PLAN = "v=1;intra_op=2;spinning=never"
# All that a process may have loaded beyond what it has without Raddle.
ALLOWED = {"raddle", "raddle.shim", "sitecustomize"}


OLDEST, *BETWEEN, NEWEST = pythons.VERSIONS


@pytest.fixture(params=[OLDEST, *(pytest.param(one, marks=pytest.mark.matrix) for one in BETWEEN), NEWEST])
def interpreter(request):
    return pythons.interpreter(request.param)


@pytest.fixture(scope="module")
def mounted(tmp_path_factory):
    return shim_lab.mount(tmp_path_factory.mktemp("mount"))


@pytest.fixture
def unused(tmp_path):
    """A mount of which no interpreter has compiled anything yet."""
    return shim_lab.mount(tmp_path / "raddle")


def by_python_path(mounted):
    return {"PYTHONPATH": str(mounted / "python")}


def said(interpreter, code, extra, **kwargs):
    """What the code printed, as JSON, after nothing went to stderr."""
    done = shim_lab.python(interpreter, "-c", code, env=extra, **kwargs)
    assert done.stderr == ""
    return json.loads(done.stdout)


MODULES = "import sys; names = sorted(sys.modules); import json; print(json.dumps(names))"
SITE = """
import sys, site
found = [sys.path, site.USER_BASE, site.USER_SITE, site.ENABLE_USER_SITE, sys.dont_write_bytecode]
import json; print(json.dumps(found))
"""
ACTIVE = (
    "import sys; names = [type(f).__name__ for f in sys.meta_path]; import json; print(json.dumps('_Finder' in names))"
)


def test_a_process_that_imports_no_runtime_loads_the_shim_s_own_modules_only(interpreter, mounted):
    bare = set(said(interpreter, MODULES, {}))
    loaded = set(said(interpreter, MODULES, {**by_python_path(mounted), env.PLAN: PLAN}))
    assert "raddle.shim" in loaded
    assert loaded - bare <= ALLOWED


def test_the_shim_waits_for_runtimes_only_where_there_is_a_plan(interpreter, mounted):
    assert said(interpreter, ACTIVE, {**by_python_path(mounted), env.PLAN: PLAN}) is True
    assert said(interpreter, ACTIVE, {**by_python_path(mounted), env.PLAN: ""}) is False
    assert said(interpreter, ACTIVE, by_python_path(mounted)) is False


def test_path_and_user_site_are_what_they_are_without_the_shim(interpreter, mounted, tmp_path):
    home = {"HOME": str(tmp_path / "home")}
    (tmp_path / "home").mkdir()
    assert said(interpreter, SITE, {**by_python_path(mounted), **home, env.PLAN: PLAN}) == said(interpreter, SITE, home)


def test_nothing_is_written_beside_the_mounted_code(interpreter, unused):
    before = list(unused.rglob("*"))
    said(interpreter, MODULES, {**by_python_path(unused), env.PLAN: PLAN})
    # site itself imports sitecustomize, before any code of ours can ask it not to write.
    cached = {unused / "python" / "__pycache__"}
    assert {path for path in unused.rglob("*") if path.parent not in cached} - cached == set(before)


def test_the_next_sitecustomize_on_the_path_runs_as_well(interpreter, mounted, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.ran = __file__\n")
    paths = {"PYTHONPATH": os.pathsep.join([str(mounted / "python"), str(tmp_path)])}
    code = "import sys, sitecustomize, json; print(json.dumps([sys.ran, sitecustomize.__file__]))"
    expected = str(tmp_path / "sitecustomize.py")
    assert said(interpreter, code, {**paths, env.PLAN: PLAN}) == [expected, expected]
    assert said(interpreter, ACTIVE, {**paths, env.PLAN: PLAN}) is True


@pytest.mark.parametrize(
    "spelling", ["{0}/python/", "{0}/python:{0}/python", "{0}/python:{1}/link", "{1}/link//:{0}/python"]
)
def test_the_folder_may_be_on_the_path_twice_and_in_any_spelling(interpreter, mounted, spelling, tmp_path):
    (tmp_path / "link").symlink_to(mounted / "python")
    paths = {"PYTHONPATH": spelling.format(mounted, tmp_path), env.PLAN: PLAN}
    assert said(interpreter, ACTIVE, paths) is True


def test_an_error_in_the_next_sitecustomize_is_reported_as_without_the_shim(interpreter, mounted, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import not_installed_anywhere\n")
    alone = shim_lab.python(interpreter, "-c", "", env={"PYTHONPATH": str(tmp_path)})
    paths = {"PYTHONPATH": os.pathsep.join([str(mounted / "python"), str(tmp_path)]), env.PLAN: PLAN}
    both = shim_lab.python(interpreter, "-c", "print(1)", env=paths)
    assert "not_installed_anywhere" in alone.stderr
    assert both.stdout == "1\n"
    assert both.stderr.splitlines()[-1] == alone.stderr.splitlines()[-1]


def test_child_processes_have_the_shim_too(interpreter, mounted):
    code = f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', {ACTIVE!r}], text=True))"
    assert said(interpreter, code, {**by_python_path(mounted), env.PLAN: PLAN}) is True


@pytest.mark.parametrize(("flag", "reached"), [("-I", False), ("-S", False), ("-E", False), ("-s", True)])
def test_isolated_interpreters_are_out_of_reach(mounted, flag, reached):
    executable = pythons.interpreter("3.11")
    done = shim_lab.python(executable, flag, "-c", ACTIVE, env={**by_python_path(mounted), env.PLAN: PLAN})
    assert json.loads(done.stdout) is reached


def test_a_virtual_environment_is_reached(mounted):
    assert sys.prefix != sys.base_prefix, "the tests run in a virtual environment"
    assert said(shim_lab.THIS_PYTHON, ACTIVE, {**by_python_path(mounted), env.PLAN: PLAN}) is True


@pytest.mark.parametrize("pattern", ["2.7.*", "3.6.*", "3.7.*", "pypy3"])
def test_a_python_without_the_shim_runs_as_if_nothing_were_there(mounted, pattern, tmp_path):
    executable = shutil.which(pattern) or pythons.any_interpreter(pattern)
    home = {"HOME": str(tmp_path)}
    user_site = Path(said(executable, SITE, home)[2])
    user_site.mkdir(parents=True)
    (user_site / "mine.py").write_text("answer = 42")
    raddle = {**by_python_path(mounted), env.PLAN: PLAN}
    assert said(executable, "import mine; print(mine.answer)", {**home, **raddle}) == 42
    assert said(executable, SITE, {**home, **raddle}) == said(executable, SITE, home)


def test_a_frozen_application_is_left_alone():
    code = f"import sys; sys.frozen = True; import raddle.shim; raddle.shim.activate(); {ACTIVE}"
    assert said(shim_lab.THIS_PYTHON, code, {"PYTHONPATH": str(RUNTIME), env.PLAN: PLAN}) is False


def test_activating_twice_waits_once():
    code = """
import sys, raddle.shim
first, second = raddle.shim.activate(), raddle.shim.activate()
import json; print(json.dumps([first, second, sum(type(f).__name__ == '_Finder' for f in sys.meta_path)]))
"""
    assert said(shim_lab.THIS_PYTHON, code, {"PYTHONPATH": str(RUNTIME), env.PLAN: PLAN}) == [True, False, 1]


ACTIVATED = """
import json, os, raddle.shim
import onnxruntime.capi._pybind_state
def activate(number):
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder) is not raddle.shim._Finder]
    raddle.shim.activate()
print(json.dumps(at_each_line(os.path.dirname(raddle.__file__), activate)))
"""

AT_THE_START = """
import sys

def trace(frame, event, _):
    if frame.f_code.co_name != "activate":
        return None
    if event == "line":
        sys.settrace(None)
        raise TimeoutError("the limit")
    return trace

sys.settrace(trace)
"""


def test_what_a_signal_handler_raises_while_the_shim_is_activated_reaches_the_application(stand_in):
    paths = os.pathsep.join([str(RUNTIME), str(stand_in.parent)])
    number, lost = said(shim_lab.THIS_PYTHON, shim_lab.AT_LINE + ACTIVATED, {"PYTHONPATH": paths, env.PLAN: "v=1"})
    assert number > 10
    assert lost == []


def test_what_a_signal_handler_raises_at_the_interpreter_s_start_is_told_as_without_the_shim(mounted, tmp_path):
    executable = pythons.interpreter("3.11")
    home = {"HOME": str(tmp_path)}
    user_site = Path(said(executable, SITE, home)[2])
    user_site.mkdir(parents=True)
    # Path files come before sitecustomize.
    (user_site / "limits.pth").write_text("import limits\n")
    (user_site / "limits.py").write_text(AT_THE_START)
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.ran = sys.path[:]\n")
    paths = os.pathsep.join([str(mounted / "python"), str(tmp_path)])
    code = "import sys; print(sys.ran == sys.path[1:], sys.dont_write_bytecode)"
    done = shim_lab.python(executable, "-c", code, env={**home, "PYTHONPATH": paths, env.PLAN: PLAN})
    assert done.stderr.splitlines()[-1] == "TimeoutError: the limit"
    assert done.stdout == "True False\n"


# --- a stand-in for onnxruntime, so that each interpreter's import system is seen ---------------------------------

BINDING = """
import enum
class ExecutionMode(enum.Enum):
    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1
class GraphOptimizationLevel(enum.Enum):
    ORT_ENABLE_ALL = 99
class SessionOptions:
    def __init__(self):
        self.intra_op_num_threads = self.inter_op_num_threads = 0
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.use_per_session_threads = True
    def add_session_config_entry(self, key, value): pass
    def get_session_config_entry(self, key): raise RuntimeError(key)
get_default_session_options = SessionOptions
class InferenceSession:
    def __init__(self, options, model, is_path, read_config):
        self.intra = options.intra_op_num_threads
    def initialize_session(self, *args): pass
    def get_providers(self): return []
"""
USE = """
import json, sys
import onnxruntime.capi._pybind_state as C
session = C.InferenceSession(C.get_default_session_options(), b"", False, False)
session.initialize_session()
print(json.dumps([session.intra, type(C.__loader__).__name__, C.__spec__.loader is C.__loader__]))
"""


@pytest.fixture
def stand_in(tmp_path):
    package = tmp_path / "packages" / "onnxruntime"
    (package / "capi").mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "1.31.1"\n')
    (package / "capi" / "__init__.py").touch()
    (package / "capi" / "_pybind_state.py").write_text(BINDING)
    return package


def used(interpreter, mounted, stand_in, plan, **extra):
    paths = os.pathsep.join([str(mounted / "python"), str(stand_in.parent)])
    return shim_lab.python(interpreter, "-c", USE, env={"PYTHONPATH": paths, env.PLAN: plan, **extra})


def test_a_runtime_is_configured_when_it_is_imported_and_says_so_in_one_line(interpreter, mounted, stand_in):
    done = used(interpreter, mounted, stand_in, "v=1;intra_op=1;inter_op=1;spinning=never;execution_mode=sequential")
    assert json.loads(done.stdout) == [1, "SourceFileLoader", True]
    assert done.stderr == (
        "raddle: onnxruntime 1.31.1: intra_op=1, inter_op=1, spinning off (no worker threads), affinity none\n"
    )


def test_the_line_is_silenced_by_raddle_log_and_by_a_parent_that_has_said_it(interpreter, mounted, stand_in):
    for quiet in ({"RADDLE_LOG": "0"}, {"RADDLE_ANNOUNCED": "torch,onnxruntime"}):
        assert used(interpreter, mounted, stand_in, "v=1;intra_op=1", **quiet).stderr == ""


@pytest.mark.parametrize("plan", ["rubbish", "v=2;intra_op=1", "v=1;intra_op=many"])
def test_a_broken_plan_leaves_the_runtime_alone_and_says_why_in_one_line(interpreter, mounted, stand_in, plan):
    done = used(interpreter, mounted, stand_in, plan)
    assert json.loads(done.stdout)[0] == 0
    assert done.stderr.startswith("raddle: onnxruntime is not configured: plan ")
    assert done.stderr.count("\n") == 1


def test_a_broken_plan_is_not_spoken_of_by_processes_that_use_no_runtime(interpreter, mounted):
    assert said(interpreter, ACTIVE, {**by_python_path(mounted), env.PLAN: "rubbish"}) is True


@pytest.mark.parametrize(
    ("lost", "said_lines"),
    [
        ("adapters/onnxruntime/runtime.py", 1),
        ("process/resolution.py", 1),
        ("env.py", 0),
        ("log.py", 0),
        ("shim.py", 0),
    ],
)
def test_an_incomplete_mount_leaves_the_application_alone(interpreter, mounted, stand_in, lost, said_lines, tmp_path):
    incomplete = shutil.copytree(mounted, tmp_path / "incomplete")
    (incomplete / "python" / "raddle" / lost).unlink()
    done = used(interpreter, incomplete, stand_in, "v=1;intra_op=1")
    assert json.loads(done.stdout)[0] == 0
    assert done.stderr.count("raddle: onnxruntime is not configured, its adapter can't be loaded: ") == said_lines
    assert done.stderr.count("\n") == said_lines


def test_an_import_error_of_the_runtime_is_the_application_s_to_see(mounted, stand_in):
    (stand_in / "capi" / "_pybind_state.py").write_text("raise ImportError('libcudart.so.12: cannot open')\n")
    paths = os.pathsep.join([str(mounted / "python"), str(stand_in.parent)])
    env_ = {"PYTHONPATH": paths, env.PLAN: PLAN}
    done = shim_lab.python(shim_lab.THIS_PYTHON, "-c", USE, env=env_, check=False)
    assert done.stderr.splitlines()[-1] == "ImportError: libcudart.so.12: cannot open"


def test_a_runtime_that_is_not_installed_is_reported_missing_as_ever(mounted):
    executable = pythons.interpreter("3.11")
    code = "import onnxruntime_not_here.capi._pybind_state"
    env_ = {**by_python_path(mounted), env.PLAN: PLAN}
    done = shim_lab.python(executable, "-c", code, env=env_, check=False)
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'onnxruntime_not_here'"


def test_a_runtime_that_was_imported_first_is_configured_all_the_same(stand_in):
    code = "import onnxruntime.capi._pybind_state, raddle.shim; raddle.shim.activate()" + USE
    paths = os.pathsep.join([str(RUNTIME), str(stand_in.parent)])
    done = shim_lab.python(shim_lab.THIS_PYTHON, "-c", code, env={"PYTHONPATH": paths, env.PLAN: "v=1;intra_op=1"})
    assert json.loads(done.stdout)[0] == 1


def test_asking_where_a_runtime_is_imports_nothing_of_it(interpreter, mounted, stand_in):
    code = """
import importlib.util, json, sys
spec = importlib.util.find_spec("onnxruntime.capi._pybind_state")
print(json.dumps([spec.origin, spec.loader.get_filename(spec.name), "onnxruntime.capi._pybind_state" in sys.modules]))
"""
    paths = os.pathsep.join([str(mounted / "python"), str(stand_in.parent)])
    path = str(stand_in / "capi" / "_pybind_state.py")
    assert said(interpreter, code, {"PYTHONPATH": paths, env.PLAN: "v=1;intra_op=1"}) == [path, path, False]


SIBLINGS = """
import json, mmap, os, subprocess, sys
if len(sys.argv) > 2:
    # As the real one is when it is imported, here in all workers before the first has a session: one that started before
    # this one and has nothing mapped yet is taken for one that never will.
    library = mmap.mmap(os.open(os.environ["LIBRARY"], os.O_RDONLY), 0, prot=mmap.PROT_READ)
    print("mapped", flush=True)
    sys.stdin.readline()
    import onnxruntime.capi._pybind_state as C
    C.InferenceSession(C.get_default_session_options(), b"", False, False)
    import raddle.report.record
    print(json.dumps(raddle.report.record.sessions[0]["workersSeen"]), flush=True)
    sys.stdin.readline()
else:
    workers = [
        subprocess.Popen([sys.executable, sys.argv[0], "worker", "--socket", "/run/%d" % n], stdin=-1, stdout=-1, text=True)
        for n in range(3)
    ]
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1)
    for worker in workers:
        worker.stdout.readline()
    for worker in reversed(workers):
        print("go", file=worker.stdin, flush=True)
        print(worker.stdout.readline().strip())
    for worker in workers:
        worker.communicate("end\\n")
    other.communicate(b"go\\n")
"""


def test_workers_of_one_parent_are_counted_and_only_the_first_of_them_speaks(mounted, stand_in, tmp_path):
    script = tmp_path / "server.py"
    script.write_text(SIBLINGS)
    library = tmp_path / "libonnxruntime.so"
    library.write_text("mapped")
    paths = os.pathsep.join([str(mounted / "python"), str(stand_in.parent)])
    extra = {"PYTHONPATH": paths, env.PLAN: "v=1;intra_op=1", "LIBRARY": str(library)}
    done = shim_lab.python(shim_lab.THIS_PYTHON, str(script), env=extra)
    assert done.stdout.split() == ["3", "3", "3"]
    assert done.stderr.count("raddle: onnxruntime 1.31.1") == 1


def test_a_fork_after_sessions_were_made_is_warned_of_once(stand_in):
    code = """
import os, onnxruntime.capi._pybind_state as C
options = C.SessionOptions()
options.intra_op_num_threads = 4
session = C.InferenceSession(options, b"", False, False)
for _ in range(2):
    child = os.fork()
    if not child:
        C.InferenceSession(C.SessionOptions(), b"", False, False)
        os._exit(0)
    os.waitpid(child, 0)
"""
    paths = os.pathsep.join([str(RUNTIME), str(stand_in.parent)])
    program = "import raddle.shim; raddle.shim.activate()\n" + code
    done = shim_lab.python(shim_lab.THIS_PYTHON, "-c", program, env={"PYTHONPATH": paths, env.PLAN: "v=1;intra_op=2"})
    assert done.stderr.count("was forked after 1 onnxruntime session") == 2
    assert done.stderr.count("raddle: onnxruntime 1.31.1:") == 1


def test_the_loader_of_an_awaited_module_looks_and_is_copied_as_the_one_that_was_found(mounted, stand_in):
    code = """
import copy, importlib.util, pickle
from importlib.machinery import SourceFileLoader
loader = importlib.util.find_spec("onnxruntime.capi._pybind_state").loader
assert isinstance(loader, SourceFileLoader)
for same in (copy.copy(loader), copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
    assert (type(same), same.path) == (SourceFileLoader, loader.path)
assert type(loader).__module__ == "raddle.adapters.hook"
again = importlib.util.find_spec("onnxruntime.capi._pybind_state").loader
assert (loader == again, hash(loader) == hash(again), repr(loader).split()[0]) == (
    True, True, "<_frozen_importlib_external.SourceFileLoader"
)
"""
    paths = os.pathsep.join([str(mounted / "python"), str(stand_in.parent)])
    done = shim_lab.python(
        shim_lab.THIS_PYTHON, "-c", code, env={"PYTHONPATH": paths, env.PLAN: "v=1;intra_op=1"}, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


LIMITED = """
import signal, sys
class Limit(Exception): pass
def limit(number, frame): raise Limit
def audit(event, arguments):
    if event == "open" and waiting and str(arguments[0]).endswith(waiting[0]):
        waiting.clear()
        signal.raise_signal(signal.SIGALRM)
signal.signal(signal.SIGALRM, limit)
waiting = [sys.argv[1]]
sys.addaudithook(audit)
try:
    import onnxruntime.capi._pybind_state
except Limit:
    print("limit")
"""


@pytest.mark.parametrize("file", ["hook.py", "env.py", "errors.py", "record.py"])
def test_what_a_signal_handler_raises_while_the_shim_is_loaded_reaches_the_application(
    interpreter, unused, stand_in, file
):
    paths = os.pathsep.join([str(unused / "python"), str(stand_in.parent)])
    code = LIMITED + USE
    variables = {"PYTHONPATH": paths, env.PLAN: "v=1;intra_op=1", "RADDLE_LOG": "0"}
    done = shim_lab.python(interpreter, "-c", code, "/" + file, env=variables, check=False)
    assert (done.stdout, done.stderr) == ('limit\n[1, "SourceFileLoader", true]\n', "")


def test_the_fast_path_imports_only_what_every_process_has():
    top = []
    for module in (raddle, shim):
        source = ast.parse(Path(module.__file__).read_text())
        top += [node for node in source.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert sorted(alias.name for node in top for alias in node.names) == [
        "COMPLETED",
        "HIDDEN",
        "RUNTIMES",
        "STARTS",
        "_thread",
        "in_c",
        "in_list",
        "os",
        "os",
        "sys",
    ]
    assert f'"{env.PLAN}"' in Path(shim.__file__).read_text()


def test_every_file_that_is_delivered_compiles_with_the_oldest_python_it_is_for():
    executable = pythons.interpreter("3.8")
    files = [*RUNTIME.joinpath("raddle").rglob("*.py"), RUNTIME / "python" / "sitecustomize.py"]
    code = "import sys; [compile(open(name).read(), name, 'exec') for name in sys.argv[1:]]"
    subprocess.run([executable, "-c", code, *map(str, files)], check=True)
