"""The preloaded library in every kind of process that a container may start: it must never be the reason that one fails."""

import contextlib
import os
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.runtimes import native_lab, shim_lab
from support.runtimes.native_caller import Caller, under
from support.runtimes.native_lab import Program, program

from runtimes import fetching, libonnxruntime

pytestmark = pytest.mark.runtime

CPUS = shim_lab.two_cpus()

PLAN = "intra_op=2;inter_op=1;spinning=never"
HELLO = '#include <stdio.h>\nint main(void) { puts("hello"); return 3; }\n'


def hello(tmp_path, *command):
    """A program without ORT that says hello and ends with 3."""
    source = tmp_path / "hello.c"
    source.write_text(HELLO)
    done = subprocess.run([*command, source, "-o", tmp_path / "hello"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no compiler for it here: {done.stderr[-200:]}")
    return tmp_path / "hello"


def run(*command, **extra):
    """What a program says and how it ends under the shim and a plan."""
    env = shim_lab.environment(under(PLAN, **extra))
    done = subprocess.run(command, env=env, capture_output=True, timeout=120, check=False, text=True, errors="replace")
    return done.returncode, done.stdout, done.stderr


def musl():
    """The caller and the stand-in for ORT of the other libc."""
    fetching.tool("musl-gcc")
    folder = native_lab.stub("musl-gcc")
    made = native_lab.compiled("caller-musl", "caller.c", folder, compiler="musl-gcc")
    return Program("c", "musl", (str(made),), {})


def test_it_needs_no_library_and_exports_one_name():
    library = native_lab.preload()
    dynamic = subprocess.run(["readelf", "-dW", library], capture_output=True, text=True, check=True).stdout
    assert "(NEEDED)" not in dynamic
    names = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in names.splitlines()] == ["OrtGetApiBase"]


@contextlib.contextmanager
def helpers(command, count):
    """So many processes of this one's with the same command line that never load a runtime."""
    made = [subprocess.Popen(command, executable=shutil.which("cat"), stdin=subprocess.PIPE) for _ in range(count)]
    try:
        yield
    finally:
        for one in made:
            one.communicate()


def test_processes_like_it_that_never_load_a_runtime_are_no_workers():
    chosen = program("c", "1.31.1")
    with helpers(chosen.command, 3), Caller(chosen, under(PLAN), cpus=CPUS) as caller:
        caller.do("env", "session s -")
        assert [line for line in caller.lines if "intra_op=2," in line]


def test_as_many_workers_as_were_planned_are_assumed_where_fewer_have_the_runtime_yet():
    chosen = program("c", "1.31.1")
    with helpers(chosen.command, 3), Caller(chosen, under(f"{PLAN};workers=2;streams=2"), cpus=CPUS) as caller:
        caller.do("env", "session s -")
        assert [line for line in caller.lines if "intra_op=1 (planned 2, cut to CPU affinity of 2)" in line]


def test_the_workers_of_a_parent_with_many_threads_count_each_other():
    chosen = program("c", "1.31.1")
    end = threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in range(100)]
    for thread in threads:
        thread.start()
    try:
        with ThreadPoolExecutor(1) as last, Caller(chosen, under(PLAN), cpus=CPUS) as one:
            two = last.submit(Caller, chosen, under(PLAN), cpus=CPUS).result()
            with two:
                for caller in (one, two):
                    caller.do("env", "session s -")
                lines = one.lines + two.lines
        assert ["shared by 2 workers" in line for line in lines] == [True]
    finally:
        end.set()


@pytest.mark.parametrize("libc", ["glibc", "musl"])
def test_a_program_of_either_libc_gets_the_plan_and_named_threads(libc):
    chosen = musl() if libc == "musl" else program("c", "stub")
    with Caller(chosen, under(PLAN), cpus=CPUS) as caller:
        caller.do("env", "options a", "session s a", "session t -")
        assert [thread.name for thread in caller.pool()] == ["ort-intra/1"] * 2
        assert caller.lines == ["raddle: onnxruntime 1.20.0: intra_op=2, inter_op=1, spinning off, affinity none"]
        caller.do("release s")
        assert len(caller.pool()) == 1
        assert caller.end() == 0


@pytest.mark.parametrize("libc", ["glibc", "musl"])
def test_a_program_of_either_libc_has_pinned_threads_in_an_exclusive_cpuset(libc):
    chosen = musl() if libc == "musl" else program("c", "stub")
    with Caller(
        chosen, under(f"intra_op=2;affinity=core;exclusive_cpus=2;cpus={CPUS[0]},{CPUS[1]}"), cpus=CPUS
    ) as caller:
        caller.do("env", "session s -")
        assert [thread.cpus in map(str, CPUS) for thread in caller.pool()] == [True]


@pytest.mark.parametrize("compiler", [("gcc",), ("gcc", "-static"), ("musl-gcc",), ("musl-gcc", "-static")])
def test_a_program_without_onnxruntime_runs_as_ever(tmp_path, compiler):
    fetching.tool(compiler[0])
    assert run(hello(tmp_path, *compiler)) == (3, "hello\n", "")


