"""What else changes in a process that the shim is loaded into: the same programs with it and without, compared.

processes/footprint.py tells all that can be seen of a process; whatever differs is wanted, and the docs say so.
"""

import json
import re
import socket
from pathlib import Path

import pytest
from support.runtimes import door_lab, process_lab, shim_lab, torch_lab

from raddle import delivery, env
from runtimes import pythons

pytestmark = pytest.mark.runtime

PROBE = process_lab.PROGRAMS / "footprint.py"
PAGE = Path(__file__).parents[2] / "docs/explanation/preload-injection.md"
PLAN = (
    "v=1;intra_op=2;inter_op=1;spinning=bounded;spin_duration_us=200;execution_mode=sequential;affinity=none;exclusive_cpus=0;streams=1;workers=1;omp=2;"
    "torch_inter_op=1;existing_values=respect;observe=sessions"
)
# What the page says -> which differences it means, of those that `differences` names.
REPLACED = "(repr|type|file|signature|doc|name|qualname|module)"
WANTED = {
    "`sys.modules` contains `raddle` and `raddle.shim` and, after the import of a runtime, the modules of its adapter": r"sys\.modules: \+(raddle(\..*)?|sitecustomize)|(module )?sitecustomize\b.*: \+",
    "`sys.meta_path` has one more finder": r"sys\.meta_path: \+raddle\.shim\._Finder",
    "`sys.path_importer_cache` has folders of the mount": r"sys\.path_importer_cache: \+MOUNT/python.*",
    "`os.environ` has the pod's variables, and `RADDLE_ANNOUNCED` after a line was logged while no other thread ran, so"
    " that children do not log it again": (
        r"os\.environ\.(PYTHONPATH|RADDLE_PLAN|RADDLE_ANNOUNCED|ORT_INT(RA|ER)_OP_NUM_THREADS): \+"
    ),
    "The native library is mapped": r"libraries: \+MOUNT/libraddle\.so",
    "Standard error has one line per runtime": r"stderr: \+raddle: (onnxruntime|torch) .*",
    "onnxruntime's native `InferenceSession` is a subclass of the original, with the same name; its sessions have attributes"
    " `raddle…`": (
        r"onnxruntime\.capi\.\w+\.InferenceSession\.(bases: order|signature)"
        r"|object native session\.attributes: \+(__dict__|raddle\w*)"
        rf"|onnxruntime\.capi\.\w+\.InferenceSession\.(__init__|initialize_session|run_async)\.{REPLACED}"
    ),
    "Functions of onnxruntime that configure what sessions share or return default options, and functions of torch that"
    " set, return or use its two counts, are Python functions with the same name, module and text, and are pickled by name": (
        r"onnxruntime\.(capi\.\w+\.)?"
        r"(set_global_thread_pool_sizes|create_and_register_allocator(_v2)?|get_default_session_options)"
        r"\.(repr|type|file|signature|qualname|pickle)"
        r"|torch\.(_C\.)?((set|get)_num_(interop_)?threads|_parallel_info|fork)\.(repr|type|file|signature)"
        r"|torch\.((jit\.)?\w+)\.(forward|run_method|__call__)\.(repr|type|file|signature)"
    ),
}
# The same, where RADDLE_AGENT is set.
TELLING = {
    "The process then has the modules `_socket` and `json`, and a callback at exit": (
        r"atexit|os\.environ\.RADDLE_AGENT: \+|((sys\.modules: \+|module |libraries: \+/.*/)?(_socket|_?json)\b.*)"
    )
}
PROGRAMS = ("plain", "numpy", "ort-1.20.1", "ort-1.32.0", "torch")


def programs(*typical):
    """All of them, of which `make test` tries these."""
    marked = [pytest.param(one, marks=() if one in typical else pytest.mark.matrix) for one in PROGRAMS]
    return pytest.mark.parametrize("look", marked, indirect=True, scope="module")


