"""Programs of every kind that may meet the door: each does behind it what it does without, or its page says what not.

docs/explanation/preload-injection.md lists them.
"""

import os
import platform
import resource
import shutil
import subprocess
from pathlib import Path

import pytest
from support.runtimes import door_lab, torch_lab
from support.runtimes.native_programs import HERE, Kind, need

from doorcheck.surroundings import CLOSE
from raddle_operator.local import door
from runtimes import libonnxruntime

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the programs are built for x86-64")

PLAN = "v=1;intra_op=2;omp=3;blas=2"
GIVEN = {"PATH": os.environ["PATH"], "RADDLE_PLAN": PLAN, "HOME": "/"}
# A program that may load a runtime later, as a sanitizer's, lacks nothing of the plan.
WHOLE = {**GIVEN, "ORT_INTRA_OP_NUM_THREADS": "2", "OMP_NUM_THREADS": "3"}
PYTHON = "/usr/bin/python3"
# What a Python was given, in its own words and in the kernel's, and whether the shim is in it.
SHOWS = (
    "import os, sys; print(sorted(os.environ.items()), sys.argv, sys.path, os.listdir('/proc/self/fd'));"
    "print('raddle' in sys.modules)"
)
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
GO = "/usr/local/go/bin/go"


def run(command, environ=None, *, opened, first=(), folder=None, **options):
    """(status, standard output, standard error) of the command with the door or without; `first` is run before it."""
    start = door_lab.prefix(folder)
    if opened:
        # What is mounted ahead of a command is its own.
        start = (*start, "unshare", "--mount", "sh", "-c", 'exec "$@"')
    else:
        # To close the door is to change the mounts, which others share.
        start = (*door.inside(folder or door_lab.tree()), "sh", "-c", CLOSE)
    whole = [*start, "raddle", *first, *(str(word) for word in command)]
    environ = GIVEN if environ is None else environ
    done = subprocess.run(whole, env=environ, capture_output=True, text=True, timeout=120, check=False, **options)
    return done.returncode, done.stdout, done.stderr


def same(command, environ=None, **options):
    """What it does, which has to be the same with the door."""
    without = run(command, environ, opened=False, **options)
    assert run(command, environ, opened=True, **options) == without
    return without


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """built(compiler, *flags): the program that says what it was given."""
    folder = tmp_path_factory.mktemp("guests")
    folder.chmod(0o755)
    for above in folder.parents[:2]:
        above.chmod(above.stat().st_mode | 0o111)

    def build(compiler, *flags, source="guest.c"):
        need(compiler)
        program = (
            folder / "-".join([source[:-2], compiler, *(flag.strip("-").replace("/", "") for flag in flags)])[:200]
        )
        if not program.exists():
            Kind.run_checked(compiler, "-O1", *flags, "-o", program, HERE / source)
        return program

    return build


M32 = ("-m32", "-I/usr/include/x86_64-linux-gnu")


@pytest.mark.parametrize(
    ("compiler", "flags"),
    [
        ("gcc", ()),
        # `environ` is then in the program's own memory.
        ("gcc", ("-no-pie",)),
        ("gcc", ("-static",)),
        ("gcc", ("-static-pie",)),
        ("gcc", ("-Wl,--hash-style=sysv",)),
        ("gcc", ("-Wl,--hash-style=gnu",)),
        ("gcc", ("-Wl,-z,norelro,-z,lazy",)),
        ("gcc", ("-Wl,-z,execstack",)),
        ("gcc", ("-pthread", "-DWITH_THREADS")),
        ("gcc", ("-DOWN_FUNCTIONS", "-rdynamic")),
        ("gcc", ("-fsanitize=thread",)),
        ("gcc", ("-fsanitize=undefined",)),
        ("gcc", ("-fsanitize=leak",)),
        ("gcc", ("-fsanitize=address", "-static-libasan")),
        ("musl-gcc", ()),
        ("musl-gcc", ("-static",)),
        ("gcc", (*M32, "-static")),
    ],
)
def test_a_program_is_given_the_same(built, compiler, flags):
    status, said, errors = same([built(compiler, *flags), "one", "two"], WHOLE)
    assert (status, errors) == (0, "")
    assert f"variable RADDLE_PLAN={PLAN}\n" in said
    assert "descriptor 2\n" in said
    assert "descriptor 3\n" not in said


