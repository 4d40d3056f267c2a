"""libraddle.so: what is in the file, and what it does in programs of every kind that may meet it."""

import os
import platform
import re
import subprocess

import pytest
from support.runtimes.native_programs import KEPT, LINE, NATIVE, PLAN, Kind, library, need, output

from native import build

FORKED = (
    "raddle: this process was forked after 1 onnxruntime session(s) had been created; their threads do not exist in it: "
    "create sessions after the fork"
)

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the programs are built for x86-64")


# --- the file -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", build.ARCHITECTURES)
def test_it_exports_one_name_and_asks_for_two_that_may_be_missing(architecture):
    need("nm")
    names = [line.split()[-2:] for line in output("nm", "-D", library(architecture)).splitlines()]
    assert names == [["T", "OrtGetApiBase"], ["w", "dl_iterate_phdr"], ["w", "environ"]]


@pytest.mark.parametrize("architecture", build.ARCHITECTURES)
def test_it_needs_no_library_no_thread_local_storage_and_no_executable_stack(architecture):
    need("readelf")
    dynamic = output("readelf", "-dW", library(architecture))
    segments = output("readelf", "-lW", library(architecture))
    assert "NEEDED" not in dynamic
    assert "TEXTREL" not in dynamic
    assert " TLS " not in segments
    assert re.search(r"GNU_STACK .* RW +0x", segments)
    machine = {"x86_64": "X86-64", "aarch64": "AArch64"}[architecture]
    assert machine in output("readelf", "-hW", library(architecture))


@pytest.mark.parametrize("architecture", build.ARCHITECTURES)
def test_it_is_small_enough_for_a_configmap(architecture):
    assert library(architecture).stat().st_size < build.MAX_BYTES


@pytest.mark.parametrize("architecture", build.ARCHITECTURES)
def test_the_same_sources_give_the_same_bytes(architecture):
    made = library(architecture)
    # A second build of these sources by this compiler is kept, as the first one is.
    again = KEPT / f"again-{made.with_suffix('.stamp').read_text()}.so"
    if not again.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        unfinished = again.with_suffix(".new")
        build.link(architecture, unfinished)
        unfinished.replace(again)
    assert again.read_bytes() == made.read_bytes()


def test_no_folder_of_the_machine_that_built_it_is_in_the_file():
    assert str(build.ROOT).encode() not in library().read_bytes()


# --- programs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["glibc", "musl", "arm64"])
def test_a_session_gets_the_plan_s_values_and_named_threads(kinds, name):
    said, errors = kinds(name)()
    assert said == [
        "env 3 caller",
        "session model, intra=2 inter=1 mode=0 global=0 session.intra_op.allow_spinning=0",
        f"thread ort-intra/1, 1, on {len(os.sched_getaffinity(0))} cpu(s)",
        "released 1 thread(s)",
    ]
    assert errors == [LINE]


@pytest.mark.parametrize("name", ["glibc", "musl", "arm64"])
def test_without_a_plan_the_program_has_the_real_table(kinds, name):
    said, errors = kinds(name)(plan="")
    assert "session model, intra=0 inter=0 mode=0 global=0" in said
    assert errors == []


@pytest.mark.parametrize(
    ("arguments", "intra"),
    [
        (("0",), 2),
        (("3",), 3),
        (("-1",), 2),
        (("0", "null"), 2),
        (("3", "clone"), 3),
        (("0", "clone"), 2),
        # Where other options with a count were at the same address.
        (("0", "released"), 2),
    ],
)
def test_what_the_code_sets_wins_and_is_followed_from_object_to_object(glibc, arguments, intra):
    said, _ = glibc(*arguments)
    assert any(line.startswith(f"session model, intra={intra} ") for line in said)


@pytest.mark.parametrize("arguments", [("0",), ("3",), ("3", "clone"), ("0", "kept")])
def test_override_wins_over_the_code(glibc, arguments):
    said, _ = glibc(*arguments, plan=PLAN + ";existing_values=override")
    assert any(line.startswith("session model, intra=2 ") for line in said)


