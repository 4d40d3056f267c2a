"""Real onnxruntime in processes of its own: threads are counted by the kernel, CPU time is measured."""

import contextlib
import functools
import os

import pytest
from support.runtimes import ort_lab, shim_lab

from raddle import env

pytestmark = pytest.mark.runtime

CPUS = sorted(os.sched_getaffinity(0))
if len(CPUS) < 2:
    pytest.skip("needs two CPUs: a pool of one has no threads to count", allow_module_level=True)
EXCLUSIVE = f"exclusive_cpus=2;cpus={CPUS[0]},{CPUS[1]}"

ALLOW = "session.intra_op.allow_spinning"
DURATION = "session.intra_op.spin_duration_us"
AFFINITY = "session.intra_op_thread_affinities"


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with contextlib.closing(ort_lab.Lab(tmp_path_factory.mktemp("ort"))) as made:
        yield made


@pytest.fixture(scope="module")
def model(lab):
    return lab.model


@pytest.fixture(scope="module")
def mounted(lab):
    return lab.mounted


@pytest.fixture(scope="module")
def planned(lab):
    """Sessions under a plan, in this very Python: planned("intra_op=2", None, {"intra": 3})."""
    return functools.partial(lab.probe_in, shim_lab.THIS_PYTHON)


@pytest.fixture(scope="module")
def stock(lab):
    """The same without Raddle."""
    return functools.partial(lab.probe_in, shim_lab.THIS_PYTHON, None)


COUNTS = [None, {}, {"intra": 0}, {"intra": -1}, {"intra": 3}]


@pytest.fixture(scope="module", params=["respect", "override"])
def counted(request, planned):
    """(the policy's word, what became of each of COUNTS in one process)."""
    return request.param, planned(f"intra_op=2;inter_op=1;spinning=never;existing_values={request.param}", *COUNTS)[
        "sessions"
    ]


@pytest.mark.parametrize("code", COUNTS)
def test_a_count_in_the_code_wins_unless_the_policy_overrides(counted, code):
    existing, sessions = counted
    found = sessions[COUNTS.index(code)]
    wins = existing == "respect" and bool(code) and code["intra"] == 3
    assert found["effective"]["intra"] == (3 if wins else 2)
    assert found["pool"] == (2 if wins else 1)
    if code is not None:
        assert found["after"]["intra"] == code.get("intra", 0)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        # The code's entries, and what is in force then; those of one plan are sessions of one process.
        (
            "spinning=never",
            [({}, {ALLOW: "0"}), ({ALLOW: "1"}, {ALLOW: "1"}), ({DURATION: "5000"}, {DURATION: "5000"})],
        ),
        ("spinning=never;existing_values=override", [({ALLOW: "1"}, {ALLOW: "0"})]),
        ("spinning=bounded;spin_duration_us=300", [({}, {DURATION: "300"}), ({ALLOW: "0"}, {ALLOW: "0"})]),
        (
            "spinning=bounded;spin_duration_us=300;existing_values=override",
            [({ALLOW: "0"}, {ALLOW: "1", DURATION: "300"})],
        ),
        ("spinning=always", [({}, {}), ({ALLOW: "0"}, {ALLOW: "0"})]),
        ("", [({}, {})]),
    ],
)
def test_spinning_follows_the_plan_unless_the_code_sets_it(planned, plan, expected):
    found = planned(f"intra_op=2;{plan}".strip(";"), *({"entries": entries} for entries, _ in expected))
    assert [session["effective"]["entries"] for session in found["sessions"]] == [wanted for _, wanted in expected]
    if "override" not in plan:
        # Overwriting an entry makes onnxruntime log a warning: that must not become the price of every session.
        assert "already exists" not in found["stderr"]


def test_bounded_spinning_burns_less_than_the_default(planned, stock):
    bounded = planned("intra_op=2;spinning=bounded;spin_duration_us=200", {}, idle_s=0.4)["sessions"][0]["idle_cpu_s"]
    free = stock({"intra": 2}, idle_s=0.4)["sessions"][0]["idle_cpu_s"]
    assert bounded < free / 4