def test_a_program_with_functions_of_its_own_that_has_a_runtime_is_not_called(built):
    program = built("gcc", "-DOWN_FUNCTIONS", "-rdynamic", "-fopenmp", "-Wl,--no-as-needed", "-lgomp")
    _, said, _ = run([program], opened=True)
    assert "setenv" not in said


def test_a_program_of_32_bits_runs_with_one_line_of_its_loader(built):
    program = built("gcc", *M32)
    status, said, errors = run([program], opened=True)
    assert (status, said) == run([program], opened=False)[:2]
    assert status == 0
    assert len(errors.splitlines()) == 1
    assert "wrong ELF class" in errors


def test_a_program_of_another_processor_runs_with_one_line_of_its_loader(built):
    need("qemu-aarch64-static")
    emulated = ("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu")
    status, _, errors = same([*emulated, built("aarch64-linux-gnu-gcc", "-static")])
    assert (status, errors) == (0, "")
    command = [*emulated, built("aarch64-linux-gnu-gcc")]
    status, said, errors = run(command, opened=True)
    assert (status, said) == run(command, opened=False)[:2]
    assert status == 0
    assert len(errors.splitlines()) == 1
    assert "cannot be preloaded" in errors


def test_a_program_with_gcc_s_address_sanitizer_as_a_library_refuses_to_start(built):
    """Whatever is preloaded: documented, with the ways out."""
    program = built("gcc", "-fsanitize=address")
    status, _, errors = run([program], opened=True)
    assert status == 1
    assert "ASan runtime does not come first in initial library list" in errors
    same([program], {**WHOLE, "ASAN_OPTIONS": "verify_asan_link_order=0"})


GO_PROGRAM = """package main

import (
	"fmt"
	"os"
	"os/exec"
)

func main() {
	out, err := exec.Command("/usr/bin/env").Output()
	fmt.Println(os.Environ(), os.Args[1:], string(out), err)
}
"""


@pytest.mark.parametrize(
    ("cgo", "flags"), [("0", ()), ("0", ("-buildmode=pie",)), ("1", ()), ("1", ("-ldflags=-linkmode=external",))]
)
def test_a_go_program_is_given_the_same(tmp_path, cgo, flags):
    need(GO)
    program = (
        GO_PROGRAM
        if cgo == "0"
        else GO_PROGRAM.replace("import (", '// int one(void) { return 1; }\nimport "C"\n\nimport (')
    )
    if cgo == "1":
        program = program.replace("os.Args[1:]", "C.one()").replace("// int", "// static int")
    (tmp_path / "main.go").write_text(program)
    environ = {
        **os.environ,
        "CGO_ENABLED": cgo,
        "GOFLAGS": "-mod=mod",
        "GOCACHE": str(libonnxruntime.HOME.with_name("go")),
    }
    command = [GO, "build", *flags, "-o", "program", "main.go"]
    subprocess.run(command, cwd=tmp_path, env=environ, check=True, timeout=250)
    assert same([tmp_path / "program"])[0] == 0


def test_a_program_whose_libraries_export_nothing_is_given_the_same(tmp_path):
    need("gcc")
    (tmp_path / "empty.c").write_text("static int one(void) { return 1; }\nint (*const two)(void) = one;\n")
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    for style in ("gnu", "sysv"):
        library, program = tmp_path / f"lib{style}.so", tmp_path / style
        hidden = ("-shared", "-fPIC", "-nostdlib", "-fvisibility=hidden", f"-Wl,--hash-style={style}")
        Kind.run_checked("gcc", *hidden, "-o", library, tmp_path / "empty.c")
        linked = ("-fopenmp", "-Wl,--no-as-needed", library, "-lgomp", f"-Wl,-rpath,{tmp_path}")
        Kind.run_checked("gcc", "-o", program, tmp_path / "main.c", *linked)
        assert same([program]) == (0, "", "")


