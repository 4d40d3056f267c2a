"""A container is resized in place, and back: each session fits what there is when it is made, and never exceeds the plan.

Sessions that were made before keep their threads: ONNX Runtime can't change a pool.
"""

import json
import os

import pytest
from support import cgroups
from support.runtimes import node_lab, shim_lab
from support.runtimes.native_caller import started

from raddle import env
from raddle.cpus import cpuset
from runtimes import libonnxruntime

pytestmark = pytest.mark.runtime

CPUS = sorted(os.sched_getaffinity(0))[:2]
if len(CPUS) < 2:
    pytest.skip("needs two CPUs: a pool of one has no threads to count", allow_module_level=True)

BOTH, ONE = cpuset.format_list(cpuset.of(CPUS)), str(CPUS[0])
PLAN = "intra=2;inter=1;spin=never;mode=sequential"
# quota in microseconds, CPUs -> threads of the next session beside its caller, why, and the quota that it reports
STEPS = [
    (-1, BOTH, 1, None, None),
    (50_000, BOTH, 0, "planned 2, cut to quota 0.5", 0.5),
    (110_000, BOTH, 1, None, 1.1),
    (110_000, ONE, 0, "planned 2, cut to cpuset of 1", 1.1),
    (60_000, ONE, 0, "planned 2, cut to quota 0.6", 0.6),
    (-1, BOTH, 1, None, None),
]
POOLS = [step[2] for step in STEPS]


def resizes(box):
    """What to write before each session."""
    return [box.resize(quota_us=quota_us, cpus=cpus) for quota_us, cpus, *_ in STEPS]


def reported(folder):
    """(reason, quota) of each session, from the one report in the folder."""
    (path,) = folder.glob("*.json")
    sessions = json.loads(path.read_text())["sessions"]
    return [(session["because"].get("intra"), session.get("quotaCPUs")) for session in sessions]


EXPECTED = [(because, quota_cpus) for *_, because, quota_cpus in STEPS]


@pytest.fixture
def probed(mounted, model, tmp_path):
    """Sessions of this Python in the box under the plan: probed(box, plan, sessions)."""

    def run(box, plan, sessions):
        variables = {**shim_lab.python_path(mounted), env.PLAN: f"v=1;{plan}", env.REPORT: str(tmp_path)}
        return shim_lab.probe(shim_lab.THIS_PYTHON, model, sessions, env=variables, cpus=CPUS, before=box.join)

    return run


def test_each_python_session_fits_what_there_is_when_it_is_made(probed, tmp_path):
    with cgroups.boxes() as (box,):
        found = probed(box, PLAN, [{"write": files} for files in resizes(box)])
    assert [session["pool"] for session in found["sessions"]] == POOLS
    assert reported(tmp_path) == EXPECTED


def test_a_container_that_grows_gets_no_more_than_was_planned(probed):
    with cgroups.boxes() as (box,):
        sessions = [{"write": box.resize(quota_us=quota_us)} for quota_us in (30_000, 180_000, -1)]
        found = probed(box, PLAN.replace("intra=2", "intra=1"), sessions)
    assert [session["pool"] for session in found["sessions"]] == [0, 0, 0]


def test_affinity_goes_with_the_exclusive_cpus_that_were_planned_and_returns_with_them(probed):
    with cgroups.boxes() as (box,):
        sessions = [{"plain": True, "drop": True, "write": box.resize(cpus=cpus)} for cpus in (BOTH, ONE, BOTH)]
        found = probed(box, f"intra=2;spin=never;aff=core;excl=2;cpus={BOTH}", sessions)
    assert [session["affinity"] for session in found["sessions"]] == [[str(CPUS[1])], [], [str(CPUS[1])]]
    assert found["records"][1]["because"]["intra"] == "planned 2, cut to cpuset of 1"


@pytest.mark.parametrize("version", node_lab.VERSIONS)
def test_each_node_session_fits_what_there_is_when_it_is_made(version, tmp_path):
    with cgroups.boxes() as (box,):
        seen = node_lab.run(
            node_lab.application(version) / "app.cjs",
            *[{} for _ in STEPS],
            text=f"v=1;{PLAN}",
            env={env.REPORT: str(tmp_path)},
            before=box.join,
            writes=resizes(box),
        )
    assert seen.threads == POOLS
    assert reported(tmp_path) == EXPECTED


@pytest.mark.parametrize("version", [libonnxruntime.VERSIONS[0], libonnxruntime.VERSIONS[-1]])
def test_each_native_session_fits_what_there_is_when_it_is_made(version, tmp_path):
    variables = {env.REPORT: str(tmp_path)}
    with (
        cgroups.boxes() as (box,),
        started("c", version, PLAN, variables=variables, cpus=CPUS, before=box.join) as caller,
    ):
        pools = []
        for number, (quota_us, cpus, *_) in enumerate(STEPS):
            box.limit(quota_us=quota_us, cpus=cpus)
            pools.append(len(caller.session("", name=f"s{number}")))
        assert caller.end() == 0
    assert pools == POOLS
    assert reported(tmp_path) == EXPECTED