@pytest.mark.parametrize(
    ("plan", "code", "mode", "inter", "pool"),
    [
        ("execution_mode=sequential;inter_op=1", {}, "ORT_SEQUENTIAL", 1, 1),
        ("execution_mode=parallel;inter_op=2", {}, "ORT_PARALLEL", 2, 2),
        ("execution_mode=parallel;inter_op=2", {"inter": 3}, "ORT_PARALLEL", 3, 3),
        ("execution_mode=parallel;inter_op=2;existing_values=override", {"inter": 3}, "ORT_PARALLEL", 2, 2),
        # The code wants Parallel: it keeps it, with a bounded pool instead of the machine's.
        ("execution_mode=sequential;inter_op=1", {"parallel": True}, "ORT_PARALLEL", 2, 2),
        ("execution_mode=sequential;inter_op=1;existing_values=override", {"parallel": True}, "ORT_SEQUENTIAL", 1, 1),
    ],
)
def test_the_second_pool_exists_only_where_it_is_asked_for(planned, plan, code, mode, inter, pool):
    found = planned(f"intra_op=2;spinning=never;{plan}", code)["sessions"][0]
    assert (found["effective"]["mode"], found["effective"]["inter"], found["pool"]) == (mode, inter, pool)
    assert found["after"]["mode"] == ("ORT_PARALLEL" if code.get("parallel") else "ORT_SEQUENTIAL")
    assert found["after"]["inter"] == code.get("inter", 0)


@pytest.mark.parametrize(
    ("plan", "code", "level"),
    [
        ("", {}, "ORT_ENABLE_ALL"),
        ("graph_optimization_level=basic", {}, "ORT_ENABLE_BASIC"),
        ("graph_optimization_level=basic", {"graph": "ORT_DISABLE_ALL"}, "ORT_DISABLE_ALL"),
        ("graph_optimization_level=basic;existing_values=override", {"graph": "ORT_DISABLE_ALL"}, "ORT_ENABLE_BASIC"),
    ],
)
def test_the_graph_level_is_set_only_where_the_plan_has_one(planned, plan, code, level):
    assert planned(f"intra_op=1;{plan}".strip(";"), code)["sessions"][0]["effective"]["graph"] == level


@pytest.mark.parametrize(
    ("existing", "value", "pool"),
    [("respect", "2", 1), ("respect", "3", 2), ("respect", "", 1), ("respect", "0", 1), ("override", "3", 1)],
)
def test_a_count_that_reached_the_environment_past_the_webhook_is_respected(planned, existing, value, pool):
    found = planned(f"intra_op=2;spinning=never;existing_values={existing}", extra={"ORT_INTRA_OP_NUM_THREADS": value})[
        "sessions"
    ][0]
    assert found["pool"] == pool


def test_a_narrower_mask_than_planned_for_cuts_the_pool(planned):
    found = planned("intra_op=2;inter_op=1;spinning=never;execution_mode=sequential", cpus=CPUS[:1])
    assert found["sessions"][0]["pool"] == 0
    assert found["stderr"].endswith(
        "intra_op=1 (planned 2, cut to CPU affinity of 1), inter_op=1, spinning off (no worker threads), affinity none\n"
    )


def test_workers_stay_within_an_inherited_mask_that_stock_escapes(planned, stock):
    escaped = stock(cpus=CPUS[:1])["sessions"][0]
    held = planned("intra_op=2;min_intra_op=2;spinning=never", cpus=CPUS[:1])["sessions"][0]
    assert held["affinity"] == [str(CPUS[0])]
    # Stock pins each worker to a core of the machine, whatever the mask says.
    assert any(mask != str(CPUS[0]) for mask in escaped["affinity"])


def test_no_pinning_error_is_logged_in_a_cpuset_where_stock_logs_one(planned, stock):
    with shim_lab.one_cpu() as enter:
        assert "pthread_setaffinity_np failed" in stock(before=enter)["stderr"]
        found = planned("intra_op=2;inter_op=1;spinning=never", before=enter)
    assert found["stderr"].count("\n") == 1
    assert found["sessions"][0]["pool"] == 0