@pytest.mark.parametrize("name", ["java", "gdb", "python3"])
def test_a_script_with_the_name_of_a_program_is_a_script(tmp_path, name):
    script = tmp_path / name
    script.write_text("#!/bin/sh\nenv\n")
    script.chmod(0o755)
    assert same([script], {**GIVEN, "RADDLE_LITERALS": "JAVA_TOOL_OPTIONS=-XX:ActiveProcessorCount=2"})[0] == 0
    script.write_text(f"#!{PYTHON}\nimport sys; print('raddle' in sys.modules)\n")
    assert run([script], opened=True) == (0, "True\n", "")


@pytest.mark.parametrize(
    "preload",
    [
        "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
        "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2",
        "/opt/raddle/libraddle.so",
    ],
)
def test_what_an_image_preloads_itself_stays(built, preload):
    if preload.startswith("/usr") and not Path(preload).exists():
        pytest.skip(f"no {preload} here")
    first = ("env", f"LD_PRELOAD={preload}")
    status, said, errors = run([built("gcc")], opened=True, first=first)
    assert (status, errors) == (0, "")
    variables = [line for line in said.splitlines() if line.startswith("variable")]
    without = [line for line in run([built("gcc")], opened=False)[1].splitlines() if line.startswith("variable")]
    assert sorted(variables) == sorted([*without, f"variable LD_PRELOAD={preload}"])
    said = run([PYTHON, "-c", SHOWS], opened=True, first=first)[1]
    assert said.splitlines()[1] == "True"


# --- ways to be started -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["vfork", "spawn", "nothing", "bare", "closed", "seccomp"])
def test_a_program_that_is_started_in_another_way_is_given_the_same(built, how):
    starts = built("gcc", source="guest_starts.c")
    status, said, errors = same([starts, how, built("gcc")])
    assert (status, errors) == (0, "")
    assert "main is given" in said


def test_a_filter_of_system_calls_kills_no_program_that_may_load_a_runtime_later(built):
    starts, program = built("gcc", source="guest_starts.c"), built("gcc", "-Wl,-u,dlopen", "-Wl,--no-as-needed", "-ldl")
    status, said, errors = run([starts, "seccomp", program], opened=True)
    assert (status, errors) == (0, "")
    assert "variable OMP_NUM_THREADS=" in said


@pytest.mark.parametrize("how", ["closed", "seccomp"])
def test_a_python_that_is_started_in_another_way_has_the_shim_and_is_given_the_same(built, how):
    starts = built("gcc", source="guest_starts.c")
    status, said, errors = run([starts, how, PYTHON, "-c", SHOWS], opened=True)
    assert (status, errors) == (0, "")
    assert said.splitlines()[1] == "True"
    assert run([starts, how, PYTHON, "-c", SHOWS], opened=False)[1].splitlines()[0] == said.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "most"),
    [
        *(("AS", 64 << 20), ("NOFILE", 4), ("NOFILE", 3), ("NPROC", 0)),
        *(("STACK", 256 << 10), ("FSIZE", 0), ("MEMLOCK", 0), ("DATA", 32 << 20)),
    ],
)
def test_limits_hold_no_more_than_without(built, name, most):
    starts = built("gcc", source="guest_starts.c")
    limit = f"limit={getattr(resource, 'RLIMIT_' + name)},{most}"
    for command in ([built("gcc")], [PYTHON, "-c", "print('runs')"]):
        without = run([starts, limit, *command], opened=False)
        status, said, errors = run([starts, limit, *command], opened=True)
        assert (status, said) == without[:2]
        # With no descriptor free nothing can start; the loader says one line more about it.
        assert errors == without[2] or (name, most) == ("NOFILE", 3)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"RADDLE_PLAN": ""},
        {"RADDLE_PLAN": "nonsense"},
        {"RADDLE_PLAN": "v=9;intra_op=2"},
        {"RADDLE_PLAN": "x" * 131_000},
        {"PYTHONPATH": ""},
        {"PYTHONPATH": ":"},
        {"PYTHONPATH": "/somewhere:" * 11_000},
        {"RADDLE_LITERALS": "x=1;" * 30_000},
        {"RADDLE_LITERALS": "PATH=/nowhere;=;a;;"},
        {f"LARGE_{i}": "x" * 120_000 for i in range(16)},
        {f"N{i}": "" for i in range(20_000)},
    ],
    ids=[
        *("none", "off", "nonsense", "newer", "too-long", "empty-path", "colon", "long-path", "many", "odd"),
        *("huge", "many-names"),
    ],
)
def test_no_environment_is_too_odd(built, environ):
    whole = {**GIVEN, **environ} if environ else {}
    same([built("gcc")], whole)
    same(["/usr/bin/env"], whole)
    # A child of a Python has what it would have had, but for counts that were absent.
    child = [PYTHON, "-c", "import subprocess; subprocess.run(['/usr/bin/env'])"]
    known = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ORT_INTRA_OP_NUM_THREADS": "1"}
    _, said, _ = same(child, {**whole, **known} if whole else {"RADDLE_PLAN": ""})
    assert "/opt/raddle" not in said


