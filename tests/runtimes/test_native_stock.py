"""What ONNX Runtime does to a container without Raddle, in each of its languages: the reason for the native shim."""

import os

import pytest
from support.runtimes import native_lab
from support.runtimes.native_caller import Caller
from support.runtimes.native_lab import program

pytestmark = pytest.mark.runtime

CPUS = sorted(os.sched_getaffinity(0))
if len(CPUS) < 2:
    pytest.skip("needs two CPUs: a pool of one has no threads to count", allow_module_level=True)

CALLERS = [("c", "1.16.3"), ("cpp", "1.23.2"), ("plugin", "1.20.0"), ("java", "1.29.0"), ("node", "1.30.0")]


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_a_pool_spins_after_each_run_and_its_threads_have_the_name_of_their_maker(kind, version):
    with Caller(program(kind, version), {}) as caller:
        caller.do("env")
        # libuv's threads start late, and are called node as well.
        maker = caller.thread(caller.pid).name
        pool = [thread for thread in caller.session("intra=3") if thread.name == maker]
        quiet = caller.session("intra=3 entry.session.intra_op.allow_spinning=0", name="quiet")
        assert len(quiet) == 2
        assert not caller.pool()
        assert caller.spins(pool, 5 * caller.idle_cpu_s(quiet, "quiet"))


@pytest.mark.parametrize("version", ["1.16.3", "1.31.1"])
def test_threads_grow_with_the_number_of_sessions(version):
    with Caller(program("c", version), {}) as caller:
        caller.do("env")
        assert [len(caller.session("intra=3", name=f"s{number}")) for number in range(3)] == [2, 2, 2]


@pytest.mark.parametrize("version", ["1.16.3", "1.31.1"])
def test_a_default_pool_is_the_hosts_and_leaves_the_cpus_it_was_given(version):
    with Caller(program("c", version), {}, cpus=CPUS[:1]) as caller:
        caller.do("env")
        pool = caller.session()
        if not pool:
            pytest.skip("the host has one core: its pool has no workers")
        # In a cpuset of its own it can't leave, and says so.
        left = {thread.cpus for thread in pool} != {str(CPUS[0])}
        assert left or "pthread_setaffinity_np failed" in caller.stderr


def test_arenas_grow_with_the_number_of_sessions():
    with Caller(program("c", "1.31.1"), {"CALLER_MODEL": str(native_lab.model("wide"))}) as caller:
        caller.do("env")
        sizes = []
        for number in range(4):
            caller.session("intra=1", name=f"s{number}")
            sizes.append(caller.rss_kb())
        assert sizes[3] - sizes[0] > 3 * 30_000
