"""A runtime that is unloaded by dlclose, and the next one: each is wrapped, and nothing of the one before is called."""

import os
import platform
import subprocess

import pytest
from support.runtimes.native_programs import HERE, NATIVE, PLAN, Kind, library, need

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the programs are built for x86-64")

SESSION = "session model, intra=2 inter=1 mode=0 global=0 session.intra_op.allow_spinning=0"


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    """build -> a library that makes a session in a runtime of its own: the first, one of its size, a larger one."""
    need("gcc")
    found = {}
    build = ["gcc", "-g", f"-I{NATIVE}", "-shared", "-fPIC"]
    for name, flags in (("first", ()), ("moved", ("-DMOVED",)), ("large", ("-DLARGE",))):
        folder = tmp_path_factory.mktemp(name)
        stub = folder / "libonnxruntime.so.1"
        Kind.run_checked(*build, *flags, "-Wl,-soname,libonnxruntime.so.1", "-o", stub, HERE / "stub.c")
        found[name] = folder / "plugin.so"
        Kind.run_checked(
            *build, "-Dmain=caller", "-o", found[name], HERE / "caller.c", stub, "-Wl,-rpath,$ORIGIN", "-lpthread"
        )
    return found


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    made = tmp_path_factory.mktemp("reload") / "reload"
    Kind.run_checked("gcc", "-o", made, HERE / "reload.c", "-ldl")
    return made


@pytest.mark.parametrize(
    "plan", [PLAN, PLAN + ";global_thread_pool=1;shared_allocator=1;arena_shrinkage=1;existing_values=override"]
)
@pytest.mark.parametrize(
    "names", [("first",) * 3, ("first", "moved", "first"), ("first", "large", "moved"), ("large", "first")]
)
def test_each_runtime_is_wrapped_after_the_one_before_was_unloaded(program, plugins, names, plan):
    environ = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(library()), "RADDLE_PLAN": plan}
    environ["STUB_VERSION"] = "1.28.0"
    command = [program, *(plugins[name] for name in names)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    sessions = [line for line in done.stdout.splitlines() if line.startswith("session")]
    assert len(sessions) == len(names)
    if plan == PLAN:
        assert sessions == [SESSION] * len(names)
    else:
        assert len(set(sessions)) == 1
        assert "global=1" in sessions[0]
    # A function that is not wrapped, but copied.
    assert done.stdout.splitlines().count("a later one says: the stub has no such function") == len(names)
    assert len(done.stderr.splitlines()) == 1, done.stderr
