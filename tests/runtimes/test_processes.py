"""Several processes and several callers share one container: together they run no more threads than the plan says.

Real servers with exactly the environment that the webhook's decision gives their pod; see process_lab.
"""

import os
import socket

import pytest
from support.runtimes import door_lab, process_lab

from cluster.waiting import wait
from raddle.planning.planner import Budget, plan
from raddle.planning.policy import Policy
from raddle_operator.local import quota

pytestmark = pytest.mark.runtime

CPUS = 2
# What would have a loader name the shim: none of them is set.
LOADERS = {"PYTHONPATH", "PYTHONUSERBASE", "LD_PRELOAD", "NODE_OPTIONS"}
BOTH = ["taskset", "-c", "0,1"]


@pytest.fixture(scope="module")
def python():
    return process_lab.interpreter()


def gunicorn(python, *arguments):
    return [str(python.with_name("gunicorn")), "--bind", "127.0.0.1:{port}", *arguments, "serving:wsgi"]


def uvicorn(python, *arguments):
    return [str(python.with_name("uvicorn")), "--port", "{port}", "--log-level", "warning", *arguments, "serving:asgi"]


# A gunicorn configuration file. A process counts the others that are there when it makes its first session: here none
# serves before all have loaded ONNX Runtime, however busy the machine is.
WORKERS_AT_ONCE = """
import pathlib, time
workers = {workers}
def post_worker_init(worker):
    pathlib.Path({folder!r}, "ready-%d" % worker.pid).touch()
    while len(list(pathlib.Path({folder!r}).glob("ready-*"))) < workers:
        time.sleep(0.01)
"""

SERVERS = {
    "gunicorn sync": (gunicorn, ["--workers", "4"]),
    "gunicorn gthread": (gunicorn, ["-w4", "--threads", "2"]),
    "gunicorn preload": (gunicorn, ["-w", "4", "--preload"]),
    "uvicorn": (uvicorn, ["--workers", "4"]),
}


@pytest.mark.parametrize("name", SERVERS)
def test_the_workers_that_a_servers_command_asks_for_divide_the_limit(name, python, model, tmp_path):
    make, arguments = SERVERS[name]
    command = make(python, *arguments)
    before = door_lab.prefix()
    env = process_lab.container_env(command, None, limit_cpus=2)
    assert env.keys() & LOADERS == set()
    assert "workers=4;" in env["RADDLE_PLAN"]
    assert "ORT_INTRA_OP_NUM_THREADS" not in env
    with process_lab.server([*before, *command], {**env, "MODEL": str(model)}, tmp_path) as (port, errors):
        said = process_lab.workers(port, 4)
        assert "raddle: onnxruntime 1.31.1: intra_op=1" in errors.read_text()
    assert sum(worker["pool"] for worker in said.values()) == max(4, CPUS)
    assert all(worker["madeBy"] == pid and worker["finite"] for pid, worker in said.items())


def test_workers_that_no_command_tells_of_are_counted_in_the_container(python, mounted, model, tmp_path):
    # The number is in a file of the image, which the webhook can't see.
    settings = tmp_path / "settings.py"
    settings.write_text(WORKERS_AT_ONCE.format(workers=2, folder=str(tmp_path)))
    command = gunicorn(python, "--config", str(settings))
    env = process_lab.container_env(command, mounted, limit_cpus=2)
    assert "workers=1;" in env["RADDLE_PLAN"]
    with process_lab.server([*BOTH, *command], {**env, "MODEL": str(model)}, tmp_path) as (port, errors):
        said = process_lab.workers(port, 2)
        assert "intra_op=1 (planned 2, cut to" in errors.read_text()
    assert sum(worker["pool"] for worker in said.values()) == max(2, CPUS)


def test_a_session_made_before_the_fork_still_serves_where_it_has_one_thread(python, mounted, model, tmp_path):
    command = gunicorn(python, "--workers", "2", "--preload")
    env = {**process_lab.container_env(command, mounted, limit_cpus=2), "MODEL": str(model), "PRELOAD": "1"}
    with process_lab.server(command, env, tmp_path) as (port, _):
        said = process_lab.workers(port, 2)
    assert all(worker["madeBy"] != pid and worker["pool"] == 1 and worker["finite"] for pid, worker in said.items())