def test_a_tighter_quota_than_planned_for_cuts_the_pool(planned):
    with shim_lab.cgroup("cpu", cfs_period_us="100000", cfs_quota_us="50000") as enter:
        found = planned("intra_op=2;inter_op=1;spinning=never;execution_mode=sequential", before=enter)
    assert found["sessions"][0]["pool"] == 0
    assert "intra_op=1 (planned 2, cut to quota 0.5)" in found["stderr"]
    record = found["records"][0]
    assert record["quotaCPUs"] == 0.5
    periods, throttled, throttled_us = record["throttled"]
    assert periods >= throttled >= 0
    assert throttled_us >= 0


def test_exclusive_cpus_tie_each_worker_to_its_share(planned):
    two = ",".join(map(str, CPUS[:2])) if CPUS[1] != CPUS[0] + 1 else f"{CPUS[0]}-{CPUS[1]}"
    numa = planned(f"intra_op=2;spinning=never;affinity=numa;{EXCLUSIVE}", cpus=CPUS[:2])["sessions"][0]
    assert numa["affinity"] == [two]
    core = planned(f"intra_op=2;spinning=never;affinity=core;{EXCLUSIVE}", cpus=CPUS[:2])["sessions"][0]
    # The caller is never pinned and has the first core to itself.
    assert core["affinity"] == [str(CPUS[1])]
    assert core["effective"]["entries"][AFFINITY] == str(CPUS[1] + 1)


@pytest.mark.parametrize(
    ("plan", "session", "reason"),
    [
        ("affinity=core;exclusive_cpus=3", None, "the CPUs are not the exclusive ones that were planned"),
        ("affinity=core;exclusive_cpus=0", None, "the CPUs are not the exclusive ones that were planned"),
        (
            "affinity=core;exclusive_cpus=2;streams=2;min_intra_op=2",
            None,
            "the CPUs are not the exclusive ones that were planned",
        ),
        ("affinity=core;exclusive_cpus=2", None, "no groups for 2 threads on these CPUs"),
        (f"affinity=core;{EXCLUSIVE}", {}, "the options object is the code's own"),
    ],
)
def test_no_affinity_is_set_where_it_could_do_harm(planned, plan, session, reason):
    found = planned(f"intra_op=2;spinning=never;{plan}", session, cpus=CPUS[:2])
    assert AFFINITY not in found["sessions"][0]["effective"]["entries"]
    assert found["records"][0]["because"]["affinity"] == reason


def test_a_second_session_gets_no_core_that_the_first_one_has(planned):
    found = planned(f"intra_op=2;spinning=never;affinity=core;{EXCLUSIVE}", None, None, cpus=CPUS[:2])
    assert [AFFINITY in session["effective"]["entries"] for session in found["sessions"]] == [True, False]


def test_the_code_s_affinity_decides_the_count_that_it_was_written_for(planned):
    text = f"{CPUS[0] + 1};{CPUS[1] + 1}"
    code = {"entries": {AFFINITY: text}}
    respected = planned("intra_op=2;spinning=never", code)["sessions"][0]
    assert (respected["pool"], respected["affinity"]) == (2, [str(CPUS[0]), str(CPUS[1])])
    overridden = planned("intra_op=2;spinning=never;existing_values=override", code, cpus=CPUS[:2])["sessions"][0]
    assert overridden["pool"] == 1
    assert overridden["affinity"] not in ([str(CPUS[0])], [str(CPUS[1])])


def test_affinity_that_the_code_has_written_for_all_cores_is_as_without_raddle_under_a_plan_for_fewer(planned, stock):
    workers = stock(cpus=CPUS[:2])["sessions"][0]["pool"]
    if not workers:
        pytest.skip("the first two CPUs are one core")
    code = {"entries": {AFFINITY: ";".join([str(CPUS[1] + 1)] * workers)}}
    bare = stock(code, cpus=CPUS[:2])["sessions"][0]
    extra = {env.ORT_INTRA: "1"}
    found = planned("intra_op=1;spinning=never", code, cpus=CPUS[:2], extra=extra)["sessions"][0]
    assert (found["pool"], found["affinity"]) == (bare["pool"], bare["affinity"]) == (workers, [str(CPUS[1])] * workers)