def test_a_child_has_the_environment_that_its_parent_names():
    child = "import subprocess; subprocess.run(['/usr/bin/env'], env={'OWN': '1'})"
    assert same([PYTHON, "-c", child]) == (0, "OWN=1\n", "")
    need("node")
    child = "child_process.execFileSync('/usr/bin/env', {env: {OWN: '1'}, stdio: 'inherit'})"
    assert same(["node", "-e", child]) == (0, "OWN=1\n", "")


# --- rights -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def as_nobody():
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    need("setpriv")
    return NOBODY


def test_a_set_uid_program_is_left_alone(built, tmp_path, as_nobody):
    program = built("gcc").with_name("set-uid")
    shutil.copy(built("gcc"), program)
    program.chmod(0o4755)
    _, said, errors = same([*as_nobody, program])
    assert "secure 1, user 0" in said
    assert errors == ""
    assert same([*as_nobody, "su", "--version"])[0] == 0
    assert same([*as_nobody, "passwd", "--help"])[0] == 0


@pytest.mark.parametrize("how", ["set-uid", "capability"])
def test_a_python_with_more_rights_than_its_caller_has_no_shim_and_no_variable(built, as_nobody, how):
    python = built("gcc").with_name(f"python-{how}")
    shutil.copy(os.path.realpath(PYTHON), python)
    python.chmod(0o4755 if how == "set-uid" else 0o755)
    if how == "capability":
        need("setcap")
        subprocess.run(["setcap", "cap_net_raw+ep", python], check=True)
    status, said, _ = same([*as_nobody, python, "-c", SHOWS])
    assert (status, said.splitlines()[1]) == (0, "False")
    assert "OMP_NUM_THREADS" not in said


def test_a_user_who_may_not_read_the_list_is_not_reached(tmp_path, as_nobody):
    tree = tmp_path / "tree"
    shutil.copytree(door_lab.tree(), tree)
    (tree / "ld.so.preload").chmod(0)
    assert same([*as_nobody, PYTHON, "-c", SHOWS], folder=tree)[1].splitlines()[1] == "False"


def test_a_user_who_may_not_read_the_shim_has_no_variable(tmp_path, as_nobody):
    tree = tmp_path / "tree"
    shutil.copytree(door_lab.tree(), tree)
    (tree / "python").chmod(0)
    tree.chmod(0o755)
    assert same([*as_nobody, PYTHON, "-c", SHOWS], folder=tree)[1].splitlines()[1] == "False"