@pytest.fixture(scope="module")
def look(request, model, tmp_path_factory):
    """look(*before, **variables): what the probe tells of a process of this program that is started so, with them."""
    home, program = tmp_path_factory.mktemp("home"), request.param
    executable = pythons.interpreter("3.11")
    if program == "torch":
        executable = torch_lab.installed().python
    elif program != "plain":
        venv = pythons.release(program if program.startswith("ort-") else "ort-1.32.0")
        (packages,) = (venv.parents[1] / "lib").glob("python*/site-packages")
        # A virtual environment has no user site: its packages are put into the user's own.
        user_site = home / ".local/lib/python3.11/site-packages"
        user_site.mkdir(parents=True)
        (user_site / "packages.pth").write_text(f"{packages}\n")
    fixed = {"HOME": str(home), env.OMP: "2", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}
    arguments = ["-Wdefault", str(PROBE), str(model), "onnxruntime" if program.startswith("ort-") else program]

    def call(*before, **variables):
        # By a shell, as behind the door, which leaves variables of its own.
        command = [*(before or ("sh", "-c", 'exec "$@"', "sh")), str(executable), *arguments]
        done = shim_lab.python(*command, env={**fixed, **variables}, check=False)
        assert done.returncode == 0, done.stderr
        return {**json.loads(done.stdout), "stderr": done.stderr.splitlines()}

    return call


@pytest.fixture(scope="module")
def without(look):
    return look()


def differences(before, after, where=""):
    """Where the two differ: "sys.path: +/x" for what a list has gained, "os.environ.X: -" for what is not there now."""
    if isinstance(before, dict) and isinstance(after, dict):
        yield from (f"{where}.{key}: -".lstrip(".") for key in before if key not in after)
        yield from (f"{where}.{key}: +".lstrip(".") for key in after if key not in before)
        for key in before.keys() & after.keys():
            yield from differences(before[key], after[key], f"{where}.{key}".lstrip("."))
    elif isinstance(before, list) and isinstance(after, list) and before != after:
        changes = [f"-{one}" for one in before if one not in after] + [f"+{one}" for one in after if one not in before]
        yield from (f"{where}: {change}" for change in changes or ["order"])
    elif before != after:
        yield where


@programs("plain", "ort-1.32.0", "torch")
def test_what_loading_the_shim_changes_in_a_process_is_wanted_and_the_environment_is_the_pods(look, without):
    found = only_wanted(without, look(*door_lab.prefix(), **{env.PLAN: PLAN}), delivery.MOUNT_PATH)
    environ = {one.split(".")[2] for one in found if one.startswith("os.environ.")}
    assert environ <= {f"{name}: +" for name in (env.PLAN, env.ORT_INTRA, env.ORT_INTER, "RADDLE_ANNOUNCED")}


def only_wanted(before, after, mount, *more):
    """What the shim has changed; AssertionError where the page doesn't have it."""
    found = {difference.replace(mount, "MOUNT") for difference in differences(before, after)}
    assert "sys.meta_path: +raddle.shim._Finder" in found
    assert {one for one in found if not any(re.fullmatch(wanted, one) for wanted in (*WANTED.values(), *more))} == set()
    could = [name for name, told in before.items() if isinstance(told, dict) and told.get("pickle") == "True"]
    assert [name for name in could if after[name]["pickle"] != "True"] == []
    return found


@programs("plain", "ort-1.32.0")
def test_where_it_tells_the_agent_a_process_has_two_modules_and_a_callback_at_exit_more(look, without, mounted):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as agent:
        agent.bind(("127.0.0.1", 0))
        told = {env.AGENT: f"127.0.0.1:{agent.getsockname()[1]}/serve"}
        after = look(PYTHONPATH=str(mounted / "python"), **{env.PLAN: PLAN}, **told)
    only_wanted(without, after, str(mounted), *TELLING.values())


@programs("plain")
def test_the_same_program_looks_the_same_when_it_is_started_again(look, without):
    assert set(differences(without, look())) == set()


def test_the_page_says_what_is_wanted():
    page = " ".join(PAGE.read_text().split())
    assert [sentence for sentence in (*WANTED, *TELLING) if sentence not in page] == []