def test_a_session_is_left_alone_when_there_are_too_many_options_to_know_what_the_code_set(glibc):
    said, errors = glibc("0", "kept")
    assert "session model, intra=0 inter=0 mode=0 global=0" in said
    assert errors == [
        "raddle: onnxruntime session is not configured: too many options objects to know what the code has set"
    ]


def test_a_burst_of_options_objects_is_forgotten_once_they_are_released(glibc):
    said, errors = glibc("0", "burst")
    assert any(line.startswith("session model, intra=2 ") for line in said)
    assert errors == [LINE]


@pytest.mark.parametrize("version", ["1.13.1", "2.0.0", "", "nonsense"])
def test_a_runtime_that_is_too_old_or_of_another_major_version_is_left_alone_with_one_line(glibc, version):
    said, errors = glibc(STUB_VERSION=version)
    assert "session model, intra=0 inter=0 mode=0 global=0" in said
    assert errors == [f"raddle: onnxruntime {version} is not configured: this shim supports version 1 from 1.14 on"]


@pytest.mark.parametrize("version", ["1.33.0", "1.99.3"])
def test_a_runtime_newer_than_any_that_was_tested_gets_the_plan_and_the_line_says_so(glibc, version):
    said, errors = glibc(STUB_VERSION=version)
    assert any(line.startswith("session model, intra=2 ") for line in said)
    assert errors == [LINE.replace("1.23.9", f"{version} (newer than tested)")]


@pytest.mark.parametrize("version", ["1.14.0", "1.24.1", "1.25.0", "1.32.9"])
def test_the_runtimes_that_were_tested_are_wrapped(glibc, version):
    said, errors = glibc(STUB_VERSION=version)
    assert any(line.startswith("session model, intra=2 ") for line in said)
    assert errors == [LINE.replace("1.23.9", version)]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ("v=1;intra_op=0", "plan field intra_op='0' must be an integer from 1 to 1024"),
        ("v=1;intra_op=4096", "plan field intra_op='4096' must be an integer from 1 to 1024"),
        ("v=1;intra_op=-1", "plan field intra_op='-1' must be an integer from 1 to 1024"),
        ("v=2;intra_op=1", "plan version is '2', this shim reads version 1"),
        ("v=1;int", "plan part 'int' is not key=value"),
        ("v=1;x=" + "y" * 100_000, "plan is longer than 4096 characters"),
    ],
)
def test_a_plan_that_cannot_be_used_is_one_line_and_nothing_else(glibc, plan, reason):
    said, errors = glibc(plan=plan)
    assert "session model, intra=0 inter=0 mode=0 global=0" in said
    assert errors == [f"raddle: onnxruntime is not configured: {reason}"]


@pytest.mark.parametrize("call", ["clone", "intra", "session"])
def test_a_session_that_cannot_have_the_plan_s_values_is_made_without_them(glibc, call):
    # The stub refuses 7 threads; one CPU is enough for a plan that insists on them.
    said, errors = glibc(plan="v=1;intra_op=7;min_intra_op=7", STUB_REFUSE=call)
    assert "session model, intra=0 inter=0 mode=0 global=0" in said
    assert len(errors) == 1
    assert errors[0].startswith("raddle: onnxruntime session is created without the plan's values: no ")


def test_a_session_whose_model_cannot_be_had_is_tried_once(glibc):
    said, errors = glibc(STUB_REFUSE="model", status=3)
    assert said == ["env 3 caller", "asked for a model", "failed: no model there"]
    assert errors == []


def test_graph_level_and_memory_are_the_plan_s(glibc):
    said, _ = glibc(plan=PLAN + ";graph_optimization_level=extended;cpu_mem_arena=1;mem_pattern=0")
    assert {"graph level 2", "arena on", "memory pattern off"} <= set(said)


def test_one_pool_for_all_sessions_is_made_with_the_environment(glibc):
    said, errors = glibc(plan="v=1;intra_op=2;spinning=never;global_thread_pool=1;global_intra_op=2")
    assert "env 3 caller, global pool intra=2 inter=1 spin=0" in said
    assert "session model, intra=0 inter=0 mode=0 global=1" in said
    assert errors == [
        "raddle: onnxruntime 1.23.9: intra_op=2 (the process's global thread pool), inter_op=1, spinning off, affinity none"
    ]


