"""Resident memory of real sessions under the preloaded library."""

import pytest
from support.runtimes import native_lab
from support.runtimes.native_caller import Caller, under
from support.runtimes.native_lab import program

from runtimes import libonnxruntime

pytestmark = pytest.mark.runtime

SESSIONS = 8
CALLERS = [*[("c", version) for version in libonnxruntime.VERSIONS], ("java", "1.16.3"), ("java", "1.29.0")]


def resident_kb(kind, version, plan, sessions, runs=1):
    """Memory after as many sessions of a model that needs 50 MB to run, each run."""
    env = under(plan, CALLER_MODEL=str(native_lab.model("wide")))
    with Caller(program(kind, version), env) as caller:
        caller.do("env")
        before = caller.rss_kb()
        for number in range(sessions):
            caller.session("", name=f"s{number}")
            caller.do(*[f"run s{number}"] * (runs - 1))
        return caller.rss_kb() - before


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_eight_sessions_that_share_an_arena_need_the_memory_of_one(kind, version, proves):
    apart = resident_kb(kind, version, "intra_op=1", SESSIONS)
    shared = resident_kb(kind, version, "intra_op=1;shared_allocator=1", SESSIONS)
    assert apart > 4 * shared
    proves(native_lab.row(kind), version, "memory")


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_a_session_without_an_arena_gives_its_memory_back_after_a_run(kind, version, proves):
    assert resident_kb(kind, version, "intra_op=1", 1) > 2 * resident_kb(kind, version, "intra_op=1;cpu_mem_arena=0", 1)
    proves(native_lab.row(kind), version, "memory")


@pytest.mark.parametrize("version", ["1.16.3", "1.31.1"])
def test_a_shrunk_arena_gives_memory_back_after_a_run(version, proves):
    kept = resident_kb("c", version, "intra_op=1", 1, runs=3)
    shrunk = resident_kb("c", version, "intra_op=1;arena_shrinkage=1", 1, runs=3)
    assert shrunk < 0.8 * kept
    proves("ONNX Runtime (C/C++)", version, "memory")
