"""What runs, compared with what was planned: what is found and its cause, and what is left alone."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import reports

from assembling import regular
from raddle.cpus import cpuset
from raddle.cpus.topology import Kubelet
from raddle_operator.effective import compare
from raddle_operator.effective.planned import ContainerPlan
from raddle_operator.objects.nodereport import Cause, Container, Finding, Level, NodeReport, Pool, Process, Session

KEY = ("u1", "serve")
NODE = regular(16, 1)
COUNTS = {"onnxruntime": 2, "torch": 2, "openmp": 2, "blas": 1}
PLAN = ContainerPlan(
    policy="InferenceThreading/small",
    threads=2,
    counts=COUNTS,
    limit_cpus=2.0,
    shim=True,
    runtimes=("onnxruntime", "torch", "openmp", "blas"),
)


def pool(ran, *, name="python", threads=None, used=2.0, delay=4.0, migrations=3.0, last=()):
    rates = {"used_cpus": used, "delay_cpus": delay, "migrations_hz": migrations}
    return Pool(name=name, threads=threads or ran, ran=ran, last_cpus=dict.fromkeys(last, 1), **rates)


def process(*pools, pid=7, listened=True, **fields):
    fields = {"runtimes": ("onnxruntime",), **fields}
    threads = sum(one.threads for one in pools)
    return Process(pid=pid, command="python", threads=threads, pools=pools, listened=listened, **fields)


def said(threads, source="plan", *, count=1, runtime="onnxruntime"):
    return (Session(runtime=runtime, threads=threads, source=source),) * count


def container(*processes, limit=2.0, **fields):
    fields = {"namespace": "models", "pod": "resnet-1", "uid": "u1", "name": "serve", "throttled_share": 0.6, **fields}
    return Container(limit_cpus=limit, processes=processes, **fields)


def compared(*containers, plans=None, first=None, machine=NODE):
    report = NodeReport(node="n", level=Level.PROCESSES, at="", window_s=10, containers=containers)
    return compare.compared(report, {KEY: PLAN} if plans is None else plans, first or {}, machine).containers


def found(one, plan=PLAN, first=None, machine=NODE) -> tuple[Finding, ...]:
    return compared(one, plans={KEY: plan}, first={KEY: first} if first else None, machine=machine)[0].findings


CODE = container(process(pool(16), sessions=said(16, "code")))
SILENT = container(process(pool(16)))
OTHERS = container(process(pool(16, name="jax"), sessions=said(2), runtimes=("onnxruntime", "jax")))
FOUR = tuple(process(pool(8), pid=pid, sessions=said(8, count=2)) for pid in (7, 8, 9, 10))

CODE_SETS = "the code sets 16 threads for onnxruntime of process 7 (python), 2 were planned; limit 2 CPUs"
OF_POOL = "pool python has {} threads, of which {} ran, 2 were planned; limit 2 CPUs"
NO_SHIM = "no shim has reported from process {} (python), which has onnxruntime: "
EXTRA = "{} threads of pool {} ran in process 7 (python), 2 were planned; limit 2 CPUs"
OWN_SIZE = "set the size of the pool {} in the code or through its variable"
RESIZED = "planned with a limit of 2 CPUs; the limit is now {}"
ONE_CPU = "1 CPU (3) for 2 threads that were planned; they were 0-3"
POD = "-n models pod/resnet-1"


def planned_two(**fields):
    return container(process(pool(2), sessions=said(2)), **fields)


def case(one, cause, detail, fix=None, **plan):
    """A container, what is found first, how to repair it unless another row has that, and what its plan has."""
    return one, replace(PLAN, **plan), cause, detail, fix


CASES = {
    "the code": case(
        CODE, Cause.CODE_SETS_IT, CODE_SETS,
        "remove the count from the code, or set existingValues: Override in the policy and restart",
    ),
    "the code, and the policy overrides it": case(
        CODE, Cause.CODE_SETS_IT, CODE_SETS, "the policy already overrides such values: restart the pod",
        overrides=True,
    ),
    "no shim": case(
        SILENT, Cause.NOT_REACHED, NO_SHIM.format(7) + OF_POOL.format(16, 16),
        f"inspect its processes: kubectl raddle explain --live {POD};"
        " python -I, an empty environment and static binaries do not load the shim",
    ),
    "no shim in one of two": case(
        container(process(pool(16), pid=8), process(pool(2), sessions=said(2))),
        Cause.NOT_REACHED,
        f"{NO_SHIM.format(8)}{OF_POOL.format(16, 16)}; the shim reported from process 7 (python), so this process "
        "was started without the container's environment",
        "start it with the container's environment, and Python without -I, -E or -S",
    ),
    "the host's count, which sleeps": case(
        container(process(pool(0, threads=15, used=0.0)), throttled_share=0.0),
        Cause.NOT_REACHED, NO_SHIM.format(7) + OF_POOL.format(15, 0),
    ),
    "the host's count, where libraries can't be seen": case(
        container(process(pool(16), runtimes=None)),
        Cause.NOT_REACHED, "no shim has reported from process 7 (python): " + OF_POOL.format(16, 16),
    ),
    "another count than the host's, where libraries can't be seen": case(
        container(process(pool(12), runtimes=None)), Cause.OTHER_THREADS, EXTRA.format(12, "python"),
    ),
    "a shim that may have spoken before the agent listened": case(
        container(process(pool(16), listened=False)), Cause.OTHER_THREADS, EXTRA.format(16, "python"),
        f"{OWN_SIZE.format('python')}; if it belongs to onnxruntime, inspect it: kubectl raddle explain --live {POD}",
    ),
    "a shim that left it alone": case(
        container(process(pool(16), sessions=said(16, "default"))), Cause.NOT_REACHED,
        "onnxruntime's own count, 16 threads, is in effect in process 7 (python), 2 were planned; limit 2 CPUs",
        f"find out why the shim did not configure it: kubectl raddle explain {POD}",
    ),
    "another library": case(
        OTHERS, Cause.OTHER_THREADS, EXTRA.format(16, "jax"),
        "add jax to the policy's runtimes, or set its count in the pod spec, and restart",
    ),
    "a library that the policy names already": case(
        container(process(pool(16), runtimes=("libgomp", "tbb", "torch"))),
        Cause.OTHER_THREADS, EXTRA.format(16, "python"), OWN_SIZE.format("python"),
    ),
    "threads of the program": case(
        container(process(pool(16, name="worker-"), sessions=said(2))),
        Cause.OTHER_THREADS, EXTRA.format(16, "worker-"), OWN_SIZE.format("worker-"),
    ),
    "no shim was planned": case(
        SILENT, Cause.OTHER_THREADS, EXTRA.format(16, "python"),
        f"the plan has no shim, so a count in the code is kept: remove it, or see kubectl raddle explain {POD}",
        shim=False,
    ),
    "processes x sessions x threads": case(
        container(*FOUR), Cause.OVERSUBSCRIBED,
        "4 processes x 2 sessions x 8 threads = 64 for 2 CPUs; planned: 1 x 2 threads",
        "use fewer processes or sessions, or set them in the policy:"
        " budget.workersPerContainer 4, budget.sessionsPerWorker 2",
    ),
    "resized to less": case(
        container(process(pool(4), sessions=said(2)), limit=1.0), Cause.RESIZED, RESIZED.format(1),
        "restart the pod to plan it again; its threads do not change until then",
    ),
    "resized, and the shim has followed in one of two sessions": case(
        container(process(pool(3), sessions=said(2) + said(1)), limit=1.0),
        Cause.RESIZED, RESIZED.format(1), streams=2,
    ),
    "resized to more": case(planned_two(limit=8.0), Cause.RESIZED, RESIZED.format(8)),
    "fewer CPUs than threads": case(
        planned_two(cpuset="3"), Cause.CPUSET_CHANGED, ONE_CPU,
        "restart the pod to plan it again; sessions created since then have fewer threads",
    ),
    "fewer CPUs than threads that the policy asks for": case(
        planned_two(cpuset="3"), Cause.CPUSET_CHANGED, ONE_CPU,
        "the policy requires that many: lower threads.intraOp or minIntraOp, and restart the pod",
        asked=True,
    ),
    "bound to CPUs that it lost": case(
        planned_two(cpuset="4-5"), Cause.CPUSET_CHANGED,
        "the CPUs are now 4-5; the threads were bound to 0-3", exclusive_cpus=2, pinned=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("one", "plan", "cause", "detail", "fix"), CASES.values(), ids=CASES)
def test_what_is_not_as_planned_is_named_with_its_numbers_and_what_to_do(one, plan, cause, detail, fix):
    first = found(one, plan, "0-3")[0]
    assert (first.cause, first.detail) == (cause, detail)
    assert first.fix if fix is None else first.fix == fix


def test_one_cause_is_told_once_however_many_processes_it_is_in():
    causes = [one.cause for one in found(container(*FOUR, *(process(pool(16), pid=pid) for pid in range(20, 60))))]
    assert len(causes) == len(set(causes))


def test_the_worst_comes_first():
    one = container(process(pool(16), sessions=said(16, "code")), limit=1.9)
    assert [finding.cause for finding in found(one)] == [Cause.CODE_SETS_IT, Cause.RESIZED]


AS_PLANNED = {
    "the shim's word": container(process(pool(4), sessions=said(2))),
    "a shim that the agent does not hear": container(process(pool(4))),
    "the host's count, which sleeps, and a shim that may have spoken before the agent listened": container(
        process(pool(0, threads=15, used=0.0), listened=False), throttled_share=0.0
    ),
    "nothing seen yet": container(),
    "nothing of processes seen": container(throttled_share=0.9),
    "a pool of the host's size that sleeps, where libraries can't be seen": container(
        process(pool(0, threads=16, used=0.0), runtimes=None), throttled_share=0.0
    ),
    "a runtime of whose sessions no shim tells": container(
        process(pool(0, threads=16, used=0.0), runtimes=("torch",)), throttled_share=0.0
    ),
    "a server's forty threads that wait for nobody": container(
        process(pool(40, used=0.9, delay=0.001), sessions=said(2)), throttled_share=0.0
    ),
    "a hundred threads that sleep": container(process(pool(0, threads=100), sessions=said(2))),
    "a hundred threads that do next to nothing": container(process(pool(100, used=0.05), sessions=said(2))),
    "a shim that has cut the plan": container(process(pool(1), sessions=said(1)), limit=2.0),
    "a shim that has followed a resize": container(process(pool(2), sessions=said(1)), limit=1.0),
    "two sessions, one after the other": container(process(pool(5), sessions=said(2, count=2))),
    "the cpuset of all shared containers": planned_two(cpuset="2-15"),
    "a cpuset and a shim that has cut the plan to it": container(process(pool(1), sessions=said(1)), cpuset="3"),
    "a cpuset that nobody can read": planned_two(cpuset="all"),
}


@pytest.mark.parametrize("one", AS_PLANNED.values(), ids=AS_PLANNED)
def test_nothing_is_found_in_a_container_that_runs_as_planned(one):
    assert found(one, first="0-15") == ()


def test_what_the_pod_spec_sets_is_not_measured_against_the_plan():
    counts = {"openmp": 2}
    assert found(CODE, replace(PLAN, threads=None, counts=counts)) == ()
    assert found(SILENT, replace(PLAN, threads=None, counts=counts), machine=None) == ()


@pytest.mark.parametrize("first", ["3", None], ids=["as ever", "the agent has just begun"])
def test_more_threads_than_cpus_are_a_finding_unless_the_policy_has_asked_for_them(first):
    one = planned_two(cpuset="3")
    assert found(one, replace(PLAN, asked=True), first) == ()
    assert [each.detail for each in found(one, first=first)] == ["1 CPU (3) for 2 threads that were planned"]


def test_a_container_without_a_plan_is_left_as_it_is():
    assert compared(CODE, plans={}) == (CODE,)


@pytest.mark.parametrize(
    ("one", "effective"),
    [
        (container(process(pool(16), sessions=said(2) + said(4))), 4),
        (container(process(pool(3), pool(30, name="gc", used=0.1))), 3),
        (container(process(pool(0, threads=9))), None),
        (container(), None),
    ],
    ids=["the shim's word", "the busiest pool", "all asleep", "unknown"],
)
def test_the_threads_in_effect_are_the_shims_word_else_those_that_ran(one, effective):
    made = compared(one)[0]
    assert (made.effective_threads, made.planned_threads, made.policy) == (effective, 2, "InferenceThreading/small")


def two(left, right, machine=NODE, plan=PLAN):
    right = replace(right, uid="u2", pod="ranker-1")
    made = compared(left, right, plans={KEY: plan, ("u2", "serve"): plan}, machine=machine)
    return [[one for one in each.findings if one.cause is Cause.SHARED_CORES] for each in made]


def on(cpus, **fields):
    return container(process(pool(2, last=cpuset.ids(cpuset.parse_list(cpus)), **fields), sessions=said(2)))


def test_two_containers_whose_cpusets_overlap_while_other_cpus_are_free_are_named_with_each_other():
    left, right = two(planned_two(cpuset="0-1"), planned_two(cpuset="1-2"))
    assert [one.detail for one in left] == [
        "shares CPUs 1 with models/ranker-1 serve: 4 threads of both for 1 CPU, while no governed thread ran on 13 CPUs"
    ]
    assert "models/resnet-1 serve" in right[0].detail


@pytest.mark.parametrize(("used", "delay"), [(1.0, 1.0), (0.07, 0.93)], ids=["half each", "others take most of it"])
def test_threads_that_wait_for_the_same_cpus_and_never_leave_them_share_cores(used, delay):
    bound = on("0-1", used=used, delay=delay, migrations=0.0)
    left, right = two(bound, bound)
    assert "shares CPUs 0-1 with models/ranker-1" in left[0].detail
    assert len(right) == 1


def test_threads_that_are_bound_within_what_the_static_policy_leaves_share_cores():
    left, right = two(replace(WAITING, cpuset="0-2"), replace(WAITING, cpuset="0-2"), STATIC)
    assert [one.detail.partition(" with")[0] for one in (*left, *right)] == ["shares CPUs 0"] * 2


STATIC = regular(4, 1, kubelet=Kubelet(cpu_manager_policy="static"))
WAITING = on("0", used=1.0, delay=1.0, migrations=0.0)
SELDOM = on("0-1", used=0.02, delay=0.2, migrations=0.0)
LEFT = planned_two(cpuset="2-3")
NARROW = planned_two(cpuset="0-1")
WIDE = planned_two(cpuset="2-15")
APART = {
    "threads that the kernel moves": (on("0-1"), on("0-1"), NODE),
    "threads that do not wait": (on("0-1", delay=0.0, migrations=0.0), on("0-1", delay=0.0, migrations=0.0), NODE),
    "threads that seldom want one": (SELDOM, SELDOM, NODE),
    "whole nodes": (planned_two(cpuset="0-15"), planned_two(cpuset="0-15"), NODE),
    "wide cpusets": (WIDE, WIDE, NODE),
    "other cpusets": (NARROW, LEFT, NODE),
    "a full node": (NARROW, NARROW, regular(2, 1)),
    "what the static policy leaves": (LEFT, LEFT, STATIC),
    "a single CPU that the static policy leaves": (replace(WAITING, cpuset="0"), replace(WAITING, cpuset="0"), STATIC),
    "what a policy leaves that nobody told": (LEFT, LEFT, regular(4, 1, kubelet=Kubelet())),
    "a machine that is not known": (NARROW, NARROW, None),
}


@pytest.mark.parametrize(("left", "right", "machine"), APART.values(), ids=APART)
def test_two_containers_that_nothing_binds_to_the_same_cpus_do_not_share_cores(left, right, machine):
    assert two(left, right, machine) == [[], []]


plans = st.builds(
    ContainerPlan,
    threads=st.none() | st.integers(1, 64),
    asked=st.booleans(),
    counts=st.dictionaries(st.sampled_from(["onnxruntime", "openmp"]), st.integers(1, 64)),
    limit_cpus=st.none() | st.floats(0, 1e6),
    exclusive_cpus=st.integers(0, 8),
    cpus=st.integers(0, 1 << 20),
    pinned=st.booleans(),
    shim=st.booleans(),
    runtimes=st.lists(st.sampled_from(["onnxruntime", "openmp"])).map(tuple),
    streams=st.integers(1, 64),
    workers=st.integers(1, 64),
    overrides=st.booleans(),
)


@given(
    found=st.lists(reports.containers, max_size=3),
    plan=plans,
    first=st.sampled_from(["", "0-3", "x"]),
    machine=st.sampled_from([None, NODE]),
)
def test_whatever_a_report_holds_comparing_never_raises_and_stays_small(found, plan, first, machine):
    keys = [(one.uid, one.name) for one in found]
    for one in compared(*found, plans=dict.fromkeys(keys, plan), first=dict.fromkeys(keys, first), machine=machine):
        assert len(one.findings) <= compare.MOST_FINDINGS
        assert all(0 < len(each.detail) <= compare.MOST_CHARACTERS and each.fix for each in one.findings)


@given(threads=st.integers(1, 64), processes=st.integers(1, 4), sessions=st.integers(1, 4), server=st.integers(0, 2))
def test_nothing_is_found_where_every_session_has_what_was_planned_for_it(threads, processes, sessions, server):
    streams = {"streams": processes * sessions, "workers": processes}
    plan = replace(PLAN, threads=threads, counts={"onnxruntime": threads}, **streams)
    one = process(pool(threads * sessions + server), sessions=said(threads, count=sessions))
    assert found(container(*(replace(one, pid=pid) for pid in range(processes))), plan) == ()