@pytest.mark.parametrize(
    ("how", "reaches"),
    [("later", "version 30, pool intra=2, later=0x5ca1ab1e"), ("crossing", "version 24, pool intra=2, nothing later")],
)
def test_options_of_a_later_version_for_the_environment_reach_the_runtime_whole_or_as_the_known_version(
    glibc, how, reaches
):
    said, errors = glibc("0", how, plan=PLAN + ";global_thread_pool=1", STUB_VERSION="1.30.0")
    assert f"env 3 caller by options of {reaches}" in said
    assert "session model, intra=0 inter=0 mode=0 global=1" in said
    assert len(errors) == 1


@pytest.mark.parametrize("plan", [PLAN, PLAN + ";existing_values=override"])
def test_an_environment_has_one_shared_arena_and_the_next_environment_its_own(glibc, plan):
    said, errors = glibc("0", "again", plan=plan + ";shared_allocator=1")
    assert [line for line in said if line in {"arena", "released 1 thread(s)"}] == [
        *("arena", "released 1 thread(s)"),
        "released 1 thread(s)",
        *("arena", "released 1 thread(s)"),
    ]
    assert len(errors) == 1


def test_a_newer_runtime_keeps_the_functions_behind_one_that_its_build_lacks(glibc):
    said, _ = glibc("0", "late", STUB_VERSION="1.28.0")
    assert said == ["env 3 caller", "the hole is one", "a later one says: the stub has no such function"]


@pytest.mark.parametrize(
    ("environ", "intra"),
    [
        ({"ORT_INTRA_OP_NUM_THREADS": "1"}, 1),
        ({"ORT_INTRA_OP_NUM_THREADS": "3"}, 3),
        ({"ORT_INTRA_OP_NUM_THREADS": "2"}, 2),
        ({"ORT_INTRA_OP_NUM_THREADS": "0"}, 2),
        ({"ORT_INTRA_OP_NUM_THREADS": ""}, 2),
        ({"ORT_INTRA_OP_NUM_THREADS": "two"}, 2),
    ],
)
def test_a_count_in_the_environment_that_is_not_the_plan_s_is_respected(glibc, environ, intra):
    said, _ = glibc(**environ)
    assert any(line.startswith(f"session model, intra={intra} ") for line in said)
    said, _ = glibc(plan=PLAN + ";existing_values=override", **environ)
    assert any(line.startswith("session model, intra=2 ") for line in said)


def test_the_line_is_said_once_in_a_tree_of_processes(glibc):
    assert glibc(RADDLE_ANNOUNCED="torch,onnxruntime")[1] == []
    assert glibc(RADDLE_ANNOUNCED="torch,other")[1] == [LINE]
    assert glibc(RADDLE_LOG="0")[1] == []


def test_a_file_that_has_taken_the_number_of_standard_error_gets_no_line(glibc, tmp_path):
    said, errors = glibc("0", "closed", VICTIM=str(tmp_path / "data"))
    assert any(line.startswith("session model, intra=2 ") for line in said)
    assert ((tmp_path / "data").read_text(), errors) == ("", [])


def test_a_plan_that_the_application_takes_out_after_it_has_asked_for_the_runtime_is_none(glibc):
    said, errors = glibc("0", "without")
    assert "session model, intra=0 inter=0 mode=0 global=0" in said
    assert errors == []


def test_a_child_is_warned_of_threads_that_fork_did_not_copy(glibc):
    assert glibc("0", "fork")[1] == [LINE]
    _, errors = glibc("0", "live")
    assert errors[0] == LINE
    # adapters/onnxruntime says the same.
    assert errors[1:] == [FORKED]


# --- programs that it has no business in ------------------------------------------------------------------------------

OTHER = """
#include <stdio.h>
int main(void) { puts("still here"); return 0; }
"""