def test_an_options_object_that_is_used_twice_gets_the_plan_twice(planned):
    found = planned("intra_op=2;spinning=never", {}, {"again": True})
    assert [session["effective"]["intra"] for session in found["sessions"]] == [2, 2]
    assert found["sessions"][1]["after"]["intra"] == 0
    assert "already exists" not in found["stderr"]


def test_what_was_done_is_recorded(planned):
    record = planned("intra_op=2;inter_op=1;spinning=never;execution_mode=sequential;affinity=none")["records"][0]
    assert record["effective"] == {
        "intraOp": 2,
        "interOp": 1,
        "executionMode": "sequential",
        "spinning": "never",
        "affinity": "none",
    }
    assert record["providers"] == ["CPUExecutionProvider"]
    assert record["plan"] == "v=1;intra_op=2;inter_op=1;spinning=never;execution_mode=sequential;affinity=none"
    assert record["workersSeen"] == 1


def test_a_model_that_is_missing_is_the_application_s_error(mounted):
    code = "import onnxruntime; onnxruntime.InferenceSession('/nowhere.onnx', enable_fallback=0)"
    extra = {**shim_lab.python_path(mounted), env.PLAN: "v=1;intra_op=2;spinning=never"}
    alone = shim_lab.python(shim_lab.THIS_PYTHON, "-c", code, env={}, check=False)
    with_shim = shim_lab.python(shim_lab.THIS_PYTHON, "-c", code, env=extra, check=False)
    assert with_shim.returncode == alone.returncode == 1
    assert with_shim.stderr.splitlines()[-1] == alone.stderr.splitlines()[-1]
    assert "raddle:" not in with_shim.stderr


EVERY_WAY = """
import os, sys, numpy as np, onnxruntime as ort
before = len(os.listdir("/proc/self/task"))
with open(sys.argv[1], "rb") as file:
    content = file.read()
session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
given = np.ones((64, 256), np.float32)
expected = session.run(None, {"input": given})[0]
binding = session.io_binding()
binding.bind_cpu_input("input", given)
binding.bind_output("y3")
session.run_with_iobinding(binding)
assert np.array_equal(binding.copy_outputs_to_cpu()[0], expected)
value = ort.OrtValue.ortvalue_from_numpy(given)
assert np.array_equal(session.run_with_ort_values(None, {"input": value})[0].numpy(), expected)
del binding, value
session.set_providers(["CPUExecutionProvider"])
assert np.array_equal(session.run(None, {"input": given})[0], expected)
again = ort.InferenceSession(sys.argv[1], session.get_session_options())
assert np.array_equal(again.run(None, {"input": given})[0], expected)
assert len(os.listdir("/proc/self/task")) == before + 2, "one worker for each of two sessions"
del session, again
assert len(os.listdir("/proc/self/task")) == before, "the pools are gone with their sessions"
"""


def test_sessions_work_in_every_way_that_they_do_without_the_shim(mounted, model):
    extra = {**shim_lab.python_path(mounted), env.PLAN: "v=1;intra_op=2;spinning=never"}
    done = shim_lab.python(shim_lab.THIS_PYTHON, "-W", "error", "-c", EVERY_WAY, str(model), env=extra, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1


NO_CALLER = """
import atexit, sys
from onnxruntime.capi import _pybind_state as native
options = native.get_default_session_options()
atexit.register(native.InferenceSession, options, sys.argv[1], True, False)
"""


def test_a_session_can_be_made_where_no_python_code_calls(mounted, model):
    extra = {**shim_lab.python_path(mounted), env.PLAN: "v=1;intra_op=2;spinning=never"}
    done = shim_lab.python(shim_lab.THIS_PYTHON, "-c", NO_CALLER, str(model), env=extra)
    (line,) = done.stderr.splitlines()
    assert line.startswith("raddle: onnxruntime")
