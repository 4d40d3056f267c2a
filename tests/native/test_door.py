"""The door: what the native library does before main, kind of process by kind, and what it leaves alone.

Most of it is the same whichever way the library was preloaded, so LD_PRELOAD brings it there; what children inherit,
and what must look as if there were no door, is tried behind the real one.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest
from support.runtimes import door_lab, native_programs
from support.runtimes.native_programs import Kind, need

from raddle import delivery
from raddle_operator.injection.literals import VARIABLES

# No more threads of OpenMP than this machine may have CPUs.
PLAN = "v=1;intra_op=2;inter_op=1;omp=2;blas=2;spinning=never"
COUNTS = {
    "ORT_INTRA_OP_NUM_THREADS": "2",
    "ORT_INTER_OP_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "2",
}
# All that the library would add otherwise: with it the door is only seen where something goes wrong.
WHOLE = {"RADDLE_PLAN": PLAN, **COUNTS}
PATH = os.environ["PATH"]
# What a Python says of itself: whether the shim waits in it, and what is left of how it came there.
SELF = """
import json, os, sys
print(json.dumps({
    "reached": any(type(finder).__module__ == "raddle.shim" for finder in sys.meta_path),
    "environ": dict(os.environ), "prefix": sys.prefix,
    "path": [entry for entry in sys.path if "/opt/raddle" in entry or "/raddle-door-" in entry],
}))
"""
# A program of C's that is what it is told to be: it prints its environment as main and libc have it, in their order.
PROGRAM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern char **environ;
#ifdef EXPORT
int EXPORT(void) { return 0; }
#endif
int main(int count, char **arguments, char **given)
{
    const char *later = getenv("OPEN_LATER");
    if (later != NULL && dlopen(later, RTLD_NOW | RTLD_GLOBAL) == NULL) {
        puts(dlerror());
    }
    (void)count;
    (void)arguments;
    for (char **one = environ; *one != NULL; one++) {
        puts(*one);
    }
    return given == environ || later != NULL ? 0 : 1;
}
"""

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the programs are built for x86-64")


@pytest.fixture(scope="session")
def tree():
    native_programs.library()
    return door_lab.tree()


@pytest.fixture(scope="session")
def prefix(tree):
    return door_lab.prefix(tree)


