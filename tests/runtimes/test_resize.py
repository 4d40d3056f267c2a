"""A container is resized in place, and back: each session fits what there is when it is made, and never exceeds the plan.

Sessions that were made before keep their threads: ONNX Runtime can't change a pool.
"""

import pytest
from support import cgroups, marks
from support.runtimes import node_lab, shim_lab
from support.runtimes.native_caller import started

from raddle import env
from raddle.cpus import cpuset
from runtimes import libonnxruntime

pytestmark = pytest.mark.runtime

CPUS = shim_lab.two_cpus()

BOTH, ONE = cpuset.format_list(cpuset.of(CPUS)), str(CPUS[0])
PLAN = "intra_op=2;inter_op=1;spinning=never;execution_mode=sequential"
# quota in microseconds, CPUs -> threads of the next session beside its caller, why, and the quota that it records
STEPS = [
    (-1, BOTH, 1, None, None),
    (50_000, BOTH, 0, "planned 2, cut to quota 0.5", 0.5),
    (110_000, BOTH, 1, None, 1.1),
    (110_000, ONE, 0, "planned 2, cut to CPU affinity of 1", 1.1),
    (60_000, ONE, 0, "planned 2, cut to quota 0.6", 0.6),
    (-1, BOTH, 1, None, None),
]
POOLS = [step[2] for step in STEPS]


def resizes(box):
    """What to write before each session."""
    return [box.resize(quota_us=quota_us, cpus=cpus) for quota_us, cpus, *_ in STEPS]


def counted(mark):
    """What a session's mark begins with at a step."""
    return mark.partition(": ")[2].partition(", inter_op")[0]


MARKS = [f"intra_op={1 + pool}" + (f" ({because})" if because else "") for *_, pool, because, _ in STEPS]


@pytest.fixture
def probed(mounted, model):
    """Sessions of this Python in the box under the plan: probed(box, plan, sessions)."""

    def run(box, plan, sessions):
        variables = {**shim_lab.python_path(mounted), env.PLAN: f"v=1;{plan}"}
        return shim_lab.probe(shim_lab.THIS_PYTHON, model, sessions, env=variables, cpus=CPUS, before=box.join)

    return run


def test_each_python_session_fits_what_there_is_when_it_is_made(probed):
    with cgroups.boxes() as (box,):
        found = probed(box, PLAN, [{"write": files} for files in resizes(box)])
    assert [session["pool"] for session in found["sessions"]] == POOLS
    recorded = [(record["because"].get("intraOp"), record["quotaCPUs"]) for record in found["records"]]
    assert recorded == [(because, quota_cpus) for *_, because, quota_cpus in STEPS]


def test_a_container_that_grows_gets_no_more_than_was_planned(probed):
    with cgroups.boxes() as (box,):
        sessions = [{"write": box.resize(quota_us=quota_us)} for quota_us in (30_000, 180_000, -1)]
        found = probed(box, PLAN.replace("intra_op=2", "intra_op=1"), sessions)
    assert [session["pool"] for session in found["sessions"]] == [0, 0, 0]


def test_affinity_goes_with_the_exclusive_cpus_that_were_planned_and_returns_with_them(probed):
    with cgroups.boxes() as (box,):
        sessions = [{"plain": True, "drop": True, "write": box.resize(cpus=cpus)} for cpus in (BOTH, ONE, BOTH)]
        found = probed(box, f"intra_op=2;spinning=never;affinity=core;exclusive_cpus=2;cpus={BOTH}", sessions)
    assert [session["affinity"] for session in found["sessions"]] == [[str(CPUS[1])], [], [str(CPUS[1])]]
    assert found["records"][1]["because"]["intraOp"] == "planned 2, cut to CPU affinity of 1"


@pytest.mark.parametrize("version", node_lab.VERSIONS)
def test_each_node_session_fits_what_there_is_when_it_is_made(version):
    with cgroups.boxes() as (box,):
        seen = node_lab.run(
            node_lab.application(version) / "app.cjs",
            *[{} for _ in STEPS],
            text=f"v=1;{PLAN}",
            before=box.join,
            writes=resizes(box),
        )
    assert seen.threads == POOLS


@pytest.mark.parametrize("version", [libonnxruntime.VERSIONS[0], libonnxruntime.VERSIONS[-1]])
def test_each_native_session_fits_what_there_is_when_it_is_made(version):
    with cgroups.boxes() as (box,), started("c", version, PLAN, cpus=CPUS, before=box.join) as caller:
        pools, marked = [], []
        for number, (quota_us, cpus, *_) in enumerate(STEPS):
            box.limit(quota_us=quota_us, cpus=cpus)
            pools.append(len(caller.session("", name=f"s{number}")))
            marked += map(counted, marks.of(caller.pid))
        assert caller.end() == 0
    assert pools == POOLS
    assert marked == MARKS