def test_a_32_bit_child_runs_and_only_its_loader_mentions_the_library(tmp_path):
    code, out, err = run(hello(tmp_path, "gcc", "-m32"))
    assert (code, out) == (3, "hello\n")
    assert all("wrong ELF class" in line for line in err.splitlines())


def test_a_setuid_program_ignores_the_library(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can make a setuid program of another user")
    fetching.tool("setpriv")
    folder = tmp_path / "bin"
    shutil.copytree(native_lab.stub(), folder)
    source = native_lab.SOURCES / "caller.c"
    links = (f"-L{folder}", "-lonnxruntime", "-ldl", "-lpthread", f"-Wl,-rpath,{folder}")
    includes = (f"-I{libonnxruntime.headers()}", f"-I{native_lab.NATIVE}")
    subprocess.run(["gcc", source, *includes, *links, "-o", folder / "caller"], check=True)
    os.chown(folder / "caller", 65533, 65533)
    (folder / "caller").chmod(0o6755)
    for parent in (folder, *folder.parents):
        if parent.stat().st_mode & 0o001 == 0:
            parent.chmod(parent.stat().st_mode | 0o011)
    command = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(folder / "caller"))
    with Caller(Program("c", "stub", command, {}), under(PLAN), cpus=CPUS) as caller:
        caller.do("env", "session s -")
        if Path(f"/proc/{caller.pid}").stat().st_uid == 65534:
            pytest.skip("setuid has no effect on this file system")
        assert (caller.pool(), caller.lines) == ([], [])
        assert caller.end() == 0


def test_valgrind_finds_nothing():
    fetching.tool("valgrind")
    prefix = ("valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite")
    with Caller(
        program("c", "stub"), under(f"{PLAN};global_thread_pool=1;shared_allocator=1"), cpus=CPUS, prefix=prefix
    ) as caller:
        commands = (
            "options a intra=3",
            "cuda2 a device_id=1",
            "session s a",
            "clone a b",
            "session t b",
            "session u -",
        )
        caller.do("env", *commands, "release s", "drop a")
        assert caller.end() == 0, caller.stderr


@pytest.mark.parametrize("hidden", [("/proc",), ("/sys",), ("/proc", "/sys")])
def test_a_process_that_sees_no_proc_or_sys_gets_what_can_be_known(hidden):
    if os.geteuid() != 0:
        pytest.skip("only root can mount over a folder")
    fetching.tool("unshare")
    hide = "; ".join(f"mount -t tmpfs -o size=4k none {folder}" for folder in hidden)
    prefix = ("unshare", "--mount", "sh", "-c", f'{hide} && exec "$@"', "sh")
    with Caller(
        program("c", "stub"),
        under(f"{PLAN};affinity=core;exclusive_cpus=2;cpus={CPUS[0]},{CPUS[1]}"),
        cpus=CPUS,
        prefix=prefix,
    ) as caller:
        caller.do("env", "session s -")
        assert len(caller.pool()) == 1
        assert caller.end() == 0
        assert "intra_op=2" in caller.lines[0]


@pytest.mark.parametrize("odd", ["null", "nothing", "short", "holes", "data", "lies"])
def test_a_library_that_only_has_the_entry_points_name_is_no_worse_than_without_raddle(odd):
    library = native_lab.built("libodd.so", "odd.c", "gcc", "-shared", "-fPIC", "-Wl,-soname,libodd.so")
    host = native_lab.built(
        "odd-host",
        "odd_host.c",
        "gcc",
        f"-L{library.parent}",
        "-Wl,--no-as-needed",
        "-l:libodd.so",
        f"-Wl,-rpath,{library.parent}",
    )
    stock = subprocess.run([host], env={"ODD": odd}, capture_output=True, text=True, check=False)
    assert stock.returncode == 0
    code, out, _ = run(host, ODD=odd)
    assert (code, out) == (0, stock.stdout)


def test_the_preloaded_library_alone_answers_a_program_without_onnxruntime(tmp_path):
    """A weak reference, as of a program that looks whether ORT is there."""
    source = tmp_path / "weak.c"
    source.write_text(
        "#include <stdio.h>\nconst void *OrtGetApiBase(void) __attribute__((weak));\n"
        'int main(void) { printf("%d\\n", OrtGetApiBase && OrtGetApiBase() != NULL); return 0; }\n'
    )
    subprocess.run([fetching.tool("gcc"), source, "-o", tmp_path / "weak"], check=True)
    code, out, _ = run(tmp_path / "weak")
    assert (code, out) == (0, "0\n")


@pytest.mark.parametrize(
    "command", [("/bin/sh", "-c", "echo hello; exit 3"), ("bash", "-c", "(exec /bin/sh -c 'echo hello'); exit 3")]
)
def test_shells_and_what_they_start_run_as_ever(command):
    assert run(*command) == (3, "hello\n", "")
