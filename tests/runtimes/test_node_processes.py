"""Node.js processes of every kind: clusters, worker threads, children, other hooks, other versions of Node.js."""

import pytest
from support.runtimes import door_lab, node_lab
from support.runtimes.node_lab import BEFORE_EXTRA, NEWEST, VERSIONS, application, plan, run

from runtimes import nodejs

pytestmark = pytest.mark.runtime

MODERN = "24.21.0"


# --- the budget is shared -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("workers", [2, 3])
def test_a_cluster_divides_what_its_container_has(version, workers):
    """Runnable threads of all its processes are at most the workers, or the plan's."""
    seen = run(application(version) / "cluster.cjs", {}, text=plan(), workers=workers)
    assert sum(1 + threads for threads in seen.threads) <= max(workers, 2)
    assert len(seen.lines) == 1
    assert f"intra_op=1 (planned 2, cut to CPU affinity of 2, shared by {workers} workers)" in seen.lines[0]


def test_workers_that_were_planned_are_no_surprise():
    seen = run(application(NEWEST) / "cluster.cjs", {}, text=plan(intra_op=1, workers=2, streams=2), workers=2)
    assert seen.threads == [0, 0]
    assert "intra_op=1, inter_op=1" in seen.lines[0]


@pytest.mark.parametrize("version", VERSIONS)
def test_worker_threads_divide_what_their_process_has(version):
    seen = run(application(version) / "worker.cjs", {}, text=plan(), threads=2)
    assert seen.threads == [0, 0]
    assert len(seen.lines) == 1
    assert "intra_op=1 (planned 2, cut to CPU affinity of 2, shared by 2 workers)" in seen.lines[0]


def test_as_many_worker_threads_as_there_are_planned_sessions_are_no_surprise():
    seen = run(application(NEWEST) / "worker.cjs", {}, text=plan(intra_op=4, min_intra_op=2, streams=2), threads=2)
    assert seen.threads == [1, 1]
    assert "intra_op=2 (planned 4, cut to CPU affinity of 2), inter_op=1" in seen.lines[0]


@pytest.mark.parametrize(
    ("beside", "threads"),
    [({}, 1), ({"loaded": True}, 0), ({"loaded": True, "ended": True}, 1)],
    ids=["a logger's", "another user of ONNX Runtime", "one that has ended"],
)
def test_only_living_worker_threads_that_use_onnx_runtime_share(beside, threads):
    assert run(application(NEWEST) / "aside.cjs", {}, text=plan(), **beside).threads == [threads]


# --- how it is reached ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [{"spawn": True}, {"execArgv": []}, {"execArgv": ["--no-warnings"]}], ids=str)
def test_children_are_reached_however_they_are_started(request_):
    seen = run(application(NEWEST) / "child.cjs", {}, text=plan(intra_op=3, min_intra_op=3), **request_)
    assert seen.threads == [2]


@pytest.mark.parametrize("worker", [{}, {"execArgv": []}, {"execArgv": ["--no-warnings"]}], ids=str)
def test_worker_threads_are_reached_whatever_their_arguments(worker):
    assert run(
        application(NEWEST) / "worker.cjs", {}, text=plan(intra_op=3, min_intra_op=3), worker=worker
    ).threads == [2]


def test_a_worker_thread_with_an_environment_of_its_own_is_one_of_its_process():
    seen = run(application(NEWEST) / "worker.cjs", {}, text=plan(intra_op=3, min_intra_op=3), worker={"env": {}})
    assert seen.threads == [2]


@pytest.mark.parametrize(
    "flags", [["--frozen-intrinsics"], ["--preserve-symlinks"], ["--disable-proto=throw"], ["--enable-source-maps"]]
)
def test_flags_of_nodejs_change_nothing(flags):
    seen = run(application(NEWEST) / "app.cjs", {}, text=plan(intra_op=3, min_intra_op=3), arguments=flags)
    assert seen.threads == [2]


@pytest.mark.parametrize("version", [BEFORE_EXTRA, NEWEST])
def test_a_bundle_that_renamed_the_addon_is_reached(tmp_path, version):
    node_lab.bundle(version, tmp_path)
    seen = run(application(version) / "bundled.cjs", {}, text=plan(intra_op=3, min_intra_op=3), bundle=str(tmp_path))
    assert seen.threads[0] in {2, 3}  # with the environment's own thread in newer versions
    assert f"onnxruntime {version}: intra_op=3, inter_op=1, spinning off" in seen.lines[0]


# --- beside others --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["app.cjs", "app.mjs", "worker.cjs"])
def test_other_hooks_work(shape):
    folder = application(NEWEST)
    options = {"NODE_OPTIONS": f"--require {folder / 'wrapping.cjs'}"}
    seen = run(folder / shape, {}, text=plan(intra_op=3, min_intra_op=3), env=options)
    assert seen.threads == [2]
    assert {"wrapped .node", "wrapped dlopen"} < set(seen.stderr.splitlines())


def test_opentelemetry_instruments_the_same_module():
    folder = application(NEWEST, node_lab.OPENTELEMETRY)
    options = {"NODE_OPTIONS": f"--require {folder / 'otel.cjs'}"}
    seen = run(folder / "app.cjs", {}, text=plan(intra_op=3, min_intra_op=3), env=options)
    assert seen.threads == [2]
    assert "instrumented create" in seen.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_behind_the_door_nothing_of_the_command_or_the_environment_asks_for_it(version):
    """Mounted as a pod has it; NODE_OPTIONS and LD_PRELOAD are the program's own."""
    seen = run(
        application(version) / "app.cjs",
        {},
        env={"RADDLE_PLAN": plan(intra_op=3, min_intra_op=3)},
        prefix=door_lab.prefix(),
    )
    assert seen.threads == [2]
    assert len(seen.lines) == 1


# --- other versions of Node.js --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", node_lab.NODE_VERSIONS)
@pytest.mark.parametrize("shape", ["app.cjs", "app.mjs", "worker.cjs"])
def test_every_nodejs_that_the_binding_loads_in_is_reached(version, shape):
    executable = nodejs.other_node(version)
    if version.startswith("14.") and shape == "app.mjs":
        pytest.skip("the program awaits at its top level, which Node.js can since 14.8 behind a flag")
    seen = run(application(NEWEST) / shape, {}, text=plan(intra_op=3, min_intra_op=3), executable=executable)
    assert seen.threads == [2]
    assert len(seen.lines) == 1


def test_a_nodejs_too_old_for_the_binding_runs_its_program():
    old = nodejs.other_node("8.17.0")
    seen = run(application(NEWEST) / "argument.cjs", {}, text=plan(), executable=old)
    assert seen.sessions == [{"ran": True}]
    assert seen.stderr == ""


@pytest.mark.parametrize("readable", ["*", "programs"])
def test_nodejs_with_permissions_has_the_plan_whatever_it_may_read(readable):
    """Its permissions are JavaScript's: the library is in the process before there is any."""
    executable = nodejs.other_node(MODERN)
    folder = application(NEWEST)
    paths = ["*"] if readable == "*" else [nodejs.HOME, folder]
    arguments = ["--permission", "--allow-addons", *(f"--allow-fs-read={path}" for path in paths)]
    seen = run(folder / "quiet.cjs", text=plan(intra_op=2), executable=executable, arguments=arguments)
    assert seen.sessions == [{"ran": True}]
    (line,) = seen.lines
    assert "intra_op=2, inter_op=1, spinning off" in line
