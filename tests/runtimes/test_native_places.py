"""Where the native shim puts threads: on CPUs of their own, within the process's share, into one pool for all sessions."""

import os

import pytest
from support.runtimes import native_lab, shim_lab
from support.runtimes.native_caller import CALLERS, Caller, program, started, under

from runtimes import libonnxruntime

pytestmark = pytest.mark.runtime

CPUS = shim_lab.two_cpus()

WITH_NODE = (*CALLERS, ("node", native_lab.NODE_VERSIONS[-1]))
PLAN = "intra_op=2;inter_op=1;spinning=never;execution_mode=sequential"
# A container's own CPUs, of which the plan tells nothing else.
EXCLUSIVE = f"exclusive_cpus=2;cpus={CPUS[0]},{CPUS[1]}"


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_each_thread_has_a_core_of_its_own_in_an_exclusive_cpuset(kind, version, proven):
    with started(kind, version, f"intra_op=2;spinning=never;affinity=core;{EXCLUSIVE};smt=1") as caller:
        caller.session("", name="first")
        (first,) = caller.pool()
        assert first.cpus in map(str, CPUS)
        assert "affinity core" in caller.lines[0]
        # A second session's workers share no core with the first one's.
        caller.session("", name="second")
        (second,) = [thread for thread in caller.pool() if thread.tid != first.tid]
        assert second.cpus != first.cpus
        assert "pthread_setaffinity_np" not in caller.stderr
    proven(kind, version, "affinity")


@pytest.mark.parametrize(
    ("claims", "affinity"),
    [
        ({"DRA_CPUSET_one": str(CPUS[0]), "DRA_CPUSET_two": str(CPUS[1])}, str(CPUS[1])),
        ({"DRA_CPUSET_one": str(CPUS[0])}, f"{CPUS[0]}-{CPUS[1]}"),
        ({"DRA_CPUSET_one": "dynamic"}, f"{CPUS[0]}-{CPUS[1]}"),
    ],
)
def test_cpus_that_a_claim_names_are_the_containers_own_whatever_was_planned(claims, affinity):
    plan = "intra_op=4;spinning=never;affinity=core;exclusive_cpus=0;smt=1;" + EXCLUSIVE.partition(";")[2]
    with started("c", libonnxruntime.VERSIONS[-1], plan, variables=claims) as caller:
        caller.session("")
        assert [thread.cpus for thread in caller.pool()] == [affinity]
        assert ("cut to 2 CPUs" in caller.lines[0]) == (affinity == str(CPUS[1]))


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_affinity_to_a_numa_node_is_its_whole_share(kind, version, proven):
    with started(kind, version, f"intra_op=2;spinning=never;affinity=numa;{EXCLUSIVE};smt=1") as caller:
        caller.session("")
        (thread,) = caller.pool()
        assert thread.cpus == f"{CPUS[0]}-{CPUS[1]}"
    proven(kind, version, "affinity")


@pytest.mark.parametrize("version", ["1.16.3", "1.31.1"])
def test_no_thread_is_pinned_where_the_cpus_are_not_the_exclusive_ones_or_the_code_pins(version):
    for plan, options in (
        ("affinity=core;exclusive_cpus=4", ""),
        (f"affinity=core;{EXCLUSIVE};streams=2;workers=2", ""),
        # The plan doesn't know these CPUs.
        ("affinity=core;exclusive_cpus=2", ""),
        ("affinity=core;exclusive_cpus=2;cpus=4000-4001", ""),
        (f"affinity=core;{EXCLUSIVE};nodes=3-1", ""),
        ("affinity=core", ""),
        (
            f"affinity=core;{EXCLUSIVE}",
            f"entry.session.intra_op_thread_affinities={CPUS[0] + 1}-{CPUS[1] + 1} intra=2",
        ),
    ):
        with started("c", version, f"intra_op=2;spinning=never;{plan}") as caller:
            caller.session(options)
            assert {caller.thread(tid).cpus for tid in caller.tids()} == {f"{CPUS[0]}-{CPUS[1]}"}, plan


@pytest.mark.parametrize("version", libonnxruntime.VERSIONS)
def test_a_pool_stays_on_the_cpus_that_the_process_was_given(version, proven):
    with started("c", version, "intra_op=2;spinning=never", cpus=CPUS[:1]) as caller:
        caller.session()
        assert caller.pool() == []
        assert "intra_op=1 (planned 2, cut to CPU affinity of 1)" in caller.lines[0]
    with started("c", version, "intra_op=2;min_intra_op=2;spinning=never", cpus=CPUS[:1]) as caller:
        caller.session()
        assert [thread.cpus for thread in caller.pool()] == [str(CPUS[0])]
    proven("c", version, "counts")


