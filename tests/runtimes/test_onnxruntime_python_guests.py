"""Applications that do with ONNX Runtime's process-wide things what a plan does too, and input that is not a plan."""

import json

import pytest
from support.runtimes import ort_lab, shim_lab

from raddle import env
from runtimes import pythons

pytestmark = ort_lab.MARKS

NEWEST, OLD = "ort-1.31.1", "ort-1.20.1"
GLOBAL = "intra_op=2;min_intra_op=2;inter_op=1;spinning=always;global_thread_pool=1"
BY_THE_APPLICATION = "the application has made its own"
# Options that the application itself puts into its own global pool.
GUEST = {"use_per_session_threads": False}


def pools(found):
    return [session["pool"] for session in found["sessions"]]


@pytest.mark.parametrize(
    ("existing", "asked", "pool"),
    [("respect", [3, 1], 2), ("respect", [0, 0], 1), ("override", [3, 1], 1), ("override", [0, 0], 1)],
)
def test_the_application_s_own_global_pool_gets_the_counts_that_it_leaves_open(lab, existing, asked, pool):
    sessions = [{**GUEST, "native_pool": asked}, GUEST]
    found = lab.probe(NEWEST, f"{GLOBAL};existing_values={existing}", *sessions)
    assert pools(found) == [pool, 0]
    assert found["records"][0]["because"]["intraOp"] == "the process's global thread pool"


def test_an_application_that_comes_with_a_global_pool_too_late_goes_on_with_the_plan_s(lab):
    found = lab.probe(NEWEST, GLOBAL, None, {**GUEST, "native_pool": [3, 1]})
    assert pools(found) == [1, 0]
    assert found["stderr"].count("\n") == 2
    assert "set_global_thread_pool_sizes(3, 1) comes too late" in found["stderr"]


def test_a_count_in_the_pod_spec_keeps_sessions_in_pools_of_their_own(lab):
    found = lab.probe(NEWEST, GLOBAL, None, {}, extra={env.ORT_INTRA: "3"})
    assert pools(found) == [2, 2]
    assert found["records"][0]["because"]["globalThreadPool"] == "set in the environment"


@pytest.mark.parametrize("release", [OLD, NEWEST])
def test_an_application_s_own_shared_arena_stays_its_own(lab, release):
    found = lab.probe(release, "intra_op=1;shared_allocator=1", {"native_arena": True}, None)
    assert [record["because"]["sharedAllocator"] for record in found["records"]] == [BY_THE_APPLICATION] * 2
    assert "session.use_env_allocators" not in found["sessions"][0]["effective"]["entries"]


@pytest.mark.parametrize("release", [OLD, NEWEST])
def test_an_application_that_registers_an_arena_after_the_plan_s_goes_on(lab, release):
    found = lab.probe(release, "intra_op=1;shared_allocator=1", None, {"native_arena": True})
    assert [record["effective"]["sharedAllocator"] for record in found["records"]] == [True, True]


def test_no_shared_arena_and_no_shrinking_where_the_code_has_switched_its_arena_off(lab):
    record = lab.probe(
        NEWEST, "intra_op=1;cpu_mem_arena=1;shared_allocator=1;arena_shrinkage=1", {"enable_cpu_mem_arena": False}
    )["records"][0]
    assert record["effective"]["cpuMemArena"] is record["effective"]["arenaShrinkage"] is False
    assert record["because"] == {
        "spinning": "no worker threads",
        "cpuMemArena": "set in the code",
        "sharedAllocator": "the session has no arena",
        "arenaShrinkage": "the session has no arena",
    }


def test_run_options_of_the_application_keep_their_own_wish(lab):
    key = "memory.enable_memory_arena_shrinkage"
    own = {"run_options": {key: ""}}
    assert lab.probe(NEWEST, "intra_op=1;arena_shrinkage=1", own)["sessions"][0]["run_entry"] == ""


def test_every_config_entry_reaches_the_session(lab):
    entries = {
        "session.force_spinning_stop": "1",
        "session.dynamic_block_base": "4",
        "session.set_denormal_as_zero": "1",
        "session.use_device_allocator_for_initializers": "1",
        "session.disable_prepacking": "1",
        "session.intra_op.allow_spinning": "0",
        "session.intra_op.spin_duration_us": "500",
        "session.intra_op.spin_backoff_max": "2",
    }
    plan = "intra_op=2;min_intra_op=2;spinning=always;" + ";".join(f"{key}={value}" for key, value in entries.items())
    own = {"entries": {"session.dynamic_block_base": "2"}}
    found = lab.probe(NEWEST, plan, None, own)
    assert found["sessions"][0]["effective"]["entries"] == entries
    assert found["sessions"][1]["effective"]["entries"] == {**entries, **own["entries"]}
    first, second = found["records"]
    assert (first["effective"]["configEntries"], first["effective"]["spinning"]) == (entries, "never")
    assert second["because"]["configEntries"] == "session.dynamic_block_base: set in the code"


