"""Affinity in every release: the kernel says where each pool thread may run, and ONNX Runtime logs no error."""

import json
import os
import subprocess

import pytest
from support.runtimes import ort_lab, shim_lab
from support.runtimes.ort_lab import CPUS, ROW, version

import machines
from raddle import env
from raddle.cpus import cpuset, machine_part
from raddle.machine import sysfs
from runtimes import pythons

pytestmark = ort_lab.MARKS

AFFINITY = "session.intra_op_thread_affinities"
TWO = CPUS[:2]
BOTH = cpuset.format_list(cpuset.of(TWO))
# A set of two CPUs, such as the kubelet's static policy gives to a container of two.
EXCLUSIVE = f"import os; os.sched_setaffinity(0, {TWO})"
PLAN = f"intra_op=2;min_intra_op=2;inter_op=1;spinning=never;exclusive_cpus=2;cpus={BOTH}"
# ONNX Runtime counts from 1: a worker for each CPU.
OWN = {"entries": {AFFINITY: ";".join(str(cpu + 1) for cpu in TWO)}}


@pytest.fixture(scope="module")
def seen(release, lab):
    return lab.probes(
        release,
        {
            "core": (PLAN + ";affinity=core", [None, None, {}, OWN]),
            "numa": (PLAN + ";affinity=numa", [None]),
            "override": (PLAN + ";affinity=core;existing_values=override", [OWN]),
        },
        first=EXCLUSIVE,
    )


def test_each_worker_has_a_core_and_no_other_session_has_it_too(release, seen, proves):
    proves(ROW, version(release), "affinity")
    first, second, own_options, _ = seen["core"]["sessions"]
    # The caller is never pinned and has the first core to itself.
    assert first["affinity"] == [str(TWO[1])]
    assert second["affinity"] == own_options["affinity"] == [BOTH]
    reasons = [record["because"].get("affinity") for record in seen["core"]["records"]]
    assert reasons[:3] == [
        None,
        "the workers of another session are pinned to these cores",
        "the options object is the code's own",
    ]


def test_workers_of_one_numa_node_may_use_all_of_its_cpus_that_are_the_container_s(release, seen, proves):
    proves(ROW, version(release), "affinity")
    assert seen["numa"]["sessions"][0]["affinity"] == [BOTH]
    assert seen["numa"]["records"][0]["effective"]["affinityGroups"] == cpuset.format_list(
        cpuset.of([cpu + 1 for cpu in TWO])
    )


def test_the_code_s_own_string_is_respected_with_the_count_that_it_was_written_for(release, seen, proves):
    proves(ROW, version(release), "affinity")
    own, record = seen["core"]["sessions"][3], seen["core"]["records"][3]
    assert own["affinity"] == [str(cpu) for cpu in TWO]
    assert (record["effective"]["affinity"], record["effective"]["intraOp"]) == ("code", 3)


def test_the_code_s_own_string_is_dropped_where_the_policy_changes_the_count(release, seen):
    found = seen["override"]["sessions"][0]
    assert found["pool"] == 1
    assert found["affinity"] in ([str(TWO[1])], [BOTH])
    assert found["affinity"] != [str(TWO[0])]


def test_onnxruntime_logs_no_error(seen):
    # A session whose code asks for more threads than it may use has a line of its own.
    assert [seen[name]["stderr"].count("\n") for name in ("core", "numa")] == [2, 1]
    assert "set in the code, above CPU affinity of 2" in seen["core"]["stderr"].splitlines()[1]
    # It always warns that an entry of the code's is overwritten.
    assert "pthread_setaffinity_np failed" not in seen["override"]["stderr"]


WORKER = """
import json, pathlib, sys
import onnxruntime as ort
print("imported", flush=True)
sys.stdin.readline()
tasks = pathlib.Path("/proc/self/task")
before = set(tasks.iterdir())
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
pool = set(tasks.iterdir()) - before
session.run(None, {"input": __import__("numpy").zeros((64, 256), "float32")})
made = sys.modules["raddle.report.record"].sessions[0]
print(json.dumps([len(pool), made["workersSeen"], made["effective"].get("affinity"), made["because"].get("affinity")]))
"""