@pytest.mark.parametrize(
    ("variables", "count"), [({}, 1), ({"OMP_PROC_BIND": "false"}, 1), ({"OMP_PROC_BIND": "Close"}, 2)]
)
def test_a_pool_has_the_process_s_cpus_where_openmp_has_bound_the_thread_that_makes_it(variables, count):
    every = f"{CPUS[0]}-{CPUS[1]}"
    chosen = program("c", libonnxruntime.VERSIONS[-1])
    with Caller(chosen, under("intra_op=2;spinning=never", **variables), cpus=CPUS) as caller:
        os.sched_setaffinity(caller.pid, CPUS[:1])
        caller.do("env")
        caller.session()
        assert f"intra_op={count}" in caller.lines[0]
        assert [thread.cpus for thread in caller.pool()] == [every] * (count - 1)
        assert caller.thread(caller.pid).cpus == str(CPUS[0])
        os.sched_setaffinity(caller.pid, CPUS)
        caller.session(name="t")
        os.sched_setaffinity(caller.pid, CPUS[:1])
        # Another thread has them all, and the code's count is for its own.
        caller.session(name="u")
        caller.session("intra=2", name="v")
        assert [thread.cpus for thread in caller.pool()] == [every] * (count + 1) + [str(CPUS[0])]


@pytest.mark.parametrize(("kind", "version"), [("c", "1.31.1"), ("java", "1.29.0"), ("node", "1.30.0")])
def test_a_plan_that_is_too_big_for_the_quota_is_cut(kind, version, proven):
    with (
        shim_lab.cgroup("cpu", cfs_quota_us="50000", cfs_period_us="100000") as join,
        started(kind, version, "intra_op=2;inter_op=1;spinning=bounded;spin_duration_us=200", before=join) as caller,
    ):
        caller.session("")
        assert caller.pool() == []
        assert "intra_op=1 (planned 2, cut to quota 0.5), inter_op=1, spinning off" in caller.lines[0]
        assert caller.end() == 0
    proven(kind, version, "counts")


@pytest.mark.parametrize(("kind", "version"), WITH_NODE)
def test_one_global_pool_serves_every_session_and_sleeps(kind, version, proven):
    with started(kind, version, f"{PLAN};global_thread_pool=1") as caller:
        caller.session("", name="s")
        caller.session(None, name="t")
        caller.session("", name="u")
        assert [thread.name for thread in caller.pool()] == ["ort-gintra/1"]
        assert caller.sleeps(caller.pool())
        assert caller.end() == 0
    proven(kind, version, "global pool")


@pytest.mark.parametrize(("kind", "version"), WITH_NODE)
def test_a_session_that_asks_for_its_own_pool_still_loads_beside_a_global_one(kind, version, proven):
    with started(kind, version, f"{PLAN};global_thread_pool=1") as caller:
        caller.session("", name="s")
        caller.session("intra=3", name="own")
        caller.do("run s")
        assert "ort-gintra/1" in {thread.name for thread in caller.pool()}
    proven(kind, version, "global pool")


@pytest.mark.parametrize(("kind", "version"), CALLERS)
def test_a_global_pool_of_the_codes_own_gets_the_plan_where_it_sets_nothing(kind, version, proven):
    with started(kind, version, PLAN, make_env="env intra=0") as caller:
        caller.session("shared=1")
        assert [thread.name for thread in caller.pool()] == ["ort-gintra/1"]
        assert caller.sleeps(caller.pool())
    with started(kind, version, PLAN, make_env="env intra=3 spin=0") as caller:
        caller.session("shared=1")
        assert sorted(thread.name for thread in caller.pool()) == ["ort-gintra/1", "ort-gintra/2"]
    proven(kind, version, "global pool", "existing values")


@pytest.mark.parametrize("version", ["1.16.3", "1.31.1"])
def test_a_global_pool_is_pinned_like_any_other(version, proven):
    with started(
        "c", version, f"intra_op=2;spinning=never;global_thread_pool=1;affinity=core;{EXCLUSIVE};smt=1"
    ) as caller:
        caller.session("")
        assert [thread.cpus in map(str, CPUS) for thread in caller.pool()] == [True]
    proven("c", version, "affinity")


def test_two_processes_of_one_program_share_the_cpus_and_neither_pins_its_threads():
    """Workers that somebody started beside each other, and of which the plan knows nothing."""
    with (
        started("c", "1.31.1", f"intra_op=2;affinity=core;{EXCLUSIVE};smt=1") as one,
        started("c", "1.31.1", f"intra_op=2;affinity=core;{EXCLUSIVE};smt=1") as two,
    ):
        one.session("")
        two.session("")
        assert (one.pool(), two.pool()) == ([], [])
        lines = one.lines + two.lines
        # The first of them speaks for both.
        assert len(lines) == 1
        assert "intra_op=1 (planned 2, cut to 2 CPUs, shared by 2 workers)" in lines[0]