@pytest.mark.parametrize(
    ("compiler", "flags"),
    [
        ("gcc", ("-static",)),
        ("musl-gcc", ()),
        ("musl-gcc", ("-static",)),
        ("gcc", ("-m32", "-I/usr/include/x86_64-linux-gnu")),
    ],
)
@pytest.mark.parametrize("plan", [PLAN, PLAN + ";allocator=jemalloc"])
def test_other_programs_run_as_ever(tmp_path, compiler, flags, plan):
    need(compiler)
    (tmp_path / "other.c").write_text(OTHER)
    Kind.run_checked(compiler, *flags, "-o", tmp_path / "other", tmp_path / "other.c")
    environ = {"LD_PRELOAD": str(library()), "RADDLE_PLAN": plan}
    done = subprocess.run([tmp_path / "other"], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "still here\n")
    if "-m32" in flags:
        # The loader of the other class says its own line, about the path that the pod names.
        assert "wrong ELF class" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    else:
        assert done.stderr == ""


def test_a_standard_error_that_nobody_reads_ends_no_program(glibc):
    read, write = os.pipe()
    os.close(read)
    environ = {"LD_PRELOAD": str(library()), "RADDLE_PLAN": PLAN}
    try:
        done = subprocess.run([glibc.caller, "0"], env=environ, stdout=subprocess.PIPE, stderr=write, check=False)
    finally:
        os.close(write)
    assert done.returncode == 0
    assert b"session model, intra=2 " in done.stdout


# --- checkers ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """What to preload for a library that is built with the sanitizers."""
    checked = tmp_path_factory.mktemp("sanitized") / "libraddle.so"
    flags = ["-g", "-O1", "-fPIC", "-shared", "-DRD_HOSTED", "-fvisibility=hidden"]
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    Kind.run_checked("gcc", "-std=gnu11", *flags, *sanitize, "-o", checked, *sorted(NATIVE.glob("*.c")))
    runtimes = [output("gcc", f"-print-file-name={name}").strip() for name in ("libasan.so", "libubsan.so")]
    return ":".join([*runtimes, str(checked)])


@pytest.mark.parametrize(
    "plan",
    [
        PLAN
        + ";global_thread_pool=1;shared_allocator=1;arena_shrinkage=1;affinity=core;exclusive_cpus=2;cpus=0-63;cores=0-30:1/2|1-31:1/2;nodes=0-31|32-63;existing_values=override",
        PLAN
        + ";affinity=numa;exclusive_cpus=2;cpus=0-63;kinds=0-31|32-63;slow=1;isolated=1;cpu_mem_arena=1;mem_pattern=0;graph_optimization_level=basic;session.dynamic_block_base=4;spinning=bounded",
        PLAN + ";execution_mode=parallel;cuda.use_tf32=0;spinning=always;x=" + "y" * 3900,
    ],
)
# Without a fork: gcc 12's libasan hangs in a child that was forked while another thread held its lock.
@pytest.mark.parametrize("arguments", [("0",), ("3", "clone"), ("0", "released"), ("0", "kept"), ("0", "many")])
def test_address_and_undefined_behaviour_sanitizers_find_nothing(glibc, sanitized, tmp_path, arguments, plan):
    environ = {"ASAN_OPTIONS": "detect_leaks=0", "STUB_VERSION": "1.28.0"}
    said, errors = glibc(*arguments, plan=plan, preload=sanitized, **environ)
    assert any(line.startswith("session model") for line in said)
    assert not any("ERROR" in line or "runtime error" in line for line in errors), errors


def test_the_sanitizers_find_nothing_where_the_program_is_started_again(glibc, sanitized):
    # Their own allocator stays the one that is used.
    _, errors = glibc("0", plan=PLAN + ";allocator=jemalloc", preload=sanitized, ASAN_OPTIONS="detect_leaks=0")
    assert not any("ERROR" in line or "runtime error" in line for line in errors), errors


def test_valgrind_finds_nothing(tmp_path):
    need("valgrind")
    command = ("valgrind", "--quiet", "--error-exitcode=9", "--leak-check=no")
    program = Kind(tmp_path, "gcc", command)
    said, errors = program(
        "3", "clone", plan=PLAN + ";affinity=core;exclusive_cpus=2;cpus=0-63;cores=0-31|32-63;l3=0,32|1,33"
    )
    assert "released 2 thread(s)" in said
    assert len(errors) == 1