def test_a_pool_made_before_the_fork_is_warned_about(python, mounted, model, tmp_path):
    command = gunicorn(python, "--workers", "2", "--preload")
    policy = {"threads": {"intraOp": 2}}
    env = {
        **process_lab.container_env(command, mounted, limit_cpus=2, policy=policy),
        "MODEL": str(model),
        "PRELOAD": "1",
    }
    with (
        process_lab.server(command, env, tmp_path) as (port, errors),
        socket.create_connection(("127.0.0.1", port)) as asking,
    ):
        assert "was forked" not in errors.read_text()
        # Nobody waits for the answer: a run in the child may wait for threads that are not there.
        asking.sendall(b"GET / HTTP/1.0\r\n\r\n")
        wait(lambda: "was forked after 1 onnxruntime session(s)" in errors.read_text())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_processes_of_a_multiprocessing_pool_count_each_other(method, python, mounted, model):
    command = [str(python), "pool.py", method, "4"]
    env = {**process_lab.container_env(command, mounted, limit_cpus=2), "MODEL": str(model)}
    said, _ = process_lab.program("pool.py", method, "4", env=env, python=python)
    assert [worker["pool"] for worker in said] == [1] * 4


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_that_serves_is_not_cut_for_others_of_its_pool_that_never_load_a_runtime(
    method, python, mounted, model
):
    command = [str(python), "helpers.py", method]
    env = process_lab.container_env(command, mounted, limit_cpus=2)
    said, stderr = process_lab.program(
        "helpers.py", method, env={**env, "MODEL": str(model)}, python=python, prefix=BOTH
    )
    assert said["pool"] == CPUS
    # The helpers have lower numbers, and will never say a word.
    assert "raddle: onnxruntime 1.31.1: intra_op=2," in stderr


def test_the_workers_of_a_parent_with_many_threads_count_each_other(python, mounted, model):
    env = process_lab.container_env([str(python), "threads.py", "80"], mounted, limit_cpus=2)
    said, stderr = process_lab.program("threads.py", "80", env={**env, "MODEL": str(model)}, python=python, prefix=BOTH)
    assert said == [1, 1]
    assert "shared by 2 workers" in stderr


def test_an_entrypoints_own_single_thread_is_not_beaten(python):
    report = "import numpy, json, threadpoolctl; print(json.dumps([p['num_threads'] for p in threadpoolctl.threadpool_info()]))"
    command = ["sh", "-c", f'export OMP_NUM_THREADS=1; exec {python} -c "{report}"']
    env = process_lab.container_env(command, None, limit_cpus=2)
    before = door_lab.prefix()
    assert process_lab.run([*before, *BOTH, *command], env).stdout.strip() == "[1]"
    assert process_lab.run([*before, *BOTH, str(python), "-c", report], env).stdout.strip() == f"[{CPUS}]"


TORCHSERVE = """\
inference_address=http://127.0.0.1:{port}
management_address=http://127.0.0.1:{management}
metrics_address=http://127.0.0.1:{metrics}
enable_envvars_config=true
disable_system_metrics=true
model_store={folder}
load_models=m.mar
"""