ASYNC = """
import gc, json, sys, threading, numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
answers = []
def answered(results, mine, problem):
    answers.append([mine["n"], [list(result.shape) for result in results], bool(problem)])
    mine["done"].set()
def ask(n, rows):
    mine = {"n": n, "done": threading.Event()}
    session.run_async(None, {"input": np.zeros((rows, 256), np.float32)}, answered, mine)
    return mine["done"]
try:
    for done in [ask(n, 64) for n in range(3)] + [ask(3, 1)]:
        assert done.wait(60)
except Exception as error:
    answers.append(str(error))
del session
gc.collect()
print(json.dumps(answers))
"""


@pytest.mark.parametrize("release", ["ort-1.16.3", "ort-1.19.2-py3.8", NEWEST])
def test_asynchronous_runs_work_although_the_plan_leaves_a_session_one_thread(lab, release):
    """ONNX Runtime refuses them without a worker, and the application's machine has always had one."""

    def answers(plan, count):
        extra = {**shim_lab.python_path(lab.mounted), env.PLAN: plan}
        done = shim_lab.python(pythons.release(release), "-c", ASYNC, str(lab.model), str(count), env=extra)
        return json.loads(done.stdout)

    expected = answers("", 2)
    # The last has an input of the wrong shape.
    assert expected == [*([n, [[64, 256]], False] for n in range(3)), [3, [], True]]
    assert answers("v=1;intra_op=1", 0) == answers("v=1;intra_op=1;arena_shrinkage=1;observe=runs", -1) == expected
    # What the code itself asks for fails as it always did.
    assert "must have at least one thread for RunAsync" in answers("v=1;intra_op=1", 1)[0]


DROPPED = """
import sys
import onnxruntime
dropped = lambda name: name.startswith("onnxruntime") and not name.endswith("_pybind11_state")
for name in filter(dropped, list(sys.modules)):
    del sys.modules[name]
"""


@pytest.mark.parametrize("release", ["ort-1.16.3", "ort-1.19.2-py3.8", NEWEST])
def test_a_module_that_is_dropped_and_imported_again_has_its_sessions_planned_once(lab, release):
    plan = "intra_op=2;min_intra_op=2;inter_op=1;spinning=never"
    once, again = lab.probe(release, plan, {}), lab.probe(release, plan, {}, {"again": True}, first=DROPPED)
    assert pools(again) == [1, 1]
    assert [record["because"] for record in again["records"]] == [once["records"][0]["because"]] * 2
    assert again["stderr"] == once["stderr"]


def test_a_pool_that_was_made_before_a_fork_is_warned_about(lab):
    program = (
        "import os, sys, numpy, onnxruntime as ort\n"
        "def use(): ort.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])"
        ".run(None, {'input': numpy.zeros((64, 256), 'float32')})\n"
        "use()\n"
        "child = os.fork()\n"
        "if child == 0:\n    use()\n    os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    settings = {**shim_lab.python_path(lab.mounted), env.PLAN: "v=1;" + GLOBAL}
    done = shim_lab.python(pythons.release(NEWEST), "-c", program, str(lab.model), env=settings)
    assert "was forked after onnxruntime's global thread pool had been created" in done.stderr


@pytest.fixture(scope="module")
def bare_pools(lab):
    return pools(lab.probe(NEWEST, None, {"intra": 3}, None))


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ("v=1;intra_op=4096", "plan field intra_op='4096' must be an integer from 1 to 1024"),
        ("v=1;intra_op=0", "plan field intra_op='0' must be an integer from 1 to 1024"),
        ("v=1;intra_op=two", "plan field intra_op='two' must be an integer from 1 to 1024"),
        ("v=2;intra_op=2", "plan version is '2', this shim reads version 1"),
        ("v=1;intra", "plan part 'intra' is not key=value"),
        ('{"intra": 2}', "plan part '{\"intra\": 2}' is not key=value"),
        ("v=1;cuda.gpu_mem_limit=all", "plan field cuda.gpu_mem_limit='all' must be an integer from 0 to "),
        ("v=1;" + "x=1;" * 5000, "characters long, at most 4096 are allowed"),
    ],
)
def test_what_is_not_a_plan_leaves_the_application_alone_and_says_so_in_one_line(lab, bare_pools, plan, why):
    found = lab.probe(NEWEST, "", {"intra": 3}, None, extra={env.PLAN: plan})
    assert pools(found) == bare_pools
    assert found["records"] == []
    assert found["stderr"].startswith("raddle: onnxruntime is not configured: plan ")
    assert why in found["stderr"]
    assert found["stderr"].count("\n") == 1


def test_a_plan_of_a_megabyte_leaves_the_application_alone(lab):
    # No environment can hold one from the start.
    grown = f"import os; os.environ[{env.PLAN!r}] = 'v=1;intra_op=2;' + 'x' * 2**20"
    found = lab.probe(NEWEST, "intra_op=2;min_intra_op=2", {"intra": 3}, first=grown)
    assert (pools(found), found["records"]) == ([2], [])
    assert "plan is 1048591 characters long" in found["stderr"]