@pytest.fixture(scope="session")
def started(tree):
    """started(*command, **environ): the finished process, which has nothing of the tests' own environment."""

    def run(*command, status=0, code=None, **environ):
        command = [*map(str, command), *(("-c", code) if code else ())]
        environ = {"LD_PRELOAD": str(tree / "libraddle.so"), "RADDLE_PLAN": PLAN, **environ}
        done = subprocess.run(
            command,
            env={name: value for name, value in environ.items() if value is not None},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert done.stderr == ""
        return done.stdout

    return run


@pytest.fixture(scope="session")
def described(started):
    """described(*interpreter, **environ): what a Python says of itself."""

    def run(*command, **environ):
        return json.loads(started(*command, code=SELF, **environ))

    return run


@pytest.fixture(scope="session")
def everybody_s():
    """A folder that other users can look into."""
    with tempfile.TemporaryDirectory(prefix="raddle-door-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="session")
def program(everybody_s):
    """program(name, export="Py_Main"): one that prints its environment, by that name."""

    @cache
    def make(name, export="", compiler="gcc", flags=(), text=PROGRAM):
        need(compiler)
        folder = Path(tempfile.mkdtemp(dir=everybody_s))
        folder.chmod(0o755)
        (folder / "program.c").write_text(text)
        defined = (f"-DEXPORT={export}", "-rdynamic") if export else ()
        Kind.run_checked(compiler, *defined, "-o", folder / name, folder / "program.c", *flags)
        return folder / name

    return make


def variables(text):
    """Of a program's environment, what isn't how it was started, and what a Python's shim is to complete."""
    pairs = dict(line.partition("=")[::2] for line in text.splitlines())
    completed = dict(part.partition("=")[::2] for part in pairs.pop("RADDLE_COMPLETED", "").split(";") if "=" in part)
    given = ("LD_PRELOAD", "RADDLE_PLAN", "RADDLE_LITERALS")
    return {name: value for name, value in {**completed, **pairs}.items() if name not in given}


# --- which processes ------------------------------------------------------------------------------------------------


def test_a_python_gets_the_folder_and_the_counts(started, program, tree):
    found = variables(started(program("anything", "Py_Main")))
    assert found == {**COUNTS, "PYTHONPATH": f"{tree}/python/"}


def test_a_pypy_does_too(started, program, tree):
    assert variables(started(program("pypy3", "pypy_main_startup")))["PYTHONPATH"] == f"{tree}/python/"


def test_node_gets_the_counts(started, program):
    assert variables(started(program("node", "napi_create_function"))) == COUNTS


def test_a_program_with_a_runtime_among_its_libraries_gets_the_counts(started, program):
    flags = ("-fopenmp", "-Wl,--no-as-needed", "-lgomp")
    # Its own library has read OpenMP's in the start before.
    read = {"OMP_NUM_THREADS"}
    assert variables(started(program("server", flags=flags))) == {name: COUNTS[name] for name in COUNTS.keys() - read}


@pytest.mark.parametrize(("own", "count"), [({}, "1"), ({"OMP_NUM_THREADS": "7"}, "7")])
def test_a_library_that_reads_its_variables_before_the_door_has_the_count_in_a_second_start(tree, program, own, count):
    """libgomp says what it has read; the program, its arguments and what it sees in its environment are the same.

    A program may compare the variable with its own option, as GROMACS does, and end where they differ.
    """
    server = program("server", flags=("-fopenmp", "-Wl,--no-as-needed", "-lgomp"))
    environ = {"LD_PRELOAD": f"{tree}/libraddle.so", "RADDLE_PLAN": "v=1;omp=1", "OMP_DISPLAY_ENV": "true", **own}
    done = subprocess.run([server], env=environ, capture_output=True, text=True, check=True)
    read = [line for line in done.stderr.splitlines() if "OMP_NUM_THREADS" in line]
    assert read[-1].split() == ["OMP_NUM_THREADS", "=", f"'{count}'"]
    assert len(read) == (1 if own else 2)
    found = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert found == environ


@pytest.mark.parametrize("bound", ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"])
def test_a_program_whose_library_has_bound_its_thread_is_not_started_again(tree, program, bound):
    """All its threads would have the one CPU that the first start has bound it to."""
    server = program("server", flags=("-fopenmp", "-Wl,--no-as-needed", "-lgomp"))
    value = {"OMP_PROC_BIND": "true", "OMP_PLACES": "threads", "GOMP_CPU_AFFINITY": "0-1"}[bound]
    environ = {
        "LD_PRELOAD": f"{tree}/libraddle.so",
        "RADDLE_PLAN": "v=1;omp=1",
        "OMP_DISPLAY_ENV": "true",
        bound: value,
    }
    done = subprocess.run([server], env=environ, capture_output=True, text=True, check=True)
    assert done.stderr.count("OMP_NUM_THREADS") == 1


# As programs do whose libraries have read it by now.
STARTS_ITSELF = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **arguments)
{
    int starts = getenv("STARTS") == NULL ? 0 : atoi(getenv("STARTS"));
    char text[16];
    if (getenv("OMP_NUM_THREADS") == NULL && starts < 9) {
        snprintf(text, sizeof text, "%d", starts + 1);
        setenv("STARTS", text, 1);
        setenv("OMP_NUM_THREADS", arguments[1], 1);
        execv("/proc/self/exe", arguments);
    }
    printf("%d %s", starts, getenv("OMP_NUM_THREADS"));
    return count == 2 ? 0 : 1;
}
"""
PYTHON_STARTS_ITSELF = """
import os, sys
starts, name, value = int(os.environ.get("STARTS", 0)), sys.argv[1], sys.argv[2]
if os.environ.get(name) is None and starts < 99:
    os.environ["STARTS"] = str(starts + 1)
    os.environ[name] = value
    os.execv(sys.executable, sys.orig_argv)
print(starts, os.environ[name], end="")
"""


@pytest.mark.parametrize("count", ["2", "5"])
def test_a_program_that_sets_the_planned_count_and_starts_itself_does_so_once(started, program, count):
    flags = ("-fopenmp", "-Wl,--no-as-needed", "-lgomp")
    assert started(program("itself", flags=flags, text=STARTS_ITSELF), count) == f"1 {count}"


@pytest.mark.parametrize(
    ("name", "value", "starts"),
    [
        ("OMP_NUM_THREADS", "2", 1),
        ("OMP_NUM_THREADS", "5", 1),
        # Only these two have what tells a count of the code from an equal one that was hidden.
        ("ORT_INTRA_OP_NUM_THREADS", COUNTS["ORT_INTRA_OP_NUM_THREADS"], 10),
    ],
)
def test_a_python_that_sets_what_is_hidden_from_it_and_starts_itself_comes_to_an_end(started, name, value, starts):
    command = (sys.executable, "-c", PYTHON_STARTS_ITSELF, name, value)
    assert started(*command) == f"{starts} {value}"


@pytest.mark.parametrize(("own", "expected"), [({}, "1 None"), ({"OMP_NUM_THREADS": "7"}, "7 7")])
def test_a_python_s_preloaded_library_has_the_count_in_a_second_start_and_no_python_code_sees_it(
    started, tree, own, expected
):
    code = "import ctypes, os; print(ctypes.CDLL('libgomp.so.1').omp_get_max_threads(), os.getenv('OMP_NUM_THREADS'))"
    preloaded = f"libgomp.so.1:{tree}/libraddle.so"
    found = started(sys.executable, code=code, LD_PRELOAD=preloaded, RADDLE_PLAN="v=1;omp=1", **own)
    assert found.split("\n")[0] == expected


def test_a_script_keeps_its_name_in_a_second_start(started, tree, tmp_path):
    script = tmp_path / "my server"
    script.write_text(f"#!{sys.executable}\nprint(open('/proc/self/comm').read())")
    script.chmod(0o755)
    for preloaded in (f"{tree}/libraddle.so", f"libgomp.so.1:{tree}/libraddle.so"):
        assert started(script, LD_PRELOAD=preloaded).split("\n")[0] == "my server"


@pytest.mark.parametrize("name", ["server", "python3", "node", "gdb", "perf"])
def test_a_program_that_may_load_a_runtime_later_gets_the_counts(started, program, name):
    """A Python by what it is, not by its name; two that are extended in Python have it for themselves only."""
    symbol = ("Py_Main",) if name in ("gdb", "perf") else ()
    text = started(program(name, *symbol))
    assert variables(text) == COUNTS
    assert "OMP_NUM_THREADS=2\n" in text


@pytest.mark.parametrize("name", ["sh", "bash", "dash", "zsh-5.9", "ksh93", "busybox", "make", "gmake", "perl5.36.0"])
def test_what_runs_scripts_keeps_its_environment_so_that_these_find_what_the_image_says(started, program, name):
    assert variables(started(program(name))) == {}


def test_a_program_that_loads_no_library_keeps_its_environment(started):
    assert variables(started("env")) == {}


def test_nproc_counts_the_planned_threads(started):
    assert started("nproc", RADDLE_PLAN="v=1;omp=1") == "1\n"


def test_no_python_code_sees_the_counts(started, program, tree):
    found = dict(line.partition("=")[::2] for line in started(program("python3", "Py_Main")).splitlines())
    assert not found.keys() & COUNTS.keys()
    listed, _, starts = found["RADDLE_COMPLETED"].rpartition(";#")
    assert listed == ";".join(f"{name}={value}" for name, value in COUNTS.items())
    assert starts == "0"


@pytest.mark.parametrize("kind", ["Py_Main", "napi_create_function", "other"])
def test_what_a_parents_door_completed_is_taken_out_and_decided_again(started, program, kind):
    given = {"ORT_INTRA_OP_NUM_THREADS": "9", "OMP_NUM_THREADS": "1", "NPROC": "5", "RADDLE_LITERALS": None}
    # The middle one was changed since, so it is the parent's own.
    listed = "ORT_INTRA_OP_NUM_THREADS=9;OMP_NUM_THREADS=9;NPROC=5"
    found = variables(started(program("program", *([kind] * (kind != "other"))), RADDLE_COMPLETED=listed, **given))
    found.pop("PYTHONPATH", None)
    assert found == {**COUNTS, "OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize(("own", "expected"), [("2", "[2]"), (None, "[]")])
def test_a_count_that_python_code_sets_reaches_its_children_also_where_it_is_raddle_s(started, own, expected):
    code = f"import os; own = {own!r}; own and os.environ.update(OMP_NUM_THREADS=own); os.system('echo [$OMP_NUM_THREADS]')"
    assert started(sys.executable, code=code, PATH=PATH).splitlines()[0] == expected


@pytest.mark.parametrize("name", ["sh", "server"])
def test_it_is_taken_out_where_nothing_is_completed_too(started, program, name):
    given = {"OMP_NUM_THREADS": "9", "RADDLE_COMPLETED": "OMP_NUM_THREADS=9", "RADDLE_PLAN": ""}
    assert "OMP_NUM_THREADS" not in started(program(name), **given)


def test_a_real_node_gets_the_counts_and_no_path(started):
    if shutil.which("node") is None:
        pytest.skip("no node here")
    code = "console.log(process.env.OMP_NUM_THREADS, process.env.PYTHONPATH)"
    assert started(shutil.which("node"), "-e", code) == "2 undefined\n"


# --- what is completed ----------------------------------------------------------------------------------------------


def test_what_is_there_stays(started, program, tree):
    own = {"ORT_INTRA_OP_NUM_THREADS": "7", "OMP_NUM_THREADS": "5", "PYTHONPATH": "/mine"}
    found = variables(started(program("python3", "Py_Main"), **own))
    assert found == {**COUNTS, **own, "PYTHONPATH": f"{tree}/python/:/mine"}


def test_an_empty_value_is_none_as_runtimes_read_it(started, program):
    assert variables(started(program("server"), OMP_NUM_THREADS="")) == COUNTS


def test_openmp_gets_no_more_threads_than_the_process_may_have_cpus(started, program):
    counts = [
        variables(started(*prefix, program("server"), RADDLE_PLAN="v=1;omp=1000"))["OMP_NUM_THREADS"]
        for prefix in ((), ("taskset", "-c", str(min(os.sched_getaffinity(0)))))
    ]
    assert counts == [str(len(os.sched_getaffinity(0))), "1"]


@pytest.mark.parametrize(("plan", "count"), [("omp=2;blas=2", None), ("blas=2", "2"), ("omp=2", None)])
def test_openblas_gets_a_count_of_its_own_only_where_openmp_has_none(started, program, plan, count):
    found = variables(started(program("python3", "Py_Main"), RADDLE_PLAN=f"v=1;{plan}"))
    assert found.get("OPENBLAS_NUM_THREADS") == count


OPENMP_ONES = ["OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS"]


@pytest.mark.parametrize(
    ("name", "own", "gets_it"),
    [
        *((name, "OMP_NUM_THREADS", False) for name in OPENMP_ONES),
        *((name, "OMPX", True) for name in OPENMP_ONES),
        ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", False),
        ("MKL_NUM_THREADS", "GOTO_NUM_THREADS", True),
        ("KMP_BLOCKTIME", "OMP_WAIT_POLICY", False),
        *(("OMP_NUM_THREADS", name, False) for name in ("OMP_DYNAMIC", "KMP_HW_SUBSET", "OMP_NUM_THREADS_ALL")),
        ("KMP_BLOCKTIME", "OMP_NUM_THREADS", True),
    ],
)
def test_no_count_beats_what_somebody_has_chosen_in_another_variable(started, program, name, own, gets_it):
    found = variables(started(program("python3", "Py_Main"), RADDLE_LITERALS=f"{name}=4", **{own: "1"}))
    assert (name in found) == gets_it


def test_onnx_runtime_gets_the_count_that_is_right_without_a_shim(started, program):
    found = variables(started(program("python3", "Py_Main"), RADDLE_PLAN="v=1;intra_op=4;intra_op_without_shim=3"))
    assert found["ORT_INTRA_OP_NUM_THREADS"] == "3"


def test_what_the_pod_s_families_have_is_completed_from_the_list_of_what_raddle_wrote(started, program):
    literals = {name: "4" for name in VARIABLES if name != "JAVA_TOOL_OPTIONS"} | {"OMP_WAIT_POLICY": "PASSIVE"}
    listed = ";".join(
        ["NODE_OPTIONS#deadbeef", *(f"{name}={value}" for name, value in literals.items()), "X#", "EMPTY="]
    )
    found = variables(started(program("python3", "Py_Main"), RADDLE_LITERALS=listed, MKL_NUM_THREADS="1"))
    del found["PYTHONPATH"]
    assert found == {**COUNTS, **literals, "MKL_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    ("present", "plan", "expected"),
    [
        (None, "", "-XX:ActiveProcessorCount=4"),
        ("", "", "-XX:ActiveProcessorCount=4"),
        ("-Xmx1g", "", "-Xmx1g -XX:ActiveProcessorCount=4"),
        ("-Xmx1g -XX:ActiveProcessorCount=2", "", "-Xmx1g -XX:ActiveProcessorCount=2"),
        (
            "-XX:ActiveProcessorCount=2",
            ";existing_values=override",
            "-XX:ActiveProcessorCount=2 -XX:ActiveProcessorCount=4",
        ),
        ("-XX:ActiveProcessorCount=4", ";existing_values=override", "-XX:ActiveProcessorCount=4"),
    ],
)
def test_java_gets_the_option_that_the_policy_asked_for(started, program, present, plan, expected):
    listed = "MKL_NUM_THREADS=2;JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=4"
    environ = {"RADDLE_LITERALS": listed, "RADDLE_PLAN": PLAN + plan, "JAVA_TOOL_OPTIONS": present}
    found = variables(started(program("java"), **environ))
    assert found == {**COUNTS, "MKL_NUM_THREADS": "2", "JAVA_TOOL_OPTIONS": expected}
    # Another program of the same container, and a policy that has not asked.
    assert variables(started(program("javac"), **environ)).get("JAVA_TOOL_OPTIONS") == present
    environ["RADDLE_LITERALS"] = None
    assert variables(started(program("java"), **environ)).get("JAVA_TOOL_OPTIONS") == present


def test_no_other_option_of_java_s_is_taken_from_the_list(started, program):
    listed = "JAVA_TOOL_OPTIONS=-javaagent:/tmp/x.jar"
    assert variables(started(program("java"), RADDLE_LITERALS=listed)) == COUNTS


def test_a_real_java_counts_the_planned_cpus(started):
    if shutil.which("java") is None:
        pytest.skip("no java here")
    done = subprocess.run(
        ["java", "-Xint", "-XX:+PrintFlagsFinal", "-version"],
        env={
            "PATH": PATH,
            "LD_PRELOAD": str(door_lab.tree() / "libraddle.so"),
            "RADDLE_PLAN": PLAN,
            "RADDLE_LITERALS": "JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=3",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert any(line.split()[1:4] == ["ActiveProcessorCount", "=", "3"] for line in done.stdout.splitlines())


def test_a_plan_that_can_not_be_used_reaches_the_shim_which_says_so(started, program, tree):
    found = variables(started(program("python3", "Py_Main"), RADDLE_PLAN="nonsense"))
    assert found == {"PYTHONPATH": f"{tree}/python/"}


# --- which pythons --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        *(
            "",
            "-s",
            "-W -E",
            "-Werror",
            "-X -I",
            "-Xdev",
            "-bb -v",
            "--check-hash-based-pycs -I",
            "-c pass -I",
            "-cpass -E",
        ),
        *("-m x -S", "-mx -S", "x.py -I", "- -I", "-- -I", "-uc -I", "-OO x -E", "--version x -E"),
    ],
)
def test_a_python_that_reads_the_path_gets_the_folder(started, program, options):
    assert "PYTHONPATH" in variables(started(program("python3.11", "Py_Main"), *options.split()))


@pytest.mark.parametrize(
    "options",
    [
        *("-I", "-E", "-S", "-sE", "-Ic pass", "-W x -I", "-Werror -S", "-X dev -E", "-bWx -I", "-OO -I x.py"),
        *("--check-hash-based-pycs never -I", "-uIm x"),
    ],
)
@pytest.mark.parametrize("name", ["python3.11", "pypy3", "python"])
def test_a_python_that_reads_no_path_or_no_sitecustomize_keeps_it(started, program, name, options):
    counts = {name: COUNTS[name] for name in ("ORT_INTRA_OP_NUM_THREADS", "ORT_INTER_OP_NUM_THREADS")}
    assert variables(started(program(name, "Py_Main"), *options.split())) == counts


@pytest.mark.parametrize(("option", "found"), [("-I", False), ("-s", True)])
def test_a_python_under_another_name_has_the_same_options(started, program, option, found):
    command = ("bash", "-c", f'exec -a server "$0" {option}', program("python3", "Py_Main"))
    assert ("PYTHONPATH=" in started(*command, PATH=PATH)) is found


def test_another_program_with_a_python_in_it_has_options_of_its_own(started, program):
    assert "PYTHONPATH" in variables(started(program("uwsgi", "Py_Main"), "-I"))


@pytest.mark.parametrize("old", [None, "", "/mine", "/mine::/yours", ":", ":/mine", "/opt/raddle/pythonic"])
def test_a_python_s_own_path_is_restored_to_the_letter(described, old):
    found = described(sys.executable, PYTHONPATH=old)
    assert found["reached"]
    assert found["environ"].get("PYTHONPATH") == old
    assert found["path"] == [entry for entry in (old or "").split(":") if "raddle" in entry]


@pytest.mark.parametrize("ending", ["", "/", "/."])
def test_the_folder_is_there_once(started, program, tree, ending):
    """As a child of a program that has a Python in it, and has not started it yet, finds it."""
    for path in (f"{tree}/python{ending}", f"{tree}/python{ending}:/mine", f"/mine:{tree}/python{ending}"):
        assert variables(started(program("python3", "Py_Main"), PYTHONPATH=path))["PYTHONPATH"] == path


def test_where_the_pod_spec_names_the_folder_it_stays_for_children(described, tree):
    found = described(sys.executable, PYTHONPATH=f"{tree}/python:/mine", LD_PRELOAD=None)
    assert found["reached"]
    assert found["environ"]["PYTHONPATH"] == f"{tree}/python:/mine"


CHILDREN = """
import json, os, subprocess, sys
code = sys.argv[1]
def run(*command, **how):
    return subprocess.run(command, capture_output=True, text=True, check=True, **how).stdout
own = {"RADDLE_PLAN": os.environ["RADDLE_PLAN"], "LD_PRELOAD": os.environ["LD_PRELOAD"], "PYTHONPATH": "/child"}
print(json.dumps({
    "env": run("/usr/bin/env"),
    "same": json.loads(run(sys.executable, "-c", code)),
    "own": json.loads(run(sys.executable, "-c", code, env=own)),
    "none": json.loads(run("/usr/bin/env", "-i", "LD_PRELOAD=" + own["LD_PRELOAD"], sys.executable, "-c", code)),
    "isolated": json.loads(run(sys.executable, "-I", "-c", code)),
}))
"""


@pytest.mark.parametrize("old", [None, "", "/mine"])
def test_a_python_s_children_have_what_they_would_have_had_and_pythons_among_them_the_shim(started, old, tree):
    environ = {"LD_PRELOAD": str(tree / "libraddle.so"), **WHOLE, "LC_ALL": "C.UTF-8", "PYTHONPATH": old}
    environ = {name: value for name, value in environ.items() if value is not None}
    found = json.loads(started(sys.executable, "-c", CHILDREN, SELF, **environ))
    # In its order too.
    assert found["env"].splitlines() == [f"{name}={value}" for name, value in environ.items()]
    assert found["same"] == {**found["same"], "reached": True, "environ": environ}
    assert found["own"]["reached"]
    assert found["own"]["environ"]["PYTHONPATH"] == "/child"
    assert found["none"]["reached"]
    assert "PYTHONPATH" not in found["none"]["environ"]
    assert not found["isolated"]["reached"]
    assert found["isolated"]["environ"] == environ


@pytest.fixture(scope="session")
def venv(tmp_path_factory):
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, env={"PATH": PATH})
    return folder


def site_packages(venv):
    return next(venv.glob("lib/python3*/site-packages"))


@pytest.mark.parametrize("name", ["python", "python3"])
def test_a_virtual_environment_s_python_is_reached_and_stays_in_it(described, venv, name):
    found = described(venv / "bin" / name)
    assert found["reached"]
    assert found["prefix"] == str(venv)


def test_a_script_with_an_interpreter_of_its_own_is_reached(started, venv, tmp_path):
    script = tmp_path / "server"
    for options, reached in (("", True), (" -s", True), (" -I", False), (" -sE", False)):
        script.write_text(f"#!{venv}/bin/python{options}\n{SELF}")
        script.chmod(0o755)
        assert json.loads(started(script, "-I"))["reached"] is reached


@pytest.mark.parametrize(
    "environ",
    [
        {"PYTHONNOUSERSITE": "1"},
        {"PYTHONUSERBASE": "/nowhere"},
        {"PYTHONHOME": f"{sys.base_prefix}:{sys.base_exec_prefix}"},
        {"PYTHONSAFEPATH": "1"},
        {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONOPTIMIZE": "2"},
    ],
)
def test_python_s_own_variables_are_no_obstacle(described, environ):
    found = described(os.path.realpath(sys.executable), **environ)
    assert found["reached"]
    assert environ.items() <= found["environ"].items()


def test_the_image_s_own_sitecustomize_and_usercustomize_run_too(started, venv, tmp_path):
    say = "import builtins; builtins.ran = getattr(builtins, 'ran', []) + [__name__]"
    (tmp_path / "sitecustomize.py").write_text(say)
    code = "import builtins, os, sitecustomize; print(builtins.ran, sitecustomize.__file__, os.environ['PYTHONPATH'])"
    own = f"['sitecustomize'] {tmp_path}/sitecustomize.py {tmp_path}\n"
    assert started(venv / "bin" / "python", code=code, PYTHONPATH=str(tmp_path)) == own
    (tmp_path / "usercustomize.py").write_text(say)
    python = os.path.realpath(sys.executable)
    said = started(python, code=code, PYTHONPATH=str(tmp_path))
    assert said.startswith("['sitecustomize', 'usercustomize']")


def test_what_a_path_file_puts_into_the_path_need_not_be_text(started, venv):
    path_file = site_packages(venv) / "objects.pth"
    path_file.write_text("import sys, pathlib; sys.path += [pathlib.Path('/mine'), b'/yours']\n")
    try:
        code = "import sys; print(sys.path[-2:], [one for one in sys.path if 'raddle' in str(one)])"
        said = started(venv / "bin" / "python", code=code)
        assert said == "[PosixPath('/mine'), b'/yours'] []\n"
    finally:
        path_file.unlink()


@pytest.mark.parametrize("version", ["2.7", "3.4", "3.7"])
def test_a_python_that_is_too_old_for_the_shim_starts_as_ever(started, version):
    found = [
        *Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python"),
        *filter(None, [shutil.which(f"python{version}")]),
    ]
    if not found:
        pytest.skip(f"no Python {version} here")
    code = "import os, sys; print([os.environ.get('PYTHONPATH')] + [one for one in sys.path if 'raddle' in one])"
    for old in (None, "", "/mine"):
        assert started(found[0], code=code, PYTHONPATH=old) == f"{[old]}\n"


def test_a_real_pypy_is_reached(described):
    if shutil.which("pypy3") is None:
        pytest.skip("no pypy3 here")
    found = described(shutil.which("pypy3"), PYTHONPATH="/mine")
    assert found["reached"]
    assert found["environ"]["PYTHONPATH"] == "/mine"


# --- a process that was started without its parent's environment ------------------------------------------------------


def inner(program, tree, *pairs):
    """A shell that starts the program with nothing but the library and these variables."""
    return "sh", "-c", 'env -i "$@"; true', "sh", f"LD_PRELOAD={tree}/libraddle.so", *pairs, program


def test_the_plan_is_the_nearest_ancestor_s(started, program, tree):
    environ = {"PATH": PATH, "RADDLE_LITERALS": "MKL_NUM_THREADS=2", "RADDLE_LOG": "0", "OTHER": "1"}
    python = program("python3", "Py_Main")
    said = started(*inner(python, tree), **environ)
    del environ["PATH"]
    assert variables(said) == {"RADDLE_LOG": "0", **COUNTS, "MKL_NUM_THREADS": "2", "PYTHONPATH": f"{tree}/python/"}
    given = (f"RADDLE_PLAN={PLAN}", "RADDLE_LITERALS=MKL_NUM_THREADS=2", f"LD_PRELOAD={tree}/libraddle.so")
    assert set(given) < set(said.splitlines())
    # The one that starts it has another plan.
    nearest = started("env", "RADDLE_PLAN=v=1;intra_op=5", *inner(python, tree), **environ, PATH=PATH)
    assert "RADDLE_PLAN=v=1;intra_op=5\n" in nearest
    # A program in between has none of its own.
    between = started("sh", "-c", 'env -i PATH="$PATH" "$@"; true', "sh", *inner(python, tree), PATH=PATH)
    assert f"RADDLE_PLAN={PLAN}\n" in between


def test_what_the_process_was_given_stays(started, program, tree):
    given = ("RADDLE_LOG=", "OMP_NUM_THREADS=9")
    found = started(*inner(program("python3", "Py_Main"), tree, *given), PATH=PATH, RADDLE_LOG="0").splitlines()
    assert set(given) < set(found)


def test_an_empty_plan_of_the_process_or_of_the_nearest_ancestor_that_has_one_closes_the_door(started, program, tree):
    python = program("python3", "Py_Main")
    assert variables(started(*inner(python, tree, "RADDLE_PLAN="), PATH=PATH)) == {}
    assert variables(started(*inner(python, tree), PATH=PATH, RADDLE_PLAN="")) == {}
    assert "RADDLE_PLAN" not in started(*inner(python, tree), PATH=PATH, RADDLE_PLAN="")
    assert variables(started("env", "RADDLE_PLAN=", *inner(python, tree), PATH=PATH)) == {}


def test_without_a_plan_anywhere_nothing_is_done(started, program, tree):
    assert variables(started(*inner(program("python3", "Py_Main"), tree), PATH=PATH, RADDLE_PLAN=None)) == {}


def test_an_ancestor_of_another_user_is_not_asked(started, program, tree):
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv")
    command = 'setpriv --reuid=65534 --clear-groups env -i "$@"; true'
    python = program("python3", "Py_Main")
    found = started("sh", "-c", command, "sh", f"LD_PRELOAD={tree}/libraddle.so", python, PATH=PATH)
    assert variables(found) == {}


def set_uid(program):
    """A copy that runs as its owner, for another user to start."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv")
    copy = Path(shutil.copy(program, program.with_name("set-uid-" + program.name)))
    copy.chmod(0o4755)
    return copy


STARTS = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
/* As sudo: becomes root altogether, and starts a program with an environment of its own choice. */
int main(int count, char **arguments)
{
    char *environment[] = {arguments[1], NULL};
    int status = 0;
    (void)count;
    if (setresgid(0, 0, 0) != 0 || setresuid(0, 0, 0) != 0) {
        return 9;
    }
    if (fork() == 0) {
        execve(arguments[2], arguments + 2, environment);
        _exit(8);
    }
    wait(&status);
    return status;
}
"""


def test_an_ancestor_that_was_started_with_more_rights_than_its_caller_had_is_not_asked(started, program, tree):
    """sudo's own environment is its caller's."""
    python = program("python3", "Py_Main")
    starts = set_uid(program("starts", text=STARTS))
    command = (starts, f"LD_PRELOAD={tree}/libraddle.so", python)
    assert variables(started("setpriv", "--reuid=65534", "--clear-groups", *command, PATH=PATH)) == {}
    # The same by root itself.
    assert "PYTHONPATH" in variables(started(*command, PATH=PATH))


def test_an_arm64_python_is_completed_too(program, tmp_path):
    """Under an emulator, a program of this machine, which is not to see the library."""
    need("qemu-aarch64-static")
    native_programs.library("aarch64")
    delivery.write(str(tmp_path), "aarch64")
    python = program("python3", "Py_Main", "aarch64-linux-gnu-gcc")
    qemu = ("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_PRELOAD={tmp_path}/libraddle.so")
    ort = {name: count for name, count in COUNTS.items() if name.startswith("ORT_")}
    rows = (((), COUNTS, f"{tmp_path}/python/:/mine"), (("-I",), ort, "/mine"))
    for options, counts, path in rows:
        environ = {"PATH": PATH, "RADDLE_PLAN": PLAN, "PYTHONPATH": "/mine"}
        said = subprocess.run([*qemu, python, *options], env=environ, capture_output=True, text=True, check=True).stdout
        assert variables(said) == {"PATH": PATH, **counts, "PYTHONPATH": path}


# --- where it stands down -------------------------------------------------------------------------------------------


def test_an_empty_plan_closes_the_door(started, program):
    assert variables(started(program("python3", "Py_Main"), RADDLE_PLAN="")) == {}


def test_a_library_without_the_shim_beside_it_changes_no_environment(started, program, tree, tmp_path):
    shutil.copy(tree / "libraddle.so", tmp_path)
    assert variables(started(program("python3", "Py_Main"), LD_PRELOAD=f"{tmp_path}/libraddle.so")) == {}


def test_a_library_that_is_opened_later_changes_no_environment(started, program, tree):
    later = {"OPEN_LATER": str(tree / "libraddle.so")}
    python = program("python3", "Py_Main", flags=("-ldl",))
    assert variables(started(python, LD_PRELOAD=None, **later)) == later


def test_a_program_of_musl_s_keeps_its_environment(started, program):
    python = program("python3", "Py_Main", "musl-gcc")
    assert variables(started(python)) == {}


ALLOCATOR = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static void *(*get)(size_t), *(*more)(void *, size_t);
static void (*give)(void *);
__attribute__((constructor)) static void start(void)
{
    get = dlsym(RTLD_NEXT, "malloc");
    more = dlsym(RTLD_NEXT, "realloc");
    give = dlsym(RTLD_NEXT, "free");
}
void *malloc(size_t size) { return get(size); }
void *realloc(void *old, size_t size) { return more(old, size); }
void free(void *old) { if (old != NULL) { give(old); } }
"""


@pytest.mark.parametrize("old", [None, "/mine"])
def test_an_allocator_that_gets_ready_in_its_constructor_is_not_asked_before(started, program, tree, old):
    flags = ("-shared", "-fPIC", "-ldl")
    allocator = program("liballocator.so", flags=flags, text=ALLOCATOR)
    python = program("python3", "Py_Main")
    literals = ";".join(f"A{number}=1" for number in range(200))
    environ = {"LD_PRELOAD": f"{allocator}:{tree}/libraddle.so", "PYTHONPATH": old, "RADDLE_LITERALS": literals}
    found = variables(started(python, **environ))
    expected = f"{tree}/python/" + (f":{old}" if old else "")
    assert found == {**COUNTS, "PYTHONPATH": expected, **dict.fromkeys((f"A{number}" for number in range(200)), "1")}


WITHOUT_LIBC = """
int Py_Main(void) { return 0; }
__attribute__((force_align_arg_pointer, noreturn)) void _start(void)
{
    __asm__ volatile("syscall" : : "a"(231), "D"(42));
    __builtin_unreachable();
}
"""


def test_a_program_without_a_libc_runs_as_ever(started, program):
    flags = ("-nostdlib", "-pie", "-rdynamic", "-Wl,-dynamic-linker,/lib64/ld-linux-x86-64.so.2")
    bare = program("python3", flags=flags, text=WITHOUT_LIBC)
    assert started(bare, status=42) == ""


def test_a_set_uid_program_keeps_its_environment(prefix, program):
    """The loader preloads what the file names there too."""
    copy = set_uid(program("python3", "Py_Main"))
    command = ("env", "-i", f"RADDLE_PLAN={PLAN}")
    plain = (*prefix, *command, copy)
    other = (*prefix, "setpriv", "--reuid=65534", "--clear-groups", *command, copy)
    said = [subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in (plain, other)]
    assert "PYTHONPATH=/opt/raddle/python/\n" in said[0]
    assert said[1] == f"RADDLE_PLAN={PLAN}\n"


def test_without_proc_the_environment_is_completed_all_the_same(started, program, tree):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    hidden = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc; exec "$@"', "sh")
    python = program("python3", "Py_Main")
    found = variables(started(*hidden, python, PATH=PATH))
    assert found.items() >= {**COUNTS, "PYTHONPATH": f"{tree}/python/"}.items()
    # Nobody can be asked for the plan.
    assert variables(started(*hidden, *inner(python, tree), PATH=PATH)) == {}


# --- behind the real door -------------------------------------------------------------------------------------------


def both(prefix, *command, **environ):
    """(without the door, with it): what came of a command, which has these variables and no others."""
    pairs = [f"{name}={value}" for name, value in {"PATH": PATH, "HOME": "/nonexistent", **environ}.items()]
    # In namespaces too, but for the mounts.
    place = [(), prefix]
    found = []
    for before in place:
        done = subprocess.run([*before, "env", "-i", *pairs, *command], capture_output=True, check=False, timeout=60)
        found.append((done.returncode, done.stdout, done.stderr))
    return found


@pytest.mark.parametrize(
    "command",
    [
        ("env",),
        ("sh", "-c", "env; echo $0 $#; exit 3"),
        ("bash", "-c", "env; declare -x"),
        ("readlink", "/proc/self/fd/0"),
        ("awk", 'BEGIN { for (name in ENVIRON) print name "=" ENVIRON[name] }'),
        ("sh", "-c", "cat /proc/self/environ; cat /proc/self/cmdline; ls /proc/self/fd"),
        ("sh", "-c", "sh -c 'env -i env'; exec env A=1 env"),
        ("xargs", "env"),
    ],
)
@pytest.mark.parametrize("plan", [PLAN, PLAN + ";allocator=system", None])
def test_a_program_that_is_no_runtime_is_the_same_to_the_byte(prefix, command, plan):
    need(command[0])
    without, behind = both(prefix, *command, **({} if plan is None else {"RADDLE_PLAN": plan}))
    assert behind == without


def test_descriptors_are_the_same_also_where_the_standard_ones_are_closed(prefix):
    for closed in ("", "<&-", ">&- 2>&-", "<&- >&-", "<&- >&- 2>&-"):
        command = f"exec 9>&1; ls /proc/self/fd {closed} >&9 ; exec 9>&-; env -i {sys.executable} -c 'open(0)' {closed}; echo $?"
        without, behind = both(prefix, "sh", "-c", command, RADDLE_PLAN=PLAN)
        assert behind == without


FILES = """
import json, os, sys
print(json.dumps(sorted(os.readlink("/proc/self/fd/" + fd).split(":")[0] for fd in os.listdir("/proc/self/fd"))), file=sys.stderr)
"""


def test_a_python_that_is_reached_has_the_same_descriptors(prefix):
    """Also where it looks for its parent's plan with none open."""
    for closed in ("", "<&-", "<&- >&-"):
        command = f'env -i "$0" -c "$1" {closed}; true'
        without, behind = both(prefix, "sh", "-c", command, sys.executable, FILES, RADDLE_PLAN=PLAN)
        assert behind == without


def test_a_python_s_children_have_their_environment_to_the_byte(prefix):
    code = "import subprocess; subprocess.run(['env'])"
    for more in ({}, {"PYTHONPATH": ""}, {"PYTHONPATH": "/mine:"}):
        without, behind = both(prefix, sys.executable, "-c", code, **WHOLE, **more)
        assert behind == without
        assert b"RADDLE_PLAN" in behind[1]


def test_env_i_and_a_virtual_environment_s_python_have_plan_and_shim(prefix, venv):
    command = f"env -i {venv}/bin/python -c '{SELF}'; true"
    _, (status, said, errors) = both(prefix, "sh", "-c", command, RADDLE_PLAN=PLAN)
    assert (status, errors) == (0, b"")
    found = json.loads(said)
    assert found["reached"]
    assert found["prefix"] == str(venv)
    assert found["environ"] == {**found["environ"], "RADDLE_PLAN": PLAN}
    assert "PYTHONPATH" not in found["environ"]
    assert "LD_PRELOAD" not in found["environ"]


def test_the_file_and_the_variable_bring_one_library(prefix):
    code = "print(sum('libraddle.so' in line and 'r-xp' in line for line in open('/proc/self/maps')))"
    _, behind = both(prefix, sys.executable, "-c", code, RADDLE_PLAN=PLAN, LD_PRELOAD="/opt/raddle/libraddle.so")
    assert behind == (0, b"1\n", b"")


FOLDER = Path("/usr/lib/x86_64-linux-gnu")
ALLOCATORS = "import os; print({line.split('/')[-1].strip() for line in open('/proc/self/maps') if 'malloc' in line})"


@pytest.mark.parametrize("preload", [None, "", "/nonexistent.so", "LIBRARY"])
def test_the_allocator_needs_no_ld_preload_and_hides_what_it_adds(prefix, tmp_path, preload):
    """A library of the image's own in LD_PRELOAD stays, and a missing one stays missing."""
    if not (FOLDER / "libjemalloc.so.2").exists():
        pytest.skip("no jemalloc here")
    if preload == "LIBRARY":
        (tmp_path / "own.c").write_text("int own;\n")
        preload = str(tmp_path / "own.so")
        Kind.run_checked("gcc", "-shared", "-fPIC", "-o", preload, tmp_path / "own.c")
    environ = {"RADDLE_PLAN": "v=1;allocator=jemalloc", **({} if preload is None else {"LD_PRELOAD": preload})}
    (_, without, _), (status, behind, errors) = both(prefix, "env", **environ)
    assert (status, behind) == (0, without)
    # The loader says its own line in each of the two starts.
    assert set(errors.splitlines()) <= {line for line in errors.splitlines() if b"nonexistent.so" in line}
    _, (_, said, _) = both(prefix, sys.executable, "-c", ALLOCATORS, **environ)
    assert b"libjemalloc.so.2" in said
    command = f'env -i {sys.executable} -c "$0"; true'
    _, (_, said, _) = both(prefix, "sh", "-c", command, ALLOCATORS, **environ)
    assert b"libjemalloc.so.2" in said


def test_an_allocator_of_the_image_s_own_stays_the_only_one(prefix):
    own, other = FOLDER / "libjemalloc.so.2", FOLDER / "libtcmalloc_minimal.so.4"
    if not (own.exists() and other.exists()):
        pytest.skip("no jemalloc or tcmalloc here")
    environ = {"RADDLE_PLAN": "v=1;allocator=tcmalloc", "LD_PRELOAD": str(own)}
    _, (_, said, _) = both(prefix, sys.executable, "-c", ALLOCATORS, **environ)
    assert b"jemalloc" in said
    assert b"tcmalloc" not in said


# --- checkers ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory):
    """The tree with a library that is built with the sanitizers, and what to preload for it."""
    folder = tmp_path_factory.mktemp("sanitized")
    delivery.write(str(folder), "x86_64")
    flags = ["-g", "-O1", "-fPIC", "-shared", "-DRD_HOSTED", "-fvisibility=hidden"]
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    checked = folder / "libraddle.so"
    checked.unlink()
    Kind.run_checked("gcc", "-std=gnu11", *flags, *sanitize, "-o", checked, *sorted(native_programs.NATIVE.glob("*.c")))
    runtimes = [
        native_programs.output("gcc", f"-print-file-name={name}").strip() for name in ("libasan.so", "libubsan.so")
    ]
    return folder, ":".join([*runtimes, str(checked)])


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"PYTHONPATH": ":/mine" * 9000, "RADDLE_LITERALS": "A=1;" * 4000},
        {"PYTHONPATH": "/mine", "RADDLE_LITERALS": ";=;A=;=1;B;C#;" + "D" * 70 + "=1;E=" + "1" * 300 + ";F=1=2"},
        {"JAVA_TOOL_OPTIONS": " -Xmx1g ", "RADDLE_LITERALS": "JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=4"},
        {"RADDLE_PLAN": "v=1;" + "x=1;" * 2000, "OMP_NUM_THREADS": "9" * 100},
        {"RADDLE_PLAN": None},
    ],
)
def test_address_and_undefined_behaviour_sanitizers_find_nothing(started, program, sanitized, environ):
    folder, preload = sanitized
    environ = {"LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0", "PATH": PATH, **environ}
    plan = environ.get("RADDLE_PLAN", PLAN)
    for options in ((), ("-W",), ("", "-I"), ("-bE",)):
        said = started(program("python3", "Py_Main"), *options, **environ)
        assert ("ORT_INTRA_OP_NUM_THREADS=2" in said) is (plan == PLAN)
        assert (f"PYTHONPATH={folder}/python/" in said) is (plan is not None and options != ("-bE",))
    said = started(program("java"), **environ)
    assert ("ActiveProcessorCount=4\n" in said) is ("JAVA_TOOL_OPTIONS" in environ)
