"""onnxruntime-openmp 1.7.0, whose intra-op pool is an OpenMP team: counts and spinning come from the environment."""

import pytest
from support.runtimes import ort_lab, shim_lab

from raddle import env

pytestmark = ort_lab.MARKS

ROW, VERSION, RELEASE = "ONNX Runtime OpenMP build", "1.7.0", "ort-openmp-1.7.0"
WAIT_POLICY = "OMP_WAIT_POLICY"
PLAN = "intra_op=2;min_intra_op=2;inter_op=1;omp=2;execution_mode=sequential"
IDLE_S = 0.25
# An active worker spins all the time, as far as others leave it a CPU.
BURNS_S = 0.02
AFTERWARDS = """
import atexit, os, sys
atexit.register(lambda: sys.stderr.write("left {}\\n".format(sorted(k for k in os.environ if k.startswith("OMP_")))))
"""


@pytest.fixture(scope="module")
def seen(lab):
    def level(name):
        return {"model": str(lab.levels), "optimized": str(lab.folder / f"openmp-{name}.onnx"), "idle_s": 0}

    profile = {"profile": str(lab.folder / "openmp"), "model": str(lab.levels), "idle_s": 0}
    return lab.probes(
        RELEASE,
        {
            "never": (
                PLAN + ";spinning=never;graph_optimization_level=disable",
                [{"intra": 3}, level("disable"), profile],
            ),
            "always": (PLAN + ";spinning=always;graph_optimization_level=extended", [None, level("extended")]),
            "bounded": (PLAN + ";spinning=bounded", [None]),
            "three": (
                "intra_op=3;min_intra_op=3;omp=3;spinning=never;inter_op=2;execution_mode=parallel;cpu_mem_arena=0;mem_pattern=0",
                [{}, profile],
            ),
            "unknown": (
                PLAN
                + ";spinning=never;global_thread_pool=1;arena_shrinkage=1;session.force_spinning_stop=1;session.intra_op.allow_spinning=0",
                [None],
            ),
        },
        idle_s=IDLE_S,
        first=AFTERWARDS,
    )


def test_the_team_has_the_planned_threads_whatever_the_options_say(seen, proves):
    proves(ROW, VERSION, "counts")
    # The library makes the team once, for the first session.
    assert [session["pool"] for session in seen["never"]["sessions"]] == [1, 0, 0]
    assert seen["three"]["sessions"][0]["pool"] == 2 + 1
    said = "intra_op=2, inter_op=1, spinning off, affinity none"
    assert seen["never"]["stderr"].splitlines()[0] == f"raddle: onnxruntime 1.7.0: {said}"


def test_the_wait_policy_is_passive_or_active_by_the_plan(seen, proves):
    proves(ROW, VERSION, "spinning")
    always, never = (seen[name]["sessions"][0]["idle_cpu_s"] for name in ("always", "never"))
    assert always > BURNS_S
    assert never < always / 4
    assert seen["bounded"]["records"][0]["because"]["spinning"] == "as long as libgomp does by itself"


def test_other_libraries_and_child_processes_see_the_environment_of_the_pod_spec(seen):
    for found in seen.values():
        assert found["stderr"].splitlines()[-1] == "left []"


def test_mode_and_level_are_set_as_in_any_build(seen, lab, proves):
    proves(ROW, VERSION, "execution mode")
    proves(ROW, VERSION, "graph level")
    assert seen["never"]["sessions"][2]["nodes_run_by_caller"]
    assert not seen["three"]["sessions"][1]["nodes_run_by_caller"]
    for level in ("disable", "extended"):
        assert shim_lab.operators(lab.folder / f"openmp-{level}.onnx") == shim_lab.LEVELS[level]


def test_the_arena_s_switches_are_set_as_in_any_build(seen, proves):
    proves(ROW, VERSION, "memory")
    effective = seen["three"]["sessions"][0]["effective"]
    assert (effective["enable_cpu_mem_arena"], effective["enable_mem_pattern"]) == (False, False)


def test_what_this_version_can_not_do_is_said(seen):
    because = seen["unknown"]["records"][0]["because"]
    assert because["globalThreadPool"] == "onnxruntime supports it since 1.23"
    assert because["arenaShrinkage"] == "onnxruntime supports it since 1.8"
    assert because["configEntries"] == (
        "session.intra_op.allow_spinning: onnxruntime supports it since 1.8; "
        "session.force_spinning_stop: onnxruntime supports it since 1.12"
    )


@pytest.mark.parametrize(
    ("variables", "plan", "pool", "because"),
    [
        ({env.COMPLETED: f"{env.OMP}=2"}, PLAN, 1, None),
        ({env.OMP: "2"}, PLAN, 1, "OMP_NUM_THREADS"),
        ({env.OMP: ""}, PLAN, 1, None),
        ({env.OMP: "3"}, PLAN, 2, "OMP_NUM_THREADS"),
        ({env.OMP: "3"}, PLAN + ";existing_values=override", 1, None),
    ],
)
def test_a_count_in_the_pod_spec_wins_unless_the_policy_overrides(lab, variables, plan, pool, because, proves):
    proves(ROW, VERSION, "existing values")
    found = lab.probe(RELEASE, plan + ";spinning=never", extra=variables)
    assert found["sessions"][0]["pool"] == pool
    assert found["records"][0]["because"].get("intraOp") == because


def test_a_wait_policy_in_the_pod_spec_wins_unless_the_policy_overrides(lab, proves):
    proves(ROW, VERSION, "existing values")
    active = {WAIT_POLICY: "active"}
    burnt = [
        lab.probe(RELEASE, plan, extra=active, idle_s=IDLE_S)["sessions"][0]["idle_cpu_s"]
        for plan in (PLAN + ";spinning=never", PLAN + ";spinning=never;existing_values=override")
    ]
    assert burnt[0] > BURNS_S
    assert burnt[1] < burnt[0] / 4


def test_a_narrower_container_than_planned_for_cuts_the_team(lab):
    found = lab.probe(RELEASE, "intra_op=2;omp=2;spinning=never", cpus=ort_lab.CPUS[:1])
    assert found["sessions"][0]["pool"] == 0
    assert found["records"][0]["because"]["intraOp"] == "planned 2, cut to CPU affinity of 1"


def test_what_is_not_a_plan_leaves_the_build_alone_and_is_said_in_one_line(lab):
    found = lab.probe(RELEASE, "intra_op=4096;omp=2;spinning=never", extra={env.OMP: "2"})
    assert (found["sessions"][0]["pool"], found["records"]) == (1, [])
    assert found["stderr"].startswith("raddle: onnxruntime is not configured: plan field intra_op='4096'")
    assert found["stderr"].count("\n") == 1
