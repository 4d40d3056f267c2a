"""/opt/raddle/raddle, the library as a program: what it says of real processes of every kind, and what it needs for it."""

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from support.runtimes import door_lab, native_lab
from support.runtimes.native_programs import NATIVE, PLAN, Kind, library, need

from cluster.waiting import wait
from native import build
from raddle import delivery
from runtimes import pythons

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the programs are built for x86-64")

RELEASE = "ort-1.31.1"
SESSION = """
import sys, onnxruntime
session = onnxruntime.InferenceSession(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""
WAITS = """
#include <stdio.h>
int main(void) { puts("ready"); fflush(stdout); getchar(); return 0; }
"""


# The same as a program of a libc's.
HOSTED = """
#include "program.c"
int main(int count, char **words, char **given)
{
    environment = (const char *const *)given;
    return command(count, (const char *const *)words);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The library where it may be executed, under the name that it has in a container."""
    target = tmp_path_factory.mktemp("program") / "raddle"
    shutil.copyfile(library(), target)
    target.chmod(0o555)
    return target


@contextlib.contextmanager
def running(*command, preload=True, clean=False, plan=PLAN, **variables):
    """A process that has said that it is ready, and what it said before; it ends when its standard input does."""
    environ = {} if clean else {"PATH": os.environ["PATH"], "RADDLE_PLAN": plan}
    if preload:
        environ["LD_PRELOAD"] = str(library())
    words = list(map(str, command))
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, env={**environ, **variables}, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
    ) as process:
        said = []
        for line in process.stdout:
            said.append(line.strip())
            if line.startswith(("ready", "child")):
                break
        else:
            pytest.fail(f"{words} ended: {said}")
        yield process.pid, said
        process.stdin.close()
        process.stdout.read()


def ask(program, *arguments, **more):
    more.setdefault("env", {})
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False, **more)
    return done.returncode, done.stdout, done.stderr


def document(program, **more):
    status, said, errors = ask(program, "-o", "json", **more)
    assert status in {0, 1}, errors
    found = json.loads(said)
    assert status == (found["reached"] != found["withRuntime"])
    return {one["pid"]: one for one in found["processes"]}


def rows(text):
    """Process id -> its row."""
    return {int(line.split()[0]): line for line in text.splitlines()[1:-1]}


@pytest.fixture(scope="module")
def waiting(tmp_path_factory):
    """waiting(compiler, flags): a program that waits for the end of its standard input."""
    folder = tmp_path_factory.mktemp("waiting")

    def make(compiler="gcc", *flags):
        need(compiler)
        name = "-".join([compiler, *flags]).replace("/", "_")
        (folder / "waits.c").write_text(WAITS)
        Kind.run_checked(compiler, *flags, "-o", folder / name, folder / "waits.c")
        return folder / name

    return make


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """named(file): a library of that name and nothing in it."""
    folder = tmp_path_factory.mktemp("named")

    def make(file):
        (folder / "empty.c").write_text("int rd_test_nothing;\n")
        Kind.run_checked("gcc", "-shared", "-fPIC", "-o", folder / file, folder / "empty.c")
        return folder / file

    return make


# --- processes of every kind ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", build.ARCHITECTURES)
def test_only_relocations_of_its_own_and_names_that_may_be_missing_are_in_the_file(architecture):
    # What `relocate` of program.c knows.
    need("readelf")
    done = subprocess.run(["readelf", "-rW", library(architecture)], capture_output=True, text=True, check=True)
    kinds = {word for line in done.stdout.splitlines() for word in line.split() if word.startswith("R_")}
    short = {kind.partition("_")[2].removeprefix("X86_64_").removeprefix("AARCH64_") for kind in kinds}
    assert short <= {"RELATIVE", "GLOB_DAT", "JUMP_SLOT"}


def test_a_native_program_says_what_its_newest_session_got_and_its_fork_nothing(program, glibc):
    with running(glibc.caller, "3", "waits", OMP_NUM_THREADS="2") as (pid, said):
        child = int(said[-1].split()[1])
        found = document(program)
        text = ask(program)[1]
    line = "onnxruntime 1.23.9: intra_op=3 (set in the code), inter_op=1, spinning off, affinity none"
    assert found[pid] == {
        "pid": pid,
        "command": "caller",
        "readable": True,
        "threads": 1,
        "door": True,
        "libc": "glibc",
        "python": False,
        "plan": PLAN,
        "planFrom": "own",
        "counts": {"OMP_NUM_THREADS": "2"},
        "runtimes": ["onnxruntime"],
        "marks": [line],
        "reached": True,
        "why": "",
    }
    assert rows(text)[pid].endswith(f"  1  onnxruntime            {line}; OMP_NUM_THREADS=2")
    assert (found[child]["reached"], found[child]["why"]) == (
        False,
        "the shim has not configured a session of its onnxruntime yet",
    )


def test_a_runtime_that_is_left_alone_says_why(program, glibc):
    with running(glibc.caller, "0", "waits", STUB_VERSION="1.13.1") as (pid, _):
        assert document(program)[pid]["marks"] == [
            "onnxruntime 1.13.1 is not configured: this shim supports version 1 from 1.14 on"
        ]


@pytest.mark.parametrize(
    ("compiler", "flags", "libc", "door"),
    [
        ("gcc", (), "glibc", True),
        ("gcc", ("-static",), "none", False),
        ("musl-gcc", (), "musl", True),
        ("musl-gcc", ("-static",), "none", False),
    ],
)
def test_a_process_without_a_runtime_is_listed_and_counts_for_nothing(program, waiting, compiler, flags, libc, door):
    with running(waiting(compiler, *flags)) as (pid, _):
        found = document(program)[pid]
        row = rows(ask(program)[1])[pid]
    assert (found["libc"], found["door"], found["runtimes"]) == (libc, door, [])
    assert "reached" not in found
    assert row.split()[2:] == ["open" if door else "closed", "yes", "1", "-", "-"]


@pytest.mark.parametrize(
    ("runtime", "name"),
    [
        ("libgomp-a34b3233.so.1", "libgomp"),
        ("libopenblasp-r0-5c2b7639.3.23.so", "openblas"),
        ("libscipy_openblas64_-6bb31eeb.so", "openblas"),
        ("libtorch_cpu.so", "torch"),
        ("libmkl_rt.so.2", "mkl"),
        ("libiomp5.so", "libiomp5"),
    ],
)
def test_a_program_with_another_runtime_is_reached_by_its_variables(program, waiting, named, runtime, name):
    preload = f"{library()}:{named(runtime)}"
    with running(waiting(), LD_PRELOAD=preload, OMP_NUM_THREADS="3", SECRET_THREADS="s3cret") as (pid, _):
        found = document(program)[pid]
    # The last two are completed by the door.
    counts = {"OMP_NUM_THREADS": "3", "ORT_INTRA_OP_NUM_THREADS": "2", "ORT_INTER_OP_NUM_THREADS": "1"}
    assert (found["runtimes"], found["reached"], found["counts"]) == ([name], True, counts)


@pytest.mark.parametrize(
    ("compiler", "preload", "plan", "why"),
    [
        ("gcc", False, PLAN, "libraddle.so is not in it"),
        ("musl-gcc", False, PLAN, "its libc is musl, whose loader reads no /etc/ld.so.preload"),
        ("gcc", True, "", "RADDLE_PLAN is empty, so the shim does nothing"),
    ],
)
def test_why_a_program_is_not_reached(program, waiting, named, compiler, preload, plan, why):
    libraries = [str(named("libgomp.so.1")), *([str(library())] if preload else [])]
    with running(waiting(compiler), plan=plan, LD_PRELOAD=":".join(libraries)) as (pid, _):
        found = document(program)[pid]
        status, text, _ = ask(program)
    assert (found["runtimes"], found["reached"], found["why"]) == (["libgomp"], False, why)
    assert rows(text)[pid].endswith("not reached: " + why)
    assert status == 1


def test_an_empty_environment_takes_its_plan_from_who_started_it_if_anybody_has_one(program, waiting, named):
    libraries = f"LD_PRELOAD={library()}:{named('libgomp.so.1')}"
    inner = f"exec 3<&0; env -i {libraries} {waiting()} <&3 >/dev/null & echo child $!; wait"
    with running("sh", "-c", inner, preload=False) as (pid, said):
        child = int(said[-1].split()[1])
        wait(lambda: document(program)[child]["runtimes"] == ["libgomp"])
        found = document(program)[child]
        assert (found["planFrom"], found["plan"], found["reached"]) == ("ancestor", PLAN, True)
        assert document(program)[pid]["planFrom"] == "own"
    with running(waiting(), clean=True, preload=False, LD_PRELOAD=libraries.partition("=")[2]) as (pid, _):
        found = document(program)[pid]
    if "RADDLE_PLAN" not in os.environ:
        assert (found["reached"], found["why"]) == (False, "there is no RADDLE_PLAN in its environment")


def test_a_title_written_over_the_environment_leaves_the_container_s_plan(program, waiting, named):
    # What setproctitle does, and so gunicorn.
    code = "import ctypes, sys, os\n"
    code += "start = int(open('/proc/self/stat').read().rsplit(')', 1)[1].split()[47])\n"
    code += "end = int(open('/proc/self/stat').read().rsplit(')', 1)[1].split()[48])\n"
    code += "ctypes.memset(start, 0, end - start)\n"
    code += "print('ready', flush=True); sys.stdin.read()"
    preload = f"{library()}:{named('libgomp.so.1')}"
    with running(sys.executable, "-c", code, LD_PRELOAD=preload) as (pid, _):
        done = subprocess.run([program, "-o", "json"], env={"RADDLE_PLAN": PLAN}, capture_output=True, check=False)
        assert Path(f"/proc/{pid}/environ").read_bytes().strip(b"\0") == b""
    (found,) = [one for one in json.loads(done.stdout)["processes"] if one["pid"] == pid]
    assert (found["planFrom"], found["reached"]) == ("container", True)


# --- Python -----------------------------------------------------------------------------------------------------------


def test_python_with_onnxruntime_behind_the_door_has_its_session_s_mark(tmp_path):
    python, model, folder = pythons.release(RELEASE), native_lab.model(), door_lab.tree()
    # In a process namespace of its own, as in a container.
    inside = (*door_lab.prefix(folder), "unshare", "--pid", "--fork", "--mount-proc", "bash", "-c")
    need("unshare")
    script = f"""
        mkfifo {tmp_path}/{{a,b}}; exec 8<>{tmp_path}/a 9<>{tmp_path}/b
        {python} -B -c '{SESSION}' {model} <&8 >&9 &
        {python} -IB -c '{SESSION}' {model} <&8 >&9 &
        env -i {python} -B -c '{SESSION}' {model} <&8 >&9 &
        read <&9; read <&9; read <&9
        {delivery.PROGRAM} -o json; {delivery.PROGRAM}; echo status $?
        kill %1 %2 %3
    """
    environ = {"RADDLE_PLAN": PLAN, "PATH": os.environ["PATH"], "RADDLE_LOG": "0"}
    done = subprocess.run([*inside, script], env=environ, capture_output=True, text=True, timeout=120, check=False)
    said, *text = done.stdout.splitlines()
    found = json.loads(said)["processes"]
    of_python = [one for one in found if one["python"]]
    reached, ignoring, bare = sorted(of_python, key=lambda one: one["pid"])
    assert {one["door"] for one in found} == {True}
    assert (reached["reached"], bare["reached"]) == (True, True)
    assert (bare["planFrom"], bare["plan"]) == ("ancestor", PLAN)
    assert (ignoring["reached"], ignoring["why"]) == (False, "Python's option -I makes it ignore the environment")
    assert ignoring["marks"] == []
    row = next(line for line in text if "intra_op=" in line)
    version = RELEASE.partition("-")[2]
    assert row.split()[:5] == [str(reached["pid"]), "python", "open", "yes", str(reached["threads"])]
    (mark,) = reached["marks"]
    # Three processes share the machine's CPUs.
    assert re.fullmatch(rf"onnxruntime {re.escape(version)}: intra_op=\d( \(.*\))?, inter_op=1, spinning .*", mark)
    assert row.endswith(f"  {mark}")
    assert text[-2:] == ["reached: 2 of 3 processes with a runtime", "status 1"]


@pytest.mark.parametrize(
    ("options", "ignored"),
    [
        (("-c",), ""),
        (("-B", "-c"), ""),
        (("-Ic",), "I"),
        (("-BEc",), "E"),
        (("-W", "ignore", "-S", "-c"), "S"),
        (("-Wignore", "-X", "utf8", "-E", "-c"), "E"),
        (("--check-hash-based-pycs", "default", "-Ic"), "I"),
        (("-W", "-I", "-c"), ""),
        (("-sP", "-c"), ""),
    ],
)
def test_options_that_have_python_ignore_the_door_are_seen_and_words_of_the_program_are_none(
    program, named, options, ignored
):
    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    preload = f"{library()}:{named('libgomp.so.1')}"
    with running(sys.executable, *options, code, "-I", "-E", LD_PRELOAD=preload) as (pid, _):
        found = document(program)[pid]
    assert found["reached"] is (ignored == "")
    assert (f" -{ignored} " in found["why"]) is (ignored != "")


@pytest.mark.parametrize("linked", [False, True])
def test_a_python_within_a_program_is_reached_only_where_that_was_linked_to_it(program, named, tmp_path, linked):
    # uWSGI is; PyInstaller's programs, Apache and Java load it later.
    python, runtime = named("libpython3.11.so.1.0"), named("onnxruntime_pybind11_state.so")
    (tmp_path / "waits.c").write_text(WAITS)
    links = ["-Wl,--no-as-needed", python, f"-Wl,-rpath,{python.parent}"] if linked else []
    Kind.run_checked("gcc", "-o", tmp_path / "serves", tmp_path / "waits.c", *links)
    preload = ":".join(map(str, [library(), runtime, *([] if linked else [python])]))
    with running(tmp_path / "serves", LD_PRELOAD=preload) as (pid, _):
        found = document(program)[pid]
    assert (found["python"], found["runtimes"], found["reached"]) == (True, ["onnxruntime"], linked)
    assert found["why"] == ("" if linked else "its Python is frozen, or embedded in another program")


def test_a_real_node_js_says_what_its_session_got(program):
    need("node")
    asked = native_lab.program("node", "1.30.0")
    modules = asked.env["CALLER_MODULES"]
    code = f"const ort = require('{modules}/onnxruntime-node');"
    code += f"ort.InferenceSession.create('{native_lab.model()}')"
    code += ".then(s => { globalThis.kept = s; console.log('ready'); process.stdin.resume(); })"
    with running("node", "-e", code) as (pid, _):
        found = document(program)[pid]
    assert found["reached"] is True
    (mark,) = found["marks"]
    assert mark.startswith("onnxruntime 1.30.0: intra_op=2, inter_op=1, spinning off")


# --- marks that are anybody's ------------------------------------------------------------------------------------------


MARKED = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
for name in json.loads(sys.argv[1]):
    file = os.memfd_create(name)
    assert libc.mmap(None, 1, 1, 2, file, 0) != -1
print("ready", flush=True)
sys.stdin.read()
"""


def test_what_a_mark_holds_is_shown_in_one_line_and_steers_no_terminal(program, named):
    names = ["raddle: a 1: x", 'raddle: "\\\x1b[2J\n\u00e9', "other: x", "raddle: "]
    preload = f"{library()}:{named('libgomp.so.1')}"
    with running(sys.executable, "-c", MARKED, json.dumps(names), LD_PRELOAD=preload) as (pid, _):
        found = document(program)[pid]
        row = rows(ask(program)[1])[pid]
    assert sorted(found["marks"]) == ["", '"\\?[2J\\012??', "a 1: x"]
    assert found["reached"] is True
    assert "a 1: x" in row
    assert '"\\?[2J\\012??' in row
    assert row.isprintable()


def test_of_more_marks_than_anybody_leaves_only_some_are_shown(program):
    names = [f"raddle: {number} " + "x" * 230 for number in range(100)]
    with running(sys.executable, "-c", MARKED, json.dumps(names)) as (pid, _):
        marks = document(program)[pid]["marks"]
    assert 10 < len(marks) < 20
    assert set(marks) <= {name.removeprefix("raddle: ") for name in names}


def test_a_native_program_s_complaint_is_a_mark(program, glibc):
    # The stub refuses 7 threads; one CPU is enough for a plan that insists on them.
    with running(glibc.caller, "0", "waits", plan="v=1;intra_op=7;min_intra_op=7", STUB_REFUSE="session") as (pid, _):
        (mark,) = document(program)[pid]["marks"]
    assert mark.startswith("onnxruntime session is created without the plan's values: no ")


# --- the places where it has to work ----------------------------------------------------------------------------------


def test_a_file_of_any_length_is_read_to_its_end(program, waiting, tmp_path, named):
    # Twenty thousand mappings, and the library behind them.
    code = """
        import ctypes, mmap, sys
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
        start = libc.mmap(0x10000000, 4096 * 40000, 1, 0x22, -1, 0)
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for page in range(0, 40000, 2):
            assert libc.mprotect(start + 4096 * page, 4096, 3) == 0
        print("ready", flush=True)
        sys.stdin.read()
    """
    preload = f"{library()}:{named('libgomp.so.1')}"
    filler = {f"FILLER_{number}": "x" * 100_000 for number in range(12)}
    with running(sys.executable, "-c", dedent(code), LD_PRELOAD=preload, **filler) as (pid, _):
        assert Path(f"/proc/{pid}/maps").read_bytes().count(b"\n") > 20_000
        found = document(program)[pid]
    assert (found["door"], found["runtimes"], found["plan"], found["reached"]) == (True, ["libgomp"], PLAN, True)


def test_names_that_are_made_to_mislead_stay_one_line_of_plain_text(program, tmp_path, waiting):
    evil = tmp_path / 'a) 1 (\x1b[31m\n\\"é'
    shutil.copy(waiting(), evil)
    with running(evil, RADDLE_PLAN='v=1;x="\x1b\n\\') as (pid, _):
        found = document(program)[pid]
        text = ask(program)[1]
    assert found["plan"] == 'v=1;x="??\\'
    assert "\x1b" not in text
    assert rows(text)[pid]


def test_processes_of_another_user_are_named_and_not_counted(waiting):
    if os.geteuid() != 0:
        pytest.skip("only root may be another user")
    need("setpriv")
    with running(waiting()) as (pid, _):
        # Where others may come to.
        other = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", str(door_lab.tree() / "raddle")]
        done = subprocess.run([*other, "-o", "json"], env={}, capture_output=True, text=True, check=False)
        text = subprocess.run(other, env={}, capture_output=True, text=True, check=False).stdout
    found = json.loads(done.stdout)
    (one,) = [one for one in found["processes"] if one["pid"] == pid]
    assert one["readable"] is False
    assert set(one) == {"pid", "command", "readable"}
    assert found["unreadable"] >= 1
    assert rows(text)[pid].endswith("may not be read: it is of user 0")
    assert text.splitlines()[-1].endswith(" may not be read")


@pytest.mark.parametrize(("form", "status"), [((), 2), (("-o", "json"), 2), (("--help",), 2)])
def test_a_closed_standard_output_is_said_by_the_exit_status(program, form, status):
    done = subprocess.run(["sh", "-c", '"$@" >&-', "sh", program, *form], capture_output=True, text=True, check=False)
    assert done.returncode == status


def test_a_reader_that_has_gone_ends_it(program):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([program], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode < 0


@pytest.mark.parametrize(
    "arguments", [("-x",), ("-o",), ("-o", "yaml"), ("pod/x",), ("-ojson", "more"), ("",), ("-o", "json", "-o", "x")]
)
def test_wrong_arguments_are_one_line_and_status_two(program, arguments):
    status, said, errors = ask(program, *arguments)
    assert (status, said) == (2, "")
    assert errors == "raddle: wrong arguments; see raddle --help\n"


def test_help_has_an_example(program):
    status, said, _ = ask(program, "--help")
    assert status == 0
    assert f"kubectl exec POD -- {delivery.PROGRAM}" in said
    assert ask(program, "-h")[1] == said


def test_a_hidden_proc_is_said(program):
    need("unshare")
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh", program]
    done = subprocess.run(hidden, capture_output=True, text=True, check=False)
    if "denied" in done.stderr or "failed" in done.stderr:
        pytest.skip(done.stderr)
    assert (done.returncode, done.stdout) == (2, "    PID  COMMAND"[:0])
    assert done.stderr == "raddle: /proc shows no other process\n"


def test_it_runs_in_an_image_with_nothing_in_it_as_any_user_on_a_read_only_root(program, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root may make such a root here")
    need("unshare", "setpriv")
    root = tmp_path / "root"
    (root / "proc").mkdir(parents=True)
    shutil.copy(program, root / "raddle")
    script = f"""
        mount --bind {root} {root} && mount -o remount,bind,ro {root} && mount -t proc none {root}/proc
        exec chroot --userspec=65534:65534 --groups= {root} /raddle
    """
    tmp_path.chmod(0o755)
    done = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "sh", "-c", "sleep 5 & " + script],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
        check=False,
    )
    assert done.stdout.splitlines()[-1].startswith("reached: no process has a runtime"), done.stderr
    assert done.returncode == 0


def test_the_program_for_arm64_says_the_same():
    need("qemu-aarch64-static")
    command = ["qemu-aarch64-static", library("aarch64")]
    status, said, errors = ask(*command, "-o", "json")
    assert status in {0, 1}, errors
    found = {one["pid"]: one for one in json.loads(said)["processes"]}
    assert found[os.getpid()]["python"] is True
    status, said, _ = ask(*command, "--help")
    assert (status, said.splitlines()[0]) == (0, "usage: raddle [-o table|json]")


def test_address_and_undefined_behaviour_sanitizers_find_nothing(tmp_path, waiting, glibc):
    (tmp_path / "hosted.c").write_text(HOSTED)
    sources = [path for path in sorted(NATIVE.glob("*.c")) if path.name != "program.c"]
    flags = ["-std=gnu11", "-g", "-O1", "-DRD_HOSTED", f"-I{NATIVE}", "-fno-sanitize-recover=all"]
    hosted = tmp_path / "hosted"
    Kind.run_checked("gcc", *flags, "-fsanitize=address,undefined", "-o", hosted, tmp_path / "hosted.c", *sources)
    with (
        running(sys.executable, "-c", MARKED, json.dumps(["raddle: \\"])) as (pid, _),
        running(glibc.caller, "3", "waits", **{f"FILLER_{n}": "x" * 30_000 for n in range(3)}),
        running(sys.executable, *["-X", "y"] * 200, "-c", "print('ready', flush=True); input()"),
    ):
        for form in ("table", "json"):
            status, said, errors = ask(hosted, "-o", form, env={"ASAN_OPTIONS": "detect_leaks=0"})
            assert (status in {0, 1}, errors) == (True, "")
            assert str(pid) in said


def test_behind_the_door_it_is_no_less_a_program_without_a_loader():
    done = subprocess.run([*door_lab.prefix(), delivery.PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}
    assert done.stderr == ""