# --- surroundings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("environ", [GIVEN, {"PATH": GIVEN["PATH"], "HOME": "/"}], ids=["plan", "none"])
def test_without_proc_everything_starts(built, environ):
    hidden = ("sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "hidden")
    said = same([built("gcc")], environ, first=hidden)[1]
    assert "main is given" in said
    status, said, errors = run(
        [PYTHON, "-c", "import sys; print('raddle' in sys.modules)"], environ, opened=True, first=hidden
    )
    assert (status, said, errors) == (0, f"{'RADDLE_PLAN' in environ}\n", "")


def test_in_a_root_of_its_own_a_program_is_not_reached(built, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root, for chroot")
    for name in ("usr/lib/x86_64-linux-gnu", "usr/lib64"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("lib", "lib64"):
        (tmp_path / name).symlink_to(f"usr/{name}")
    shutil.copy("/lib64/ld-linux-x86-64.so.2", tmp_path / "lib64")
    shutil.copy("/lib/x86_64-linux-gnu/libc.so.6", tmp_path / "lib/x86_64-linux-gnu")
    shutil.copy(built("gcc"), tmp_path / "program")
    assert same(["chroot", tmp_path, "/program"])[0] == 0


# --- those who look at processes --------------------------------------------------------------------------------------


def test_a_debugger_sees_the_program_that_it_has_started(built):
    need("gdb")
    command = [
        "gdb",
        "-nx",
        "-batch",
        *("-ex", "break main", "-ex", "run", "-ex", "continue"),
        "--args",
        built("gcc", "-g"),
    ]
    environ = {**GIVEN, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "ORT_INTRA_OP_NUM_THREADS": "1"}
    status, said, _ = run(command, environ, opened=True)
    without = run(command, environ, opened=False)
    lines = [
        [line for line in text.splitlines() if line.startswith(("variable", "argument", "main is"))]
        for text in (said, without[1])
    ]
    assert status == without[0] == 0
    assert lines[0] == lines[1]
    assert "Breakpoint 1, main" in said


def test_memcheck_finds_no_more_than_without(built):
    need("valgrind")
    command = ["valgrind", "-q", "--error-exitcode=9", built("gcc", "-g")]
    assert run(command, opened=True)[0] == run(command, opened=False)[0] == 0


def calls(command, environ, tmp_path, *, opened):
    """The kinds of system calls that it makes."""
    trace = tmp_path / f"trace-{opened}"
    run(["strace", "-f", "-qq", "-o", trace, *command], environ, opened=opened)
    lines = [line.split(None, 1)[1] for line in trace.read_text().splitlines()]
    return {line.partition("(")[0] for line in lines if not line.startswith(("+", "-", "<"))}


@pytest.mark.parametrize(
    ("command", "more"),
    [
        (("/bin/true",), {"fstat"}),
        (("/bin/sh", "-c", ":"), {"fstat"}),
        # As glibc's malloc in a program of several threads, and each OpenMP: those of a runtime's programs.
        (("/usr/bin/java", "-version"), {"fstat", "sched_getaffinity"}),
        (("/usr/bin/node", "-e", "0"), {"sched_getaffinity"}),
        ((PYTHON, "-c", "pass"), {"fstat", "sched_getaffinity"}),
    ],
)
def test_it_makes_no_kind_of_system_call_that_a_filter_may_not_expect(tmp_path, command, more):
    need("strace", command[0])
    environ = {**GIVEN, "PYTHONDONTWRITEBYTECODE": "1"}
    without = calls(command, environ, tmp_path, opened=False) | calls(command, environ, tmp_path, opened=False)
    # Threads of a virtual machine differ from start to start.
    assert (
        calls(command, environ, tmp_path, opened=True) - without - {"futex", "clock_nanosleep", "sched_yield"} <= more
    )


# --- other releases of glibc ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", ["bullseye", "trixie", "sid"])
def test_other_releases_of_glibc_do_the_same(suite):
    tree = torch_lab.python_of(suite)
    folders = [tree / "lib/x86_64-linux-gnu", tree / "usr/lib/x86_64-linux-gnu"]
    linker = next(folder / "ld-linux-x86-64.so.2" for folder in folders if (folder / "libc.so.6").exists())
    (python,) = (tree / "usr/bin").glob("python3.*[0-9]")
    command = [linker, "--library-path", ":".join(map(str, folders)), python, "-c", SHOWS]
    environ = {**GIVEN, "PYTHONHOME": str(tree / "usr")}
    status, said, errors = run(command, environ, opened=True)
    assert (status, errors, said.splitlines()[1]) == (0, "", "True")
    assert "OMP_NUM_THREADS" not in said
    without = run(command, environ, opened=False)
    assert without[1].splitlines()[0] == said.splitlines()[0]
    # Switched off.
    assert same(command, {**environ, "RADDLE_PLAN": ""})[1].splitlines()[1] == "False"