def test_torchserves_workers_divide_the_limit(tmp_path):
    before = door_lab.prefix()
    bin_folder = process_lab.torchserve()
    archiver = [str(bin_folder / "torch-model-archiver"), "--model-name", "m", "--version", "1"]
    # It takes a folder of the model's name where temporary files are, and fails where somebody has one.
    process_lab.run(
        [*archiver, "--handler", str(process_lab.PROGRAMS / "handler.py"), "--export-path", str(tmp_path)],
        {"TMPDIR": str(tmp_path)},
    )
    port, management, metrics = process_lab.free_ports(3)
    config = tmp_path / "config.properties"
    config.write_text(TORCHSERVE.format(port=port, management=management, metrics=metrics, folder=tmp_path))
    command = [str(bin_folder / "torchserve"), "--start", "--foreground", "--ncs", "--disable-token-auth"]
    command += ["--ts-config", str(config)]
    env = process_lab.container_env(command, None, limit_cpus=6, env={"TS_DEFAULT_WORKERS_PER_MODEL": "2"})
    assert env.keys() & LOADERS == set()
    assert "omp=3;" in env["RADDLE_PLAN"]
    variables = {**env, "PATH": f"{bin_folder}:{os.environ['PATH']}", "LOG_LOCATION": str(tmp_path)}
    variables["METRICS_LOCATION"] = str(tmp_path)
    with process_lab.server([*before, *BOTH, *command], variables, tmp_path, port=port):
        said = process_lab.workers(port, 2, "/predictions/m")
    assert all(worker["finite"] and worker["interOp"] == 1 for worker in said.values())
    # The limit has room for three threads each; here are two CPUs for both.
    assert sum(worker["pool"] for worker in said.values()) == max(2, CPUS)


# --- callers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("callers", [1, 4, 8])
def test_callers_of_one_session_never_run_more_threads_than_planned(callers, python, mounted, model):
    policy = {"budget": {"concurrentRuns": callers}}
    env = process_lab.container_env([str(python)], mounted, limit_cpus=2, policy=policy)
    said, _ = process_lab.program(
        "callers.py", str(callers), "0.7", "0", "0", env={**env, "MODEL": str(model)}, python=python, prefix=BOTH
    )
    planned = plan(None, Budget(quota_cpus=2.0), Policy(concurrent_runs=callers)).peak_runnable["onnxruntime"]
    assert callers <= said["busyThreads"] <= planned
    # The main thread waits, and the pool is the plan's.
    assert said["pool"] == CPUS


def limited(python, env, model, *arguments):
    """The program under a real quota of one CPU: what it says, its share of throttled periods, its CPU time per run."""
    reason = quota.available()
    if reason:
        pytest.skip(reason)
    with quota.limited(1.0) as group:
        prefix = group.command([])
        said, _ = process_lab.program(
            "callers.py", *arguments, env={**env, "MODEL": str(model)}, python=python, prefix=prefix
        )
        usage = group.usage()
    return said, usage.throttled_periods / max(1, usage.periods), usage.cpu_s / said["runs"]


@pytest.mark.parametrize("callers", ["1", "4"])
def test_callers_at_a_limit_of_one_cpu_are_throttled_less_than_stock(callers, python, mounted, model):
    env = process_lab.container_env(
        [str(python)], mounted, limit_cpus=1, policy={"budget": {"concurrentRuns": int(callers)}}
    )
    # Paused between runs, so that a container without useless work fits its limit.
    load = (callers, "1.5", "20", "0")
    _, stock, stock_cpu_s = limited(python, {}, model, *load)
    _, planned, planned_cpu_s = limited(python, env, model, *load)
    assert planned < stock
    assert planned_cpu_s < stock_cpu_s


def test_numpys_pool_does_not_undo_the_plan_beside_a_session(python, mounted, model):
    env = process_lab.container_env([str(python)], mounted, limit_cpus=1)
    env["RADDLE_COMPLETED"] = "OMP_NUM_THREADS=1"
    # OpenBLAS's own: both runs are to differ in the number of threads only.
    env["OPENBLAS_THREAD_TIMEOUT"] = "26"
    # A machine with more CPUs would give numpy as many threads; here they are asked for.
    left_alone = {name: value for name, value in env.items() if name != "RADDLE_COMPLETED"} | {
        "OPENBLAS_NUM_THREADS": "8"
    }
    load = ("1", "1.5", "20", "256")
    _, spinning, spinning_cpu_s = limited(python, left_alone, model, *load)
    _, planned, planned_cpu_s = limited(python, env, model, *load)
    assert planned < spinning
    assert planned_cpu_s < spinning_cpu_s