def test_two_workers_of_one_server_are_never_pinned(lab):
    """Both are there before either makes its session, as gunicorn's workers are; they are siblings in one cpuset."""
    plan = f"v=1;{PLAN};affinity=core"
    settings = shim_lab.environment({**shim_lab.python_path(lab.mounted), env.PLAN: plan})
    command = [str(pythons.release("ort-1.31.1")), "-c", EXCLUSIVE + WORKER, str(lab.model)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    workers = [subprocess.Popen(command, env=settings, text=True, **pipes) for _ in range(2)]
    try:
        for worker in workers:
            assert worker.stdout.readline() == "imported\n"
        answers = []
        for worker in workers:
            worker.stdin.write("go\n")
            worker.stdin.flush()
            answers.append(json.loads(worker.stdout.readline()))
    finally:
        for worker in workers:
            worker.communicate(timeout=60)
    # Neither has a core to itself. (min=2 keeps the pool, which would else be cut to the share of one CPU.)
    assert answers == [[1, 2, "none", "the CPUs are not the exclusive ones that were planned"]] * 2


def test_a_cpu_that_is_not_there_in_the_code_s_own_string_is_the_application_s_business(lab):
    own = {"entries": {AFFINITY: "999"}, "intra": 2}
    bare = lab.probe("ort-1.31.1", None, own)
    found = lab.probe("ort-1.31.1", PLAN, own)
    assert [session["pool"] for session in found["sessions"]] == [session["pool"] for session in bare["sessions"]]
    assert found["stderr"].count("pthread_setaffinity_np failed") == bare["stderr"].count(
        "pthread_setaffinity_np failed"
    )


# --- exclusive CPUs of a machine that is built otherwise ------------------------------------------------------------


@pytest.fixture
def on(lab, tmp_path):
    """Runs the probe under a plan that tells of the first two CPUs as those of a machine of this shape."""
    if TWO != [0, 1]:
        pytest.skip("CPUs 0 and 1 have to be there")

    def probe(plan, *, before=EXCLUSIVE, files=None, **shape):
        files = {**machines.synthesize(**shape), **(files or {})}
        machine = sysfs.read_machine(str(machines.write(files, tmp_path)))
        told = ";".join(f"{key}={text}" for key, text in next(machine_part.fields_of(machine, gpu=False)).items())
        return lab.probe("ort-1.31.1", f"spinning=never;{plan};{told}", None, first=before)

    return probe


ONE_CORE = {"sockets": 1, "numa_nodes": 1, "l3_domains": 1, "cores": 1, "threads": 2}
TWO_NUMA_NODES = {"sockets": 2, "numa_nodes": 2, "l3_domains": 2, "cores": 2, "threads": 1}


def test_two_threads_of_one_core_hold_one_thread_of_a_pool(on):
    found = on("inter_op=1;exclusive_cpus=2;intra_op=2;affinity=numa", **ONE_CORE)
    assert found["sessions"][0]["pool"] == 0
    assert found["records"][0]["because"]["intraOp"] == "planned 2, cut to 1 physical core"
    assert "intra_op=1 (planned 2, cut to 1 physical core)" in found["stderr"]


def test_two_threads_of_one_core_hold_two_where_the_policy_takes_all(on):
    found = on("inter_op=1;exclusive_cpus=2;intra_op=2;affinity=core;smt=1", **ONE_CORE)
    assert found["sessions"][0]["affinity"] == ["1"]


def test_cpus_of_two_numa_nodes_hold_a_pool_that_is_tied_to_both(on):
    found = on("inter_op=1;exclusive_cpus=2;intra_op=2;affinity=numa", **TWO_NUMA_NODES)
    # The caller has the first node; the worker may use all that the container has on the second.
    assert found["sessions"][0]["affinity"] == ["1"]
    assert found["records"][0]["because"].get("intraOp") is None


def test_cpus_of_two_numa_nodes_are_cut_to_one_where_the_policy_wants_no_more(on):
    found = on("inter_op=1;exclusive_cpus=2;intra_op=2;affinity=numa;numa=single", **TWO_NUMA_NODES)
    assert found["sessions"][0]["pool"] == 0
    assert found["records"][0]["because"]["intraOp"] == "planned 2, cut to 1 physical core on one NUMA node"


BOUND = f"import os; os.sched_setaffinity(0, {CPUS[:1]})"
# No count of this machine's.
OTHER = os.cpu_count() + 1


def test_a_count_that_is_only_the_machine_s_is_the_plan_s_and_another_one_above_the_limit_is_said(lab):
    found = lab.probe(
        "ort-1.31.1",
        "intra_op=2;inter_op=1;spinning=never",
        None,
        {"intra": os.cpu_count()},
        {"intra": OTHER},
        first=BOUND,
    )
    reasons = [record["because"].get("intraOp") for record in found["records"]]
    assert [session["pool"] for session in found["sessions"]] == [0, 0, OTHER - 1]
    assert reasons[1:] == [f"{os.cpu_count()} in the code is this machine's count", "set in the code"]
    assert f"intra_op={OTHER} (set in the code, above CPU affinity of 1)" in found["stderr"].splitlines()[1]


@pytest.mark.parametrize(("bind", "count"), [("false", 1), ("close", 2)])
def test_a_pool_has_the_process_s_cpus_where_openmp_has_bound_the_thread_that_makes_it(lab, bind, count):
    found = lab.probe(
        "ort-1.31.1",
        "intra_op=2;inter_op=1;spinning=never",
        None,
        {"intra": OTHER},
        first=BOUND,
        extra={"OMP_PROC_BIND": bind},
    )
    every = cpuset.format_list(cpuset.of(CPUS))
    assert [session["affinity"] for session in found["sessions"]] == [
        [every] * (count - 1),
        [str(CPUS[0])] * (OTHER - 1),
    ]


# --- the thread that makes a session --------------------------------------------------------------------------------

# More CPUs than there may be here: Python is told of four, three of them on one NUMA node, and the kernel has two.
THREE_TO_ONE = {"sockets": 2, "numa_nodes": 2, "l3_domains": 2, "cores": 6, "threads": 1}
THREE_NEAR = {"sys/devices/system/node/node0/cpulist": "0,4-5", "sys/devices/system/node/node1/cpulist": "1-3"}
MOVES = """
import atexit, os, sys
tell, moves = os.sched_setaffinity, []
def note(who, cpus):
    tell(who, cpus)
    lines = open("/proc/thread-self/status").read().splitlines()
    moves.extend(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list"))
tell(0, [0, 1])
os.sched_setaffinity, os.sched_getaffinity = note, lambda who: {0, 1, 2, 3}
atexit.register(lambda: print("moves", *moves, file=sys.stderr))
"""


@pytest.mark.parametrize(
    ("plan", "made"),
    [
        ("intra_op=3;inter_op=1;affinity=numa", ["anywhere", "1", "anywhere"] * 2),
        # A worker between operators would keep what the thread has that starts it: only the weights are near.
        ("intra_op=3;inter_op=2;execution_mode=parallel;affinity=numa", ["anywhere", "1", "anywhere"]),
        ("intra_op=4;inter_op=1;affinity=numa;numa=any", []),
        ("intra_op=3;inter_op=1;affinity=none", []),
    ],
)
def test_the_thread_that_makes_a_session_is_near_the_pool_meanwhile_and_everywhere_again(on, plan, made):
    found = on(f"exclusive_cpus=4;{plan}", before=MOVES, files=THREE_NEAR, **THREE_TO_ONE)
    moves = next(line for line in found["stderr"].splitlines() if line.startswith("moves")).split()[1:]
    anywhere = cpuset.format_list(cpuset.of(CPUS))
    assert moves == [anywhere if move == "anywhere" else move for move in made]
    workers = found["sessions"][0]["affinity"]
    assert len(workers) == found["sessions"][0]["pool"]
    if made:
        assert set(workers[:2]) == {"1"}
        assert set(workers[2:]) <= {anywhere}
